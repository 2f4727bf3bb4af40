//! Changes that tests make to a version 1 device to see how a guest reacts. Products use none of them.

/// Hooks of one device, for tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestHooks {
    /// Value that `PROTOCOL_VER` reads in place of version 1. No host sets it yet.
    pub protocol: Option<u32>,
}
