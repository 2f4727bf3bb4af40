//! cuBLAS operations. Enumerations are cuBLAS's own numbers (`cublasOperation_t`, `cudaDataType`,
//! `cublasComputeType_t`, `cublasMath_t`, ...). Matrices are column-major.

wire_struct! {
    /// A matrix product, single, strided or over arrays of pointers: `C = alpha * op(A) * op(B) + beta * C`.
    /// `op(A)` is m by k, `op(B)` k by n, C m by n.
    pub struct Gemm = 192 {
        /// Stream that orders the work; 0 is the legacy default stream.
        pub stream: u32 = 0,
        /// Combination of [`GEMM_POINTERS`] and [`GEMM_DEVICE_SCALARS`].
        pub flags: u32 = 4,
        /// `cublasOperation_t` for A and for B.
        pub operation: [u32; 2] = 8,
        /// `cudaDataType` of the elements of A, B and C.
        pub types: [u32; 3] = 16,
        /// `cublasComputeType_t` of the product.
        pub compute: u32 = 28,
        /// `cudaDataType` of alpha and beta.
        pub scale: u32 = 32,
        /// `cublasGemmAlgo_t` that the program asked for; the host may choose another.
        pub algorithm: i32 = 36,
        /// `cublasMath_t` set on the program's handle.
        pub math: u32 = 40,
        /// Number of products.
        pub batch: u32 = 44,
        /// The sizes m, n and k, in elements.
        pub size: [u64; 3] = 48,
        /// Leading dimensions of A, B and C, in elements.
        pub leading: [u64; 3] = 72,
        /// Elements from one product's A, B and C to the next product's. Without meaning for
        /// [`GEMM_POINTERS`].
        pub stride: [i64; 3] = 96,
        /// Device addresses of A, B and C, or of three arrays of addresses for [`GEMM_POINTERS`].
        pub matrix: [u64; 3] = 120,
        /// Alpha in the type that `scale` names, or its device address for [`GEMM_DEVICE_SCALARS`].
        pub alpha: [u8; 16] = 144,
        /// Beta in the type that `scale` names, or its device address for [`GEMM_DEVICE_SCALARS`].
        pub beta: [u8; 16] = 160,
        /// Device address of the workspace that the program gave, or 0.
        pub workspace: u64 = 176,
        /// Length of that workspace in bytes.
        pub workspace_bytes: u64 = 184,
    }
}

/// [`Gemm::flags`]: each address in `matrix` is that of an array of `batch` addresses in device memory.
pub const GEMM_POINTERS: u32 = 1 << 0;
/// [`Gemm::flags`]: alpha and beta hold the device addresses of the scalars.
pub const GEMM_DEVICE_SCALARS: u32 = 1 << 1;

wire_struct! {
    /// `cublas<t>trsm` and `cublas<t>trsmBatched`: solves `op(A) * X = alpha * B` or `X * op(A) = alpha * B`.
    /// X overwrites B, which is m by n.
    pub struct TriangularSolve = 104 {
        /// Stream that orders the work; 0 is the legacy default stream.
        pub stream: u32 = 0,
        /// Combination of [`GEMM_POINTERS`] and [`GEMM_DEVICE_SCALARS`].
        pub flags: u32 = 4,
        /// `cublasSideMode_t`: whether A is left or right of X.
        pub side: u32 = 8,
        /// `cublasFillMode_t`: which triangle of A is read.
        pub fill: u32 = 12,
        /// `cublasOperation_t` for A.
        pub operation: u32 = 16,
        /// `cublasDiagType_t`: whether the diagonal of A is read or taken as ones.
        pub diagonal: u32 = 20,
        /// `cudaDataType` of the elements of A and B, and of alpha.
        pub element: u32 = 24,
        /// Number of systems.
        pub batch: u32 = 28,
        /// The sizes m and n, in elements.
        pub size: [u64; 2] = 32,
        /// Leading dimensions of A and B, in elements.
        pub leading: [u64; 2] = 48,
        /// Device addresses of A and B, or of two arrays of addresses for [`GEMM_POINTERS`].
        pub matrix: [u64; 2] = 64,
        /// Alpha in the element type, or its device address for [`GEMM_DEVICE_SCALARS`].
        pub alpha: [u8; 16] = 80,
        /// Must be zero, or the host ends the session.
        pub reserved: u64 = 96,
    }
}
