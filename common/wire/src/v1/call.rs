//! The calls: their numbers, and which of them the running host carries out.

/// What a version 1 host does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The host carries the call out.
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
    /// `cuInit`. Result: 1.
    0x01 Init Done;
    /// `cuDriverGetVersion`. Result: the version as CUDA counts it, 1000 * major + 10 * minor.
    0x02 DriverGetVersion Done;
    /// `cuDeviceGetCount`. Result: 1.
    0x10 DeviceGetCount Done;
    /// `cuDeviceGet`. Result: device 0.
    0x11 DeviceGet Done;
    /// `cuDeviceGetName`. No result: a guest takes the name from [`Self::GetGpuInfo`].
    0x12 DeviceGetName Ignored;
    /// `cuDeviceGetAttribute`. No result, as for [`Self::DeviceGetName`].
    0x13 DeviceGetAttribute Ignored;
    /// `cuDeviceTotalMem`. No result, as for [`Self::DeviceGetName`].
    0x14 DeviceTotalMem Ignored;
    /// `cuDeviceGetUuid`. No result, as for [`Self::DeviceGetName`].
    0x15 DeviceGetUuid Ignored;
    /// Returns [`Op::is_bulk`] for a number that a guest wrote.
    0x16 DeviceComputeCapability Ignored;
    /// `cuDeviceGetProperties`, which the host refuses.
    0x17 DeviceGetProperties Refused;
    /// `cuDeviceGetP2PAttribute`, which the host refuses.
    0x18 DeviceGetP2pAttribute Refused;
    /// `cuCtxCreate`: flags, 0, device64. Result: the context, always the primary one that all owners share.
    0x20 CtxCreate Done;
    /// `cuCtxDestroy`: context64. No result.
    0x21 CtxDestroy Ignored;
    /// `cuCtxSetCurrent`: context64, which the host does not look at.
    0x22 CtxSetCurrent Done;
    /// `cuCtxGetCurrent`. Result: the context, 0 before there is one.
    0x23 CtxGetCurrent Done;
    /// `cuCtxPushCurrent`, which the host refuses.
    0x24 CtxPushCurrent Refused;
    /// `cuCtxPopCurrent`, which the host refuses.
    0x25 CtxPopCurrent Refused;
    /// `cuCtxSynchronize`: waits for all work. Does nothing while the owner has no context.
    0x26 CtxSynchronize Done;
    /// `cuCtxGetDevice`. Result: device 0.
    0x27 CtxGetDevice Done;
    /// `cuCtxGetApiVersion`. Result: 3020.
    0x28 CtxGetApiVersion Done;
    /// `cuMemAlloc`: bytes64, 0, 0. Result: the device address.
    0x30 MemAlloc Done;
    /// `cuMemFree`: address64. Success for an unknown address, too.
    0x31 MemFree Done;
    /// `cuMemcpyHtoD`: destination64, bytes64, data as payload. Copies as many bytes as the shorter of the
    /// two has.
    0x32 MemcpyHtoD Done;
    /// `cuMemcpyDtoH`: source64, bytes64. The payload comes back. Above 8 MiB the answer is success without
    /// data (Q14).
    0x33 MemcpyDtoH Done;
    /// `cuMemcpyDtoD`: destination64, source64, bytes64.
    0x34 MemcpyDtoD Done;
    /// `cuMemsetD8`: destination64, value, 0, bytes64.
    0x35 MemsetD8 Done;
    /// `cuMemsetD16`, which the host refuses.
    0x36 MemsetD16 Refused;
    /// `cuMemsetD32`: destination64, value, 0, elements64.
    0x37 MemsetD32 Done;
    /// `cuMemAllocManaged`, which the host refuses.
    0x38 MemAllocManaged Refused;
    /// `cuMemHostAlloc`, which the host refuses.
    0x39 MemHostAlloc Refused;
    /// `cuMemFreeHost`, which the host refuses.
    0x3a MemFreeHost Refused;
    /// `cuMemGetInfo`. Results: free and total bytes of the whole GPU.
    0x3b MemGetInfo Done;
    /// `cuMemcpyHtoDAsync`: destination64, bytes64, stream64, data as payload. The host drops data that looks
    /// like a fat binary (Q19).
    0x3c MemcpyHtoDAsync Done;
    /// `cuMemcpyDtoHAsync`, which the host refuses.
    0x3d MemcpyDtoHAsync Refused;
    /// `cuMemcpyDtoDAsync`, which the host refuses.
    0x3e MemcpyDtoDAsync Refused;
    /// `cuModuleLoadData`: image as payload, a piece of one where [`CHUNK_ARG`] says so. Result: the module.
    0x40 ModuleLoadData Done;
    /// `cuModuleLoadDataEx`: as [`Self::ModuleLoadData`].
    0x41 ModuleLoadDataEx Done;
    /// `cuModuleLoadFatBinary`: as [`Self::ModuleLoadData`].
    0x42 ModuleLoadFatBinary Done;
    /// `cuModuleUnload`: module64. Success for an unknown module, too.
    0x43 ModuleUnload Done;
    /// `cuModuleGetFunction`: module64, name with its zero as payload. Result: the function. Status 1 for an
    /// unknown module, 500 for an unknown name.
    0x44 ModuleGetFunction Done;
    /// `cuModuleGetGlobal`: module64, name with its zero as payload. Results: address and size in bytes.
    0x45 ModuleGetGlobal Done;
    /// `cuLaunchKernel`: [`super::payload::Launch`] and parameters as payload. The answer comes when the
    /// kernel has ended.
    0x50 LaunchKernel Done;
    /// `cuLaunchCooperativeKernel`, which the host refuses.
    0x51 LaunchCooperativeKernel Refused;
    /// `cuStreamCreate`: flags. Result: the stream.
    0x60 StreamCreate Done;
    /// `cuStreamCreate`: flags, 0. Result: the stream.
    0x61 StreamCreateWithFlags Done;
    /// `cuStreamCreateWithPriority`: flags, 0, priority, 0. Result: the stream.
    0x62 StreamCreateWithPriority Done;
    /// `cuStreamDestroy`: stream64. Waits for the stream's work. Status 400 for an unknown stream.
    0x63 StreamDestroy Done;
    /// `cuStreamSynchronize`: stream64. An unknown stream is taken for the default stream.
    0x64 StreamSynchronize Done;
    /// `cuStreamQuery`: stream64. Status 600 while the stream has work.
    0x65 StreamQuery Done;
    /// `cuStreamWaitEvent`: stream64, event64, flags, 0. Status 400 for an unknown stream or event.
    0x66 StreamWaitEvent Done;
    /// `cuEventCreate`: flags. Result: the event.
    0x70 EventCreate Done;
    /// `cuEventCreate`: flags, 0. Result: the event. Status 2 when the owner has [`EVENTS_MAX`].
    0x71 EventCreateWithFlags Done;
    /// `cuEventDestroy`: event64. Status 400 for an unknown event.
    0x72 EventDestroy Done;
    /// `cuEventRecord`: event64, stream64. Status 400 for an unknown event or stream.
    0x73 EventRecord Done;
    /// `cuEventSynchronize`: event64.
    0x74 EventSynchronize Done;
    /// `cuEventQuery`: event64. Status 600 while the event has not completed.
    0x75 EventQuery Done;
    /// `cuEventElapsedTime`: start64, end64. Result: bits of an f32, milliseconds.
    0x76 EventElapsedTime Done;
    /// `cuTexRefCreate`, which the host refuses.
    0x80 TexRefCreate Refused;
    /// `cuTexObjectCreate`, which the host refuses.
    0x81 TexObjectCreate Refused;
    /// `cuDevicePrimaryCtxRetain`: device64. Result: the context. From here on a cleanup frees the owner's
    /// memory (Q11).
    0x90 PrimaryCtxRetain Done;
    /// `cuDevicePrimaryCtxRelease`: device64. No result.
    0x91 PrimaryCtxRelease Ignored;
    /// `cuDevicePrimaryCtxReset`: device64. Frees the owner's memory.
    0x92 PrimaryCtxReset Done;
    /// `cuDevicePrimaryCtxSetFlags`: device64, flags64. No result.
    0x93 PrimaryCtxSetFlags Ignored;
    /// `cuDevicePrimaryCtxGetState`: device64. Results: flags, always 0, and whether the context is active.
    0x94 PrimaryCtxGetState Done;
    /// A query of a kernel's occupancy, which the host refuses.
    0xa0 OccupancyMaxBlocks Refused;
    /// `cuOccupancyMaxPotentialBlockSize`, which the host refuses.
    0xa1 OccupancyMaxPotentialBlockSize Refused;
    /// `cuLibraryLoadData`: image as payload, whole or in pieces. Result: the library.
    0xa8 LibraryLoadData Done;
    /// `cuLibraryUnload`: library64. Status 400 for an unknown library.
    0xa9 LibraryUnload Done;
    /// `cuLibraryGetModule`: library64. Result: the module.
    0xaa LibraryGetModule Done;
    /// `cublasCreate`. Results: `cublasStatus_t` and handle.
    0xac CublasCreate Done;
    /// `cublasDestroy`: handle64. Result: `cublasStatus_t`.
    0xad CublasDestroy Done;
    /// `cublasSetStream`: handle64, stream64. Result: `cublasStatus_t`.
    0xae CublasSetStream Done;
    /// `cublasGetStream`: handle64. Results: `cublasStatus_t` and stream.
    0xaf CublasGetStream Done;
    /// `cuFuncGetAttribute`: attribute, 0, function64. Result: the value.
    0xb0 FuncGetAttribute Done;
    /// `cuFuncSetCacheConfig`: function64, config, 0.
    0xb1 FuncSetCacheConfig Done;
    /// `cuGetErrorString`, which the host refuses.
    0xb2 GetErrorString Refused;
    /// `cuGetErrorName`, which the host refuses.
    0xb3 GetErrorName Refused;
    /// `cublasSgemm`: [`super::payload::Sgemm`] as payload. Result: `cublasStatus_t`.
    0xb4 CublasSgemm Done;
    /// `cublasGemmEx`: [`super::payload::GemmEx`] as payload. Result: `cublasStatus_t`.
    0xb5 CublasGemmEx Done;
    /// `cublasGemmStridedBatchedEx`: [`super::payload::GemmStrided`] as payload. Result: `cublasStatus_t`.
    0xb6 CublasGemmStridedBatchedEx Done;
    /// `cublasLtCreate`, which the host refuses.
    0xb7 CublasLtCreate Refused;
    /// `cublasLtDestroy`, which the host refuses.
    0xb8 CublasLtDestroy Refused;
    /// `cublasLtMatmul`, which the host refuses.
    0xb9 CublasLtMatmul Refused;
    /// `cublasGemmBatchedEx`: [`super::payload::GemmBatched`] as payload, then the addresses of all A, all B,
    /// all C. Result: `cublasStatus_t`.
    0xba CublasGemmBatchedEx Done;
    /// `cuFuncGetParamInfo`: function64, index64. Results: offset and size in bytes. Status 801 where the
    /// host's driver has no such function.
    0xbc FuncGetParamInfo Done;
    /// Asks for facts of the GPU. [`super::payload::GpuInfo`] comes back as payload.
    0xf0 GetGpuInfo Done;
    /// Frees all objects of an owner: token. The mediator executes it.
    0xfe ProcessCleanup Done;
}

