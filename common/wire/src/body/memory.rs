//! Device memory: allocation, its asynchronous form, and virtual memory management.

wire_struct! {
    /// `cuMemAlloc` and `cuMemAllocManaged`. Reply: [`Address`], or out of memory.
    pub struct MemAlloc = 16 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Flags of the allocation: [`MEM_MANAGED`] or 0.
        pub flags: u32 = 4,
        /// Length in bytes, not 0.
        pub bytes: u64 = 8,
    }
}

/// [`MemAlloc::flags`]: memory that guest and device access by one address. An executor without such memory
/// refuses the allocation.
pub const MEM_MANAGED: u32 = 1 << 0;

wire_struct! {
    /// A device address, the reply to an allocation or a reservation.
    pub struct Address = 8 {
        /// First device address, a multiple of 512 at least.
        pub address: u64 = 0,
    }
}

wire_struct! {
    /// `cuMemFree`. Takes effect after all earlier work of the session.
    pub struct MemFree = 8 {
        /// First address of an allocation, as it was returned.
        pub address: u64 = 0,
    }
}

wire_struct! {
    /// `cuMemGetInfo`, answered without a GPU context. Reply: [`MemInfoReply`].
    pub struct MemInfo = 8 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// Memory of the whole device, whichever sessions use it.
    pub struct MemInfoReply = 16 {
        /// Free device memory in bytes.
        pub free: u64 = 0,
        /// Size of the device memory in bytes.
        pub total: u64 = 8,
    }
}

wire_struct! {
    /// `cuMemAllocAsync`. Work of `stream` after this message may use the memory, and so may work ordered
    /// after that. Reply: [`Address`], or out of memory.
    pub struct MemAllocAsync = 16 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Stream in whose order the memory becomes usable.
        pub stream: u32 = 4,
        /// Length in bytes, not 0.
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// `cuMemFreeAsync`. Takes effect after earlier work of `stream`.
    pub struct MemFreeAsync = 16 {
        /// Stream in whose order the memory is freed.
        pub stream: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
        /// First address of an allocation, as it was returned.
        pub address: u64 = 8,
    }
}

wire_struct! {
    /// `cuMemAddressReserve`: reserves device addresses without memory. Reply: [`Address`].
    pub struct MemReserve = 32 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
        /// Length in bytes, a multiple of
        /// [`DeviceFacts::granularity`](crate::facts::DeviceFacts::granularity).
        pub bytes: u64 = 8,
        /// Alignment in bytes, a power of two; 0 requests the granularity.
        pub alignment: u64 = 16,
        /// Address that the program prefers, or 0. The host may return another.
        pub hint: u64 = 24,
    }
}

wire_struct! {
    /// `cuMemAddressFree`: frees a reservation.
    pub struct MemUnreserve = 16 {
        /// First address, as [`MemReserve`] returned it.
        pub address: u64 = 0,
        /// Length in bytes of the reservation.
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// `cuMemCreate`: allocates physical memory under a handle that the guest mints. The reply has no data;
    /// its status may be out of memory.
    pub struct MemCreate = 16 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Number for the physical memory, minted by the guest and not in use.
        pub handle: u32 = 4,
        /// Length in bytes, a multiple of the granularity.
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// `cuMemRelease`. The memory is freed once it has no mapping either.
    pub struct MemRelease = 8 {
        /// Number of the physical memory, from [`MemCreate::handle`].
        pub handle: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// `cuMemMap`: maps physical memory at a reserved address.
    pub struct MemMap = 32 {
        /// Number of the physical memory, from [`MemCreate::handle`].
        pub handle: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
        /// First address of the mapping, within a reservation.
        pub address: u64 = 8,
        /// Length of the mapping in bytes.
        pub bytes: u64 = 16,
        /// Offset in bytes of the mapping's start in the physical memory.
        pub offset: u64 = 24,
    }
}

wire_struct! {
    /// `cuMemUnmap`. Takes effect after all earlier work of the session.
    pub struct MemUnmap = 16 {
        /// First address of the first mapping to remove.
        pub address: u64 = 0,
        /// Length in bytes of the range to unmap.
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// `cuMemSetAccess`: sets the device's own access rights.
    pub struct MemSetAccess = 24 {
        /// First address of the mappings to change.
        pub address: u64 = 0,
        /// Length in bytes of the range to change.
        pub bytes: u64 = 8,
        /// `CUmemAccess_flags`: 0 none, 1 read, 3 read and write.
        pub access: u32 = 16,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 20,
    }
}
