//! The properties that a host's administrator sets for a device.

use vgpu_wire::v1::route::Preferences;

/// The device's property `pool_id`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pool {
    /// The usual one.
    #[default]
    A,
    /// The other one.
    B,
}

/// The device's property `priority`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// 0
    Low,
    /// 1
    #[default]
    Medium,
    /// 2
    High,
}

/// The properties of the hypervisor's device `vgpu-cuda`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// `pool_id`
    pub pool: Pool,
    /// `priority`
    pub priority: Priority,
    /// `vm_id`
    pub vm_id: u32,
    /// The three booleans.
    pub preferences: Preferences,
    /// An extension of this project; existing hosts behave as if it were off. Only calls with the token that
    /// was in `SCRATCH` when the window was registered use the window; other calls go as if there were none,
    /// so that no payload gets into another process's pages (Q10). This is right only for guests that write
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
