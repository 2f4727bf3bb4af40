//! Triangular solves: `cublas<t>trsm` and `...Batched`, with 32-bit and with 64-bit sizes.

#![allow(clippy::too_many_arguments, reason = "as many as BLAS has")]

use std::ffi::c_int;

use vgpu_abi::blas::{Address, BlasStatus, Factor, POINTER_MODE_DEVICE, SIDE_LEFT, SIDE_RIGHT, data};
use vgpu_abi::export;
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS, TriangularSolve};

use crate::handle::Handle;
use crate::product::{holds, is_operation};
use crate::{DRIVER, Result};

/// `op(A) * X = alpha * B` or `X * op(A) = alpha * B`, solved in place, once or for a batch.
#[derive(Clone, Copy, Debug)]
struct Solve {
    side: c_int,
    fill: c_int,
    operation: c_int,
    diagonal: c_int,
    /// `cudaDataType` of the elements of A and B, and of alpha.
    element: c_int,
    /// The sizes m and n of B, in elements.
    size: [i64; 2],
    alpha: Factor,
    /// Device addresses of A and B.
    matrix: [Address; 2],
    /// Leading dimensions of A and B, in elements.
    leading: [i64; 2],
    batch: i64,
    /// Whether the addresses are those of arrays of addresses.
    pointers: bool,
}

impl Solve {
    /// Creates a single solve. The first argument holds side, fill mode, operation and kind of diagonal.
    const fn new(
        [side, fill, operation, diagonal]: [c_int; 4],
        element: c_int,
        size: [i64; 2],
        alpha: Factor,
        matrix: [Address; 2],
        leading: [i64; 2],
    ) -> Self {
        let (batch, pointers) = (1, false);
        Self { side, fill, operation, diagonal, element, size, alpha, matrix, leading, batch, pointers }
    }

    /// Returns the same solve for a batch of `batch`, over arrays of addresses.
    const fn batched(self, batch: i64) -> Self {
        Self { batch, pointers: true, ..self }
    }

    /// Checks the solve and sends it to the handle's stream, unless it would change nothing.
    fn submit(&self, handle: Handle) -> Result {
        let context = handle.context()?;
        self.check()?;
        if self.size.contains(&0) || self.batch == 0 {
            return Ok(());
        }
        let mode = context.pointer_mode();
        let alpha = self.alpha.get(mode, self.element)?;
        let pointers = if self.pointers { GEMM_POINTERS } else { 0 };
        let scalars = if mode == POINTER_MODE_DEVICE { GEMM_DEVICE_SCALARS } else { 0 };
        let message = TriangularSolve {
            stream: 0,
            flags: pointers | scalars,
            side: self.side.cast_unsigned(),
            fill: self.fill.cast_unsigned(),
            operation: self.operation.cast_unsigned(),
            diagonal: self.diagonal.cast_unsigned(),
            element: self.element.cast_unsigned(),
            batch: u32::try_from(self.batch).map_err(|_| BlasStatus::NOT_SUPPORTED)?,
            size: self.size.map(i64::cast_unsigned),
            leading: self.leading.map(i64::cast_unsigned),
            matrix: self.matrix.map(|address| address.0 as u64),
            alpha: alpha.0,
            reserved: 0,
        };
        DRIVER.solve(context.stream(), &message)
    }

    fn check(&self) -> Result {
        let [m, n] = self.size;
        let [a, b] = self.leading;
        let good = matches!(self.side, SIDE_LEFT | SIDE_RIGHT)
            // Lower or upper triangle: `CUBLAS_FILL_MODE_FULL` is for other calls.
            && matches!(self.fill, 0 | 1)
            && is_operation(self.operation)
            && matches!(self.diagonal, 0 | 1)
            && m >= 0
            && n >= 0
            && self.batch >= 0
            && holds(a, if self.side == SIDE_LEFT { m } else { n })
            && holds(b, m);
        if good { Ok(()) } else { Err(BlasStatus::INVALID_VALUE) }
    }
}

macro_rules! trsm {
    ($int:ty: $( fn $name:ident fn $batched:ident $element:path; )*) => {
        export! { $(
            /// Solves `op(A) * X = alpha * B` or `X * op(A) = alpha * B`. X overwrites B.
            pub fn $name(
                handle: Handle, side: c_int, fill: c_int, operation: c_int, diagonal: c_int, m: $int, n: $int,
                alpha: Factor, a: Address, lda: $int, b: Address, ldb: $int,
            ) -> BlasStatus {
                let kind = [side, fill, operation, diagonal];
                let (size, leading) = ([m.into(), n.into()], [lda.into(), ldb.into()]);
                Solve::new(kind, $element, size, alpha, [a, b], leading).submit(handle)
            }

            /// Solves a batch. A and B are arrays of the matrices' addresses in device memory.
            pub fn $batched(
                handle: Handle, side: c_int, fill: c_int, operation: c_int, diagonal: c_int, m: $int, n: $int,
                alpha: Factor, a: Address, lda: $int, b: Address, ldb: $int, batch: $int,
            ) -> BlasStatus {
                let kind = [side, fill, operation, diagonal];
                let (size, leading) = ([m.into(), n.into()], [lda.into(), ldb.into()]);
                Solve::new(kind, $element, size, alpha, [a, b], leading).batched(batch.into()).submit(handle)
            }
        )* }
    };
}

trsm! { c_int:
    fn cublasStrsm_v2 fn cublasStrsmBatched data::R_32F;
    fn cublasDtrsm_v2 fn cublasDtrsmBatched data::R_64F;
    fn cublasCtrsm_v2 fn cublasCtrsmBatched data::C_32F;
    fn cublasZtrsm_v2 fn cublasZtrsmBatched data::C_64F;
}
trsm! { i64:
    fn cublasStrsm_v2_64 fn cublasStrsmBatched_64 data::R_32F;
    fn cublasDtrsm_v2_64 fn cublasDtrsmBatched_64 data::R_64F;
    fn cublasCtrsm_v2_64 fn cublasCtrsmBatched_64 data::C_32F;
    fn cublasZtrsm_v2_64 fn cublasZtrsmBatched_64 data::C_64F;
}
