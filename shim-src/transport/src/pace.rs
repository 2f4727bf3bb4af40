//! Decides whether threads of this process may spin, and counts those that spin and sleep. How long a wait
//! takes is predicted by [`vgpu_pace`].

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Mutex;
use std::time::Duration;

use vgpu_pace::{WaitEstimate, WaitPlan};

use crate::channel::Channel;
use crate::mutex::lock;
use crate::sleep::processors;

/// Maximum time that a nap ends before the predicted end, and that a thread spins beyond it.
const MARGIN_MOST: Duration = Duration::from_millis(2);

/// Number of threads of this process that spin, on any device.
static SPINNING: AtomicU32 = AtomicU32::new(0);

/// State that determines how the threads of a session wait.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Maximum number of threads of the process that spin at a time.
    spinners: u32,
    /// Whether the host wakes sleeping threads by futex.
    pub(crate) futex: bool,
    /// Number of threads that sleep. It is locked while the count is passed on, so that the host never reads
    /// an older count last.
    sleepers: Mutex<u32>,
}

impl Pace {
    pub(crate) fn new(futex: bool) -> Self {
        let processors = u32::try_from(processors()).unwrap_or(u32::MAX);
        // A host that wakes by futex runs on the same kernel, and one processor is left to it. Any other host
        // has processors of its own, however few this virtual machine has.
        let spinners = if futex { processors - processors.min(1) } else { processors };
        Self { spinners, futex, sleepers: Mutex::new(0) }
    }

    /// Returns how a wait with this estimate starts.
    pub(crate) fn plan(&self, usual: &WaitEstimate) -> WaitPlan {
        if self.spinners == 0 { WaitPlan::SLEEP } else { usual.plan(MARGIN_MOST) }
    }

    /// Counts the calling thread as spinning until the value is dropped. Returns `None` if the maximum number
    /// of threads already spins.
    pub(crate) fn spinning(&self) -> Option<SpinnerGuard> {
        let others = SPINNING.fetch_add(1, Ordering::Relaxed);
        let spinning = SpinnerGuard;
        (others < self.spinners).then_some(spinning)
    }

    /// Counts the calling thread as a sleeper until the value is dropped, and tells the host so.
    pub(crate) fn asleep<'a>(&'a self, channel: &'a Channel) -> SleeperGuard<'a> {
        let mut sleepers = lock(&self.sleepers);
        *sleepers += 1;
        channel.set_sleepers(*sleepers);
        SleeperGuard { pace: self, channel }
    }
}

/// Counts a thread as spinning while it exists.
#[derive(Debug)]
pub(crate) struct SpinnerGuard;

impl Drop for SpinnerGuard {
    fn drop(&mut self) {
        SPINNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a thread as sleeping while it exists.
#[derive(Debug)]
pub(crate) struct SleeperGuard<'a> {
    pace: &'a Pace,
    channel: &'a Channel,
}

impl Drop for SleeperGuard<'_> {
    fn drop(&mut self) {
        let mut sleepers = lock(&self.pace.sleepers);
        *sleepers -= 1;
        self.channel.set_sleepers(*sleepers);
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    #[test]
    fn with_one_processor_only_the_guest_of_another_kernel_spins() {
        let own = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| own.is_set(cpu)).unwrap());
        // This thread alone, which ends with the test.
        sched_setaffinity(None, &one).unwrap();
        let usual = WaitEstimate::default();
        assert_eq!(Pace::new(true).plan(&usual), WaitPlan::SLEEP);
        assert_ne!(Pace::new(false).plan(&usual), WaitPlan::SLEEP);
    }

    #[test]
    fn no_more_threads_spin_than_there_are_processors_to_spare() {
        // Other tests of this process may spin meanwhile, so there is no telling how many are too many.
        let pace = Pace { spinners: 0, futex: true, sleepers: Mutex::new(0) };
        assert!(pace.spinning().is_none());
        let many = Pace { spinners: u32::MAX, ..pace };
        let before = many.spinning().expect("nobody is left out");
        drop(before);
        assert!(many.spinning().is_some());
    }
}
