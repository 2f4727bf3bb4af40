//! Structures that travel as payload. They are packed, and their sizes are those of the C structures.

use zerocopy::little_endian::{I32, I64, U32, U64};

wire_struct! {
    /// Answer to [`Op::GetGpuInfo`](super::call::Op::GetGpuInfo): facts of the GPU behind the host.
    pub struct GpuInfo = 472 {
        /// Product name, padded with zeros.
        pub name: [u8; 256] = 0,
        /// The 16 bytes of the GPU's UUID.
        pub uuid: [u8; 16] = 256,
        /// Device memory in bytes.
        pub total_bytes: U64 = 272,
        /// Device memory in bytes that is free now.
        pub free_bytes: U64 = 280,
        /// Major number of the compute capability.
        pub cc_major: I32 = 288,
        /// Minor number of the compute capability.
        pub cc_minor: I32 = 292,
        /// Number of multiprocessors.
        pub multiprocessors: I32 = 296,
        /// Maximum number of threads of a block.
        pub max_threads_per_block: I32 = 300,
        /// Maximum number of threads of a block in x, y and z.
        pub max_block: [I32; 3] = 304,
        /// Maximum number of blocks of a grid in x, y and z.
        pub max_grid: [I32; 3] = 316,
        /// Number of threads of a warp.
        pub warp: I32 = 328,
        /// Shared memory of a block in bytes. What a kernel can opt in to is not in this structure.
        pub shared_per_block: I32 = 332,
        /// Shared memory of a multiprocessor in bytes.
        pub shared_per_multiprocessor: I32 = 336,
        /// Number of 32-bit registers of a block.
        pub registers_per_block: I32 = 340,
        /// Number of 32-bit registers of a multiprocessor.
        pub registers_per_multiprocessor: I32 = 344,
        /// Clock of the multiprocessors in kHz.
        pub clock_khz: I32 = 348,
        /// Clock of the device memory in kHz.
        pub memory_clock_khz: I32 = 352,
        /// Width of the memory bus in bits.
        pub bus_bits: I32 = 356,
        /// Size of the L2 cache in bytes.
        pub l2_bytes: I32 = 360,
        /// Maximum number of resident threads of a multiprocessor.
        pub max_threads_per_multiprocessor: I32 = 364,
        /// Value of `CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING`.
        pub unified_addressing: I32 = 368,
        /// Value of `CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY`.
        pub managed_memory: I32 = 372,
        /// Value of `CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS`.
        pub concurrent_kernels: I32 = 376,
        /// Value of `CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT`.
        pub async_engines: I32 = 380,
        /// PCI bus of the GPU on the host.
        pub pci_bus: I32 = 384,
        /// PCI device number of the GPU on the host.
        pub pci_device: I32 = 388,
        /// PCI domain of the GPU on the host.
        pub pci_domain: I32 = 392,
        /// 1 if ECC is on, otherwise 0.
        pub ecc: I32 = 396,
        /// What `cuDriverGetVersion` returns on the host.
        pub driver_version: I32 = 400,
        /// What `cudaRuntimeGetVersion` returns on the host.
        pub runtime_version: I32 = 404,
        /// Reserved, zeros.
        pub reserved: [I32; 16] = 408,
    }
}

wire_struct! {
    /// Header of a launch's payload. A buffer of parameters follows for [`LAUNCH_RAW`], sizes and values for
    /// [`LAUNCH_LEGACY`].
    pub struct Launch = 60 {
        /// Handle of the kernel, from [`Op::ModuleGetFunction`](super::call::Op::ModuleGetFunction).
        pub function: U64 = 0,
        /// Number of blocks in x, y and z.
        pub grid: [U32; 3] = 8,
        /// Number of threads of a block in x, y and z.
        pub block: [U32; 3] = 20,
        /// Dynamic shared memory of a block in bytes.
        pub shared_bytes: U32 = 32,
        /// Handle of the stream; 0, 1 and 2 are the default streams.
        pub stream: U64 = 36,
        /// Number of parameters.
        pub params: U32 = 44,
        /// Length of all parameters in bytes.
        pub param_bytes: U32 = 48,
        /// Form of the parameters, [`LAUNCH_LEGACY`] or [`LAUNCH_RAW`].
        pub mode: U32 = 52,
        /// Reserved, zero.
        pub reserved: U32 = 56,
    }
}

/// [`Launch::mode`]: `params` sizes as u32, then the values one after the other. The host passes pointers to
/// the values.
pub const LAUNCH_LEGACY: u32 = 0;
/// [`Launch::mode`]: `param_bytes` of a buffer that has the kernel's own offsets.
pub const LAUNCH_RAW: u32 = 1;
/// Maximum number of parameters for [`LAUNCH_LEGACY`].
pub const LAUNCH_PARAMS_MAX: u32 = 256;