impl Op {
    /// Returns whether the device looks for a payload above [`super::INLINE_BYTES`] by the rules for bulk
    /// calls ([`super::route`]).
    #[must_use]
    pub const fn is_bulk(self) -> bool {
        is_bulk(self as u32)
    }
}

/// [`Op::is_bulk`] for a number that a guest wrote.
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

/// Maximum number of owners that a host keeps apart. One more gets `CUDA_ERROR_OUT_OF_MEMORY` for every call.
pub const OWNERS_MAX: usize = 64;
/// Maximum number of an owner's allocations that a host keeps track of. One more works, but no cleanup frees
/// it (Q21).
pub const ALLOCATIONS_MAX: usize = 4096;
/// Maximum number of an owner's modules that a host keeps track of (Q21).
pub const MODULES_MAX: usize = 2048;
/// Maximum number of an owner's libraries (Q21).
pub const LIBRARIES_MAX: usize = 4096;
/// Maximum number of an owner's functions that a host keeps track of (Q21).
pub const FUNCTIONS_MAX: usize = 8192;
/// Maximum number of an owner's streams that a host keeps track of (Q21).
pub const STREAMS_MAX: usize = 128;
/// Maximum number of an owner's events. One more is refused as out of memory.
pub const EVENTS_MAX: usize = 256;
/// Maximum number of an owner's cuBLAS handles (Q21).
pub const CUBLAS_MAX: usize = 128;
