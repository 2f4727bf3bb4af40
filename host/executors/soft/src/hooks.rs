//! What tests change about a soft device to see whether a program relies on more than CUDA promises. A
//! product sets none of it.

/// Hooks of a soft device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestHooks {
    /// Seed of an order of work that no program expects, but CUDA allows. Without one, work is done in the
    /// order in which it arrives.
    pub adversary: Option<u64>,
}