wire_struct! {
    /// Payload of `cublasSgemm`, a product of single precision matrices.
    pub struct Sgemm = 72 {
        /// Handle from [`Op::CublasCreate`](super::call::Op::CublasCreate).
        pub handle: U64 = 0,
        /// Device addresses of A, B and C.
        pub matrix: [U64; 3] = 8,
        /// `cublasOperation_t` for A and for B.
        pub operation: [I32; 2] = 32,
        /// The sizes m, n and k, in elements.
        pub size: [I32; 3] = 40,
        /// Leading dimensions of A, B and C, in elements.
        pub leading: [I32; 3] = 52,
        /// Alpha, as the bits of an f32.
        pub alpha: U32 = 64,
        /// Beta, as the bits of an f32.
        pub beta: U32 = 68,
    }
}

wire_struct! {
    /// Payload of `cublasGemmEx`. Alpha and beta are f32 whatever the compute type is (Q20).
    pub struct GemmEx = 92 {
        /// Handle from [`Op::CublasCreate`](super::call::Op::CublasCreate).
        pub handle: U64 = 0,
        /// Device addresses of A, B and C.
        pub matrix: [U64; 3] = 8,
        /// `cublasOperation_t` for A and for B.
        pub operation: [I32; 2] = 32,
        /// The sizes m, n and k, in elements.
        pub size: [I32; 3] = 40,
        /// `cudaDataType` of the elements of A, B and C.
        pub types: [I32; 3] = 52,
        /// Leading dimensions of A, B and C, in elements.
        pub leading: [I32; 3] = 64,
        /// `cublasComputeType_t` of the product.
        pub compute: I32 = 76,
        /// `cublasGemmAlgo_t` that the program asked for.
        pub algorithm: I32 = 80,
        /// Alpha, as the bits of an f32.
        pub alpha: U32 = 84,
        /// Beta, as the bits of an f32.
        pub beta: U32 = 88,
    }
}

wire_struct! {
    /// Payload of `cublasGemmStridedBatchedEx`, a batch of products whose matrices lie at equal distances.
    pub struct GemmStrided = 120 {
        /// Handle from [`Op::CublasCreate`](super::call::Op::CublasCreate).
        pub handle: U64 = 0,
        /// Device addresses of A, B and C.
        pub matrix: [U64; 3] = 8,
        /// Elements from one product's A, B and C to the next product's.
        pub stride: [I64; 3] = 32,
        /// `cublasOperation_t` for A and for B.
        pub operation: [I32; 2] = 56,
        /// The sizes m, n and k, in elements.
        pub size: [I32; 3] = 64,
        /// `cudaDataType` of the elements of A, B and C.
        pub types: [I32; 3] = 76,
        /// Leading dimensions of A, B and C, in elements.
        pub leading: [I32; 3] = 88,
        /// Number of products.
        pub batch: I32 = 100,
        /// `cublasComputeType_t` of the product.
        pub compute: I32 = 104,
        /// `cublasGemmAlgo_t` that the program asked for.
        pub algorithm: I32 = 108,
        /// Alpha, as the bits of an f32.
        pub alpha: U32 = 112,
        /// Beta, as the bits of an f32.
        pub beta: U32 = 116,
    }
}

wire_struct! {
    /// Header of the payload of `cublasGemmBatchedEx`. `batch` addresses of A follow, then those of B, then
    /// those of C, 64 bits each.
    pub struct GemmBatched = 72 {
        /// Handle from [`Op::CublasCreate`](super::call::Op::CublasCreate).
        pub handle: U64 = 0,
        /// `cublasOperation_t` for A and for B.
        pub operation: [I32; 2] = 8,
        /// The sizes m, n and k, in elements.
        pub size: [I32; 3] = 16,
        /// `cudaDataType` of the elements of A, B and C.
        pub types: [I32; 3] = 28,
        /// Leading dimensions of A, B and C, in elements.
        pub leading: [I32; 3] = 40,
        /// Number of products.
        pub batch: I32 = 52,
        /// `cublasComputeType_t` of the product.
        pub compute: I32 = 56,
        /// `cublasGemmAlgo_t` that the program asked for.
        pub algorithm: I32 = 60,
        /// Alpha, as the bits of an f32.
        pub alpha: U32 = 64,
        /// Beta, as the bits of an f32.
        pub beta: U32 = 68,
    }
}
