//! Matrix products of cuBLAS.

use std::ffi::{c_int, c_void};
use std::ptr;

use vgpu_wire::body::gemm::{GEMM_POINTERS, Gemm};

use super::handle::{BlasError, BlasHandle, check, longs};
use crate::driver::range::DeviceRange;

/// Alpha or beta of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scalar {
    /// The value itself, in the first bytes.
    Host(HostScalar),
    /// The address of the value in device memory.
    Device(DeviceRange),
}

/// A value in host memory, aligned for each type that it may have.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub(crate) struct HostScalar(pub(crate) [u8; 16]);

impl Scalar {
    /// Returns the argument for cuBLAS, which reads a value in host memory before the call returns.
    pub(super) const fn pointer(&self) -> *const c_void {
        match self {
            Self::Host(number) => ptr::from_ref(number).cast(),
            Self::Device(range) => ptr::without_provenance(range.address() as usize),
        }
    }
}

impl BlasHandle {
    /// Calls `cublasGemmEx` or one of its batched forms. `matrices` are A, B and C, the first of each in a
    /// batch, or the arrays of addresses. `scalars` are alpha and beta, in the memory that the settings
    /// select.
    pub(crate) fn gemm(
        &self,
        body: &Gemm,
        matrices: [DeviceRange; 3],
        scalars: &[Scalar; 2],
    ) -> Result<(), BlasError> {
        let call = match (body.flags & GEMM_POINTERS != 0, body.batch) {
            (true, _) => "cublasGemmBatchedEx_64",
            (false, 1) => "cublasGemmEx_64",
            (false, _) => "cublasGemmStridedBatchedEx_64",
        };
        let table = self.table();
        let handle = self.raw();
        let [on_a, on_b] = body.operation.map(|operation| operation as c_int);
        let [m, n, k] = longs(call, body.size)?;
        let [lda, ldb, ldc] = longs(call, body.leading)?;
        let [kind_a, kind_b, kind_c] = body.types.map(|kind| kind as c_int);
        let [at_a, at_b, at_c] = matrices.map(DeviceRange::address);
        let [alpha, beta] = scalars.each_ref().map(Scalar::pointer);
        let (compute, algorithm, batch) = (body.compute as c_int, body.algorithm, i64::from(body.batch));
        let [every_a, every_b, every_c] = body.stride;
        let status = if body.flags & GEMM_POINTERS != 0 {
            let multiply = table.cublasGemmBatchedEx_64;
            // SAFETY: the handle is live, and the session owns the arrays of as many addresses as there are
            // products. The addresses in them are not checked, as with a kernel; the worker process isolates
            // their effects.
            unsafe {
                multiply(
                    handle, on_a, on_b, m, n, k, alpha, at_a, kind_a, lda, at_b, kind_b, ldb, beta, at_c,
                    kind_c, ldc, batch, compute, algorithm,
                )
            }
        } else if body.batch == 1 {
            let multiply = table.cublasGemmEx_64;
            // SAFETY: a live handle; all that the product reads and writes is the session's.
            unsafe {
                multiply(
                    handle, on_a, on_b, m, n, k, alpha, at_a, kind_a, lda, at_b, kind_b, ldb, beta, at_c,
                    kind_c, ldc, compute, algorithm,
                )
            }
        } else {
            let multiply = table.cublasGemmStridedBatchedEx_64;
            // SAFETY: as above, of each product.
            unsafe {
                multiply(
                    handle, on_a, on_b, m, n, k, alpha, at_a, kind_a, lda, every_a, at_b, kind_b, ldb,
                    every_b, beta, at_c, kind_c, ldc, every_c, batch, compute, algorithm,
                )
            }
        };
        check(call, status)
    }
}
