//! What VMs have used, for metrics.

/// Time of one VM since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Time that the VM was charged, in nanoseconds. While it is alone nothing is charged.
    pub charged_ns: u64,
    /// Time for which it had work while a slice of another VM ran, in nanoseconds.
    pub waited_ns: u64,
}

/// Work that went on after its slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun {
    /// The VM, by the number of its slot.
    pub vm: usize,
    /// For how long the work went on, in nanoseconds.
    pub nanoseconds: u64,
}
