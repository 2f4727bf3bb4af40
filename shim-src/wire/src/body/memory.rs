//! Device memory: allocation, its asynchronous form, and virtual memory management.

wire_struct! {
    /// `cuMemAlloc`, `cuMemAllocManaged`. Reply: [`Address`], or out of memory.
    pub struct MemAlloc = 16 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// [`MEM_MANAGED`] or 0.
        pub flags: u32 = 4,
        /// Bytes, not 0.
        pub bytes: u64 = 8,
    }
}

/// [`MemAlloc::flags`]: memory that guest and device both reach, where the executor can.
pub const MEM_MANAGED: u32 = 1 << 0;

wire_struct! {
    /// A device address.
    pub struct Address = 8 {
        /// Aligned to 512 bytes at least.
        pub address: u64 = 0,
    }
}

wire_struct! {
    /// `cuMemFree`: after all earlier work of the session.
    pub struct MemFree = 8 {
        /// Start of an allocation.
        pub address: u64 = 0,
    }
}

wire_struct! {
    /// `cuMemGetInfo`. Reply: [`MemInfoReply`]. Needs no GPU context.
    pub struct MemInfo = 8 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// Memory of the device, not of the session alone.
    pub struct MemInfoReply = 16 {
        /// Bytes free.
        pub free: u64 = 0,
        /// Bytes in all.
        pub total: u64 = 8,
    }
}

wire_struct! {
    /// `cuMemAllocAsync`: usable by work of `stream` after this, and after what orders itself
    /// behind it. Reply: [`Address`], or out of memory.
    pub struct MemAllocAsync = 16 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// The stream.
        pub stream: u32 = 4,
        /// Bytes, not 0.
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// `cuMemFreeAsync`: after earlier work of `stream`.
    pub struct MemFreeAsync = 16 {
        /// The stream.
        pub stream: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
        /// Start of an allocation.
        pub address: u64 = 8,
    }
}

wire_struct! {
    /// `cuMemAddressReserve`. Reply: [`Address`].
    pub struct MemReserve = 32 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
        /// Bytes, a multiple of the granularity.
        pub bytes: u64 = 8,
        /// Alignment, 0 or a power of two.
        pub alignment: u64 = 16,
        /// Wished address, or 0.
        pub hint: u64 = 24,
    }
}

wire_struct! {
    /// `cuMemAddressFree`.
    pub struct MemUnreserve = 16 {
        /// As `MemReserve` answered.
        pub address: u64 = 0,
        /// As it was asked for.
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// `cuMemCreate`: physical memory under a handle that the guest mints. No reply data; the
    /// status says out of memory.
    pub struct MemCreate = 16 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// Handle.
        pub handle: u32 = 4,
        /// Bytes, a multiple of the granularity.
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// `cuMemRelease`: freed when the last mapping is gone too.
    pub struct MemRelease = 8 {
        /// Handle.
        pub handle: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// `cuMemMap`.
    pub struct MemMap = 32 {
        /// Handle.
        pub handle: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
        /// Within a reservation.
        pub address: u64 = 8,
        /// Bytes.
        pub bytes: u64 = 16,
        /// Offset in the physical memory.
        pub offset: u64 = 24,
    }
}

wire_struct! {
    /// `cuMemUnmap`: after all earlier work of the session.
    pub struct MemUnmap = 16 {
        /// Start of mappings.
        pub address: u64 = 0,
        /// Bytes.
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// `cuMemSetAccess` for the device itself.
    pub struct MemSetAccess = 24 {
        /// Start of mappings.
        pub address: u64 = 0,
        /// Bytes.
        pub bytes: u64 = 8,
        /// `CUmemAccess_flags`: 0 none, 1 read, 3 read and write.
        pub access: u32 = 16,
        /// Zero.
        pub reserved: u32 = 20,
    }
}
