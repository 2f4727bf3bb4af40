//! The properties that a host's administrator sets for a device.

use vgpu_wire::v1::route::Preferences;

/// Values of the device's property `pool_id`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pool {
    /// Pool A, which is the default.
    #[default]
    A,
    /// Pool B.
    B,
}

/// Values of the device's property `priority`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Low priority, register value 0.
    Low,
    /// Medium priority, register value 1.
    #[default]
    Medium,
    /// High priority, register value 2.
    High,
}

/// The properties of the hypervisor's device `vgpu-cuda`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Value of the property `pool_id`.
    pub pool: Pool,
    /// Value of the property `priority`.
    pub priority: Priority,
    /// Value of the property `vm_id`, the number of the virtual machine.
    pub vm_id: u32,
    /// Values of the three boolean properties, which choose the route of payloads.
    pub preferences: Preferences,
    /// Whether only calls with the token that was in `SCRATCH` when the window was registered use the window.
    /// Other calls behave as if there were no window, so that no payload reaches another process's pages
    /// (Q10). This is an extension of this project, which existing hosts lack. It requires guests that write
    /// their token before they register, which the original guest does not.
    pub window_of_its_owner: bool,
}

impl Pool {
    pub(super) const fn ascii(self) -> u8 {
        match self {
            Self::A => b'A',
            Self::B => b'B',
        }
    }
}
