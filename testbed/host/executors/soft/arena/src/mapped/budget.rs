//! How many mappings of this process physical memory may take, of all arenas together. Each is one of its
//! own; over what Linux allows a process, threads cannot be started any more, and the process would end.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Half of what Linux allows the process, and each counts twice, because it can cut another mapping in two.
static MOST: LazyLock<u64> = LazyLock::new(|| vgpu_device::mappings_allowed() / 4);
static USED: AtomicU64 = AtomicU64::new(0);

/// One mapping, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot(());

impl Slot {
    /// One more, unless the process would have too many.
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
