//! Hooks by which tests make a soft device behave in ways that CUDA permits but programs rarely meet.
//! Production devices use none of them.

/// Hooks of a soft device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestHooks {
    /// Seed of an unusual order of work that CUDA still permits. Without a seed, work runs in order of
    /// arrival.
    pub adversary: Option<u64>,
}
