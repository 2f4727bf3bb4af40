//! Limits the number of mappings of physical memory in all arenas of the process. Each takes a mapping of the
//! process from the system. A process that has used up what Linux allows can start no thread and allocate no
//! memory, and would end.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Half of the mappings that Linux allows the process. Each counts twice, because it can split another
/// mapping in two.
static MOST: LazyLock<u64> = LazyLock::new(|| vgpu_device::mappings_allowed() / 4);
static USED: AtomicU64 = AtomicU64::new(0);

/// The permission for one mapping. Dropping it returns the permission.
#[derive(Debug)]
pub(super) struct MappingPermit(());

impl MappingPermit {
    /// Returns a permission, or `None` if the arenas of the process already have as many mappings as this
    /// module allows.
    pub(super) fn acquire() -> Option<Self> {
        let more = |used: u64| (used < *MOST).then_some(used + 1);
        USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(()))
    }
}

impl Drop for MappingPermit {
    fn drop(&mut self) {
        USED.fetch_sub(1, Ordering::Relaxed);
    }
}
