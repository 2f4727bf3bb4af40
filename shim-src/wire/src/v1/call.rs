//! The calls: numbers, and which of them the running host answers.

/// How a host of version 1 treats a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Carried out.
    Done,
    /// Answered with success and nothing done.
    Ignored,
    /// Answered with `CUDA_ERROR_NOT_SUPPORTED`.
    Refused,
}

macro_rules! ops {
    ($( $(#[$meta:meta])* $id:literal $name:ident $treatment:ident; )*) => {
        /// Numbers of calls (`CUDA_CALL_*` of `cuda_protocol.h`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Op { $( $(#[$meta])* $name = $id, )* }

        impl Op {
            /// Every call, in the order of their numbers.
            pub const ALL: &'static [Self] = &[ $( Self::$name, )* ];

            /// The call's name, for logs and counters.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => stringify!($name), )* }
            }

            /// What the host of version 1 does with it.
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
    /// Result: 1.
    0x01 Init Done;
    /// Result: driver version.
    0x02 DriverGetVersion Done;
    /// Result: 1.
    0x10 DeviceGetCount Done;
    /// Result: 0.
    0x11 DeviceGet Done;
    /// Nothing comes back: `GetGpuInfo` says it.
    0x12 DeviceGetName Ignored;
    /// As `DeviceGetName`.
    0x13 DeviceGetAttribute Ignored;
    /// As `DeviceGetName`.
    0x14 DeviceTotalMem Ignored;
    /// As `DeviceGetName`.
    0x15 DeviceGetUuid Ignored;
    /// As `DeviceGetName`.
    0x16 DeviceComputeCapability Ignored;
    /// Refused.
    0x17 DeviceGetProperties Refused;
    /// Refused.
    0x18 DeviceGetP2pAttribute Refused;
    /// flags, 0, device64. Result: context, always the shared primary one.
    0x20 CtxCreate Done;
    /// context64.
    0x21 CtxDestroy Ignored;
    /// context64, which is not looked at.
    0x22 CtxSetCurrent Done;
    /// Result: context, 0 before there is one.
    0x23 CtxGetCurrent Done;
    /// Refused.
    0x24 CtxPushCurrent Refused;
    /// Refused.
    0x25 CtxPopCurrent Refused;
    /// Waits for all work; nothing while the owner has no context.
    0x26 CtxSynchronize Done;
    /// Result: 0.
    0x27 CtxGetDevice Done;
    /// Result: 3020.
    0x28 CtxGetApiVersion Done;
    /// size64, 0, 0. Result: device address.
    0x30 MemAlloc Done;
    /// address64; success for an unknown one.
    0x31 MemFree Done;
    /// destination64, bytes64, data as payload. The smaller of both lengths is copied.
    0x32 MemcpyHtoD Done;
    /// source64, bytes64. Payload back. Above 8 MiB: success without data (Q14).
    0x33 MemcpyDtoH Done;
    /// destination64, source64, bytes64.
    0x34 MemcpyDtoD Done;
    /// destination64, value, 0, count64 in bytes.
    0x35 MemsetD8 Done;
    /// Refused.
    0x36 MemsetD16 Refused;
    /// destination64, value, 0, count64 in elements.
    0x37 MemsetD32 Done;
    /// Refused.
    0x38 MemAllocManaged Refused;
    /// Refused.
    0x39 MemHostAlloc Refused;
    /// Refused.
    0x3a MemFreeHost Refused;
    /// Results: free, total; of the whole GPU.
    0x3b MemGetInfo Done;
    /// destination64, bytes64, stream64, data as payload. Drops what looks like a fat binary (Q19).
    0x3c MemcpyHtoDAsync Done;
    /// Refused.
    0x3d MemcpyDtoHAsync Refused;
    /// Refused.
    0x3e MemcpyDtoDAsync Refused;
    /// Image as payload; [`CHUNK_ARG`] may say that it is a piece. Result: module.
    0x40 ModuleLoadData Done;
    /// As `ModuleLoadData`.
    0x41 ModuleLoadDataEx Done;
    /// As `ModuleLoadData`.
    0x42 ModuleLoadFatBinary Done;
    /// module64; success for an unknown one.
    0x43 ModuleUnload Done;
    /// module64, name with its zero as payload. Result: function; 1 for an unknown module, 500 for an unknown name.
    0x44 ModuleGetFunction Done;
    /// module64, name with its zero as payload. Results: address, bytes.
    0x45 ModuleGetGlobal Done;
    /// Launch as payload ([`super::payload::Launch`]); waits until it is done.
    0x50 LaunchKernel Done;
    /// Refused.
    0x51 LaunchCooperativeKernel Refused;
    /// flags. Result: stream.
    0x60 StreamCreate Done;
    /// flags, 0. Result: stream.
    0x61 StreamCreateWithFlags Done;
    /// flags, 0, priority, 0. Result: stream.
    0x62 StreamCreateWithPriority Done;
    /// stream64; waits for its work. 400 for an unknown one.
    0x63 StreamDestroy Done;
    /// stream64; an unknown one is the default stream.
    0x64 StreamSynchronize Done;
    /// stream64. 600: not ready.
    0x65 StreamQuery Done;
    /// stream64, event64, flags, 0. 400 for unknown ones.
    0x66 StreamWaitEvent Done;
    /// flags. Result: event.
    0x70 EventCreate Done;
    /// flags, 0. Result: event; 2 when the owner has 256.
    0x71 EventCreateWithFlags Done;
    /// event64. 400 for an unknown one.
    0x72 EventDestroy Done;
    /// event64, stream64. 400 for unknown ones.
    0x73 EventRecord Done;
    /// event64.
    0x74 EventSynchronize Done;
    /// event64. 600: not ready.
    0x75 EventQuery Done;
    /// start64, end64. Result: bits of an f32, milliseconds.
    0x76 EventElapsedTime Done;
    /// Refused.
    0x80 TexRefCreate Refused;
    /// Refused.
    0x81 TexObjectCreate Refused;
    /// device64. Result: context. From here on the owner's memory is freed with it (Q11).
    0x90 PrimaryCtxRetain Done;
    /// device64.
    0x91 PrimaryCtxRelease Ignored;
    /// device64. Frees the owner's memory.
    0x92 PrimaryCtxReset Done;
    /// device64, flags64.
    0x93 PrimaryCtxSetFlags Ignored;
    /// device64. Results: flags 0, active.
    0x94 PrimaryCtxGetState Done;
    /// Refused.
    0xa0 OccupancyMaxBlocks Refused;
    /// Refused.
    0xa1 OccupancyMaxPotentialBlockSize Refused;
    /// Image as payload, whole or in pieces. Result: library.
    0xa8 LibraryLoadData Done;
    /// library64. 400 for an unknown one.
    0xa9 LibraryUnload Done;
    /// library64. Result: module.
    0xaa LibraryGetModule Done;
    /// Results: `cublasStatus_t`, handle.
    0xac CublasCreate Done;
    /// handle64. Result: `cublasStatus_t`.
    0xad CublasDestroy Done;
    /// handle64, stream64. Result: `cublasStatus_t`.
    0xae CublasSetStream Done;
    /// handle64. Results: `cublasStatus_t`, stream.
    0xaf CublasGetStream Done;
    /// attribute, 0, function64. Result: value.
    0xb0 FuncGetAttribute Done;
    /// function64, config, 0.
    0xb1 FuncSetCacheConfig Done;
    /// Refused.
    0xb2 GetErrorString Refused;
    /// Refused.
    0xb3 GetErrorName Refused;
    /// [`super::payload::Sgemm`]. Result: `cublasStatus_t`.
    0xb4 CublasSgemm Done;
    /// [`super::payload::GemmEx`]. Result: `cublasStatus_t`.
    0xb5 CublasGemmEx Done;
    /// [`super::payload::GemmStrided`]. Result: `cublasStatus_t`.
    0xb6 CublasGemmStridedBatchedEx Done;
    /// Refused.
    0xb7 CublasLtCreate Refused;
    /// Refused.
    0xb8 CublasLtDestroy Refused;
    /// Refused.
    0xb9 CublasLtMatmul Refused;
    /// [`super::payload::GemmBatched`], then the addresses of all A, all B, all C. Result: `cublasStatus_t`.
    0xba CublasGemmBatchedEx Done;
    /// function64, index64. Results: offset, size; 801 where the host's driver cannot say.
    0xbc FuncGetParamInfo Done;
    /// Payload back: [`super::payload::GpuInfo`].
    0xf0 GetGpuInfo Done;
    /// token. Answered by the mediator: frees what the owner has.
    0xfe ProcessCleanup Done;
}

impl Op {
    /// Whether the device looks for payload above [`super::INLINE_BYTES`] by the rules of bulk calls ([`super::route`]).
    #[must_use]
    pub const fn is_bulk(self) -> bool {
        is_bulk(self as u32)
    }

    /// Whether the payload is an image, which may come in pieces and whose length counts.
    #[must_use]
    pub const fn is_image(self) -> bool {
        matches!(
            self,
            Self::ModuleLoadData | Self::ModuleLoadDataEx | Self::ModuleLoadFatBinary | Self::LibraryLoadData
        )
    }
}

/// [`Op::is_bulk`] of a number that a guest wrote.
#[must_use]
pub const fn is_bulk(op: u32) -> bool {
    matches!(op, 0x32 | 0x3c | 0x40 | 0x41 | 0x42 | 0xa8)
}

/// The argument of an image's call that says which piece it is, if there are more than that many arguments: 0 is the whole image.
pub const CHUNK_ARG: usize = 14;
/// [`CHUNK_ARG`]: the first piece; what came before is dropped.
pub const CHUNK_FIRST: u32 = 1;
/// [`CHUNK_ARG`]: the last; it loads the image.
pub const CHUNK_LAST: u32 = 2;
/// [`CHUNK_ARG`]: one in between.
pub const CHUNK_MIDDLE: u32 = 4;
/// [`CHUNK_ARG`]: first and last at once.
pub const CHUNK_SINGLE: u32 = CHUNK_FIRST | CHUNK_LAST;

/// Owners that a host keeps apart; one more gets `CUDA_ERROR_OUT_OF_MEMORY` for everything.
pub const OWNERS_MAX: usize = 64;
/// Allocations of one owner that a host knows; one more works and is never freed by a cleanup (Q21).
pub const ALLOCATIONS_MAX: usize = 4096;
/// Modules of one owner.
pub const MODULES_MAX: usize = 2048;
/// Libraries of one owner.
pub const LIBRARIES_MAX: usize = 4096;
/// Functions of one owner.
pub const FUNCTIONS_MAX: usize = 8192;
/// Streams of one owner.
pub const STREAMS_MAX: usize = 128;
/// Events of one owner.
pub const EVENTS_MAX: usize = 256;
/// cuBLAS handles of one owner.
pub const CUBLAS_MAX: usize = 128;
