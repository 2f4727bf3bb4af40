//! Types and codes of the driver API (`cuda.h`): statuses with their names and texts, handles, and the
//! structures and numbers that the shims read or write. Layouts are those of CUDA 12 and 13, which are
//! the same here; sizes and offsets are asserted.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// Status of a driver call; 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CUresult(pub c_uint);

macro_rules! results {
    ($( $code:literal $konst:ident $name:literal $text:literal; )*) => {
        impl CUresult {
            $(
                #[doc = concat!("`", $name, "`")]
                pub const $konst: Self = Self($code);
            )*

            /// Every status there is, in the order of the codes.
            pub const ALL: &'static [Self] = &[ $( Self($code), )* ];

            /// The status's name in `cuda.h`, as `cuGetErrorName` answers it; `None` for a code that there is not.
            #[must_use]
            pub const fn name(self) -> Option<&'static CStr> {
                match self.0 {
                    $( $code => Some(zero_ended(concat!($name, "\0"))), )*
                    _ => None,
                }
            }

            /// The status's text, as `cuGetErrorString` answers it; `None` for a code that there is not.
            #[must_use]
            pub const fn text(self) -> Option<&'static CStr> {
                match self.0 {
                    $( $code => Some(zero_ended(concat!($text, "\0"))), )*
                    _ => None,
                }
            }
        }
    };
}

const fn zero_ended(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("the macro ends each text with the only zero in it"),
    }
}

