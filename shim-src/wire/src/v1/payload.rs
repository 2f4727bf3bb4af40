//! Structures that travel as payload. Packed: the sizes of the C structures are given.

use zerocopy::little_endian::{I32, I64, U32, U64};

wire_struct! {
    /// Answer to `GetGpuInfo`.
    pub struct GpuInfo = 472 {
        /// Product name, padded with zeros.
        pub name: [u8; 256] = 0,
        /// UUID.
        pub uuid: [u8; 16] = 256,
        /// Device memory, bytes.
        pub total_bytes: U64 = 272,
        /// Free now, bytes.
        pub free_bytes: U64 = 280,
        /// Compute capability, major.
        pub cc_major: I32 = 288,
        /// Compute capability, minor.
        pub cc_minor: I32 = 292,
        /// Multiprocessors.
        pub multiprocessors: I32 = 296,
        /// Threads of a block.
        pub max_threads_per_block: I32 = 300,
        /// Threads of a block in x, y, z.
        pub max_block: [I32; 3] = 304,
        /// Blocks of a grid in x, y, z.
        pub max_grid: [I32; 3] = 316,
        /// Threads of a warp.
        pub warp: I32 = 328,
        /// Shared memory of a block, bytes; what a kernel can opt in to is not said.
        pub shared_per_block: I32 = 332,
        /// Shared memory of a multiprocessor, bytes.
        pub shared_per_multiprocessor: I32 = 336,
        /// Registers of a block.
        pub registers_per_block: I32 = 340,
        /// Registers of a multiprocessor.
        pub registers_per_multiprocessor: I32 = 344,
        /// kHz.
        pub clock_khz: I32 = 348,
        /// kHz.
        pub memory_clock_khz: I32 = 352,
        /// Bits.
        pub bus_bits: I32 = 356,
        /// Bytes.
        pub l2_bytes: I32 = 360,
        /// Threads of a multiprocessor.
        pub max_threads_per_multiprocessor: I32 = 364,
        /// `CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING`.
        pub unified_addressing: I32 = 368,
        /// `CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY`.
        pub managed_memory: I32 = 372,
        /// `CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS`.
        pub concurrent_kernels: I32 = 376,
        /// `CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT`.
        pub async_engines: I32 = 380,
        /// The host's PCI bus.
        pub pci_bus: I32 = 384,
        /// The host's PCI device.
        pub pci_device: I32 = 388,
        /// The host's PCI domain.
        pub pci_domain: I32 = 392,
        /// ECC is on.
        pub ecc: I32 = 396,
        /// `cuDriverGetVersion`.
        pub driver_version: I32 = 400,
        /// `cudaRuntimeGetVersion`.
        pub runtime_version: I32 = 404,
        /// Zero.
        pub reserved: [I32; 16] = 408,
    }
}

wire_struct! {
    /// Head of a launch's payload; [`LAUNCH_RAW`] parameters follow, or [`LAUNCH_LEGACY`] sizes and values.
    pub struct Launch = 60 {
        /// Function.
        pub function: U64 = 0,
        /// Blocks in x, y, z.
        pub grid: [U32; 3] = 8,
        /// Threads in x, y, z.
        pub block: [U32; 3] = 20,
        /// Bytes of dynamic shared memory.
        pub shared_bytes: U32 = 32,
        /// 0, 1, 2: the default ones; else a stream.
        pub stream: U64 = 36,
        /// How many parameters.
        pub params: U32 = 44,
        /// Bytes of parameters.
        pub param_bytes: U32 = 48,
        /// [`LAUNCH_LEGACY`] or [`LAUNCH_RAW`].
        pub mode: U32 = 52,
        /// Zero.
        pub reserved: U32 = 56,
    }
}

