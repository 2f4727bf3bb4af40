//! Enumerations of the driver API, as far as the shims know their members.

/// `CUdevice_attribute` ids that the shims read themselves.
pub mod attribute {
    use core::ffi::c_int;

    /// Threads of a block.
    pub const MAX_THREADS_PER_BLOCK: c_int = 1;
    /// Threads of a block in x; y and z follow.
    pub const MAX_BLOCK_DIM_X: c_int = 2;
    /// Blocks of a grid in x; y and z follow.
    pub const MAX_GRID_DIM_X: c_int = 5;
    /// Bytes of shared memory of a block.
    pub const MAX_SHARED_MEMORY_PER_BLOCK: c_int = 8;
    /// Bytes of constant memory.
    pub const TOTAL_CONSTANT_MEMORY: c_int = 9;
    /// Threads of a warp.
    pub const WARP_SIZE: c_int = 10;
    /// Largest pitch of a copy, bytes.
    pub const MAX_PITCH: c_int = 11;
    /// Registers of a block.
    pub const MAX_REGISTERS_PER_BLOCK: c_int = 12;
    /// Clock in kHz.
    pub const CLOCK_RATE: c_int = 13;
    /// Alignment of textures, bytes.
    pub const TEXTURE_ALIGNMENT: c_int = 14;
    /// Number of multiprocessors.
    pub const MULTIPROCESSOR_COUNT: c_int = 16;
    /// Kernels reach pinned host memory.
    pub const CAN_MAP_HOST_MEMORY: c_int = 19;
    /// PCI bus number.
    pub const PCI_BUS_ID: c_int = 33;
    /// PCI device (slot) number.
    pub const PCI_DEVICE_ID: c_int = 34;
    /// Threads of a multiprocessor.
    pub const MAX_THREADS_PER_MULTIPROCESSOR: c_int = 39;
    /// Host and device addresses are told apart by their value.
    pub const UNIFIED_ADDRESSING: c_int = 41;
    /// PCI domain number.
    pub const PCI_DOMAIN_ID: c_int = 50;
    /// Compute capability, major.
    pub const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
    /// Compute capability, minor.
    pub const COMPUTE_CAPABILITY_MINOR: c_int = 76;
    /// Streams have priorities.
    pub const STREAM_PRIORITIES_SUPPORTED: c_int = 78;
    /// Whether managed memory is supported.
    pub const MANAGED_MEMORY: c_int = 83;
    /// Registered host memory is reached by its host address.
    pub const CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: c_int = 91;
    /// Whether cooperative launches are supported.
    pub const COOPERATIVE_LAUNCH: c_int = 95;
    /// Bytes of shared memory of a block that asks for more.
    pub const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;
    /// Host memory can be registered.
    pub const HOST_REGISTER_SUPPORTED: c_int = 99;
    /// The calls of virtual memory management.
    pub const VIRTUAL_MEMORY_MANAGEMENT: c_int = 102;
    /// Stream-ordered allocation, 0 or 1.
    pub const MEMORY_POOLS_SUPPORTED: c_int = 115;
    /// Clusters of blocks.
    pub const CLUSTER_LAUNCH: c_int = 120;
    /// Words of 64 bits in stream memory operations, of their second version.
    pub const CAN_USE_64_BIT_STREAM_MEM_OPS: c_int = 122;
    /// Stream memory operations that wait until bits are clear.
    pub const CAN_USE_STREAM_WAIT_VALUE_NOR: c_int = 123;
}

/// `CUfunction_attribute` ids that the shims read themselves.
pub mod function_attribute {
    use core::ffi::c_uint;

    /// Threads of a block.
    pub const MAX_THREADS_PER_BLOCK: c_uint = 0;
    /// Bytes of static shared memory.
    pub const SHARED_SIZE_BYTES: c_uint = 1;
    /// Bytes of constant memory.
    pub const CONST_SIZE_BYTES: c_uint = 2;
    /// Bytes of local memory of a thread.
    pub const LOCAL_SIZE_BYTES: c_uint = 3;
    /// Registers of a thread.
    pub const NUM_REGS: c_uint = 4;
    /// PTX architecture, 10 * major + minor.
    pub const PTX_VERSION: c_uint = 5;
    /// Binary architecture, 10 * major + minor.
    pub const BINARY_VERSION: c_uint = 6;
    /// Compiled with `-Xptxas --dlcm=ca`.
    pub const CACHE_MODE_CA: c_uint = 7;
    /// Bytes of dynamic shared memory that a launch may ask for.
    pub const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_uint = 8;
    /// Preferred split of cache and shared memory, percent; -1: none.
    pub const PREFERRED_SHARED_MEMORY_CARVEOUT: c_uint = 9;
    /// A launch must name a cluster.
    pub const CLUSTER_SIZE_MUST_BE_SET: c_uint = 10;
    /// Cluster that the kernel was compiled for: width; height and depth follow.
    pub const REQUIRED_CLUSTER_WIDTH: c_uint = 11;
    /// Clusters of more blocks than every device can hold.
    pub const NON_PORTABLE_CLUSTER_SIZE_ALLOWED: c_uint = 14;
    /// The preferred `CUclusterSchedulingPolicy` of launches.
    pub const CLUSTER_SCHEDULING_POLICY_PREFERENCE: c_uint = 15;
    /// One above the last.
    pub const MAX: c_uint = 16;
}