results! {
    0 SUCCESS "CUDA_SUCCESS" "no error";
    1 INVALID_VALUE "CUDA_ERROR_INVALID_VALUE" "invalid argument";
    2 OUT_OF_MEMORY "CUDA_ERROR_OUT_OF_MEMORY" "out of memory";
    3 NOT_INITIALIZED "CUDA_ERROR_NOT_INITIALIZED" "initialization error";
    4 DEINITIALIZED "CUDA_ERROR_DEINITIALIZED" "driver shutting down";
    5 PROFILER_DISABLED "CUDA_ERROR_PROFILER_DISABLED" "profiler disabled while using external profiling tool";
    6 PROFILER_NOT_INITIALIZED "CUDA_ERROR_PROFILER_NOT_INITIALIZED" "profiler not initialized: call cudaProfilerInitialize()";
    7 PROFILER_ALREADY_STARTED "CUDA_ERROR_PROFILER_ALREADY_STARTED" "profiler already started";
    8 PROFILER_ALREADY_STOPPED "CUDA_ERROR_PROFILER_ALREADY_STOPPED" "profiler already stopped";
    34 STUB_LIBRARY "CUDA_ERROR_STUB_LIBRARY" "CUDA driver is a stub library";
    36 CALL_REQUIRES_NEWER_DRIVER "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER" "API call is not supported in the installed CUDA driver";
    46 DEVICE_UNAVAILABLE "CUDA_ERROR_DEVICE_UNAVAILABLE" "CUDA-capable device(s) is/are busy or unavailable";
    47 MULTICAST_RESOURCE_FULL "CUDA_ERROR_MULTICAST_RESOURCE_FULL" "not enough resources for a multicast operation";
    100 NO_DEVICE "CUDA_ERROR_NO_DEVICE" "no CUDA-capable device is detected";
    101 INVALID_DEVICE "CUDA_ERROR_INVALID_DEVICE" "invalid device ordinal";
    102 DEVICE_NOT_LICENSED "CUDA_ERROR_DEVICE_NOT_LICENSED" "device doesn't have valid Grid license";
    200 INVALID_IMAGE "CUDA_ERROR_INVALID_IMAGE" "device kernel image is invalid";
    201 INVALID_CONTEXT "CUDA_ERROR_INVALID_CONTEXT" "invalid device context";
    202 CONTEXT_ALREADY_CURRENT "CUDA_ERROR_CONTEXT_ALREADY_CURRENT" "context already current";
    205 MAP_FAILED "CUDA_ERROR_MAP_FAILED" "mapping of buffer object failed";
    206 UNMAP_FAILED "CUDA_ERROR_UNMAP_FAILED" "unmapping of buffer object failed";
    207 ARRAY_IS_MAPPED "CUDA_ERROR_ARRAY_IS_MAPPED" "array is mapped";
    208 ALREADY_MAPPED "CUDA_ERROR_ALREADY_MAPPED" "resource already mapped";
    209 NO_BINARY_FOR_GPU "CUDA_ERROR_NO_BINARY_FOR_GPU" "no kernel image is available for execution on the device";
    210 ALREADY_ACQUIRED "CUDA_ERROR_ALREADY_ACQUIRED" "resource already acquired";
    211 NOT_MAPPED "CUDA_ERROR_NOT_MAPPED" "resource not mapped";
    212 NOT_MAPPED_AS_ARRAY "CUDA_ERROR_NOT_MAPPED_AS_ARRAY" "resource not mapped as array";
    213 NOT_MAPPED_AS_POINTER "CUDA_ERROR_NOT_MAPPED_AS_POINTER" "resource not mapped as pointer";
    214 ECC_UNCORRECTABLE "CUDA_ERROR_ECC_UNCORRECTABLE" "uncorrectable ECC error encountered";
    215 UNSUPPORTED_LIMIT "CUDA_ERROR_UNSUPPORTED_LIMIT" "limit is not supported on this architecture";
    216 CONTEXT_ALREADY_IN_USE "CUDA_ERROR_CONTEXT_ALREADY_IN_USE" "exclusive-thread device already in use by a different thread";
    217 PEER_ACCESS_UNSUPPORTED "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED" "peer access is not supported between these two devices";
    218 INVALID_PTX "CUDA_ERROR_INVALID_PTX" "a PTX JIT compilation failed";
    219 INVALID_GRAPHICS_CONTEXT "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT" "invalid OpenGL or DirectX context";
    220 NVLINK_UNCORRECTABLE "CUDA_ERROR_NVLINK_UNCORRECTABLE" "uncorrectable NVLink error detected during the execution";
    221 JIT_COMPILER_NOT_FOUND "CUDA_ERROR_JIT_COMPILER_NOT_FOUND" "PTX JIT compiler library not found";
    222 UNSUPPORTED_PTX_VERSION "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" "the provided PTX was compiled with an unsupported toolchain.";
    223 JIT_COMPILATION_DISABLED "CUDA_ERROR_JIT_COMPILATION_DISABLED" "PTX JIT compilation was disabled";
    224 UNSUPPORTED_EXEC_AFFINITY "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY" "the provided execution affinity is not supported";
    225 UNSUPPORTED_DEVSIDE_SYNC "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC" "the provided PTX contains unsupported call to cudaDeviceSynchronize";
    226 CONTAINED "CUDA_ERROR_CONTAINED" "Invalid access of peer GPU memory over nvlink or a hardware error";
    227 INSUFFICIENT_LOADER_VERSION "CUDA_ERROR_INSUFFICIENT_LOADER_VERSION" "Loader version is insufficient for fatbin";
    300 INVALID_SOURCE "CUDA_ERROR_INVALID_SOURCE" "device kernel image is invalid";
    301 FILE_NOT_FOUND "CUDA_ERROR_FILE_NOT_FOUND" "file not found";
    302 SHARED_OBJECT_SYMBOL_NOT_FOUND "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND" "shared object symbol not found";
    303 SHARED_OBJECT_INIT_FAILED "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED" "shared object initialization failed";
    304 OPERATING_SYSTEM "CUDA_ERROR_OPERATING_SYSTEM" "OS call failed or operation not supported on this OS";
    400 INVALID_HANDLE "CUDA_ERROR_INVALID_HANDLE" "invalid resource handle";
    401 ILLEGAL_STATE "CUDA_ERROR_ILLEGAL_STATE" "the operation cannot be performed in the present state";
    402 LOSSY_QUERY "CUDA_ERROR_LOSSY_QUERY" "attempted introspection would be semantically lossy";
    500 NOT_FOUND "CUDA_ERROR_NOT_FOUND" "named symbol not found";
    600 NOT_READY "CUDA_ERROR_NOT_READY" "device not ready";
    700 ILLEGAL_ADDRESS "CUDA_ERROR_ILLEGAL_ADDRESS" "an illegal memory access was encountered";
    701 LAUNCH_OUT_OF_RESOURCES "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" "too many resources requested for launch";
    702 LAUNCH_TIMEOUT "CUDA_ERROR_LAUNCH_TIMEOUT" "the launch timed out and was terminated";
    703 LAUNCH_INCOMPATIBLE_TEXTURING "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING" "launch uses incompatible texturing mode";
    704 PEER_ACCESS_ALREADY_ENABLED "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED" "peer access is already enabled";
    705 PEER_ACCESS_NOT_ENABLED "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED" "peer access has not been enabled";
    708 PRIMARY_CONTEXT_ACTIVE "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE" "cannot set while device is active in this process";
    709 CONTEXT_IS_DESTROYED "CUDA_ERROR_CONTEXT_IS_DESTROYED" "context is destroyed";
    710 ASSERT "CUDA_ERROR_ASSERT" "device-side assert triggered";
    711 TOO_MANY_PEERS "CUDA_ERROR_TOO_MANY_PEERS" "peer mapping resources exhausted";
    712 HOST_MEMORY_ALREADY_REGISTERED "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" "part or all of the requested memory range is already mapped";
    713 HOST_MEMORY_NOT_REGISTERED "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED" "pointer does not correspond to a registered memory region";
    714 HARDWARE_STACK_ERROR "CUDA_ERROR_HARDWARE_STACK_ERROR" "hardware stack error";
    715 ILLEGAL_INSTRUCTION "CUDA_ERROR_ILLEGAL_INSTRUCTION" "an illegal instruction was encountered";
    716 MISALIGNED_ADDRESS "CUDA_ERROR_MISALIGNED_ADDRESS" "misaligned address";
    717 INVALID_ADDRESS_SPACE "CUDA_ERROR_INVALID_ADDRESS_SPACE" "operation not supported on global/shared address space";
    718 INVALID_PC "CUDA_ERROR_INVALID_PC" "invalid program counter";
    719 LAUNCH_FAILED "CUDA_ERROR_LAUNCH_FAILED" "unspecified launch failure";
    720 COOPERATIVE_LAUNCH_TOO_LARGE "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE" "too many blocks in cooperative launch";
    721 TENSOR_MEMORY_LEAK "CUDA_ERROR_TENSOR_MEMORY_LEAK" "tensor memory not completely freed";
    800 NOT_PERMITTED "CUDA_ERROR_NOT_PERMITTED" "operation not permitted";
    801 NOT_SUPPORTED "CUDA_ERROR_NOT_SUPPORTED" "operation not supported";
    802 SYSTEM_NOT_READY "CUDA_ERROR_SYSTEM_NOT_READY" "system not yet initialized";
    803 SYSTEM_DRIVER_MISMATCH "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" "system has unsupported display driver / cuda driver combination";
    804 COMPAT_NOT_SUPPORTED_ON_DEVICE "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE" "forward compatibility was attempted on non supported HW";
    805 MPS_CONNECTION_FAILED "CUDA_ERROR_MPS_CONNECTION_FAILED" "MPS client failed to connect to the MPS control daemon or the MPS server";
    806 MPS_RPC_FAILURE "CUDA_ERROR_MPS_RPC_FAILURE" "the remote procedural call between the MPS server and the MPS client failed";
    807 MPS_SERVER_NOT_READY "CUDA_ERROR_MPS_SERVER_NOT_READY" "MPS server is not ready to accept new MPS client requests";
    808 MPS_MAX_CLIENTS_REACHED "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED" "the hardware resources required to create MPS client have been exhausted";
    809 MPS_MAX_CONNECTIONS_REACHED "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED" "the hardware resources required to support device connections have been exhausted";
    810 MPS_CLIENT_TERMINATED "CUDA_ERROR_MPS_CLIENT_TERMINATED" "the MPS client has been terminated by the server";
    811 CDP_NOT_SUPPORTED "CUDA_ERROR_CDP_NOT_SUPPORTED" "is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does not support it";
    812 CDP_VERSION_MISMATCH "CUDA_ERROR_CDP_VERSION_MISMATCH" "unsupported interaction between different versions of CUDA Dynamic Parallelism";
    900 STREAM_CAPTURE_UNSUPPORTED "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" "operation not permitted when stream is capturing";
    901 STREAM_CAPTURE_INVALIDATED "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" "operation failed due to a previous error during capture";
    902 STREAM_CAPTURE_MERGE "CUDA_ERROR_STREAM_CAPTURE_MERGE" "operation would result in a merge of separate capture sequences";
    903 STREAM_CAPTURE_UNMATCHED "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED" "capture was not ended in the same stream as it began";
    904 STREAM_CAPTURE_UNJOINED "CUDA_ERROR_STREAM_CAPTURE_UNJOINED" "capturing stream has unjoined work";
    905 STREAM_CAPTURE_ISOLATION "CUDA_ERROR_STREAM_CAPTURE_ISOLATION" "dependency created on uncaptured work in another stream";
    906 STREAM_CAPTURE_IMPLICIT "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" "operation would make the legacy stream depend on a capturing blocking stream";
    907 CAPTURED_EVENT "CUDA_ERROR_CAPTURED_EVENT" "operation not permitted on an event last recorded in a capturing stream";
    908 STREAM_CAPTURE_WRONG_THREAD "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD" "attempt to terminate a thread-local capture sequence from another thread";
    909 TIMEOUT "CUDA_ERROR_TIMEOUT" "wait operation timed out";
    910 GRAPH_EXEC_UPDATE_FAILURE "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE" "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update";
    911 EXTERNAL_DEVICE "CUDA_ERROR_EXTERNAL_DEVICE" "an async error has occured in external entity outside of CUDA";
    912 INVALID_CLUSTER_SIZE "CUDA_ERROR_INVALID_CLUSTER_SIZE" "a kernel launch error has occurred due to cluster misconfiguration";
    913 FUNCTION_NOT_LOADED "CUDA_ERROR_FUNCTION_NOT_LOADED" "the function handle is not loaded when calling an API that requires a loaded function";
    914 INVALID_RESOURCE_TYPE "CUDA_ERROR_INVALID_RESOURCE_TYPE" "one or more resources passed in are not valid resource types for the operation";
    915 INVALID_RESOURCE_CONFIGURATION "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION" "one or more resources are insufficient or non-applicable for the operation";
    916 KEY_ROTATION "CUDA_ERROR_KEY_ROTATION" "encryption keys are being rotated";
    917 STREAM_DETACHED "CUDA_ERROR_STREAM_DETACHED" "API call not permitted since the green context associated with the stream has been destroyed";
    918 GRAPH_RECAPTURE_FAILURE "CUDA_ERROR_GRAPH_RECAPTURE_FAILURE" "recapturing to the source graph failed and had to be terminated";
    919 FABRIC_NOT_READY "CUDA_ERROR_FABRIC_NOT_READY" "GPU fabric is not ready within the probe wait budget; application may retry (see CUDA_FABRIC_INIT_TIMEOUT_MS)";
    999 UNKNOWN "CUDA_ERROR_UNKNOWN" "unknown error";
}

