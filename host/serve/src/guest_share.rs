//! What a guest is shown of its VM's share of the GPU's time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use vgpu_device::{ShareSource, lock};
use vgpu_share::{SlotView, sum_of_weights};
use vgpu_wire::share::{SHARE_WHOLE, VmShare};

/// Interval at which the VM's weight is compared with those of the others, for which files are looked at.
const COMPARED: Duration = Duration::from_secs(1);

/// The share of the VM in a slot. The guest's accesses read words of memory.
#[derive(Debug)]
pub(crate) struct GuestShare {
    slot: SlotView,
    /// Part of the GPU's time in parts per million.
    ppm: AtomicU32,
    /// Whether a node process is followed.
    enforced: AtomicBool,
    /// When the weights were compared last.
    compared: Mutex<Option<Instant>>,
}

impl GuestShare {
    /// Returns the share of a slot that this process has taken.
    pub(crate) fn new(slot: SlotView) -> Self {
        let share = Self {
            slot,
            ppm: AtomicU32::new(0),
            enforced: AtomicBool::new(false),
            compared: Mutex::default(),
        };
        share.compare();
        share
    }

    /// Records whether the device follows a node process.
    pub(crate) fn set_enforced(&self, enforced: bool) {
        self.enforced.store(enforced, Ordering::Release);
    }

    /// Compares the VM's weight with those of the GPU's other VMs, unless that was done a moment ago.
    pub(crate) fn compare(&self) {
        let (mut compared, now) = (lock(&self.compared), Instant::now());
        if compared.is_some_and(|at| now.duration_since(at) < COMPARED) {
            return;
        }
        *compared = Some(now);
        match self.slot.gpu().holders() {
            Ok(holders) => {
                let ppm = parts(self.slot.weight(), sum_of_weights(&holders));
                self.ppm.store(ppm, Ordering::Release);
            }
            Err(error) => tracing::debug!(%error, "the weights of other VMs are not known"),
        }
    }
}

impl ShareSource for GuestShare {
    fn share(&self) -> VmShare {
        VmShare {
            enforced: self.enforced.load(Ordering::Acquire),
            ppm: self.ppm.load(Ordering::Acquire),
            charged_us: self.slot.charged_ns() / 1000,
            waited_us: self.slot.waited_ns() / 1000,
        }
    }
}

/// Returns a weight's part of a sum in parts per million, rounded.
fn parts(weight: u32, sum: u32) -> u32 {
    let (weight, sum) = (u64::from(weight), u64::from(sum.max(weight).max(1)));
    let ppm = (weight * u64::from(SHARE_WHOLE) + sum / 2) / sum;
    u32::try_from(ppm).unwrap_or(SHARE_WHOLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_the_whole() {
        assert_eq!(
            [(1, 1), (1, 3), (2, 3), (1, 4)].map(|(one, sum)| parts(one, sum)),
            [1_000_000, 333_333, 666_667, 250_000]
        );
        assert_eq!(parts(1, 63_001), 16, "the least that a VM of 64 can have");
        assert_eq!(parts(1000, 1), SHARE_WHOLE, "the others' words are not trusted");
    }
}
