//! The VM's share of the GPU's time, which the device shows to its guest.

use std::fmt;

use vgpu_wire::share::VmShare;

/// Source of a VM's share. Whoever shares a GPU among VMs implements it.
pub trait ShareSource: fmt::Debug + Send + Sync {
    /// Returns the share as it is now. It is called for each access of the guest to one of the registers, and
    /// must not wait.
    fn share(&self) -> VmShare;
}
