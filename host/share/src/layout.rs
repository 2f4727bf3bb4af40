//! Layout of a GPU's file: offsets of the words in the header page and in a slot.

/// Number of slots, and so of VMs that one GPU can have.
pub const SLOTS: usize = 64;

/// Greatest length of a VM's name in a slot, in bytes.
pub const NAME_BYTES: usize = 64;

/// Largest weight of a VM's share of time.
pub(crate) const WEIGHT_MOST: u32 = 1000;

/// Size of the header and of each slot, in bytes.
pub(crate) const PAGE: usize = 4096;
/// Size of the file in bytes.
pub(crate) const FILE_BYTES: usize = PAGE * (1 + SLOTS);
/// Number of 64-bit words that the arbiter has in each slot, and the node process in the header.
pub(crate) const ARBITER_WORDS: usize = 128;
/// Offset of these words in their page, in bytes.
pub(crate) const ARBITER: usize = 1024;

/// First word of the file, stored last when the file is made.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"vgpushar");
/// Version of the layout. Another number means that the file was made by another release.
pub(crate) const VERSION: u64 = 1;

/// Offsets of the header's words in bytes.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0x00;
    pub(crate) const VERSION: usize = 0x08;
    pub(crate) const UUID: usize = 0x10;
    /// Bytes of memory that the GPU has.
    pub(crate) const BYTES: usize = 0x20;
    /// Process that claims a slot, for the message to others that wait for it.
    pub(crate) const CLAIMER: usize = 0x30;
}

/// Offset of a VM's name in its slot, in bytes.
pub(crate) const NAME: usize = 0x200;

/// A figure of a slot's record. Its device stores it, and everybody may load it. The value is the offset of
/// the figure's word in the slot, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Figure {
    /// Number of the device's process.
    Process = 0x00,
    /// Bytes of device memory that the VM has been promised.
    Promised = 0x08,
    /// Bytes that the device needs beside its promise.
    Overhead = 0x10,
    /// Bytes that one context costs, as measured when the device was started. It is 0 until then.
    ContextBytes = 0x18,
    /// Number of CUDA contexts that the VM's sessions have.
    Contexts = 0x20,
    /// Bytes of the promise that are in use, contexts included.
    Used = 0x28,
    /// Share of the GPU's time relative to that of other VMs.
    Weight = 0x30,
    /// Sessions of the VM.
    Sessions = 0x38,
    /// 1 if a VM is connected to the device, else 0. A simulated bus has no VM, so there it is 1 while a
    /// program has a session.
    Connected = 0x40,
    /// First half of the UUID that the guest sees.
    DeviceUuidLow = 0x48,
    /// Second half of the UUID that the guest sees.
    DeviceUuidHigh = 0x50,
    /// Bytes that are promised to nobody while this device runs.
    Reserve = 0x58,
    /// Nanoseconds on a clock of the device's at which it stored its figures last. What has changed between
    /// two readings took the difference of this.
    Stored = 0x60,
    /// Nanoseconds of the GPU's time that the VM has had: what the node process charged, and while the VM was
    /// alone, the time during which it had work on the GPU. It never decreases.
    GpuTime = 0x80,
    /// Kernels and operations of libraries that have been launched, those of graphs included.
    Launches = 0x88,
    /// Bytes that have been copied to the device.
    CopiedIn = 0x90,
    /// Bytes that have been copied from the device.
    CopiedOut = 0x98,
    /// Allocations that were refused for lack of memory.
    OutOfMemory = 0xa0,
    /// Sessions that ended because their guest broke the contract.
    LostViolation = 0xa8,
    /// Sessions that ended because their worker died, or the executor lost them otherwise.
    LostWorker = 0xb0,
    /// Sessions that ended because an operator ended them.
    LostOperator = 0xb8,
}
