//! What tests change about a version 1 device to see how a guest reacts. Products set none of it.

/// The hooks of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestHooks {
    /// What `PROTOCOL_VER` reads instead of version 1. No host sets it yet.
    pub protocol: Option<u32>,
}
