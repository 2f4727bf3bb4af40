//! Machines: how many connections each has, how many owners, and until when it may come back.
//!
//! A machine whose last connection is gone keeps what it has for a while: a hypervisor's device connects anew
//! after its mediator has turned a call away. Then all of it ends, so that who hangs up blocks nobody.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A machine, as a mediator tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Machine {
    /// The user whose process speaks for it: another user's cannot pass for the same machine.
    pub(super) user: u32,
    /// The number that its frames say.
    pub(super) vm: u32,
}

#[derive(Debug, Default)]
struct Known {
    connections: usize,
    /// Those included that are ending.
    owners: usize,
    /// When all that it has ends; set while it has no connection.
    until: Option<Instant>,
}

/// All that have a connection or an owner.
#[derive(Debug)]
pub(super) struct Machines {
    grace: Duration,
    owners_most: usize,
    known: HashMap<Machine, Known>,
}

impl Machines {
    /// `grace`: how long one without a connection keeps what it has; `owners_most`: how many owners each may
    /// have.
    pub(super) fn new(grace: Duration, owners_most: usize) -> Self {
        Self { grace, owners_most, known: HashMap::new() }
    }

    /// A connection speaks for a machine from now on.
    pub(super) fn came(&mut self, machine: Machine) {
        let known = self.known.entry(machine).or_default();
        known.connections += 1;
        known.until = None;
    }

    /// Such a connection is gone.
    pub(super) fn went(&mut self, machine: Machine, now: Instant) {
        if let Some(known) = self.known.get_mut(&machine) {
            known.connections -= 1;
            if known.connections == 0 {
                known.until = now.checked_add(self.grace);
            }
        }
        self.forget(machine);
    }

    /// Takes room for one more owner; false: there is none, or nobody speaks for the machine any more.
    pub(super) fn take(&mut self, machine: Machine) -> bool {
        let Some(known) = self.known.get_mut(&machine) else { return false };
        let room = known.connections > 0 && known.owners < self.owners_most;
        known.owners += usize::from(room);
        room
    }

    /// An owner has ended.
    pub(super) fn give_back(&mut self, machine: Machine) {
        if let Some(known) = self.known.get_mut(&machine) {
            known.owners -= 1;
        }
        self.forget(machine);
    }

    /// Whether a machine has an owner.
    pub(super) fn owns(&self, machine: Machine) -> bool {
        self.known.get(&machine).is_some_and(|known| known.owners > 0)
    }

    /// Machines whose time is over, each named once.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Machine> {
        let over = |known: &mut Known| known.until.take_if(|until| *until <= now).is_some();
        self.known.iter_mut().filter_map(|(machine, known)| over(known).then_some(*machine)).collect()
    }

    /// When the next one's time is over.
    pub(super) fn next(&self) -> Option<Instant> {
        self.known.values().filter_map(|known| known.until).min()
    }

    fn forget(&mut self, machine: Machine) {
        if self.known.get(&machine).is_some_and(|known| known.connections == 0 && known.owners == 0) {
            self.known.remove(&machine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Machine = Machine { user: 0, vm: 1 };
    const GRACE: Duration = Duration::from_mins(1);

    #[test]
    fn what_a_machine_has_ends_a_while_after_its_last_connection() {
        let mut machines = Machines::new(GRACE, 64);
        let start = Instant::now();
        machines.came(ONE);
        machines.came(ONE);
        assert!(machines.take(ONE));
        machines.went(ONE, start);
        assert_eq!(machines.next(), None, "it has another connection");
        machines.went(ONE, start);
        assert_eq!(machines.next(), Some(start + GRACE));
        assert!(!machines.take(ONE), "nobody speaks for it");
        assert_eq!(machines.due(start + Duration::from_secs(59)), []);
        // It comes back in time, and goes again.
        machines.came(ONE);
        assert_eq!((machines.next(), machines.due(start + 2 * GRACE)), (None, vec![]));
        machines.went(ONE, start + GRACE);
        assert_eq!(machines.due(start + 2 * GRACE), [ONE]);
        assert_eq!(machines.due(start + 2 * GRACE), [], "once");
        assert!(machines.owns(ONE), "until its owners have ended");
        machines.give_back(ONE);
        assert!(machines.known.is_empty());
    }

    #[test]
    fn a_machine_has_so_many_owners_and_others_have_theirs() {
        let mut machines = Machines::new(GRACE, 2);
        let other = Machine { user: 1, vm: 1 };
        assert!(!machines.take(ONE), "it has not come");
        machines.came(ONE);
        machines.came(other);
        assert!(machines.take(ONE) && machines.take(ONE) && !machines.take(ONE));
        assert!(machines.take(other), "another user's is another machine");
        machines.give_back(ONE);
        assert!(machines.take(ONE));
    }

    #[test]
    fn a_grace_without_end_never_ends() {
        let mut machines = Machines::new(Duration::MAX, 1);
        machines.came(ONE);
        assert!(machines.take(ONE));
        machines.went(ONE, Instant::now());
        assert_eq!(machines.next(), None);
    }
}
