//! Vector operations of cuBLAS: reductions and sums of vectors. Types are numbers of `cudaDataType`.

wire_struct! {
    /// An operation on vectors: a sum over their elements, or one vector added to another. Only for hosts
    /// with [`exec::VECTORS`](crate::facts::exec::VECTORS). Where the program wants the sum in host memory,
    /// the guest has it stored in device memory and copies it.
    pub struct VectorOp = 96 {
        /// Stream that orders the work; 0 is the legacy default stream.
        pub stream: u32 = 0,
        /// [`GEMM_DEVICE_SCALARS`](super::gemm::GEMM_DEVICE_SCALARS) if alpha is a device address, otherwise
        /// 0.
        pub flags: u32 = 4,
        /// One of the `VECTOR_` constants below.
        pub operation: u32 = 8,
        /// `cudaDataType` of the elements of x.
        pub x_type: u32 = 12,
        /// `cudaDataType` of the elements of y; that of x where the operation has no y.
        pub y_type: u32 = 16,
        /// `cudaDataType` of the sum, or of alpha.
        pub scalar_type: u32 = 20,
        /// `cudaDataType` in which products and sums are computed.
        pub compute: u32 = 24,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 28,
        /// Number of elements of each vector. A sum of no elements is 0.
        pub elements: u64 = 32,
        /// Elements from one element of x to the next, and the same for y. Negative steps go backwards in
        /// memory.
        pub step: [i64; 2] = 40,
        /// Device addresses of the first element of x and of y.
        pub vector: [u64; 2] = 56,
        /// Alpha of [`VECTOR_AXPY`] in its own type, or its device address; otherwise zeros.
        pub alpha: [u8; 16] = 72,
        /// Device address where the sum is stored; 0 for [`VECTOR_AXPY`].
        pub result: u64 = 88,
    }
}

/// [`VectorOp::operation`]: the sum of the products of corresponding elements of x and y.
pub const VECTOR_DOT: u32 = 1;
/// [`VectorOp::operation`]: [`VECTOR_DOT`] with the conjugates of x.
pub const VECTOR_DOT_CONJUGATE: u32 = 2;
/// [`VectorOp::operation`]: the square root of the sum of squared absolute values of x, a real number.
pub const VECTOR_NORM: u32 = 3;
/// [`VectorOp::operation`]: the sum of absolute values of x, a real number. A complex element adds the
/// absolute values of both its parts.
pub const VECTOR_ASUM: u32 = 4;
/// [`VectorOp::operation`]: adds `alpha * x` to y.
pub const VECTOR_AXPY: u32 = 5;
