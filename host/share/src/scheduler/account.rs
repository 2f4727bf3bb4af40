//! What VMs have used, for metrics.

use std::ops::Add;

/// Time of one VM since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Time that the VM was charged, in nanoseconds. While it is alone nothing is charged.
    pub charged_ns: u64,
    /// Time for which it had work while a slice of another VM ran, in nanoseconds.
    pub waited_ns: u64,
}

impl Add for Account {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            charged_ns: self.charged_ns.saturating_add(more.charged_ns),
            waited_ns: self.waited_ns.saturating_add(more.waited_ns),
        }
    }
}

/// Work that went on after its slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun {
    /// The VM, by the number of its slot.
    pub vm: usize,
    /// For how long the work went on, in nanoseconds.
    pub nanoseconds: u64,
}
