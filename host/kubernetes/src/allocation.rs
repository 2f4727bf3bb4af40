//! A device that a container has: how long its instance lives, and whether the instance is of use to its VM.

use std::time::{Duration, Instant};

use crate::instance::Answer;
use crate::pods::Holder;
use crate::units::UnitState;

/// Graces for which an instance without a pod goes on while it is not known whether a VM is connected to it.
const UNKNOWN_GRACES: u32 = 20;

/// A device that has been given to a container.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// The container, once the kubelet has listed it.
    pub(crate) holder: Option<Holder>,
    /// When it was last known to be in use: the kubelet allocated it or listed it, or a VM was connected.
    pub(crate) seen: Instant,
    /// Whether a container has been started with this instance, so that the next one gets a new instance.
    pub(crate) used: bool,
    /// Why it was not ready when its container was to start, until it is.
    pub(crate) failure: Option<String>,
}

impl Allocation {
    /// Returns an allocation of which nothing else is known. `used` is whether a container may have been
    /// started with the instance.
    pub(crate) const fn new(seen: Instant, used: bool) -> Self {
        Self { holder: None, seen, used, failure: None }
    }
}

/// What the plugin has found of an instance.
#[derive(Debug)]
pub(crate) struct InstanceStatus {
    pub(crate) state: UnitState,
    /// Its answer, if it is active.
    pub(crate) answer: Option<Result<Answer, String>>,
}

impl InstanceStatus {
    /// Returns whether a VM is connected, or `None` if that is not known: the VM of an instance that is too
    /// busy to answer, or that systemd starts again after a crash, keeps its connection.
    fn connected(&self) -> Option<bool> {
        match (self.state, &self.answer) {
            (UnitState::Active, Some(Ok(answer))) => answer.connected,
            (UnitState::Active | UnitState::Starting, _) => None,
            (UnitState::Inactive | UnitState::Stopping | UnitState::Failed, _) => Some(false),
        }
    }
}

/// Updates what is known of a device by the kubelet's list, and returns whether its instance ends.
pub(crate) fn ends(
    allocation: &mut Option<Allocation>,
    holder: Option<&Holder>,
    look: &InstanceStatus,
    asked: Instant,
    grace: Duration,
) -> bool {
    let runs = matches!(look.state, UnitState::Active | UnitState::Starting);
    if let Some(holder) = holder {
        // A container may have been started with an instance of which this process knows nothing else.
        let allocation = allocation.get_or_insert_with(|| Allocation::new(asked, true));
        (allocation.holder, allocation.seen) = (Some(holder.clone()), allocation.seen.max(asked));
        return false;
    }
    match allocation {
        // An instance that nobody is known to have gets as much time as one that was just allocated.
        None if runs => {
            *allocation = Some(Allocation::new(asked, true));
            false
        }
        None => false,
        Some(found) => {
            let most = match look.connected() {
                Some(true) => {
                    found.seen = found.seen.max(asked);
                    return false;
                }
                Some(false) => grace,
                None => grace.saturating_mul(UNKNOWN_GRACES),
            };
            let ends = asked.saturating_duration_since(found.seen) >= most;
            if ends {
                *allocation = None;
            }
            ends && runs
        }
    }
}

