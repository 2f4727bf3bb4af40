//! Structures of the driver API. Layouts are those of CUDA 12 and 13, which are the same here; sizes and
//! offsets are asserted.

use core::ffi::{c_int, c_uint, c_void};

use super::handles::{CUcontext, CUdeviceptr, CUfunction, CUgraphNode, CUkernel, CUstream};

layout! {
    /// One side of a 2D copy: the first or second half of `CUDA_MEMCPY2D`.
    pub struct Side2D = 56 {
        /// Offset in bytes from the start of a row.
        pub x: usize = 0,
        /// Index of the first row.
        pub y: usize = 8,
        /// `CUmemorytype`: [`MEMORYTYPE_HOST`](super::MEMORYTYPE_HOST) and so on.
        pub memory_type: c_uint = 16,
        /// Address in host memory, if that is the memory type.
        pub host: *mut c_void = 24,
        /// Address in device or unified memory, if that is the memory type.
        pub device: CUdeviceptr = 32,
        /// `CUarray`, if the memory type is an array.
        pub array: usize = 40,
        /// Distance in bytes from one row to the next.
        pub pitch: usize = 48,
    }

    /// `CUDA_MEMCPY2D`, the arguments of `cuMemcpy2D`.
    pub struct Memcpy2D = 128 {
        /// Memory that is read.
        pub src: Side2D = 0,
        /// Memory that is written.
        pub dst: Side2D = 56,
        /// Number of bytes of a row to copy.
        pub width: usize = 112,
        /// Number of rows.
        pub height: usize = 120,
    }

    /// One side of a 3D copy: the first or second half of `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
    pub struct Side3D = 88 {
        /// Offset in bytes from the start of a row.
        pub x: usize = 0,
        /// Index of the first row in a slice.
        pub y: usize = 8,
        /// Index of the first slice.
        pub z: usize = 16,
        /// Mipmap level of an array.
        pub lod: usize = 24,
        /// `CUmemorytype`: which of the fields below has the address.
        pub memory_type: c_uint = 32,
        /// Address in host memory, if that is the memory type.
        pub host: *mut c_void = 40,
        /// Address in device or unified memory, if that is the memory type.
        pub device: CUdeviceptr = 48,
        /// `CUarray`, if the memory type is an array.
        pub array: usize = 56,
        /// Context of the memory in `CUDA_MEMCPY3D_PEER`; otherwise null.
        pub context: CUcontext = 64,
        /// Distance in bytes from one row to the next.
        pub pitch: usize = 72,
        /// Number of rows from one slice to the next.
        pub height: usize = 80,
    }

    /// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`, the arguments of 3D copies.
    pub struct Memcpy3D = 200 {
        /// Memory that is read.
        pub src: Side3D = 0,
        /// Memory that is written.
        pub dst: Side3D = 88,
        /// Number of bytes of a row to copy.
        pub width: usize = 176,
        /// Number of rows of a slice to copy.
        pub height: usize = 184,
        /// Number of slices.
        pub depth: usize = 192,
    }

    /// `CUdevprop`, the properties that `cuDeviceGetProperties` stores.
    pub struct CUdevprop = 56 {
        /// Maximum number of threads of a block.
        pub max_threads_per_block: c_int = 0,
        /// Maximum number of threads of a block in x, y and z.
        pub max_threads_dim: [c_int; 3] = 4,
        /// Maximum number of blocks of a grid in x, y and z.
        pub max_grid_size: [c_int; 3] = 16,
        /// Maximum shared memory of a block in bytes.
        pub shared_mem_per_block: c_int = 28,
        /// Constant memory of the device in bytes.
        pub total_constant_memory: c_int = 32,
        /// Number of threads of a warp.
        pub simd_width: c_int = 36,
        /// Maximum pitch of a copy in bytes.
        pub mem_pitch: c_int = 40,
        /// Maximum number of registers of a block.
        pub regs_per_block: c_int = 44,
        /// Clock rate in kHz.
        pub clock_rate: c_int = 48,
        /// Alignment of textures in bytes.
        pub texture_align: c_int = 52,
    }

    /// `CUlaunchConfig`, the arguments of `cuLaunchKernelEx`.
    pub struct CUlaunchConfig = 56 {
        /// Number of blocks in x, y and z.
        pub grid: [c_uint; 3] = 0,
        /// Number of threads of a block in x, y and z.
        pub block: [c_uint; 3] = 12,
        /// Dynamic shared memory of a block in bytes.
        pub shared_bytes: c_uint = 24,
        /// The stream on which the kernel is launched.
        pub stream: CUstream = 32,
        /// Array of `attribute_count` attributes.
        pub attributes: *const CUlaunchAttribute = 40,
        /// Number of attributes.
        pub attribute_count: c_uint = 48,
    }

    /// `CUlaunchAttribute`, one attribute of a launch.
    pub struct CUlaunchAttribute = 72 {
        /// Id of the attribute, one of [`launch_attribute`](super::launch_attribute).
        pub id: c_uint = 0,
        /// Value of the attribute, a union whose layout depends on the id.
        pub value: [u64; 8] = 8,
    }

    /// `CUmemLocation`: where memory is, or who accesses it.
    pub struct CUmemLocation = 8 {
        /// Kind of the location, [`MEM_LOCATION_DEVICE`](super::MEM_LOCATION_DEVICE) or another
        /// `CUmemLocationType`.
        pub kind: c_uint = 0,
        /// Ordinal of the device.
        pub id: c_int = 4,
    }

    /// `CUmemAllocationProp`, the properties of physical memory.
    pub struct CUmemAllocationProp = 32 {
        /// Kind of the allocation, [`MEM_ALLOCATION_PINNED`](super::MEM_ALLOCATION_PINNED) or another.
        pub kind: c_uint = 0,
        /// Combination of the types of shareable handles that the program requests.
        pub handle_types: c_uint = 4,
        /// The device on which the memory is allocated.
        pub location: CUmemLocation = 8,
        /// Security attributes on Windows; null elsewhere.
        pub win32: *mut c_void = 16,
        /// Compression type, flag for remote access, usage, padding.
        pub flags: [u8; 8] = 24,
    }

    /// `CUmemAccessDesc`, the access rights of one location.
    pub struct CUmemAccessDesc = 12 {
        /// The device that is granted access.
        pub location: CUmemLocation = 0,
        /// `CUmemAccess_flags`: 0 for none, 1 for read, 3 for read and write.
        pub flags: c_uint = 8,
    }

    /// `CUmemPoolProps`, the properties of a memory pool.
    pub struct CUmemPoolProps = 88 {
        /// Kind of the allocations, [`MEM_ALLOCATION_PINNED`](super::MEM_ALLOCATION_PINNED) or another.
        pub kind: c_uint = 0,
        /// Combination of the types of shareable handles that the program requests.
        pub handle_types: c_uint = 4,
        /// The device whose memory the pool allocates.
        pub location: CUmemLocation = 8,
        /// Security attributes on Windows; null elsewhere.
        pub win32: *mut c_void = 16,
        /// Maximum number of bytes that can be allocated from the pool; 0 for no limit.
        pub max_size: usize = 24,
        /// Bits of the pool's intended use, then reserved words.
        pub rest: [u16; 28] = 32,
    }

    /// `CUctxCreateParams`, the parameters of `cuCtxCreate_v4`.
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
        /// Number of blocks in x, y and z.
        pub grid: [c_uint; 3] = 8,
        /// Number of threads of a block in x, y and z.
        pub block: [c_uint; 3] = 20,
        /// Dynamic shared memory of a block in bytes.
        pub shared_bytes: c_uint = 32,
        /// Array of pointers, one to each parameter, or null.
        pub params: *mut *mut c_void = 40,
        /// List that describes a buffer with all parameters, used instead of `params`.
        pub extra: *mut *mut c_void = 48,
        /// The kernel, used where `function` is null.
        pub kernel: CUkernel = 56,
        /// Context of the launch; null for the current one.
        pub context: CUcontext = 64,
    }

    /// `CUDA_MEMSET_NODE_PARAMS`, the parameters of a fill node.
    pub struct MemsetNodeParams = 40 {
        /// Device address of the first element.
        pub destination: CUdeviceptr = 0,
        /// Distance in bytes from one row to the next.
        pub pitch: usize = 8,
        /// The element's value, of which the lowest `element_size` bytes are written.
        pub value: c_uint = 16,
        /// Size of an element in bytes.
        pub element: c_uint = 20,
        /// Number of elements of a row.
        pub width: usize = 24,
        /// Number of rows.
        pub height: usize = 32,
    }

    /// `CUstreamBatchMemOpParams`, a union of four structures. Waits and writes have all of these fields;
    /// flushes and barriers store their flags at the offset of the address.
    pub struct StreamMemoryOperation = 48 {
        /// Kind of the operation, one of [`memory_operation`](super::memory_operation).
        pub operation: c_uint = 0,
        /// Device address of the word.
        pub address: CUdeviceptr = 8,
        /// Value to write or to compare with. Operations on 32 bits use its low half.
        pub value: u64 = 16,
        /// Comparison of a wait, or whether a write is preceded by a barrier.
        pub flags: c_uint = 24,
        /// Alias of the address, used on Windows only.
        pub alias: CUdeviceptr = 32,
        /// Padding of the union.
        pub rest: u64 = 40,
    }

    /// `CUDA_BATCH_MEM_OP_NODE_PARAMS_v2`, the parameters of a node of stream memory operations.
    pub struct BatchMemoryNodeParams = 32 {
        /// Context in which the node runs.
        pub context: CUcontext = 0,
        /// Number of operations.
        pub count: c_uint = 8,
        /// Array of `count` operations.
        pub operations: *mut StreamMemoryOperation = 16,
        /// Reserved by CUDA; zero.
        pub flags: c_uint = 24,
    }

    /// `CUgraphExecUpdateResultInfo`, the outcome of a graph update.
    pub struct CUgraphExecUpdateResultInfo = 24 {
        /// Outcome of the update, one of [`graph_update`](super::graph_update).
        pub result: c_uint = 0,
        /// The node that prevented the update.
        pub error_node: CUgraphNode = 8,
        /// The node at the start of the edge that prevented the update.
        pub error_from_node: CUgraphNode = 16,
    }

    /// `CUDA_GRAPH_INSTANTIATE_PARAMS`, arguments and results of `cuGraphInstantiateWithParams`.
    pub struct GraphInstantiateParams = 32 {
        /// Flags of the instantiation.
        pub flags: u64 = 0,
        /// Stream on which the graph is uploaded.
        pub upload_stream: CUstream = 8,
        /// The node that prevented the instantiation.
        pub error_node: CUgraphNode = 16,
        /// Outcome of the instantiation: 0 for success, 1 for an error.
        pub result: c_uint = 24,
    }
}

impl CUlaunchAttribute {
    /// Returns the first three 32-bit words of the value, which hold every value that the shims read.
    #[must_use]
    pub const fn words(&self) -> [u32; 3] {
        [self.value[0] as u32, (self.value[0] >> 32) as u32, self.value[1] as u32]
    }
}