/// [`Launch::mode`]: `params` sizes of 4 bytes, then the values one behind the other. The host passes pointers to them.
pub const LAUNCH_LEGACY: u32 = 0;
/// [`Launch::mode`]: `param_bytes` of a buffer with the kernel's own offsets.
pub const LAUNCH_RAW: u32 = 1;
/// The most parameters of [`LAUNCH_LEGACY`].
pub const LAUNCH_PARAMS_MAX: u32 = 256;

wire_struct! {
    /// `cublasSgemm`.
    pub struct Sgemm = 72 {
        /// cuBLAS handle.
        pub handle: U64 = 0,
        /// Addresses of A, B, C.
        pub matrix: [U64; 3] = 8,
        /// Transposition of A and B.
        pub operation: [I32; 2] = 32,
        /// m, n, k.
        pub size: [I32; 3] = 40,
        /// Leading dimensions of A, B, C.
        pub leading: [I32; 3] = 52,
        /// Bits of an f32.
        pub alpha: U32 = 64,
        /// Bits of an f32.
        pub beta: U32 = 68,
    }
}

wire_struct! {
    /// `cublasGemmEx`. Scalars are f32 whatever is computed (Q20).
    pub struct GemmEx = 92 {
        /// cuBLAS handle.
        pub handle: U64 = 0,
        /// Addresses of A, B, C.
        pub matrix: [U64; 3] = 8,
        /// Transposition of A and B.
        pub operation: [I32; 2] = 32,
        /// m, n, k.
        pub size: [I32; 3] = 40,
        /// `cudaDataType` of A, B, C.
        pub types: [I32; 3] = 52,
        /// Leading dimensions of A, B, C.
        pub leading: [I32; 3] = 64,
        /// `cublasComputeType_t`.
        pub compute: I32 = 76,
        /// `cublasGemmAlgo_t`.
        pub algorithm: I32 = 80,
        /// Bits of an f32.
        pub alpha: U32 = 84,
        /// Bits of an f32.
        pub beta: U32 = 88,
    }
}

wire_struct! {
    /// `cublasGemmStridedBatchedEx`.
    pub struct GemmStrided = 120 {
        /// cuBLAS handle.
        pub handle: U64 = 0,
        /// Addresses of A, B, C.
        pub matrix: [U64; 3] = 8,
        /// Elements from one product's A, B, C to the next's.
        pub stride: [I64; 3] = 32,
        /// Transposition of A and B.
        pub operation: [I32; 2] = 56,
        /// m, n, k.
        pub size: [I32; 3] = 64,
        /// `cudaDataType` of A, B, C.
        pub types: [I32; 3] = 76,
        /// Leading dimensions of A, B, C.
        pub leading: [I32; 3] = 88,
        /// How many products.
        pub batch: I32 = 100,
        /// `cublasComputeType_t`.
        pub compute: I32 = 104,
        /// `cublasGemmAlgo_t`.
        pub algorithm: I32 = 108,
        /// Bits of an f32.
        pub alpha: U32 = 112,
        /// Bits of an f32.
        pub beta: U32 = 116,
    }
}

wire_struct! {
    /// Head of `cublasGemmBatchedEx`; `batch` addresses of A, then of B, then of C follow.
    pub struct GemmBatched = 72 {
        /// cuBLAS handle.
        pub handle: U64 = 0,
        /// Transposition of A and B.
        pub operation: [I32; 2] = 8,
        /// m, n, k.
        pub size: [I32; 3] = 16,
        /// `cudaDataType` of A, B, C.
        pub types: [I32; 3] = 28,
        /// Leading dimensions of A, B, C.
        pub leading: [I32; 3] = 40,
        /// How many products.
        pub batch: I32 = 52,
        /// `cublasComputeType_t`.
        pub compute: I32 = 56,
        /// `cublasGemmAlgo_t`.
        pub algorithm: I32 = 60,
        /// Bits of an f32.
        pub alpha: U32 = 64,
        /// Bits of an f32.
        pub beta: U32 = 68,
    }
}
