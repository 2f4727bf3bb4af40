//! What tests change about a device of version 1 to see what a guest makes of it. A product sets none of it.

/// Hooks of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestHooks {
    /// What `PROTOCOL_VER` reads instead of version 1. No host sets it yet.
    pub protocol: Option<u32>,
}
