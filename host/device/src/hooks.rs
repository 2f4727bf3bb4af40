//! Changes that tests make to a device of version 2 to see how a guest reacts. Products make none.

/// Changes that a test makes to a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestHooks {
    /// Offsets of registers, and the values that they read instead of the true ones.
    pub registers: Vec<(u32, u32)>,
}
