//! Structures of the driver API. Layouts are those of CUDA 12 and 13, which are the same here; sizes and
//! offsets are asserted.

use core::ffi::{c_int, c_uint, c_void};

use super::handles::{CUcontext, CUdeviceptr, CUfunction, CUgraphNode, CUkernel, CUstream};

layout! {
    /// One side of a 2D copy: the first or second half of `CUDA_MEMCPY2D`.
    pub struct Side2D = 56 {
        /// Bytes from the start of a row.
        pub x: usize = 0,
        /// Rows from the start.
        pub y: usize = 8,
        /// `CUmemorytype`: [`MEMORYTYPE_HOST`](super::MEMORYTYPE_HOST) and so on.
        pub memory_type: c_uint = 16,
        /// Address in host memory, if that is the memory type.
        pub host: *mut c_void = 24,
        /// Device memory, and unified memory.
        pub device: CUdeviceptr = 32,
        /// `CUarray`, if the memory type is an array.
        pub array: usize = 40,
        /// Bytes from row to row.
        pub pitch: usize = 48,
    }

    /// `CUDA_MEMCPY2D`
    pub struct Memcpy2D = 128 {
        /// Where the rows are read.
        pub src: Side2D = 0,
        /// Where the rows are written.
        pub dst: Side2D = 56,
        /// Bytes of a row.
        pub width: usize = 112,
        /// Number of rows.
        pub height: usize = 120,
    }

    /// One side of a 3D copy: the first or second half of `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
    pub struct Side3D = 88 {
        /// Bytes from the start of a row.
        pub x: usize = 0,
        /// Rows from the start of a slice.
        pub y: usize = 8,
        /// Slices from the start.
        pub z: usize = 16,
        /// Level of detail.
        pub lod: usize = 24,
        /// `CUmemorytype`: which of the fields below has the address.
        pub memory_type: c_uint = 32,
        /// Address in host memory, if that is the memory type.
        pub host: *mut c_void = 40,
        /// Device memory, and unified memory.
        pub device: CUdeviceptr = 48,
        /// `CUarray`, if the memory type is an array.
        pub array: usize = 56,
        /// `CUDA_MEMCPY3D_PEER`: context of the memory. Else null.
        pub context: CUcontext = 64,
        /// Bytes from row to row.
        pub pitch: usize = 72,
        /// Rows from slice to slice.
        pub height: usize = 80,
    }

    /// `CUDA_MEMCPY3D`, `CUDA_MEMCPY3D_PEER`
    pub struct Memcpy3D = 200 {
        /// Where the slices are read.
        pub src: Side3D = 0,
        /// Where the slices are written.
        pub dst: Side3D = 88,
        /// Bytes of a row.
        pub width: usize = 176,
        /// Rows of a slice.
        pub height: usize = 184,
        /// Number of slices.
        pub depth: usize = 192,
    }

    /// `CUdevprop`
    pub struct CUdevprop = 56 {
        /// Threads of a block.
        pub max_threads_per_block: c_int = 0,
        /// Threads of a block in x, y, z.
        pub max_threads_dim: [c_int; 3] = 4,
        /// Blocks of a grid in x, y, z.
        pub max_grid_size: [c_int; 3] = 16,
        /// Bytes of shared memory of a block.
        pub shared_mem_per_block: c_int = 28,
        /// Bytes of constant memory.
        pub total_constant_memory: c_int = 32,
        /// Threads of a warp.
        pub simd_width: c_int = 36,
        /// Largest pitch of a copy, bytes.
        pub mem_pitch: c_int = 40,
        /// Registers of a block.
        pub regs_per_block: c_int = 44,
        /// Clock in kHz.
        pub clock_rate: c_int = 48,
        /// Alignment of textures, bytes.
        pub texture_align: c_int = 52,
    }

    /// `CUlaunchConfig`
    pub struct CUlaunchConfig = 56 {
        /// Blocks in x, y, z.
        pub grid: [c_uint; 3] = 0,
        /// Threads in x, y, z.
        pub block: [c_uint; 3] = 12,
        /// Bytes of dynamic shared memory.
        pub shared_bytes: c_uint = 24,
        /// The stream on which the kernel is launched.
        pub stream: CUstream = 32,
        /// Array of `attribute_count` attributes.
        pub attributes: *const CUlaunchAttribute = 40,
        /// Number of attributes.
        pub attribute_count: c_uint = 48,
    }

    /// `CUlaunchAttribute`
    pub struct CUlaunchAttribute = 72 {
        /// [`launch_attribute`](super::launch_attribute)
        pub id: c_uint = 0,
        /// The value, a union.
        pub value: [u64; 8] = 8,
    }

    /// `CUmemLocation`
    pub struct CUmemLocation = 8 {
        /// [`MEM_LOCATION_DEVICE`](super::MEM_LOCATION_DEVICE) or another.
        pub kind: c_uint = 0,
        /// Ordinal of the device.
        pub id: c_int = 4,
    }

    /// `CUmemAllocationProp`
    pub struct CUmemAllocationProp = 32 {
        /// [`MEM_ALLOCATION_PINNED`](super::MEM_ALLOCATION_PINNED) or another.
        pub kind: c_uint = 0,
        /// Bits of the handle types that are wanted.
        pub handle_types: c_uint = 4,
        /// The device on which the memory is allocated.
        pub location: CUmemLocation = 8,
        /// Security attributes on Windows; null elsewhere.
        pub win32: *mut c_void = 16,
        /// Compression type, flag for remote access, usage, padding.
        pub flags: [u8; 8] = 24,
    }

    /// `CUmemAccessDesc`
    pub struct CUmemAccessDesc = 12 {
        /// The device that gets the access.
        pub location: CUmemLocation = 0,
        /// `CUmemAccess_flags`: 0 nothing, 1 read, 3 read and write.
        pub flags: c_uint = 8,
    }

    /// `CUmemPoolProps`
    pub struct CUmemPoolProps = 88 {
        /// [`MEM_ALLOCATION_PINNED`](super::MEM_ALLOCATION_PINNED) or another.
        pub kind: c_uint = 0,
        /// Bits of the handle types that are wanted.
        pub handle_types: c_uint = 4,
        /// The device whose memory the pool allocates.
        pub location: CUmemLocation = 8,
        /// Security attributes on Windows; null elsewhere.
        pub win32: *mut c_void = 16,
        /// The most bytes that it gives out; 0: as many as there are.
        pub max_size: usize = 24,
        /// Bits of what it is for, reserved bytes.
        pub rest: [u16; 28] = 32,
    }

    /// `CUctxCreateParams`
    pub struct CUctxCreateParams = 24 {
        /// Array of `affinity_count` execution affinities (`CUexecAffinityParam`).
        pub affinity: *const c_void = 0,
        /// Number of execution affinities.
        pub affinity_count: c_int = 8,
        /// Parameters of graphics interoperation (`CUctxCigParam`), or null.
        pub cig: *const c_void = 16,
    }

    /// `CUDA_KERNEL_NODE_PARAMS_v2`; version 1 ends before `kernel`.
    pub struct KernelNodeParams = 72 {
        /// The kernel that is launched; null if `kernel` names it instead.
        pub function: CUfunction = 0,
        /// Blocks in x, y, z.
        pub grid: [c_uint; 3] = 8,
        /// Threads in x, y, z.
        pub block: [c_uint; 3] = 20,
        /// Bytes of dynamic shared memory.
        pub shared_bytes: c_uint = 32,
        /// One pointer for each parameter, or null.
        pub params: *mut *mut c_void = 40,
        /// Or a buffer of parameters.
        pub extra: *mut *mut c_void = 48,
        /// The kernel, where `function` is null.
        pub kernel: CUkernel = 56,
        /// The context of the launch; null for the current one.
        pub context: CUcontext = 64,
    }

    /// `CUDA_MEMSET_NODE_PARAMS`
    pub struct MemsetNodeParams = 40 {
        /// Device address of the first element.
        pub destination: CUdeviceptr = 0,
        /// Bytes from row to row.
        pub pitch: usize = 8,
        /// The element's value, of which the lowest `element_size` bytes are written.
        pub value: c_uint = 16,
        /// Bytes of an element.
        pub element: c_uint = 20,
        /// Elements of a row.
        pub width: usize = 24,
        /// Number of rows.
        pub height: usize = 32,
    }

    /// `CUstreamBatchMemOpParams`, a union of four structures: those that wait and write have all of these
    /// fields, flushes and barriers their flags at the place of the address.
    pub struct StreamMemoryOperation = 48 {
        /// [`memory_operation`](super::memory_operation)
        pub operation: c_uint = 0,
        /// Device address of the word.
        pub address: CUdeviceptr = 8,
        /// The value to write, or to compare with; its low half where the operation is of 32 bits.
        pub value: u64 = 16,
        /// How to compare, or whether to write without a barrier.
        pub flags: c_uint = 24,
        /// Windows only.
        pub alias: CUdeviceptr = 32,
        /// Padding of the union.
        pub rest: u64 = 40,
    }

    /// `CUDA_BATCH_MEM_OP_NODE_PARAMS_v2`
    pub struct BatchMemoryNodeParams = 32 {
        /// Context of the node.
        pub context: CUcontext = 0,
        /// How many operations.
        pub count: c_uint = 8,
        /// The operations.
        pub operations: *mut StreamMemoryOperation = 16,
        /// Zero.
        pub flags: c_uint = 24,
    }

    /// `CUgraphExecUpdateResultInfo`
    pub struct CUgraphExecUpdateResultInfo = 24 {
        /// [`graph_update`](super::graph_update)
        pub result: c_uint = 0,
        /// The node at fault.
        pub error_node: CUgraphNode = 8,
        /// A node before it.
        pub error_from_node: CUgraphNode = 16,
    }

    /// `CUDA_GRAPH_INSTANTIATE_PARAMS`
    pub struct GraphInstantiateParams = 32 {
        /// Flags of the instantiation.
        pub flags: u64 = 0,
        /// Stream of the upload.
        pub upload_stream: CUstream = 8,
        /// The node at fault.
        pub error_node: CUgraphNode = 16,
        /// 0: success, 1: error.
        pub result: c_uint = 24,
    }
}

impl CUlaunchAttribute {
    /// The first three 32-bit words of the value: every value that the shims read lies there.
    #[must_use]
    pub const fn words(&self) -> [u32; 3] {
        [self.value[0] as u32, (self.value[0] >> 32) as u32, self.value[1] as u32]
    }
}
