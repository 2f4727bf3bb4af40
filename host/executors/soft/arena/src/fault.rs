//! Faults: accesses to device memory that the table of mappings does not permit.

/// Reason for which an access of a warp is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The address is not mapped, not completely mapped, or not mapped for this kind of access.
    Illegal,
    /// The address is not a multiple of the access's size.
    Misaligned,
}

/// An access of a warp that was refused. None of its lanes has been executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} of {bytes} bytes at device address {address:#x} by lane {lane}: {}", if *.write { "write" } else { "read" },
    match .kind { FaultKind::Illegal => "not allowed", FaultKind::Misaligned => "misaligned" })]
pub struct Fault {
    /// The rule that the access breaks.
    pub kind: FaultKind,
    /// Device address of the access.
    pub address: u64,
    /// Size of one lane's access in bytes.
    pub bytes: u32,
    /// Lowest lane whose access is wrong, or 0 for an access that the warp makes as one.
    pub lane: u32,
    /// Whether the access is a write.
    pub write: bool,
}

/// Error for a range of device addresses that is not completely mapped, or not for this kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("access {bytes} bytes at device address {address:#x}: not allocated")]
pub struct Illegal {
    /// First device address of the range.
    pub address: u64,
    /// Length of the range in bytes.
    pub bytes: u64,
}
