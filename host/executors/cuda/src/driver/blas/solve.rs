//! Triangular solves of cuBLAS.

use std::ffi::c_int;

use vgpu_abi::blas::{BlasStatus, data};
use vgpu_wire::body::gemm::{GEMM_POINTERS, TriangularSolve};

use super::handle::{BlasError, BlasHandle, check, longs};
use super::product::Scalar;
use crate::driver::range::DeviceRange;

impl BlasHandle {
    /// Calls `cublas<t>trsm` or `cublas<t>trsmBatched`. `matrices` are A and B, or the arrays of addresses.
    /// Alpha is in the memory that the settings select.
    pub(crate) fn solve(
        &self,
        body: &TriangularSolve,
        matrices: [DeviceRange; 2],
        alpha: &Scalar,
    ) -> Result<(), BlasError> {
        let (handle, table) = (self.raw(), self.table());
        let call = "cublas<t>trsm_v2_64";
        let (one, many) = match body.element as c_int {
            data::R_32F => (table.cublasStrsm_v2_64, table.cublasStrsmBatched_64),
            data::R_64F => (table.cublasDtrsm_v2_64, table.cublasDtrsmBatched_64),
            data::C_32F => (table.cublasCtrsm_v2_64, table.cublasCtrsmBatched_64),
            data::C_64F => (table.cublasZtrsm_v2_64, table.cublasZtrsmBatched_64),
            _ => return Err(BlasError { call, status: BlasStatus::NOT_SUPPORTED }),
        };
        let [side, fill, operation, diagonal] =
            [body.side, body.fill, body.operation, body.diagonal].map(|number| number as c_int);
        let [rows, columns] = longs(call, body.size)?;
        let [lead_a, lead_b] = longs(call, body.leading)?;
        let [at_a, at_b] = matrices.map(DeviceRange::address);
        let alpha = alpha.pointer();
        if body.flags & GEMM_POINTERS == 0 {
            // SAFETY: a live handle; all that the solve reads and writes is the session's.
            let status = unsafe {
                one(handle, side, fill, operation, diagonal, rows, columns, alpha, at_a, lead_a, at_b, lead_b)
            };
            return check(call, status);
        }
        let batch = i64::from(body.batch);
        // SAFETY: the handle is live, and the session owns the arrays of as many addresses as there are
        // solves. The addresses in them are not checked, as with a kernel; the worker process isolates their
        // effects.
        let status = unsafe {
            many(
                handle, side, fill, operation, diagonal, rows, columns, alpha, at_a, lead_a, at_b, lead_b,
                batch,
            )
        };
        check("cublas<t>trsmBatched_64", status)
    }
}
