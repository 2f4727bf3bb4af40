//! Operations of cuBLAS on vectors that are no matrix product. Types are `cudaDataType`.

wire_struct! {
    /// An operation on vectors: a sum over their elements, or one vector added to another. Only to hosts with
    /// [`exec::VECTORS`](crate::facts::exec::VECTORS). A guest whose program wants a sum in its own memory
    /// has it stored in device memory and copies it.
    pub struct VectorOp = 96 {
        /// The stream.
        pub stream: u32 = 0,
        /// [`GEMM_DEVICE_SCALARS`](super::gemm::GEMM_DEVICE_SCALARS): alpha is a device address.
        pub flags: u32 = 4,
        /// [`VECTOR_DOT`] and so on.
        pub operation: u32 = 8,
        /// Element type of x.
        pub x_type: u32 = 12,
        /// Element type of y. Of operations without y that of x.
        pub y_type: u32 = 16,
        /// Type of the sum, or of alpha.
        pub scalar_type: u32 = 20,
        /// Type in which is computed.
        pub compute: u32 = 24,
        /// Zero.
        pub reserved: u32 = 28,
        /// How many elements. Of none the sum is 0.
        pub elements: u64 = 32,
        /// Elements from one of x to the next, and the same of y. Negative: backwards in memory.
        pub step: [i64; 2] = 40,
        /// Device addresses of the first element of x and of y.
        pub vector: [u64; 2] = 56,
        /// [`VECTOR_AXPY`]: alpha, or its device address. Else zeros.
        pub alpha: [u8; 16] = 72,
        /// Device address at which the sum is stored; 0 for [`VECTOR_AXPY`].
        pub result: u64 = 88,
    }
}

/// [`VectorOp::operation`]: the sum of products of x and y.
pub const VECTOR_DOT: u32 = 1;
/// [`VectorOp::operation`]: the same with the conjugates of x.
pub const VECTOR_DOT_CONJUGATE: u32 = 2;
/// [`VectorOp::operation`]: the root of the sum of squared absolute values of x. The sum is real.
pub const VECTOR_NORM: u32 = 3;
/// [`VectorOp::operation`]: the sum of absolute values of x, of complex ones of both parts. The sum is real.
pub const VECTOR_ASUM: u32 = 4;
/// [`VectorOp::operation`]: `y = alpha * x + y`.
pub const VECTOR_AXPY: u32 = 5;
