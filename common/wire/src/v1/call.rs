//! The calls of version 1: their numbers, and whether existing hosts execute them.

/// Treatment of a call by a host of version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The host executes the call.
    Done,
    /// The host returns success and does nothing.
    Ignored,
    /// The host returns `CUDA_ERROR_NOT_SUPPORTED` (801).
    Refused,
}

macro_rules! ops {
    ($( $(#[$meta:meta])* $id:literal $name:ident $treatment:ident; )*) => {
        /// Numbers of calls (`CUDA_CALL_*` of `cuda_protocol.h`).
        ///
        /// The documentation of each names the function of the driver or of cuBLAS, its arguments in order,
        /// and its results. An argument whose name ends in 64 takes two of the sixteen, low half first; 0 is
        /// an argument without meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Op { $( $(#[$meta])* $name = $id, )* }

        impl Op {
            /// Every call, in the order of the numbers.
            pub const ALL: &'static [Self] = &[ $( Self::$name, )* ];

            /// Returns the name of the call, for logs and counters.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => stringify!($name), )* }
            }

            /// Returns how a version 1 host treats the call.
            #[must_use]
            pub const fn treatment(self) -> Treatment {
                match self { $( Self::$name => Treatment::$treatment, )* }
            }
        }

        impl TryFrom<u32> for Op {
            type Error = u32;

            fn try_from(value: u32) -> Result<Self, u32> {
                match value { $( $id => Ok(Self::$name), )* other => Err(other) }
            }
        }
    };
}

ops! {
    /// Initialises the driver (`cuInit`). Result: 1.
    0x01 Init Done;
    /// Returns the CUDA version of the driver (`cuDriverGetVersion`). Result: 1000 * major + 10 * minor.
    0x02 DriverGetVersion Done;
    /// Returns the number of devices (`cuDeviceGetCount`). Result: 1.
    0x10 DeviceGetCount Done;
    /// Returns the device with an ordinal (`cuDeviceGet`). Result: device 0.
    0x11 DeviceGet Done;
    /// Ignored call for the name of a device (`cuDeviceGetName`). A guest takes the name from
    /// [`Self::GetGpuInfo`].
    0x12 DeviceGetName Ignored;
    /// Ignored call for an attribute (`cuDeviceGetAttribute`). A guest uses [`Self::GetGpuInfo`].
    0x13 DeviceGetAttribute Ignored;
    /// Ignored call for the size of the memory (`cuDeviceTotalMem`). A guest uses [`Self::GetGpuInfo`].
    0x14 DeviceTotalMem Ignored;
    /// Ignored call for the UUID (`cuDeviceGetUuid`). A guest uses [`Self::GetGpuInfo`].
    0x15 DeviceGetUuid Ignored;
    /// Ignored call for the compute capability (`cuDeviceComputeCapability`). A guest uses
    /// [`Self::GetGpuInfo`].
    0x16 DeviceComputeCapability Ignored;
    /// `cuDeviceGetProperties`, which the host refuses.
    0x17 DeviceGetProperties Refused;
    /// `cuDeviceGetP2PAttribute`, which the host refuses.
    0x18 DeviceGetP2pAttribute Refused;
    /// Creates a context (`cuCtxCreate`). Arguments: flags, 0, device64. Result: the context, always the
    /// primary one that all owners share.
    0x20 CtxCreate Done;
    /// Ignored call that would destroy a context (`cuCtxDestroy`). Argument: context64.
    0x21 CtxDestroy Ignored;
    /// Makes a context current (`cuCtxSetCurrent`). Argument: context64, which the host ignores.
    0x22 CtxSetCurrent Done;
    /// Returns the current context (`cuCtxGetCurrent`). Result: the context, 0 before there is one.
    0x23 CtxGetCurrent Done;
    /// `cuCtxPushCurrent`, which the host refuses.
    0x24 CtxPushCurrent Refused;
    /// `cuCtxPopCurrent`, which the host refuses.
    0x25 CtxPopCurrent Refused;
    /// Waits for all work (`cuCtxSynchronize`). Does nothing while the owner has no context.
    0x26 CtxSynchronize Done;
    /// Returns the device of the context (`cuCtxGetDevice`). Result: device 0.
    0x27 CtxGetDevice Done;
    /// Returns the API version of the context (`cuCtxGetApiVersion`). Result: 3020.
    0x28 CtxGetApiVersion Done;
    /// Allocates device memory (`cuMemAlloc`). Arguments: bytes64, 0, 0. Result: the device address.
    0x30 MemAlloc Done;
    /// Frees device memory (`cuMemFree`). Argument: address64. Succeeds for an unknown address, too.
    0x31 MemFree Done;
    /// Uploads data (`cuMemcpyHtoD`). Arguments: destination64, bytes64, with the data as payload. Copies as
    /// many bytes as the shorter of the two has.
    0x32 MemcpyHtoD Done;
    /// Downloads data (`cuMemcpyDtoH`). Arguments: source64, bytes64. The payload comes back. Above 8 MiB the
    /// answer is success without data (Q14).
    0x33 MemcpyDtoH Done;
    /// Copies within the device (`cuMemcpyDtoD`). Arguments: destination64, source64, bytes64.
    0x34 MemcpyDtoD Done;
    /// Fills memory with a byte (`cuMemsetD8`). Arguments: destination64, value, 0, bytes64.
    0x35 MemsetD8 Done;
    /// `cuMemsetD16`, which the host refuses.
    0x36 MemsetD16 Refused;
    /// Fills memory with a 32-bit value (`cuMemsetD32`). Arguments: destination64, value, 0, elements64.
    0x37 MemsetD32 Done;
    /// `cuMemAllocManaged`, which the host refuses.
    0x38 MemAllocManaged Refused;
    /// `cuMemHostAlloc`, which the host refuses.
    0x39 MemHostAlloc Refused;
    /// `cuMemFreeHost`, which the host refuses.
    0x3a MemFreeHost Refused;
    /// Returns the state of device memory (`cuMemGetInfo`). Results: free and total bytes of the whole GPU.
    0x3b MemGetInfo Done;
    /// Uploads data in stream order (`cuMemcpyHtoDAsync`). Arguments: destination64, bytes64, stream64, with
    /// the data as payload. The host drops data that looks like a fat binary (Q19).
    0x3c MemcpyHtoDAsync Done;
    /// `cuMemcpyDtoHAsync`, which the host refuses.
    0x3d MemcpyDtoHAsync Refused;
    /// `cuMemcpyDtoDAsync`, which the host refuses.
    0x3e MemcpyDtoDAsync Refused;
    /// Loads a module (`cuModuleLoadData`) whose image is the payload, or a piece of it where [`CHUNK_ARG`]
    /// says so. Result: the module.
    0x40 ModuleLoadData Done;
    /// Loads a module (`cuModuleLoadDataEx`), as [`Self::ModuleLoadData`] does.
    0x41 ModuleLoadDataEx Done;
    /// Loads a module (`cuModuleLoadFatBinary`), as [`Self::ModuleLoadData`] does.
    0x42 ModuleLoadFatBinary Done;
    /// Unloads a module (`cuModuleUnload`). Argument: module64. Succeeds for an unknown module, too.
    0x43 ModuleUnload Done;
    /// Looks up a function (`cuModuleGetFunction`). Argument: module64, with the name and its zero as
    /// payload. Result: the function. Status 1 for an unknown module, 500 for an unknown name.
    0x44 ModuleGetFunction Done;
    /// Looks up a variable (`cuModuleGetGlobal`). Argument: module64, with the name and its zero as payload.
    /// Results: address and size in bytes.
    0x45 ModuleGetGlobal Done;
    /// Launches a kernel (`cuLaunchKernel`). The payload is a [`super::payload::Launch`] and the parameters.
    /// The answer comes when the kernel has ended.
    0x50 LaunchKernel Done;
    /// `cuLaunchCooperativeKernel`, which the host refuses.
    0x51 LaunchCooperativeKernel Refused;
    /// Creates a stream (`cuStreamCreate`). Argument: flags. Result: the stream.
    0x60 StreamCreate Done;
    /// Creates a stream (`cuStreamCreate`). Arguments: flags, 0. Result: the stream.
    0x61 StreamCreateWithFlags Done;
    /// Creates a stream with a priority (`cuStreamCreateWithPriority`). Arguments: flags, 0, priority, 0.
    /// Result: the stream.
    0x62 StreamCreateWithPriority Done;
    /// Destroys a stream after its work has completed (`cuStreamDestroy`). Argument: stream64. Status 400 for
    /// an unknown stream.
    0x63 StreamDestroy Done;
    /// Waits for a stream (`cuStreamSynchronize`). Argument: stream64. An unknown stream is treated as the
    /// default stream.
    0x64 StreamSynchronize Done;
    /// Queries a stream (`cuStreamQuery`). Argument: stream64. Status 600 while the stream has work.
    0x65 StreamQuery Done;
    /// Makes a stream wait for an event (`cuStreamWaitEvent`). Arguments: stream64, event64, flags, 0. Status
    /// 400 for an unknown stream or event.
    0x66 StreamWaitEvent Done;
    /// Creates an event (`cuEventCreate`). Argument: flags. Result: the event.
    0x70 EventCreate Done;
    /// Creates an event (`cuEventCreate`). Arguments: flags, 0. Result: the event. Status 2 when the owner
    /// has [`EVENTS_MAX`].
    0x71 EventCreateWithFlags Done;
    /// Destroys an event (`cuEventDestroy`). Argument: event64. Status 400 for an unknown event.
    0x72 EventDestroy Done;
    /// Records an event (`cuEventRecord`). Arguments: event64, stream64. Status 400 for an unknown event or
    /// stream.
    0x73 EventRecord Done;
    /// Waits for an event (`cuEventSynchronize`). Argument: event64.
    0x74 EventSynchronize Done;
    /// Queries an event (`cuEventQuery`). Argument: event64. Status 600 while the event has not completed.
    0x75 EventQuery Done;
    /// Returns the time between two events (`cuEventElapsedTime`). Arguments: start64, end64. Result:
    /// milliseconds as the bits of an f32.
    0x76 EventElapsedTime Done;
    /// `cuTexRefCreate`, which the host refuses.
    0x80 TexRefCreate Refused;
    /// `cuTexObjectCreate`, which the host refuses.
    0x81 TexObjectCreate Refused;
    /// Retains the primary context (`cuDevicePrimaryCtxRetain`). Argument: device64. Result: the context.
    /// After this a cleanup frees the owner's memory (Q11).
    0x90 PrimaryCtxRetain Done;
    /// Ignored call that would release the primary context (`cuDevicePrimaryCtxRelease`). Argument: device64.
    0x91 PrimaryCtxRelease Ignored;
    /// Frees the owner's memory (`cuDevicePrimaryCtxReset`). Argument: device64.
    0x92 PrimaryCtxReset Done;
    /// Ignored call that would set flags of the primary context (`cuDevicePrimaryCtxSetFlags`). Arguments:
    /// device64, flags64.
    0x93 PrimaryCtxSetFlags Ignored;
    /// Returns the state of the primary context (`cuDevicePrimaryCtxGetState`). Argument: device64. Results:
    /// flags, always 0, and whether the context is active.
    0x94 PrimaryCtxGetState Done;
    /// A query of a kernel's occupancy, which the host refuses.
    0xa0 OccupancyMaxBlocks Refused;
    /// `cuOccupancyMaxPotentialBlockSize`, which the host refuses.
    0xa1 OccupancyMaxPotentialBlockSize Refused;
    /// Loads a library (`cuLibraryLoadData`) whose image is the payload, whole or in pieces. Result: the
    /// library.
    0xa8 LibraryLoadData Done;
    /// Unloads a library (`cuLibraryUnload`). Argument: library64. Status 400 for an unknown library.
    0xa9 LibraryUnload Done;
    /// Returns the module of a library (`cuLibraryGetModule`). Argument: library64. Result: the module.
    0xaa LibraryGetModule Done;
    /// Creates a cuBLAS handle (`cublasCreate`). Results: `cublasStatus_t` and handle.
    0xac CublasCreate Done;
    /// Destroys a cuBLAS handle (`cublasDestroy`). Argument: handle64. Result: `cublasStatus_t`.
    0xad CublasDestroy Done;
    /// Sets the stream of a cuBLAS handle (`cublasSetStream`). Arguments: handle64, stream64. Result:
    /// `cublasStatus_t`.
    0xae CublasSetStream Done;
    /// Returns the stream of a cuBLAS handle (`cublasGetStream`). Argument: handle64. Results:
    /// `cublasStatus_t` and stream.
    0xaf CublasGetStream Done;
    /// Returns an attribute of a function (`cuFuncGetAttribute`). Arguments: attribute, 0, function64.
    /// Result: the value.
    0xb0 FuncGetAttribute Done;
    /// Sets the cache preference of a function (`cuFuncSetCacheConfig`). Arguments: function64, config, 0.
    0xb1 FuncSetCacheConfig Done;
    /// `cuGetErrorString`, which the host refuses.
    0xb2 GetErrorString Refused;
    /// `cuGetErrorName`, which the host refuses.
    0xb3 GetErrorName Refused;
    /// Multiplies matrices (`cublasSgemm`). The payload is a [`super::payload::Sgemm`]. Result:
    /// `cublasStatus_t`.
    0xb4 CublasSgemm Done;
    /// Multiplies matrices (`cublasGemmEx`). The payload is a [`super::payload::GemmEx`]. Result:
    /// `cublasStatus_t`.
    0xb5 CublasGemmEx Done;
    /// Multiplies a batch of matrices (`cublasGemmStridedBatchedEx`). The payload is a
    /// [`super::payload::GemmStrided`]. Result: `cublasStatus_t`.
    0xb6 CublasGemmStridedBatchedEx Done;
    /// `cublasLtCreate`, which the host refuses.
    0xb7 CublasLtCreate Refused;
    /// `cublasLtDestroy`, which the host refuses.
    0xb8 CublasLtDestroy Refused;
    /// `cublasLtMatmul`, which the host refuses.
    0xb9 CublasLtMatmul Refused;
    /// Multiplies a batch of matrices (`cublasGemmBatchedEx`). The payload is a
    /// [`super::payload::GemmBatched`], then the addresses of all A, all B and all C. Result:
    /// `cublasStatus_t`.
    0xba CublasGemmBatchedEx Done;
    /// Returns position and size of a parameter (`cuFuncGetParamInfo`). Arguments: function64, index64.
    /// Results: offset and size in bytes. Status 801 where the host's driver has no such function.
    0xbc FuncGetParamInfo Done;
    /// Returns facts of the GPU. A [`super::payload::GpuInfo`] comes back as payload.
    0xf0 GetGpuInfo Done;
    /// Frees all objects of an owner. Argument: token. The mediator executes the call.
    0xfe ProcessCleanup Done;
}

impl Op {
    /// Returns whether the device looks for a payload above [`super::INLINE_BYTES`] by the rules for bulk
    /// calls ([`super::route::to_host`]).
    #[must_use]
    pub const fn is_bulk(self) -> bool {
        is_bulk(self as u32)
    }
}

/// Returns whether a call is bulk, as [`Op::is_bulk`] does, for a number that a guest wrote.
#[must_use]
pub const fn is_bulk(op: u32) -> bool {
    matches!(op, 0x32 | 0x3c | 0x40 | 0x41 | 0x42 | 0xa8)
}

/// Index of the argument that says which piece of an image the payload is, for calls with more arguments than
/// this; 0 means the whole image.
pub const CHUNK_ARG: usize = 14;
/// [`CHUNK_ARG`]: the payload is the first piece. Earlier pieces are dropped.
pub const CHUNK_FIRST: u32 = 1;
/// [`CHUNK_ARG`]: the payload is the last piece. The host loads the image.
pub const CHUNK_LAST: u32 = 2;
/// [`CHUNK_ARG`]: the payload is a piece between the first and the last.
pub const CHUNK_MIDDLE: u32 = 4;
/// [`CHUNK_ARG`]: the payload is the only piece.
pub const CHUNK_SINGLE: u32 = CHUNK_FIRST | CHUNK_LAST;

/// Maximum number of owners that a host distinguishes. A further owner gets `CUDA_ERROR_OUT_OF_MEMORY` for
/// every call.
pub const OWNERS_MAX: usize = 64;
/// Maximum number of an owner's allocations that a host tracks. A further allocation succeeds, but no cleanup
/// frees it (Q21).
pub const ALLOCATIONS_MAX: usize = 4096;
/// Maximum number of an owner's modules that a host tracks (Q21).
pub const MODULES_MAX: usize = 2048;
/// Maximum number of an owner's libraries (Q21).
pub const LIBRARIES_MAX: usize = 4096;
/// Maximum number of an owner's functions that a host tracks (Q21).
pub const FUNCTIONS_MAX: usize = 8192;
/// Maximum number of an owner's streams that a host tracks (Q21).
pub const STREAMS_MAX: usize = 128;
/// Maximum number of an owner's events. A further one is refused as out of memory.
pub const EVENTS_MAX: usize = 256;
/// Maximum number of an owner's cuBLAS handles (Q21).
pub const CUBLAS_MAX: usize = 128;
