//! Limits the mappings of physical memory, of all arenas of the process together. Each needs a mapping of the
//! process, and above the number that Linux allows, threads can no longer be started and the process would
//! end.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Half of what Linux allows the process. Each counts twice, because it can split another mapping in two.
static MOST: LazyLock<u64> = LazyLock::new(|| vgpu_device::mappings_allowed() / 4);
static USED: AtomicU64 = AtomicU64::new(0);

/// The permission for one mapping, until this is dropped.
#[derive(Debug)]
pub(super) struct Slot(());

impl Slot {
    /// Takes one more; `None` if the process would have too many.
    pub(super) fn take() -> Option<Self> {
        let more = |used: u64| (used < *MOST).then_some(used + 1);
        USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        USED.fetch_sub(1, Ordering::Relaxed);
    }
}
