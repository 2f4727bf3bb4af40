//! Code. The guest sends an image when one of its functions is first needed, and only to a host that does not
//! hold an image with the same digest.

use crate::span::Span;

wire_struct! {
    /// Opens a module under a number that the guest minted. Reply: [`ModuleOpenReply`]. If the host does not
    /// hold the image, `ModuleData` messages follow, then `ModuleLoad`.
    pub struct ModuleOpen = 56 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Number for the module, minted by the guest and not in use.
        pub module: u32 = 4,
        /// Format of the image: [`IMAGE_PTX`] or [`IMAGE_CUBIN`].
        pub image: u32 = 8,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 12,
        /// Length of the image in bytes, uncompressed.
        pub bytes: u64 = 16,
        /// SHA-256 of the image. The host verifies it before it stores the image under it. A host that stores
        /// no images announces that ([`UNNAMED`](crate::facts::exec::UNNAMED)) and accepts zeros.
        pub digest: [u8; 32] = 24,
    }
}

/// [`ModuleOpen::image`]: PTX text, without a trailing zero.
pub const IMAGE_PTX: u32 = 1;
/// [`ModuleOpen::image`]: an ELF image with machine code for one architecture.
pub const IMAGE_CUBIN: u32 = 2;

wire_struct! {
    /// Tells the guest whether it must send the image.
    pub struct ModuleOpenReply = 8 {
        /// 1 if the host holds an image with that digest, otherwise 0.
        pub known: u32 = 0,
        /// Reserved: the host stores zero.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// A piece of the image, which is the tail when the span is inline. Pieces are sent in order.
    pub struct ModuleData = 40 {
        /// Number of the module, from [`ModuleOpen::module`].
        pub module: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
        /// Offset of the piece in the image.
        pub offset: u64 = 8,
        /// Bytes of the piece. The host has read them once [`RETURN_DONE`](crate::area::RETURN_DONE) counts
        /// the message.
        pub data: Span = 16,
    }
}

wire_struct! {
    /// `cuModuleLoadData`. Reply: no data; the status is that of the call. After a failure the number is free
    /// again.
    pub struct ModuleLoad = 8 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Number of the module, from [`ModuleOpen::module`].
        pub module: u32 = 4,
    }
}

wire_struct! {
    /// `cuModuleUnload`: unloads a module with its functions, after all earlier work of the session.
    pub struct ModuleUnload = 8 {
        /// Number of the module, from [`ModuleOpen::module`].
        pub module: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// Looks up a kernel and assigns it a number that the guest minted. The tail is its name, `name_bytes`
    /// long and without a zero. Reply: [`FunctionReply`], or not found.
    pub struct FunctionGet = 16 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Number of the module, from [`ModuleOpen::module`].
        pub module: u32 = 4,
        /// Number for the kernel, minted by the guest and not in use.
        pub function: u32 = 8,
        /// Length of the name in bytes.
        pub name_bytes: u32 = 12,
    }
}

wire_struct! {
    /// What `cuFuncGetAttribute` returns for the kernel, which the guest keeps.
    pub struct FunctionReply = 64 {
        /// `CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK`: maximum number of threads of a block of this kernel.
        pub max_threads: u32 = 0,
        /// `CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES`: static shared memory of a block, in bytes.
        pub shared_bytes: u32 = 4,
        /// `CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES`: constant memory of the kernel, in bytes.
        pub const_bytes: u32 = 8,
        /// `CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES`: local memory of a thread, in bytes.
        pub local_bytes: u32 = 12,
        /// `CU_FUNC_ATTRIBUTE_NUM_REGS`: registers of a thread.
        pub registers: u32 = 16,
        /// `CU_FUNC_ATTRIBUTE_PTX_VERSION`: 10 * major + minor of the PTX target.
        pub ptx_version: u32 = 20,
        /// `CU_FUNC_ATTRIBUTE_BINARY_VERSION`: 10 * major + minor of the machine code's architecture.
        pub binary_version: u32 = 24,
        /// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`: maximum dynamic shared memory of a launch, in
        /// bytes.
        pub max_dynamic_shared: u32 = 28,
        /// Length of the parameters in bytes, or 0 if the host does not know it. The guest compares it with
        /// the length that it read in the image, unless it is 0.
        pub param_bytes: u32 = 32,
        /// Reserved: the host stores zeros.
        pub reserved: [u32; 7] = 36,
    }
}

wire_struct! {
    /// `cuFuncSetAttribute` and `cuFuncSetCacheConfig`. The guest has checked the value.
    pub struct FunctionSet = 16 {
        /// Number of the kernel, from [`FunctionGet::function`].
        pub function: u32 = 0,
        /// Number of the `CUfunction_attribute`, or [`FUNCTION_CACHE_CONFIG`].
        pub attribute: u32 = 4,
        /// Value of the attribute, in the unit that CUDA gives it.
        pub value: i32 = 8,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 12,
    }
}

/// [`FunctionSet::attribute`]: the value is a `CUfunc_cache`.
pub const FUNCTION_CACHE_CONFIG: u32 = 0x1_0000;

wire_struct! {
    /// `cuOccupancyMaxActiveBlocksPerMultiprocessor`. Reply: [`OccupancyReply`].
    pub struct Occupancy = 24 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Number of the kernel, from [`FunctionGet::function`].
        pub function: u32 = 4,
        /// Number of threads of a block.
        pub block_threads: u32 = 8,
        /// `CUoccupancy_flags` that the program gave.
        pub flags: u32 = 12,
        /// Dynamic shared memory of a block in bytes.
        pub shared_bytes: u64 = 16,
    }
}

wire_struct! {
    /// Reply to [`Occupancy`].
    pub struct OccupancyReply = 8 {
        /// Number of blocks that one multiprocessor holds at a time.
        pub blocks: u32 = 0,
        /// Reserved: the host stores zero.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// `cuModuleGetGlobal`. The tail is the variable's name, `name_bytes` long and without a zero. Reply:
    /// [`GlobalReply`], or not found.
    pub struct GlobalGet = 16 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Number of the module, from [`ModuleOpen::module`].
        pub module: u32 = 4,
        /// Length of the name in bytes.
        pub name_bytes: u32 = 8,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 12,
    }
}

wire_struct! {
    /// Address and size of a variable, the reply to [`GlobalGet`].
    pub struct GlobalReply = 16 {
        /// Device address of the variable.
        pub address: u64 = 0,
        /// Size of the variable in bytes.
        pub bytes: u64 = 8,
    }
}
