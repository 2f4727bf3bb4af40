//! Enumerations of the driver API, as far as the shims know their members.

/// `CUdevice_attribute` ids that the shims read themselves.
pub mod attribute {
    use core::ffi::c_int;

    /// Maximum number of threads of a block.
    pub const MAX_THREADS_PER_BLOCK: c_int = 1;
    /// Maximum number of threads of a block in x. The ids for y and z follow.
    pub const MAX_BLOCK_DIM_X: c_int = 2;
    /// Maximum number of blocks of a grid in x. The ids for y and z follow.
    pub const MAX_GRID_DIM_X: c_int = 5;
    /// Maximum shared memory of a block in bytes.
    pub const MAX_SHARED_MEMORY_PER_BLOCK: c_int = 8;
    /// Constant memory of a device in bytes.
    pub const TOTAL_CONSTANT_MEMORY: c_int = 9;
    /// Number of threads of a warp.
    pub const WARP_SIZE: c_int = 10;
    /// Maximum pitch of a copy in bytes.
    pub const MAX_PITCH: c_int = 11;
    /// Maximum number of registers of a block.
    pub const MAX_REGISTERS_PER_BLOCK: c_int = 12;
    /// Clock rate of the multiprocessors in kHz.
    pub const CLOCK_RATE: c_int = 13;
    /// Alignment of textures in bytes.
    pub const TEXTURE_ALIGNMENT: c_int = 14;
    /// Number of multiprocessors.
    pub const MULTIPROCESSOR_COUNT: c_int = 16;
    /// Whether kernels can access pinned host memory.
    pub const CAN_MAP_HOST_MEMORY: c_int = 19;
    /// PCI bus number.
    pub const PCI_BUS_ID: c_int = 33;
    /// PCI device (slot) number.
    pub const PCI_DEVICE_ID: c_int = 34;
    /// Maximum number of resident threads of a multiprocessor.
    pub const MAX_THREADS_PER_MULTIPROCESSOR: c_int = 39;
    /// Whether host and device share one address space.
    pub const UNIFIED_ADDRESSING: c_int = 41;
    /// PCI domain number.
    pub const PCI_DOMAIN_ID: c_int = 50;
    /// Major number of the compute capability.
    pub const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
    /// Minor number of the compute capability.
    pub const COMPUTE_CAPABILITY_MINOR: c_int = 76;
    /// Whether streams have priorities.
    pub const STREAM_PRIORITIES_SUPPORTED: c_int = 78;
    /// Whether managed memory is supported.
    pub const MANAGED_MEMORY: c_int = 83;
    /// Whether kernels access registered host memory by its host address.
    pub const CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: c_int = 91;
    /// Whether cooperative launches are supported.
    pub const COOPERATIVE_LAUNCH: c_int = 95;
    /// Maximum shared memory in bytes of a block whose kernel has opted in to more.
    pub const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;
    /// Whether host memory can be registered.
    pub const HOST_REGISTER_SUPPORTED: c_int = 99;
    /// Whether the virtual memory management calls are supported.
    pub const VIRTUAL_MEMORY_MANAGEMENT: c_int = 102;
    /// Whether stream-ordered allocation is supported.
    pub const MEMORY_POOLS_SUPPORTED: c_int = 115;
    /// Whether clusters of blocks are supported.
    pub const CLUSTER_LAUNCH: c_int = 120;
    /// Whether stream memory operations of the second version can access words of 64 bits.
    pub const CAN_USE_64_BIT_STREAM_MEM_OPS: c_int = 122;
    /// Whether stream memory operations can wait until bits are clear.
    pub const CAN_USE_STREAM_WAIT_VALUE_NOR: c_int = 123;
}

/// `CUfunction_attribute` ids that the shims read themselves.
pub mod function_attribute {
    use core::ffi::c_uint;

