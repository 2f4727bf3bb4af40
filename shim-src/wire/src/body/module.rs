//! Code: images go over once, by content digest, when a function of theirs is first needed.

use crate::span::Span;

wire_struct! {
    /// Opens a module under a minted number. Reply: [`ModuleOpenReply`]. If the host does not hold the
    /// image, `ModuleData` messages follow, then `ModuleLoad`.
    pub struct ModuleOpen = 56 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// Minted number.
        pub module: u32 = 4,
        /// [`IMAGE_PTX`] or [`IMAGE_CUBIN`].
        pub image: u32 = 8,
        /// Zero.
        pub reserved: u32 = 12,
        /// Bytes of the image, uncompressed.
        pub bytes: u64 = 16,
        /// SHA-256 of the image.
        pub digest: [u8; 32] = 24,
    }
}

/// [`ModuleOpen::image`]: PTX text, without a trailing zero.
pub const IMAGE_PTX: u32 = 1;
/// [`ModuleOpen::image`]: an ELF image for one architecture.
pub const IMAGE_CUBIN: u32 = 2;

wire_struct! {
    /// Whether the image must be sent.
    pub struct ModuleOpenReply = 8 {
        /// 1: the host holds an image of that digest.
        pub known: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// A piece of the image; the tail is the piece when the span is inline. Pieces come in order.
    pub struct ModuleData = 40 {
        /// Minted number.
        pub module: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
        /// Offset of the piece in the image.
        pub offset: u64 = 8,
        /// The piece. The host has read it when the message is counted as done.
        pub data: Span = 16,
    }
}

wire_struct! {
    /// Loads the module. Reply: no data; the status is that of `cuModuleLoadData`.
    pub struct ModuleLoad = 8 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// Minted number.
        pub module: u32 = 4,
    }
}

wire_struct! {
    /// Unloads a module, with its functions, after all earlier work of the session.
    pub struct ModuleUnload = 8 {
        /// Minted number.
        pub module: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// Finds a kernel and gives it a minted number. The tail is its name, `name_bytes` long, no zero.
    /// Reply: [`FunctionReply`], or not found.
    pub struct FunctionGet = 16 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// Module.
        pub module: u32 = 4,
        /// Minted number.
        pub function: u32 = 8,
        /// Bytes of the name.
        pub name_bytes: u32 = 12,
    }
}

wire_struct! {
    /// What `cuFuncGetAttribute` answers, once and for all.
    pub struct FunctionReply = 64 {
        /// `CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK`.
        pub max_threads: u32 = 0,
        /// `..._SHARED_SIZE_BYTES`.
        pub shared_bytes: u32 = 4,
        /// `..._CONST_SIZE_BYTES`.
        pub const_bytes: u32 = 8,
        /// `..._LOCAL_SIZE_BYTES`.
        pub local_bytes: u32 = 12,
        /// `..._NUM_REGS`.
        pub registers: u32 = 16,
        /// `..._PTX_VERSION`.
        pub ptx_version: u32 = 20,
        /// `..._BINARY_VERSION`.
        pub binary_version: u32 = 24,
        /// `..._MAX_DYNAMIC_SHARED_SIZE_BYTES`.
        pub max_dynamic_shared: u32 = 28,
        /// Bytes of parameters, by which the guest checks its own reading of the image.
        pub param_bytes: u32 = 32,
        /// Zero.
        pub reserved: [u32; 7] = 36,
    }
}

wire_struct! {
    /// `cuFuncSetAttribute`, `cuFuncSetCacheConfig`: the guest has checked the value.
    pub struct FunctionSet = 16 {
        /// Function.
        pub function: u32 = 0,
        /// `CUfunction_attribute`, or [`FUNCTION_CACHE_CONFIG`].
        pub attribute: u32 = 4,
        /// Value.
        pub value: i32 = 8,
        /// Zero.
        pub reserved: u32 = 12,
    }
}

/// [`FunctionSet::attribute`]: the value is a `CUfunc_cache`.
pub const FUNCTION_CACHE_CONFIG: u32 = 0x1_0000;

wire_struct! {
    /// `cuOccupancyMaxActiveBlocksPerMultiprocessor`. Reply: [`OccupancyReply`].
    pub struct Occupancy = 24 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// Function.
        pub function: u32 = 4,
        /// Threads of a block.
        pub block_threads: u32 = 8,
        /// `CUoccupancy_flags`.
        pub flags: u32 = 12,
        /// Bytes of dynamic shared memory.
        pub shared_bytes: u64 = 16,
    }
}

wire_struct! {
    /// Answer to `Occupancy`.
    pub struct OccupancyReply = 8 {
        /// Blocks that one multiprocessor holds.
        pub blocks: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// `cuModuleGetGlobal`. The tail is the name. Reply: [`GlobalReply`], or not found.
    pub struct GlobalGet = 16 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// Module.
        pub module: u32 = 4,
        /// Bytes of the name.
        pub name_bytes: u32 = 8,
        /// Zero.
        pub reserved: u32 = 12,
    }
}

wire_struct! {
    /// Where a variable lies.
    pub struct GlobalReply = 16 {
        /// Device address.
        pub address: u64 = 0,
        /// Its size.
        pub bytes: u64 = 8,
    }
}
