//! Quotas of a device's memory pool, for tests.

use std::sync::Arc;

use vgpu_device::{Charges, DeviceCharges, Limits, MemoryPool, Quota};

/// Returns the quota of a session with the default limits.
pub(crate) fn share(device: &Arc<MemoryPool>) -> Quota {
    share_with(device, Limits::default())
}

/// Returns the quota of a session with these limits.
pub(crate) fn share_with(device: &Arc<MemoryPool>, limits: Limits) -> Quota {
    Quota::new(Arc::clone(device), Charges::new(1, limits, Arc::new(DeviceCharges::default())))
}