/// `CUlaunchAttributeID`
pub mod launch_attribute {
    use core::ffi::c_uint;

    /// An attribute without an effect.
    pub const IGNORE: c_uint = 0;
    /// Persisting part of the L2 cache: a hint.
    pub const ACCESS_POLICY_WINDOW: c_uint = 1;
    /// The launch is a cooperative one, as `cuLaunchCooperativeKernel` makes it.
    pub const COOPERATIVE: c_uint = 2;
    /// How a thread waits for the stream: a hint.
    pub const SYNCHRONIZATION_POLICY: c_uint = 3;
    /// Blocks of a cluster in x, y, z.
    pub const CLUSTER_DIMENSION: c_uint = 4;
    /// A scheduling hint, which may be ignored.
    pub const CLUSTER_SCHEDULING_POLICY_PREFERENCE: c_uint = 5;
    /// May begin before its predecessor in the stream has ended.
    pub const PROGRAMMATIC_STREAM_SERIALIZATION: c_uint = 6;
    /// An event that the kernel triggers.
    pub const PROGRAMMATIC_EVENT: c_uint = 7;
    /// Priority of the kernel.
    pub const PRIORITY: c_uint = 8;
    /// A hint for the order of memory operations, which may be ignored.
    pub const MEM_SYNC_DOMAIN_MAP: c_uint = 9;
    /// A hint for the order of memory operations, which may be ignored.
    pub const MEM_SYNC_DOMAIN: c_uint = 10;
    /// A wish besides the cluster dimension.
    pub const PREFERRED_CLUSTER_DIMENSION: c_uint = 11;
    /// An event of the launch's completion.
    pub const LAUNCH_COMPLETION_EVENT: c_uint = 12;
    /// A graph node that kernels may change.
    pub const DEVICE_UPDATABLE_KERNEL_NODE: c_uint = 13;
    /// A hint for the size of shared memory in percent, which may be ignored.
    pub const PREFERRED_SHARED_MEMORY_CARVEOUT: c_uint = 14;
    /// A scheduling hint, which may be ignored.
    pub const NVLINK_UTIL_CENTRIC_SCHEDULING: c_uint = 16;
}

/// `CUmemPool_attribute`
pub mod pool_attribute {
    use core::ffi::c_uint;

    /// Memory freed on another stream is used again behind events; int.
    pub const REUSE_FOLLOW_EVENT_DEPENDENCIES: c_uint = 1;
    /// Memory whose free is over is used again; int.
    pub const REUSE_ALLOW_OPPORTUNISTIC: c_uint = 2;
    /// A wait is put in so that memory can be used again; int.
    pub const REUSE_ALLOW_INTERNAL_DEPENDENCIES: c_uint = 3;
    /// Bytes that the pool keeps though nobody has them; u64.
    pub const RELEASE_THRESHOLD: c_uint = 4;
    /// Bytes of the device that the pool has; u64.
    pub const RESERVED_MEM_CURRENT: c_uint = 5;
    /// The most of it since it was set to 0; u64.
    pub const RESERVED_MEM_HIGH: c_uint = 6;
    /// Bytes that are given out; u64.
    pub const USED_MEM_CURRENT: c_uint = 7;
    /// The most of it since it was set to 0; u64.
    pub const USED_MEM_HIGH: c_uint = 8;
}

/// `CUpointer_attribute`
pub mod pointer_attribute {
    use core::ffi::c_uint;

    /// Context of the memory, `CUcontext`.
    pub const CONTEXT: c_uint = 1;
    /// The `CUmemorytype` of the memory.
    pub const MEMORY_TYPE: c_uint = 2;
    /// The address by which kernels reach it.
    pub const DEVICE_POINTER: c_uint = 3;
    /// The address by which the host reaches it.
    pub const HOST_POINTER: c_uint = 4;
    /// Copies to and from it always synchronise.
    pub const SYNC_MEMOPS: c_uint = 6;
    /// A number that no other allocation of the process has, u64.
    pub const BUFFER_ID: c_uint = 7;
    /// Whether the memory is managed memory.
    pub const IS_MANAGED: c_uint = 8;
    /// Ordinal of the device.
    pub const DEVICE_ORDINAL: c_uint = 9;
    /// Whether `cuIpcGetMemHandle` takes it.
    pub const IS_LEGACY_CUDA_IPC_CAPABLE: c_uint = 10;
    /// Start of the allocation.
    pub const RANGE_START_ADDR: c_uint = 11;
    /// Size of the allocation in bytes.
    pub const RANGE_SIZE: c_uint = 12;
    /// Whether there is memory at the address.
    pub const MAPPED: c_uint = 13;
    /// Handle types that were asked for.
    pub const ALLOWED_HANDLE_TYPES: c_uint = 14;
    /// Whether other devices may reach it.
    pub const IS_GPU_DIRECT_RDMA_CAPABLE: c_uint = 15;
    /// 1 read, 3 read and write.
    pub const ACCESS_FLAGS: c_uint = 16;
    /// Pool of the memory, or null.
    pub const MEMPOOL_HANDLE: c_uint = 17;
}

