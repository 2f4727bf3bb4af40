//! cuBLAS operations. Enumerations are cuBLAS's own numbers (`cublasOperation_t`, `cudaDataType`,
//! `cublasComputeType_t`, `cublasMath_t`, ...). Matrices are column-major.

wire_struct! {
    /// A matrix product, plain, strided or over arrays of pointers:
    /// `C = alpha * op(A) * op(B) + beta * C`.
    pub struct Gemm = 192 {
        /// The stream.
        pub stream: u32 = 0,
        /// [`GEMM_POINTERS`], [`GEMM_DEVICE_SCALARS`].
        pub flags: u32 = 4,
        /// Transposition of A and of B.
        pub operation: [u32; 2] = 8,
        /// Element types of A, B, C.
        pub types: [u32; 3] = 16,
        /// Compute type.
        pub compute: u32 = 28,
        /// Type of alpha and beta.
        pub scale: u32 = 32,
        /// `cublasGemmAlgo_t`; a hint.
        pub algorithm: i32 = 36,
        /// Math mode of the handle.
        pub math: u32 = 40,
        /// How many products.
        pub batch: u32 = 44,
        /// m, n, k.
        pub size: [u64; 3] = 48,
        /// Leading dimensions of A, B, C, in elements.
        pub leading: [u64; 3] = 72,
        /// Elements from one product's A, B, C to the next's.
        pub stride: [i64; 3] = 96,
        /// Device addresses of A, B, C, or of arrays of addresses.
        pub matrix: [u64; 3] = 120,
        /// Alpha in the scale type, or its device address.
        pub alpha: [u8; 16] = 144,
        /// Beta in the scale type, or its device address.
        pub beta: [u8; 16] = 160,
        /// Workspace set by the user: address.
        pub workspace: u64 = 176,
        /// Its size.
        pub workspace_bytes: u64 = 184,
    }
}

/// [`Gemm::flags`]: `matrix` holds addresses of arrays of `batch` addresses in device memory.
pub const GEMM_POINTERS: u32 = 1 << 0;
/// [`Gemm::flags`]: alpha and beta are device addresses.
pub const GEMM_DEVICE_SCALARS: u32 = 1 << 1;

wire_struct! {
    /// `cublas<t>trsmBatched`: solves `op(A) * X = alpha * B` or `X * op(A) = alpha * B`, in place.
    pub struct TriangularSolve = 104 {
        /// The stream.
        pub stream: u32 = 0,
        /// [`GEMM_POINTERS`], [`GEMM_DEVICE_SCALARS`].
        pub flags: u32 = 4,
        /// `cublasSideMode_t`.
        pub side: u32 = 8,
        /// `cublasFillMode_t`.
        pub fill: u32 = 12,
        /// `cublasOperation_t`.
        pub operation: u32 = 16,
        /// `cublasDiagType_t`.
        pub diagonal: u32 = 20,
        /// Element type.
        pub element: u32 = 24,
        /// How many systems.
        pub batch: u32 = 28,
        /// m, n.
        pub size: [u64; 2] = 32,
        /// Leading dimensions of A, B.
        pub leading: [u64; 2] = 48,
        /// Device addresses of A, B, or of arrays of addresses.
        pub matrix: [u64; 2] = 64,
        /// Alpha in the element type, or its device address.
        pub alpha: [u8; 16] = 80,
        /// Zero.
        pub reserved: u64 = 96,
    }
}