    /// Maximum number of threads of a block.
    pub const MAX_THREADS_PER_BLOCK: c_uint = 0;
    /// Static shared memory of a block in bytes.
    pub const SHARED_SIZE_BYTES: c_uint = 1;
    /// Constant memory of the kernel in bytes.
    pub const CONST_SIZE_BYTES: c_uint = 2;
    /// Local memory of a thread in bytes.
    pub const LOCAL_SIZE_BYTES: c_uint = 3;
    /// Number of registers of a thread.
    pub const NUM_REGS: c_uint = 4;
    /// PTX architecture the kernel was compiled for, 10 * major + minor.
    pub const PTX_VERSION: c_uint = 5;
    /// Binary architecture the kernel was compiled for, 10 * major + minor.
    pub const BINARY_VERSION: c_uint = 6;
    /// Whether the kernel was compiled with `-Xptxas --dlcm=ca`.
    pub const CACHE_MODE_CA: c_uint = 7;
    /// Maximum dynamic shared memory of a launch in bytes.
    pub const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_uint = 8;
    /// Preferred share of shared memory in the L1 cache, in percent; -1 for no preference.
    pub const PREFERRED_SHARED_MEMORY_CARVEOUT: c_uint = 9;
    /// Whether a launch must state the cluster's dimensions.
    pub const CLUSTER_SIZE_MUST_BE_SET: c_uint = 10;
    /// Width of the cluster that the kernel was compiled for. The ids for height and depth follow.
    pub const REQUIRED_CLUSTER_WIDTH: c_uint = 11;
    /// Whether clusters may have more blocks than every device is guaranteed to hold.
    pub const NON_PORTABLE_CLUSTER_SIZE_ALLOWED: c_uint = 14;
    /// The preferred `CUclusterSchedulingPolicy` of launches.
    pub const CLUSTER_SCHEDULING_POLICY_PREFERENCE: c_uint = 15;
    /// Number of attributes, one above the last id.
    pub const MAX: c_uint = 16;
}

/// `CUlaunchAttributeID`, the ids of launch attributes.
pub mod launch_attribute {
    use core::ffi::c_uint;

    /// The attribute has no effect.
    pub const IGNORE: c_uint = 0;
    /// Part of the memory to keep in the L2 cache, which is a hint.
    pub const ACCESS_POLICY_WINDOW: c_uint = 1;
    /// Whether the launch is cooperative, as by `cuLaunchCooperativeKernel`.
    pub const COOPERATIVE: c_uint = 2;
    /// How threads wait for the stream, which is a hint.
    pub const SYNCHRONIZATION_POLICY: c_uint = 3;
    /// Number of blocks of a cluster in x, y and z.
    pub const CLUSTER_DIMENSION: c_uint = 4;
    /// A scheduling hint, which may be ignored.
    pub const CLUSTER_SCHEDULING_POLICY_PREFERENCE: c_uint = 5;
    /// Whether the kernel may start before its predecessor in the stream has ended.
    pub const PROGRAMMATIC_STREAM_SERIALIZATION: c_uint = 6;
    /// Event that the kernel triggers while it runs.
    pub const PROGRAMMATIC_EVENT: c_uint = 7;
    /// Priority of the kernel.
    pub const PRIORITY: c_uint = 8;
    /// A hint for the order of memory operations, which may be ignored.
    pub const MEM_SYNC_DOMAIN_MAP: c_uint = 9;
    /// A hint for the order of memory operations, which may be ignored.
    pub const MEM_SYNC_DOMAIN: c_uint = 10;
    /// Cluster dimension that is preferred to the required one where the device can provide it.
    pub const PREFERRED_CLUSTER_DIMENSION: c_uint = 11;
    /// Event that is recorded once all blocks of the launch have started.
    pub const LAUNCH_COMPLETION_EVENT: c_uint = 12;
    /// Whether kernels may update the launch's graph node.
    pub const DEVICE_UPDATABLE_KERNEL_NODE: c_uint = 13;
    /// A hint for the size of shared memory in percent, which may be ignored.
    pub const PREFERRED_SHARED_MEMORY_CARVEOUT: c_uint = 14;
    /// A scheduling hint, which may be ignored.
    pub const NVLINK_UTIL_CENTRIC_SCHEDULING: c_uint = 16;
}

/// `CUmemPool_attribute`, the ids of memory pool attributes.
pub mod pool_attribute {
    use core::ffi::c_uint;

