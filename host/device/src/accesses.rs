//! Counts of a guest's accesses to its device. Each access is an exit of its virtual machine.

use serde::{Deserialize, Serialize};

/// Number of accesses to one BAR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BarAccesses {
    /// Number of reads of the BAR.
    pub reads: u64,
    /// Number of writes to the BAR.
    pub writes: u64,
}

/// Number of accesses to a device since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accesses {
    /// Number of accesses to the registers.
    pub bar0: BarAccesses,
    /// Accesses to the data window. One access transfers at most 8 bytes.
    pub bar1: BarAccesses,
    /// Number of writes to registers that submitted a call. They are counted in `bar0` too.
    pub doorbells: u64,
}
