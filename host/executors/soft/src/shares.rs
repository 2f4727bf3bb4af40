//! Shares of a device's memory, for tests.

use std::sync::Arc;

use vgpu_device::{Account, Charges, DeviceCharges, Limits, Share};

/// The share of a session with the default limits.
pub(crate) fn share(device: &Arc<Account>) -> Share {
    share_with(device, Limits::default())
}

/// The share of a session with these limits.
pub(crate) fn share_with(device: &Arc<Account>, limits: Limits) -> Share {
    Share::new(Arc::clone(device), Charges::new(1, limits, Arc::new(DeviceCharges::default())))
}