    /// Whether freed memory is reused on other streams that wait for the free by events; int.
    pub const REUSE_FOLLOW_EVENT_DEPENDENCIES: c_uint = 1;
    /// Whether memory is reused on other streams once its free has completed; int.
    pub const REUSE_ALLOW_OPPORTUNISTIC: c_uint = 2;
    /// Whether the driver may insert a wait into a stream so that it can reuse freed memory; int.
    pub const REUSE_ALLOW_INTERNAL_DEPENDENCIES: c_uint = 3;
    /// Number of unused bytes that the pool keeps instead of returning them to the device; u64.
    pub const RELEASE_THRESHOLD: c_uint = 4;
    /// Number of bytes of device memory that the pool holds now; u64.
    pub const RESERVED_MEM_CURRENT: c_uint = 5;
    /// Maximum of [`RESERVED_MEM_CURRENT`] since this attribute was set to 0; u64.
    pub const RESERVED_MEM_HIGH: c_uint = 6;
    /// Number of bytes allocated from the pool now; u64.
    pub const USED_MEM_CURRENT: c_uint = 7;
    /// Maximum of [`USED_MEM_CURRENT`] since this attribute was set to 0; u64.
    pub const USED_MEM_HIGH: c_uint = 8;
}

/// `CUpointer_attribute`, the ids of pointer attributes.
pub mod pointer_attribute {
    use core::ffi::c_uint;

    /// Context of the memory, `CUcontext`.
    pub const CONTEXT: c_uint = 1;
    /// The `CUmemorytype` of the memory.
    pub const MEMORY_TYPE: c_uint = 2;
    /// The address by which kernels access the memory.
    pub const DEVICE_POINTER: c_uint = 3;
    /// The address by which the host accesses the memory.
    pub const HOST_POINTER: c_uint = 4;
    /// Whether copies of this memory always synchronise.
    pub const SYNC_MEMOPS: c_uint = 6;
    /// Number of the allocation, unique within the process; u64.
    pub const BUFFER_ID: c_uint = 7;
    /// Whether the memory is managed memory.
    pub const IS_MANAGED: c_uint = 8;
    /// Ordinal of the device.
    pub const DEVICE_ORDINAL: c_uint = 9;
    /// Whether `cuIpcGetMemHandle` accepts the memory.
    pub const IS_LEGACY_CUDA_IPC_CAPABLE: c_uint = 10;
    /// Start of the allocation.
    pub const RANGE_START_ADDR: c_uint = 11;
    /// Size of the allocation in bytes.
    pub const RANGE_SIZE: c_uint = 12;
    /// Whether memory is mapped at the address.
    pub const MAPPED: c_uint = 13;
    /// Types of shareable handles that were requested for the allocation.
    pub const ALLOWED_HANDLE_TYPES: c_uint = 14;
    /// Whether other PCI devices may access the memory.
    pub const IS_GPU_DIRECT_RDMA_CAPABLE: c_uint = 15;
    /// Access rights of the device: 1 for read, 3 for read and write.
    pub const ACCESS_FLAGS: c_uint = 16;
    /// Pool of the memory, or null.
    pub const MEMPOOL_HANDLE: c_uint = 17;
}

/// `CUlimit`, the ids of a context's limits.
pub mod limit {
    use core::ffi::c_uint;

    /// Size of the stack of each thread in bytes.
    pub const STACK_SIZE: c_uint = 0;
    /// Size of the buffer of `printf` in bytes.
    pub const PRINTF_FIFO_SIZE: c_uint = 1;
    /// Size of the heap of `malloc` in kernels, in bytes.
    pub const MALLOC_HEAP_SIZE: c_uint = 2;
    /// Depth of device-side synchronization, for dynamic parallelism.
    pub const DEV_RUNTIME_SYNC_DEPTH: c_uint = 3;
    /// Number of outstanding device-side launches, for dynamic parallelism.
    pub const DEV_RUNTIME_PENDING_LAUNCH_COUNT: c_uint = 4;
    /// Maximum number of bytes the L2 cache fetches at once, which is a hint.
    pub const MAX_L2_FETCH_GRANULARITY: c_uint = 5;
    /// Number of bytes of the L2 cache that are set aside for persisting accesses.
    pub const PERSISTING_L2_CACHE_SIZE: c_uint = 6;
}