/// `CUlimit`
pub mod limit {
    use core::ffi::c_uint;

    /// Bytes of stack of a thread.
    pub const STACK_SIZE: c_uint = 0;
    /// Bytes of the `printf` buffer.
    pub const PRINTF_FIFO_SIZE: c_uint = 1;
    /// Bytes of the heap of `malloc` in kernels.
    pub const MALLOC_HEAP_SIZE: c_uint = 2;
    /// Depth of device-side synchronization, for dynamic parallelism.
    pub const DEV_RUNTIME_SYNC_DEPTH: c_uint = 3;
    /// Number of outstanding device-side launches, for dynamic parallelism.
    pub const DEV_RUNTIME_PENDING_LAUNCH_COUNT: c_uint = 4;
    /// Bytes, a hint.
    pub const MAX_L2_FETCH_GRANULARITY: c_uint = 5;
    /// Bytes of the L2 cache that are set aside for persisting accesses.
    pub const PERSISTING_L2_CACHE_SIZE: c_uint = 6;
}

/// `CUstreamCaptureMode`
pub mod capture_mode {
    use core::ffi::c_uint;

    /// Calls that are not safe during a capture are refused in all threads.
    pub const GLOBAL: c_uint = 0;
    /// In the capturing thread.
    pub const THREAD_LOCAL: c_uint = 1;
    /// Potentially unsafe calls are allowed in every thread during the capture.
    pub const RELAXED: c_uint = 2;
}

/// `CUstreamCaptureStatus`
pub mod capture_status {
    use core::ffi::c_uint;

    /// The stream does not capture.
    pub const NONE: c_uint = 0;
    /// The stream is being captured.
    pub const ACTIVE: c_uint = 1;
    /// It did until a call that is not allowed; the capture must be ended.
    pub const INVALIDATED: c_uint = 2;
}

/// `CUgraphExecUpdateResult`
pub mod graph_update {
    use core::ffi::c_uint;

    /// The instantiated graph was updated.
    pub const SUCCESS: c_uint = 0;
    /// Failed for another reason.
    pub const ERROR: c_uint = 1;
    /// Nodes or edges are not the same.
    pub const TOPOLOGY_CHANGED: c_uint = 2;
    /// A node is of another type.
    pub const NODE_TYPE_CHANGED: c_uint = 3;
    /// A kernel node has another function, which is not allowed.
    pub const FUNCTION_CHANGED: c_uint = 4;
    /// A parameter that cannot be changed has changed.
    pub const PARAMETERS_CHANGED: c_uint = 5;
    /// Something about the node is not supported.
    pub const NOT_SUPPORTED: c_uint = 6;
}

/// `CUgraphNodeType`
pub mod graph_node {
    use core::ffi::c_uint;

    /// The node launches a kernel.
    pub const KERNEL: c_uint = 0;
    /// The node copies memory.
    pub const MEMCPY: c_uint = 1;
    /// The node fills memory.
    pub const MEMSET: c_uint = 2;
    /// A function of the host.
    pub const HOST: c_uint = 3;
    /// The node runs a child graph.
    pub const GRAPH: c_uint = 4;
    /// The node does nothing but order other nodes.
    pub const EMPTY: c_uint = 5;
    /// A wait for an event.
    pub const WAIT_EVENT: c_uint = 6;
    /// A record of an event.
    pub const EVENT_RECORD: c_uint = 7;
    /// Operations on words of memory.
    pub const BATCH_MEM_OP: c_uint = 12;
}

/// `CUstreamBatchMemOpType`
pub mod memory_operation {
    use core::ffi::c_uint;

    /// Waits until a word of 32 bits compares.
    pub const WAIT_VALUE_32: c_uint = 1;
    /// Writes a word of 32 bits.
    pub const WRITE_VALUE_32: c_uint = 2;
    /// Makes remote writes visible.
    pub const FLUSH_REMOTE_WRITES: c_uint = 3;
    /// Waits until a word of 64 bits compares.
    pub const WAIT_VALUE_64: c_uint = 4;
    /// Writes a word of 64 bits.
    pub const WRITE_VALUE_64: c_uint = 5;
    /// Orders writes before writes.
    pub const BARRIER: c_uint = 6;
}

/// `CUstreamWaitValue_flags`
pub mod wait_value {
    use core::ffi::c_uint;

    /// Until the word is the value or greater, by a signed difference.
    pub const GEQ: c_uint = 0;
    /// Until it is the value.
    pub const EQ: c_uint = 1;
    /// Until it has a bit of the value.
    pub const AND: c_uint = 2;
    /// Until it or the value lacks a bit.
    pub const NOR: c_uint = 3;
    /// Added: remote writes before it are visible afterwards.
    pub const FLUSH: c_uint = 1 << 30;
}
