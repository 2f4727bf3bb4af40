//! Types and codes of the driver API (`cuda.h`): statuses with their names and texts, handles, the structures
//! and numbers that the shims read or write, the arguments of exports ([`arg`]) and their signatures
//! ([`functions`]).

use core::ffi::c_uint;

pub mod arg;
pub mod functions;
mod handles;
mod numbers;
pub mod signature;
mod status;
mod structures;

pub use handles::{
    BlockToShared, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode,
    CUhostFn, CUkernel, CUlibrary, CUlinkState, CUmemGenericAllocationHandle, CUmemoryPool, CUmodule,
    CUstream, CUstreamCallback, CUuuid, STREAM_LEGACY, STREAM_PER_THREAD,
};
pub use numbers::{
    attribute, capture_mode, capture_status, function_attribute, graph_node, graph_update, launch_attribute,
    limit, memory_operation, pointer_attribute, pool_attribute, wait_value,
};
pub use status::CUresult;
pub use structures::{
    BatchMemoryNodeParams, CUctxCreateParams, CUdevprop, CUgraphExecUpdateResultInfo, CUlaunchAttribute,
    CUlaunchConfig, CUmemAccessDesc, CUmemAllocationProp, CUmemLocation, CUmemPoolProps,
    GraphInstantiateParams, KernelNodeParams, Memcpy2D, Memcpy3D, MemsetNodeParams, Side2D, Side3D,
    StreamMemoryOperation,
};

/// `CU_MEMORYTYPE_HOST`: the address is in host memory.
pub const MEMORYTYPE_HOST: c_uint = 1;
/// `CU_MEMORYTYPE_DEVICE`: the address is in device memory.
pub const MEMORYTYPE_DEVICE: c_uint = 2;
/// `CU_MEMORYTYPE_ARRAY`: the memory is a CUDA array.
pub const MEMORYTYPE_ARRAY: c_uint = 3;
/// `CU_MEMORYTYPE_UNIFIED`: the kind of memory follows from the address.
pub const MEMORYTYPE_UNIFIED: c_uint = 4;

/// `CU_MEM_LOCATION_TYPE_DEVICE`: the location is a device.
pub const MEM_LOCATION_DEVICE: c_uint = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`: the memory stays where it was allocated.
pub const MEM_ALLOCATION_PINNED: c_uint = 1;

/// `CU_STREAM_NON_BLOCKING`: the stream does not synchronise with the legacy default stream.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_BLOCKING_SYNC`: threads that wait for the event sleep.
pub const EVENT_BLOCKING_SYNC: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`: the event stores no time.
pub const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_EVENT_INTERPROCESS`: other processes may open the event.
pub const EVENT_INTERPROCESS: c_uint = 4;

/// `CU_MEMHOSTREGISTER_PORTABLE`: all contexts treat the memory as pinned.
pub const HOST_REGISTER_PORTABLE: c_uint = 1;
/// `CU_MEMHOSTREGISTER_DEVICEMAP`: kernels can access the registered memory.
pub const HOST_REGISTER_DEVICE_MAP: c_uint = 2;
/// `CU_MEMHOSTREGISTER_IOMEMORY`: the memory is memory-mapped I/O space.
pub const HOST_REGISTER_IO_MEMORY: c_uint = 4;
/// `CU_MEMHOSTREGISTER_READ_ONLY`: kernels only read the memory.
pub const HOST_REGISTER_READ_ONLY: c_uint = 8;

/// `CU_MEMHOSTALLOC_PORTABLE`: all contexts treat the memory as pinned.
pub const HOST_ALLOC_PORTABLE: c_uint = 1;
/// `CU_MEMHOSTALLOC_DEVICEMAP`: kernels can access the memory.
pub const HOST_ALLOC_DEVICE_MAP: c_uint = 2;
/// `CU_MEMHOSTALLOC_WRITECOMBINED`: the host maps the memory as write-combined.
pub const HOST_ALLOC_WRITE_COMBINED: c_uint = 4;

/// `CU_LIBRARY_BINARY_IS_PRESERVED`: the program keeps the code in place until it unloads the library.
pub const LIBRARY_BINARY_IS_PRESERVED: c_uint = 1;

/// `CU_LAUNCH_PARAM_END`, `..._BUFFER_POINTER`, `..._BUFFER_SIZE`: keys of the `extra` list of a launch.
pub const LAUNCH_PARAM: [usize; 3] = [0, 1, 2];

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`: stream 0 of the function is the calling thread's default
/// stream.
pub const PROC_PER_THREAD: u64 = 2;
/// All flags of `cuGetProcAddress` that exist.
pub const PROC_FLAGS: u64 = 3;
