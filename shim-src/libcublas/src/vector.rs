//! Vector operations that are also matrix products: `cublas<t>gemv`, `...Batched`, `...StridedBatched`, and
//! `cublas<t>scal`.
//!
//! A vector whose elements lie `increment` apart is a matrix of one row with that leading dimension. So
//! `y = A * x` is a product in two forms: with x transposed to a column if y has no gaps, or else as
//! `y' = x' * A'` of rows. Two cases are not products and not supported: a negative increment, and a
//! conjugated A with gaps in y.

#![allow(clippy::too_many_arguments, reason = "as many as BLAS has")]

use std::ffi::{c_int, c_longlong};

use vgpu_abi::blas::{Address, Arithmetic, BlasStatus, Factor, OP_C, OP_N, OP_T, compute, data};
use vgpu_abi::{export, log};

use crate::Result;
use crate::handle::Handle;
use crate::product::{Matrix, Product, holds, is_operation};

/// Types of A and x, of y, and the arithmetic of their product.
#[derive(Clone, Copy, Debug)]
struct VectorKind {
    input: c_int,
    output: c_int,
    arithmetic: Arithmetic,
}

const fn kind(input: c_int, output: c_int, compute: c_int, scale: c_int) -> VectorKind {
    VectorKind { input, output, arithmetic: Arithmetic { compute, scale } }
}

const S: VectorKind = kind(data::R_32F, data::R_32F, compute::F32, data::R_32F);
const D: VectorKind = kind(data::R_64F, data::R_64F, compute::F64, data::R_64F);
const C: VectorKind = kind(data::C_32F, data::C_32F, compute::F32, data::C_32F);
const Z: VectorKind = kind(data::C_64F, data::C_64F, compute::F64, data::C_64F);
const HSH: VectorKind = kind(data::R_16F, data::R_16F, compute::F32, data::R_32F);
const HSS: VectorKind = kind(data::R_16F, data::R_32F, compute::F32, data::R_32F);
const TST: VectorKind = kind(data::R_16BF, data::R_16BF, compute::F32, data::R_32F);
const TSS: VectorKind = kind(data::R_16BF, data::R_32F, compute::F32, data::R_32F);

/// The matrix or a vector of a product with a vector.
#[derive(Clone, Copy, Debug)]
struct Operand {
    address: Address,
    /// Leading dimension of the matrix, or increment of the vector, in elements.
    step: i64,
    /// Elements from one operand of a batch to the next.
    stride: i64,
}

impl Operand {
    fn new(address: Address, step: impl Into<i64>, stride: i64) -> Self {
        Self { address, step: step.into(), stride }
    }
}

/// `y = alpha * op(A) * x + beta * y`, once or for a batch.
#[derive(Clone, Copy, Debug)]
struct Multiply {
    kind: VectorKind,
    operation: c_int,
    /// Number of rows and of columns of A.
    size: [i64; 2],
    /// The factors alpha and beta.
    factors: [Factor; 2],
    /// The operands A, x and y.
    operands: [Operand; 3],
    batch: i64,
    /// Whether the operands' addresses are those of arrays of addresses.
    pointers: bool,
}

fn backwards() -> BlasStatus {
    log::info(format_args!("cuBLAS: no vectors from their end to their start"));
    BlasStatus::NOT_SUPPORTED
}

impl Multiply {
    fn submit(&self, handle: Handle) -> Result {
        handle.context()?;
        let [rows, columns] = self.size;
        let [a, x, y] = self.operands.map(|operand| operand.step);
        let good = is_operation(self.operation)
            && rows >= 0
            && columns >= 0
            && self.batch >= 0
            && holds(a, rows)
            && x != 0
            && y != 0;
        if !good {
            return Err(BlasStatus::INVALID_VALUE);
        }
        // cuBLAS leaves y alone if A has no columns, where a product would scale it.
        if rows == 0 || columns == 0 || self.batch == 0 {
            return Ok(());
        }
        if x < 0 || y < 0 {
            return Err(backwards());
        }
        self.product()?.submit(handle)
    }

    /// Returns the same operation as a product of matrices.
    fn product(&self) -> Result<Product> {
        let VectorKind { input, output, arithmetic } = self.kind;
        let [rows, columns] = self.size;
        let (length, depth) = if self.operation == OP_N { (rows, columns) } else { (columns, rows) };
        let matrix =
            |operand: Operand, kind| Matrix::new(operand.address, kind, operand.step).every(operand.stride);
        let [a, x, y] = self.operands;
        let (a, x, y) = (matrix(a, input), matrix(x, input), matrix(y, output));
        let complex = matches!(input, data::C_32F | data::C_64F);
        let (operation, size, matrix) = if y.leading == 1 {
            ([self.operation, OP_T], [length, 1, depth], [a, x, Matrix { leading: length, ..y }])
        } else if self.operation == OP_C && complex {
            log::info(format_args!("cuBLAS: no conjugated matrix times a vector with gaps"));
            return Err(BlasStatus::NOT_SUPPORTED);
        } else {
            let turned = if self.operation == OP_N { OP_T } else { OP_N };
            ([OP_N, turned], [1, length, depth], [x, a, y])
        };
        let product = Product::new(operation, size, self.factors, matrix, arithmetic);
        Ok(product.batched(self.batch, self.pointers))
    }
}

