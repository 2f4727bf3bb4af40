//! A matrix of cuBLAS's in device memory.

use crate::raw::Address;

/// A matrix, or a batch of them at equal distances.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// Device address of the first.
    pub address: Address,
    /// Rows and columns as it is stored.
    pub size: [i64; 2],
    /// Leading dimension.
    pub leading: i64,
    /// Elements from one to the next.
    pub stride: i64,
    /// `cudaDataType`
    pub kind: i32,
}
