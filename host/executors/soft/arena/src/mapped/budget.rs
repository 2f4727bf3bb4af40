//! Limits the number of mappings of physical memory in all arenas of the process. Each needs a mapping of the
//! process. Above the number that Linux allows, no thread can be started, and the process would end.

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
    /// Returns a permission, or `None` if the process has too many mappings.
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