macro_rules! gemv {
    ($int:ty: $( fn $name:ident $kind:ident )*) => {
        export! { $(
            /// Multiplies a matrix and a vector: `y = alpha * op(A) * x + beta * y`.
            pub fn $name(
                handle: Handle, operation: c_int, m: $int, n: $int, alpha: Factor, a: Address, lda: $int,
                x: Address, incx: $int, beta: Factor, y: Address, incy: $int,
            ) -> BlasStatus {
                Multiply {
                    kind: $kind,
                    operation,
                    size: [m.into(), n.into()],
                    factors: [alpha, beta],
                    operands: [Operand::new(a, lda, 0), Operand::new(x, incx, 0), Operand::new(y, incy, 0)],
                    batch: 1,
                    pointers: false,
                }
                .submit(handle)
            }
        )* }
    };
}

macro_rules! gemv_batched {
    ($int:ty: $( fn $name:ident fn $strided:ident $kind:ident )*) => {
        export! { $(
            /// Multiplies a batch. A, x and y are arrays of addresses in device memory.
            pub fn $name(
                handle: Handle, operation: c_int, m: $int, n: $int, alpha: Factor, a: Address, lda: $int,
                x: Address, incx: $int, beta: Factor, y: Address, incy: $int, batch: $int,
            ) -> BlasStatus {
                Multiply {
                    kind: $kind,
                    operation,
                    size: [m.into(), n.into()],
                    factors: [alpha, beta],
                    operands: [Operand::new(a, lda, 0), Operand::new(x, incx, 0), Operand::new(y, incy, 0)],
                    batch: batch.into(),
                    pointers: true,
                }
                .submit(handle)
            }

            /// Multiplies a batch whose operands lie at equal distances.
            pub fn $strided(
                handle: Handle, operation: c_int, m: $int, n: $int, alpha: Factor, a: Address, lda: $int,
                stride_a: c_longlong, x: Address, incx: $int, stride_x: c_longlong, beta: Factor,
                y: Address, incy: $int, stride_y: c_longlong, batch: $int,
            ) -> BlasStatus {
                Multiply {
                    kind: $kind,
                    operation,
                    size: [m.into(), n.into()],
                    factors: [alpha, beta],
                    operands: [
                        Operand::new(a, lda, stride_a),
                        Operand::new(x, incx, stride_x),
                        Operand::new(y, incy, stride_y),
                    ],
                    batch: batch.into(),
                    pointers: false,
                }
                .submit(handle)
            }
        )* }
    };
}

gemv! { c_int: fn cublasSgemv_v2 S fn cublasDgemv_v2 D fn cublasCgemv_v2 C fn cublasZgemv_v2 Z }
gemv! { i64: fn cublasSgemv_v2_64 S fn cublasDgemv_v2_64 D fn cublasCgemv_v2_64 C fn cublasZgemv_v2_64 Z }

gemv_batched! { c_int:
    fn cublasSgemvBatched fn cublasSgemvStridedBatched S
    fn cublasDgemvBatched fn cublasDgemvStridedBatched D
    fn cublasCgemvBatched fn cublasCgemvStridedBatched C
    fn cublasZgemvBatched fn cublasZgemvStridedBatched Z
    fn cublasHSHgemvBatched fn cublasHSHgemvStridedBatched HSH
    fn cublasHSSgemvBatched fn cublasHSSgemvStridedBatched HSS
    fn cublasTSTgemvBatched fn cublasTSTgemvStridedBatched TST
    fn cublasTSSgemvBatched fn cublasTSSgemvStridedBatched TSS
}
gemv_batched! { i64:
    fn cublasSgemvBatched_64 fn cublasSgemvStridedBatched_64 S
    fn cublasDgemvBatched_64 fn cublasDgemvStridedBatched_64 D
    fn cublasCgemvBatched_64 fn cublasCgemvStridedBatched_64 C
    fn cublasZgemvBatched_64 fn cublasZgemvStridedBatched_64 Z
    fn cublasHSHgemvBatched_64 fn cublasHSHgemvStridedBatched_64 HSH
    fn cublasHSSgemvBatched_64 fn cublasHSSgemvStridedBatched_64 HSS
    fn cublasTSTgemvBatched_64 fn cublasTSTgemvStridedBatched_64 TST
    fn cublasTSSgemvBatched_64 fn cublasTSSgemvStridedBatched_64 TSS
}

/// Computes `x = alpha * x`, as a product of depth 0 to which `alpha * x` is added.
fn scale(handle: Handle, kind: VectorKind, n: i64, alpha: Factor, x: Address, increment: i64) -> Result {
    handle.context()?;
    if n <= 0 || increment <= 0 {
        return Ok(());
    }
    let matrix = |address, leading| Matrix::new(address, kind.input, leading);
    let matrices = [matrix(Address(0), 1), matrix(Address(0), n), matrix(x, increment)];
    Product::new([OP_N, OP_T], [1, n, 0], [alpha; 2], matrices, kind.arithmetic).submit(handle)
}

macro_rules! scal {
    ($int:ty: $( fn $name:ident $kind:ident )*) => {
        export! { $(
            /// Multiplies a vector by a scalar: `x = alpha * x`.
            pub fn $name(handle: Handle, n: $int, alpha: Factor, x: Address, incx: $int) -> BlasStatus {
                scale(handle, $kind, n.into(), alpha, x, incx.into())
            }
        )* }
    };
}

scal! { c_int: fn cublasSscal_v2 S fn cublasDscal_v2 D fn cublasCscal_v2 C fn cublasZscal_v2 Z }
scal! { i64: fn cublasSscal_v2_64 S fn cublasDscal_v2_64 D fn cublasCscal_v2_64 C fn cublasZscal_v2_64 Z }
