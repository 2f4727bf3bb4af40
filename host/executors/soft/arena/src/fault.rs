//! What is wrong with an access.

/// Why an access of a warp is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The address is not mapped, not all of it, or not for this kind of access.
    Illegal,
    /// The address is not a multiple of the access's size.
    Misaligned,
}

/// An access of a warp that was refused. No lane of it has been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} of {bytes} bytes at device address {address:#x} by lane {lane}: {}", if *.write { "write" } else { "read" },
    match .kind { FaultKind::Illegal => "not allowed", FaultKind::Misaligned => "misaligned" })]
pub struct Fault {
    /// Which rule the access breaks.
    pub kind: FaultKind,
    /// The device address.
    pub address: u64,
    /// Bytes of one lane's access.
    pub bytes: u32,
    /// The lowest lane that is wrong; 0 of an access that the warp shares.
    pub lane: u32,
    /// Whether it writes.
    pub write: bool,
}

/// A range of device addresses that is not mapped, or not for this kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("access {bytes} bytes at device address {address:#x}: not allocated")]
pub struct Illegal {
    /// First device address of the range.
    pub address: u64,
    /// Length of the range in bytes.
    pub bytes: u64,
}
