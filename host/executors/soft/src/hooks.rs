//! Hooks by which tests make a soft device behave in ways that CUDA permits but programs rarely meet.
//! Production devices use none of them.

/// Hooks of a soft device. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestHooks {
    /// Seed of an unusual order of work that CUDA still permits. Without a seed, work runs in order of
    /// arrival.
    pub adversary: Option<u64>,
    /// Device memory that a session is charged from its first message on, as a process is by a driver for its
    /// context, in bytes. If it is not 0, each module takes the size of its image as well.
    pub context_bytes: u64,
}
