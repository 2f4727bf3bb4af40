//! Operations of cuBLAS on vectors.

use std::ffi::c_int;

use vgpu_abi::blas::{BlasStatus, data};
use vgpu_wire::body::vector::{
    VECTOR_ASUM, VECTOR_AXPY, VECTOR_DOT, VECTOR_DOT_CONJUGATE, VECTOR_NORM, VectorOp,
};

use super::handle::{BlasError, BlasHandle, check, longs};
use super::product::Scalar;
use crate::driver::range::DeviceRange;

/// Operand of an operation that is not a vector.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    /// Address of the sum in device memory. The settings select device memory for scalars.
    Sum(DeviceRange),
    /// Alpha, in the memory that the settings select.
    Alpha(Scalar),
}

impl BlasHandle {
    /// Calls `cublasDotEx` or another operation on vectors. `vectors` are x and y from their lowest addresses
    /// on, even if their increments are negative. For an operation without y, x is given twice.
    pub(crate) fn vector(
        &self,
        body: &VectorOp,
        vectors: [DeviceRange; 2],
        number: &Number,
    ) -> Result<(), BlasError> {
        let (handle, table) = (self.raw(), self.table());
        let [count] = longs("cublas<t>dot", [body.elements])?;
        let [x, y] = vectors.map(DeviceRange::address);
        let [step_x, step_y] = body.step;
        let [of_x, of_y, of_scalar, compute] =
            [body.x_type, body.y_type, body.scalar_type, body.compute].map(|kind| kind as c_int);
        match (body.operation, number) {
            (VECTOR_DOT, Number::Sum(sum)) => {
                let (dot, to) = (table.cublasDotEx_64, sum.address());
                // SAFETY: a live handle; both vectors and the place of the sum are the session's.
                let status =
                    unsafe { dot(handle, count, x, of_x, step_x, y, of_y, step_y, to, of_scalar, compute) };
                check("cublasDotEx_64", status)
            }
            (VECTOR_DOT_CONJUGATE, Number::Sum(sum)) => {
                let (dot, to) = (table.cublasDotcEx_64, sum.address());
                // SAFETY: as above.
                let status =
                    unsafe { dot(handle, count, x, of_x, step_x, y, of_y, step_y, to, of_scalar, compute) };
                check("cublasDotcEx_64", status)
            }
            (VECTOR_NORM, Number::Sum(sum)) => {
                let (norm, to) = (table.cublasNrm2Ex_64, sum.address());
                // SAFETY: as above, of one vector.
                let status = unsafe { norm(handle, count, x, of_x, step_x, to, of_scalar, compute) };
                check("cublasNrm2Ex_64", status)
            }
            (VECTOR_ASUM, Number::Sum(sum)) => {
                let call = "cublas<t>asum_v2_64";
                let add = match of_x {
                    data::R_32F => table.cublasSasum_v2_64,
                    data::R_64F => table.cublasDasum_v2_64,
                    data::C_32F => table.cublasScasum_v2_64,
                    data::C_64F => table.cublasDzasum_v2_64,
                    _ => return Err(BlasError { call, status: BlasStatus::NOT_SUPPORTED }),
                };
                // SAFETY: as above, of one vector.
                check(call, unsafe { add(handle, count, x, step_x, sum.address()) })
            }
            (VECTOR_AXPY, Number::Alpha(alpha)) => {
                let (add, alpha) = (table.cublasAxpyEx_64, alpha.pointer());
                // SAFETY: a live handle; both vectors are the session's, and alpha is read where it is.
                let status = unsafe {
                    add(handle, count, alpha, of_scalar, x, of_x, step_x, y, of_y, step_y, compute)
                };
                check("cublasAxpyEx_64", status)
            }
            _ => Err(BlasError { call: "an operation on vectors", status: BlasStatus::INVALID_VALUE }),
        }
    }
}
