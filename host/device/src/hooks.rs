//! What tests change about a device of version 2 to see what a guest makes of it. A product sets none of it.

/// Hooks of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestHooks {
    /// Offsets of registers, and what they read instead of the truth.
    pub registers: Vec<(u32, u32)>,
}
