//! How often a guest accessed its device: each access is an exit of its virtual machine.

use serde::{Deserialize, Serialize};

/// Accesses to a BAR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BarAccesses {
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
}

/// Accesses to a device, since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accesses {
    /// Accesses to the registers.
    pub bar0: BarAccesses,
    /// To the data window, in units of 8 bytes at most.
    pub bar1: BarAccesses,
    /// Of the writes to registers, those that submitted a call.
    pub doorbells: u64,
}