/// `CUstreamCaptureMode`: which calls are refused while a stream is being captured.
pub mod capture_mode {
    use core::ffi::c_uint;

    /// Calls that are not safe during a capture are refused in all threads.
    pub const GLOBAL: c_uint = 0;
    /// Calls that are not safe during a capture are refused in the thread that captures.
    pub const THREAD_LOCAL: c_uint = 1;
    /// Potentially unsafe calls are allowed in every thread during the capture.
    pub const RELAXED: c_uint = 2;
}

/// `CUstreamCaptureStatus`, the state of a stream's capture.
pub mod capture_status {
    use core::ffi::c_uint;

    /// The stream is not being captured.
    pub const NONE: c_uint = 0;
    /// The stream is being captured.
    pub const ACTIVE: c_uint = 1;
    /// The capture failed because of a call that is not allowed, and still has to be ended.
    pub const INVALIDATED: c_uint = 2;
}

/// `CUgraphExecUpdateResult`: why an instantiated graph could not be updated.
pub mod graph_update {
    use core::ffi::c_uint;

    /// The instantiated graph was updated.
    pub const SUCCESS: c_uint = 0;
    /// The update failed for a reason that none of the other values names.
    pub const ERROR: c_uint = 1;
    /// The nodes or edges of the two graphs differ.
    pub const TOPOLOGY_CHANGED: c_uint = 2;
    /// A node is of another type.
    pub const NODE_TYPE_CHANGED: c_uint = 3;
    /// A kernel node has another function, which is not allowed.
    pub const FUNCTION_CHANGED: c_uint = 4;
    /// A parameter that cannot be changed has changed.
    pub const PARAMETERS_CHANGED: c_uint = 5;
    /// The update of this kind of node is not supported.
    pub const NOT_SUPPORTED: c_uint = 6;
}

/// `CUgraphNodeType`, the kinds of graph nodes.
pub mod graph_node {
    use core::ffi::c_uint;

    /// The node launches a kernel.
    pub const KERNEL: c_uint = 0;
    /// The node copies memory.
    pub const MEMCPY: c_uint = 1;
    /// The node fills memory.
    pub const MEMSET: c_uint = 2;
    /// The node calls a function of the program.
    pub const HOST: c_uint = 3;
    /// The node runs a child graph.
    pub const GRAPH: c_uint = 4;
    /// The node does nothing but order other nodes.
    pub const EMPTY: c_uint = 5;
    /// The node waits for an event.
    pub const WAIT_EVENT: c_uint = 6;
    /// The node records an event.
    pub const EVENT_RECORD: c_uint = 7;
    /// The node performs stream memory operations.
    pub const BATCH_MEM_OP: c_uint = 12;
}

/// `CUstreamBatchMemOpType`, the kinds of stream memory operations.
pub mod memory_operation {
    use core::ffi::c_uint;

    /// Waits until a comparison with a word of 32 bits holds.
    pub const WAIT_VALUE_32: c_uint = 1;
    /// Writes a word of 32 bits.
    pub const WRITE_VALUE_32: c_uint = 2;
    /// Makes remote writes visible.
    pub const FLUSH_REMOTE_WRITES: c_uint = 3;
    /// Waits until a comparison with a word of 64 bits holds.
    pub const WAIT_VALUE_64: c_uint = 4;
    /// Writes a word of 64 bits.
    pub const WRITE_VALUE_64: c_uint = 5;
    /// Orders writes before writes.
    pub const BARRIER: c_uint = 6;
}

/// `CUstreamWaitValue_flags`: the comparison that a wait awaits.
pub mod wait_value {
    use core::ffi::c_uint;

    /// Waits until the word is equal to or greater than the value, by their signed difference.
    pub const GEQ: c_uint = 0;
    /// Waits until the word is equal to the value.
    pub const EQ: c_uint = 1;
    /// Waits until the word and the value have a set bit in common.
    pub const AND: c_uint = 2;
    /// Waits until there is a bit that neither the word nor the value has set.
    pub const NOR: c_uint = 3;
    /// Flag for any comparison: remote writes before the wait are visible after it.
    pub const FLUSH: c_uint = 1 << 30;
}