impl CUresult {
    /// `Ok` for success.
    ///
    /// # Errors
    /// Any other status.
    pub const fn ok(self) -> Result<(), Self> {
        if self.0 == 0 { Ok(()) } else { Err(self) }
    }
}

impl core::fmt::Display for CUresult {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({})", name.to_string_lossy(), self.0),
            None => write!(f, "status {}", self.0),
        }
    }
}

macro_rules! handles {
    ($( $(#[$meta:meta])* $name:ident; )*) => {
        $(
            $(#[$meta])*
            ///
            /// A number that looks like a pointer; nothing lies behind it.
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            #[repr(transparent)]
            pub struct $name(pub usize);

            impl $name {
                /// No object.
                pub const NULL: Self = Self(0);
            }
        )*
    };
}

handles! {
    /// A context.
    CUcontext;
    /// A stream, or one of the special values 0, [`STREAM_LEGACY`] and [`STREAM_PER_THREAD`].
    CUstream;
    /// An event.
    CUevent;
    /// A module: a library's code in one context.
    CUmodule;
    /// A kernel in one context. Launches take a [`CUkernel`] in its place too.
    CUfunction;
    /// A library: code of no context.
    CUlibrary;
    /// A kernel of a library, of no context.
    CUkernel;
    /// A graph.
    CUgraph;
    /// A node of a graph.
    CUgraphNode;
    /// An instantiated graph.
    CUgraphExec;
}

/// A device: its CUDA ordinal.
pub type CUdevice = c_int;
/// An address in device memory.
pub type CUdeviceptr = u64;
/// Physical memory, `cuMemCreate`.
pub type CUmemGenericAllocationHandle = u64;

/// `CU_STREAM_LEGACY`
pub const STREAM_LEGACY: CUstream = CUstream(1);
/// `CU_STREAM_PER_THREAD`
pub const STREAM_PER_THREAD: CUstream = CUstream(2);

/// 16 bytes of a UUID, `CUuuid`.
pub type CUuuid = [u8; 16];

macro_rules! layout {
    ($( $(#[$meta:meta])* pub struct $name:ident = $size:literal {
        $( $(#[$fmeta:meta])* pub $field:ident : $ty:ty = $offset:literal, )*
    } )*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy, Debug)]
            #[repr(C)]
            pub struct $name { $( $(#[$fmeta])* pub $field: $ty, )* }
            const _: () = {
                assert!(size_of::<$name>() == $size);
                $( assert!(core::mem::offset_of!($name, $field) == $offset); )*
            };
        )*
    };
}

layout! {
    /// One side of a 2D copy: the first or second half of `CUDA_MEMCPY2D`.
    pub struct Side2D = 56 {
        /// Bytes from the start of a row.
        pub x: usize = 0,
        /// Rows from the start.
        pub y: usize = 8,
        /// `CUmemorytype`: [`MEMORYTYPE_HOST`] and so on.
        pub memory_type: c_uint = 16,
        /// Host memory.
        pub host: *mut c_void = 24,
        /// Device memory, and unified memory.
        pub device: CUdeviceptr = 32,
        /// Array.
        pub array: usize = 40,
        /// Bytes from row to row.
        pub pitch: usize = 48,
    }

    /// `CUDA_MEMCPY2D`
    pub struct Memcpy2D = 128 {
        /// Source.
        pub src: Side2D = 0,
        /// Destination.
        pub dst: Side2D = 56,
        /// Bytes of a row.
        pub width: usize = 112,
        /// Rows.
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
        /// `CUmemorytype`.
        pub memory_type: c_uint = 32,
        /// Host memory.
        pub host: *mut c_void = 40,
        /// Device memory, and unified memory.
        pub device: CUdeviceptr = 48,
        /// Array.
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
        /// Source.
        pub src: Side3D = 0,
        /// Destination.
        pub dst: Side3D = 88,
        /// Bytes of a row.
        pub width: usize = 176,
        /// Rows of a slice.
        pub height: usize = 184,
        /// Slices.
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
        /// The stream.
        pub stream: CUstream = 32,
        /// `attribute_count` attributes.
        pub attributes: *const CUlaunchAttribute = 40,
        /// How many.
        pub attribute_count: c_uint = 48,
    }

    /// `CUlaunchAttribute`
    pub struct CUlaunchAttribute = 72 {
        /// [`launch_attribute`]
        pub id: c_uint = 0,
        /// The value, a union.
        pub value: [u64; 8] = 8,
    }

    /// `CUmemLocation`
    pub struct CUmemLocation = 8 {
        /// [`MEM_LOCATION_DEVICE`] or another.
        pub kind: c_uint = 0,
        /// Ordinal of the device.
        pub id: c_int = 4,
    }

    /// `CUmemAllocationProp`
    pub struct CUmemAllocationProp = 32 {
        /// [`MEM_ALLOCATION_PINNED`] or another.
        pub kind: c_uint = 0,
        /// Bits of the handle types that are wanted.
        pub handle_types: c_uint = 4,
        /// Where.
        pub location: CUmemLocation = 8,
        /// Windows only.
        pub win32: *mut c_void = 16,
        /// Compression type, flag for remote access, usage, padding.
        pub flags: [u8; 8] = 24,
    }

    /// `CUmemAccessDesc`
    pub struct CUmemAccessDesc = 12 {
        /// Who.
        pub location: CUmemLocation = 0,
        /// `CUmemAccess_flags`: 0 nothing, 1 read, 3 read and write.
        pub flags: c_uint = 8,
    }

    /// `CUctxCreateParams`
    pub struct CUctxCreateParams = 24 {
        /// Execution affinity.
        pub affinity: *const c_void = 0,
        /// How many.
        pub affinity_count: c_int = 8,
        /// Graphics interoperation.
        pub cig: *const c_void = 16,
    }

    /// `CUDA_KERNEL_NODE_PARAMS_v2`; version 1 ends before `kernel`.
    pub struct KernelNodeParams = 72 {
        /// The function.
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
        /// Its context.
        pub context: CUcontext = 64,
    }

    /// `CUDA_MEMSET_NODE_PARAMS`
    pub struct MemsetNodeParams = 40 {
        /// Destination.
        pub destination: CUdeviceptr = 0,
        /// Bytes from row to row.
        pub pitch: usize = 8,
        /// Value.
        pub value: c_uint = 16,
        /// Bytes of an element.
        pub element: c_uint = 20,
        /// Elements of a row.
        pub width: usize = 24,
        /// Rows.
        pub height: usize = 32,
    }

    /// `CUgraphExecUpdateResultInfo`
    pub struct CUgraphExecUpdateResultInfo = 24 {
        /// [`graph_update`]
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

/// `CU_MEMORYTYPE_HOST`
pub const MEMORYTYPE_HOST: c_uint = 1;
/// `CU_MEMORYTYPE_DEVICE`
pub const MEMORYTYPE_DEVICE: c_uint = 2;
/// `CU_MEMORYTYPE_ARRAY`
pub const MEMORYTYPE_ARRAY: c_uint = 3;
/// `CU_MEMORYTYPE_UNIFIED`: the address says where.
pub const MEMORYTYPE_UNIFIED: c_uint = 4;

/// `CU_MEM_LOCATION_TYPE_DEVICE`
pub const MEM_LOCATION_DEVICE: c_uint = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`
pub const MEM_ALLOCATION_PINNED: c_uint = 1;

/// `CU_STREAM_NON_BLOCKING`
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_BLOCKING_SYNC`
pub const EVENT_BLOCKING_SYNC: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`
pub const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_EVENT_INTERPROCESS`
pub const EVENT_INTERPROCESS: c_uint = 4;

/// `CU_MEMHOSTALLOC_PORTABLE`
pub const HOST_ALLOC_PORTABLE: c_uint = 1;
/// `CU_MEMHOSTALLOC_DEVICEMAP`
pub const HOST_ALLOC_DEVICE_MAP: c_uint = 2;
/// `CU_MEMHOSTALLOC_WRITECOMBINED`
pub const HOST_ALLOC_WRITE_COMBINED: c_uint = 4;

/// `CU_LIBRARY_BINARY_IS_PRESERVED`: the code stays where it is until the library is unloaded.
pub const LIBRARY_BINARY_IS_PRESERVED: c_uint = 1;

/// `CU_LAUNCH_PARAM_END`, `..._BUFFER_POINTER`, `..._BUFFER_SIZE`: keys of the `extra` list of a launch.
pub const LAUNCH_PARAM: [usize; 3] = [0, 1, 2];

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
pub const PROC_PER_THREAD: u64 = 2;
/// The flags of `cuGetProcAddress` that there are.
pub const PROC_FLAGS: u64 = 3;

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
    /// Multiprocessors.
    pub const MULTIPROCESSOR_COUNT: c_int = 16;
    /// Kernels reach pinned host memory.
    pub const CAN_MAP_HOST_MEMORY: c_int = 19;
    /// PCI bus.
    pub const PCI_BUS_ID: c_int = 33;
    /// PCI device.
    pub const PCI_DEVICE_ID: c_int = 34;
    /// Threads of a multiprocessor.
    pub const MAX_THREADS_PER_MULTIPROCESSOR: c_int = 39;
    /// Host and device addresses are told apart by their value.
    pub const UNIFIED_ADDRESSING: c_int = 41;
    /// PCI domain.
    pub const PCI_DOMAIN_ID: c_int = 50;
    /// Compute capability, major.
    pub const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
    /// Compute capability, minor.
    pub const COMPUTE_CAPABILITY_MINOR: c_int = 76;
    /// Streams have priorities.
    pub const STREAM_PRIORITIES_SUPPORTED: c_int = 78;
    /// Managed memory.
    pub const MANAGED_MEMORY: c_int = 83;
    /// Cooperative launches.
    pub const COOPERATIVE_LAUNCH: c_int = 95;
    /// Bytes of shared memory of a block that asks for more.
    pub const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;
    /// The calls of virtual memory management.
    pub const VIRTUAL_MEMORY_MANAGEMENT: c_int = 102;
    /// Clusters of blocks.
    pub const CLUSTER_LAUNCH: c_int = 120;
}

/// `CUfunction_attribute` ids.
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
    /// `CUclusterSchedulingPolicy`.
    pub const CLUSTER_SCHEDULING_POLICY_PREFERENCE: c_uint = 15;
    /// One above the last.
    pub const MAX: c_uint = 16;
}

/// `CUlaunchAttributeID`
pub mod launch_attribute {
    use core::ffi::c_uint;

    /// Nothing.
    pub const IGNORE: c_uint = 0;
    /// Persisting part of the L2 cache: a hint.
    pub const ACCESS_POLICY_WINDOW: c_uint = 1;
    /// `cuLaunchCooperativeKernel`.
    pub const COOPERATIVE: c_uint = 2;
    /// How a thread waits for the stream: a hint.
    pub const SYNCHRONIZATION_POLICY: c_uint = 3;
    /// Blocks of a cluster in x, y, z.
    pub const CLUSTER_DIMENSION: c_uint = 4;
    /// A hint.
    pub const CLUSTER_SCHEDULING_POLICY_PREFERENCE: c_uint = 5;
    /// May begin before its predecessor in the stream has ended.
    pub const PROGRAMMATIC_STREAM_SERIALIZATION: c_uint = 6;
    /// An event that the kernel triggers.
    pub const PROGRAMMATIC_EVENT: c_uint = 7;
    /// Priority of the kernel.
    pub const PRIORITY: c_uint = 8;
    /// A hint.
    pub const MEM_SYNC_DOMAIN_MAP: c_uint = 9;
    /// A hint.
    pub const MEM_SYNC_DOMAIN: c_uint = 10;
    /// A wish besides the cluster dimension.
    pub const PREFERRED_CLUSTER_DIMENSION: c_uint = 11;
    /// An event of the launch's completion.
    pub const LAUNCH_COMPLETION_EVENT: c_uint = 12;
    /// A graph node that kernels may change.
    pub const DEVICE_UPDATABLE_KERNEL_NODE: c_uint = 13;
    /// A hint.
    pub const PREFERRED_SHARED_MEMORY_CARVEOUT: c_uint = 14;
    /// A hint.
    pub const NVLINK_UTIL_CENTRIC_SCHEDULING: c_uint = 16;
}

/// `CUpointer_attribute`
pub mod pointer_attribute {
    use core::ffi::c_uint;

    /// Context of the memory, `CUcontext`.
    pub const CONTEXT: c_uint = 1;
    /// `CUmemorytype`.
    pub const MEMORY_TYPE: c_uint = 2;
    /// The address by which kernels reach it.
    pub const DEVICE_POINTER: c_uint = 3;
    /// The address by which the host reaches it.
    pub const HOST_POINTER: c_uint = 4;
    /// Copies to and from it always synchronise.
    pub const SYNC_MEMOPS: c_uint = 6;
    /// A number that no other allocation of the process has, u64.
    pub const BUFFER_ID: c_uint = 7;
    /// Managed memory.
    pub const IS_MANAGED: c_uint = 8;
    /// Ordinal of the device.
    pub const DEVICE_ORDINAL: c_uint = 9;
    /// Whether `cuIpcGetMemHandle` takes it.
    pub const IS_LEGACY_CUDA_IPC_CAPABLE: c_uint = 10;
    /// Start of the allocation.
    pub const RANGE_START_ADDR: c_uint = 11;
    /// Its size.
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
    /// Dynamic parallelism.
    pub const DEV_RUNTIME_SYNC_DEPTH: c_uint = 3;
    /// Dynamic parallelism.
    pub const DEV_RUNTIME_PENDING_LAUNCH_COUNT: c_uint = 4;
    /// Bytes, a hint.
    pub const MAX_L2_FETCH_GRANULARITY: c_uint = 5;
    /// Bytes.
    pub const PERSISTING_L2_CACHE_SIZE: c_uint = 6;
}

/// `CUstreamCaptureMode`
pub mod capture_mode {
    use core::ffi::c_uint;

    /// Calls that are not safe during a capture are refused in all threads.
    pub const GLOBAL: c_uint = 0;
    /// In the capturing thread.
    pub const THREAD_LOCAL: c_uint = 1;
    /// Nowhere.
    pub const RELAXED: c_uint = 2;
}

/// `CUstreamCaptureStatus`
pub mod capture_status {
    use core::ffi::c_uint;

    /// The stream does not capture.
    pub const NONE: c_uint = 0;
    /// It does.
    pub const ACTIVE: c_uint = 1;
    /// It did until a call that is not allowed; the capture must be ended.
    pub const INVALIDATED: c_uint = 2;
}

/// `CUgraphExecUpdateResult`
pub mod graph_update {
    use core::ffi::c_uint;

    /// Updated.
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

    /// A kernel.
    pub const KERNEL: c_uint = 0;
    /// A copy.
    pub const MEMCPY: c_uint = 1;
    /// A fill.
    pub const MEMSET: c_uint = 2;
    /// A function of the host.
    pub const HOST: c_uint = 3;
    /// A graph.
    pub const GRAPH: c_uint = 4;
    /// Nothing.
    pub const EMPTY: c_uint = 5;
}

/// `CUoccupancyB2DSize`: dynamic shared memory, in bytes, that a block of so many threads wants.
pub type BlockToShared = Option<unsafe extern "C" fn(c_int) -> usize>;

/// A text of C, for signatures.
pub type Text = *const c_char;
