//! A matrix of cuBLAS in device memory.

use crate::raw::DeviceAddress;

/// A matrix, or a batch of them at equal distances.
#[derive(Clone, Copy, Debug)]
pub struct BlasMatrix {
    /// Device address of the first matrix.
    pub address: DeviceAddress,
    /// Rows and columns of the matrix as it is stored.
    pub size: [i64; 2],
    pub leading: i64,
    /// Distance of two matrices, in elements.
    pub stride: i64,
    /// Element type as a `cudaDataType`.
    pub kind: i32,
}