/// Returns why the instance of an allocated device is of no use to its VM. Before a container has been
/// started with it, it may take its time. Each try to start that container starts it again, which is no news
/// until it is ready.
pub(crate) fn trouble(look: &InstanceStatus, allocation: &Allocation) -> Option<String> {
    match (look.state, &look.answer) {
        (UnitState::Active, Some(Err(why))) => Some(why.clone()),
        (UnitState::Active, _) => None,
        _ if allocation.failure.is_some() => allocation.failure.clone(),
        (UnitState::Failed, _) => Some("systemd has given its unit up".to_owned()),
        _ if !allocation.used => None,
        (UnitState::Starting, _) => Some("it has ended, and is being started again".to_owned()),
        (UnitState::Inactive | UnitState::Stopping, _) => Some("its unit does not run".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(state: UnitState, connected: Option<bool>) -> InstanceStatus {
        InstanceStatus { state, answer: connected.map(|connected| Ok(Answer { connected: Some(connected) })) }
    }

    #[test]
    fn an_instance_outlives_a_kubelet_that_lists_no_pods_while_its_vm_is_connected() {
        let (start, grace) = (Instant::now(), Duration::from_secs(30));
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut allocation = Some(Allocation::new(start, false));
        let active = |connected| look(UnitState::Active, Some(connected));
        assert!(!ends(&mut allocation, None, &active(false), later(29), grace), "not listed yet");
        let holder = Holder::of_test();
        assert!(!ends(&mut allocation, Some(&holder), &active(true), later(40), grace));
        assert!(!ends(&mut allocation, None, &active(true), later(400), grace), "a VM is connected");
        assert!(!ends(&mut allocation, None, &active(false), later(429), grace), "within the grace");
        assert!(ends(&mut allocation, None, &active(false), later(430), grace) && allocation.is_none());
    }

    /// A crash, or an answer that takes too long, says nothing about the VM, which may go on.
    #[test]
    fn an_instance_of_which_nothing_is_known_goes_on_for_long_but_not_for_good() {
        let (start, grace) = (Instant::now(), Duration::from_secs(30));
        let later = |seconds| start + Duration::from_secs(seconds);
        let of_active = |answer| InstanceStatus { state: UnitState::Active, answer };
        for unknown in [
            look(UnitState::Starting, None),
            of_active(Some(Err("it has not answered for 2 s".to_owned()))),
            of_active(Some(Ok(Answer { connected: None }))),
            of_active(None),
        ] {
            let mut allocation = Some(Allocation::new(start, true));
            let connected = look(UnitState::Active, Some(true));
            assert!(!ends(&mut allocation, None, &connected, later(100), grace));
            assert!(!ends(&mut allocation, None, &unknown, later(699), grace), "{unknown:?}");
            assert!(ends(&mut allocation, None, &unknown, later(700), grace), "{unknown:?}");
        }
        for gone in [UnitState::Inactive, UnitState::Stopping, UnitState::Failed] {
            let mut allocation = Some(Allocation::new(start, true));
            assert!(!ends(&mut allocation, None, &look(gone, None), later(30), grace));
            assert!(allocation.is_none(), "{gone:?}: there is no process that a VM could be connected to");
        }
    }

    #[test]
    fn what_a_new_plugin_finds_running_has_as_much_time_as_what_it_allocates() {
        let (start, grace) = (Instant::now(), Duration::from_secs(30));
        let mut allocation = None;
        let idle = look(UnitState::Inactive, None);
        assert!(!ends(&mut allocation, None, &idle, start, grace) && allocation.is_none());
        let runs = look(UnitState::Active, Some(false));
        assert!(!ends(&mut allocation, None, &runs, start, grace) && allocation.is_some());
        assert!(ends(&mut allocation, None, &runs, start + grace, grace));
        assert!(!ends(&mut allocation, Some(&Holder::of_test()), &runs, start, grace));
        assert!(
            allocation.is_some_and(|allocation| allocation.used),
            "its next container gets a new instance"
        );
    }

    #[test]
    fn a_crash_is_trouble_and_a_first_start_is_none() {
        let [unused, used] = [false, true].map(|used| Allocation::new(Instant::now(), used));
        let starting = look(UnitState::Starting, None);
        assert!(trouble(&starting, &unused).is_none() && trouble(&starting, &used).is_some());
        assert!(trouble(&look(UnitState::Failed, None), &unused).is_some());
        let hung = InstanceStatus { state: UnitState::Active, answer: Some(Err("silent".to_owned())) };
        assert_eq!(trouble(&hung, &used).as_deref(), Some("silent"));
        assert!(trouble(&look(UnitState::Active, Some(false)), &used).is_none());
    }

    /// Each try of the kubelet has systemd forget that it had given the unit up.
    #[test]
    fn what_could_not_be_started_is_no_healthier_while_it_is_tried_again() {
        let mut tried = Allocation::new(Instant::now(), false);
        tried.failure = Some("no room".to_owned());
        for state in [UnitState::Starting, UnitState::Failed, UnitState::Inactive] {
            assert_eq!(trouble(&look(state, None), &tried).as_deref(), Some("no room"), "{state:?}");
        }
        assert!(trouble(&look(UnitState::Active, Some(false)), &tried).is_none());
    }
}
