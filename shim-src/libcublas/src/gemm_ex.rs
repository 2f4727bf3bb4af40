//! Matrix products with element types as arguments.
//!
//! Combinations of types that the library does not have are refused before any other check.

#![allow(clippy::too_many_arguments, reason = "as many as BLAS has")]

use std::ffi::{c_int, c_longlong};

use vgpu_abi::blas::{
    Address, Arithmetic, BlasStatus, Factor, GEMM_DEFAULT, arithmetic, compute, data, is_algorithm,
};
use vgpu_abi::export;

use crate::handle::Handle;
use crate::product::{Matrix, Product};
use crate::{CUDA13, Result};

/// Returns the arithmetic of a product of these types, if the library has it and the algorithm.
fn chosen(compute: c_int, types: [c_int; 3], algorithm: c_int) -> Result<Arithmetic> {
    let arithmetic = arithmetic(compute, types, CUDA13).ok_or(BlasStatus::NOT_SUPPORTED)?;
    if is_algorithm(algorithm, CUDA13) { Ok(arithmetic) } else { Err(BlasStatus::INVALID_VALUE) }
}

/// Returns the arithmetic of a product of these types in single precision with scalars of type `scale`.
fn single(types: [c_int; 3], scale: c_int) -> Result<Arithmetic> {
    let arithmetic = chosen(compute::F32, types, GEMM_DEFAULT)?;
    if arithmetic.scale == scale { Ok(arithmetic) } else { Err(BlasStatus::NOT_SUPPORTED) }
}

macro_rules! gemm_ex {
    ($int:ty: fn $name:ident fn $batched:ident fn $strided:ident) => {
        export! {
            /// Multiplies once: `C = alpha * op(A) * op(B) + beta * C`, with the types of elements and
            /// computation as arguments.
            pub fn $name(
                handle: Handle, op_a: c_int, op_b: c_int, m: $int, n: $int, k: $int, alpha: Factor,
                a: Address, a_type: c_int, lda: $int, b: Address, b_type: c_int, ldb: $int, beta: Factor,
                c: Address, c_type: c_int, ldc: $int, compute: c_int, algorithm: c_int,
            ) -> BlasStatus {
                handle.context()?;
                let size = [m.into(), n.into(), k.into()];
                let matrices = [
                    Matrix::new(a, a_type, lda.into()),
                    Matrix::new(b, b_type, ldb.into()),
                    Matrix::new(c, c_type, ldc.into()),
                ];
                let arithmetic = chosen(compute, [a_type, b_type, c_type], algorithm)?;
                Product::new([op_a, op_b], size, [alpha, beta], matrices, arithmetic)
                    .by(algorithm)
                    .submit(handle)
            }

            /// Multiplies a batch. A, B and C are arrays of the matrices' addresses in device memory.
            pub fn $batched(
                handle: Handle, op_a: c_int, op_b: c_int, m: $int, n: $int, k: $int, alpha: Factor,
                a: Address, a_type: c_int, lda: $int, b: Address, b_type: c_int, ldb: $int, beta: Factor,
                c: Address, c_type: c_int, ldc: $int, batch: $int, compute: c_int, algorithm: c_int,
            ) -> BlasStatus {
                handle.context()?;
                let size = [m.into(), n.into(), k.into()];
                let matrices = [
                    Matrix::new(a, a_type, lda.into()),
                    Matrix::new(b, b_type, ldb.into()),
                    Matrix::new(c, c_type, ldc.into()),
                ];
                let arithmetic = chosen(compute, [a_type, b_type, c_type], algorithm)?;
                Product::new([op_a, op_b], size, [alpha, beta], matrices, arithmetic)
                    .batched(batch.into(), true)
                    .by(algorithm)
                    .submit(handle)
            }

            /// Multiplies a batch whose matrices lie at equal distances.
            pub fn $strided(
                handle: Handle, op_a: c_int, op_b: c_int, m: $int, n: $int, k: $int, alpha: Factor,
                a: Address, a_type: c_int, lda: $int, stride_a: c_longlong,
                b: Address, b_type: c_int, ldb: $int, stride_b: c_longlong, beta: Factor,
                c: Address, c_type: c_int, ldc: $int, stride_c: c_longlong,
                batch: $int, compute: c_int, algorithm: c_int,
            ) -> BlasStatus {
                handle.context()?;
                let size = [m.into(), n.into(), k.into()];
                let matrices = [
                    Matrix::new(a, a_type, lda.into()).every(stride_a),
                    Matrix::new(b, b_type, ldb.into()).every(stride_b),
                    Matrix::new(c, c_type, ldc.into()).every(stride_c),
                ];
                let arithmetic = chosen(compute, [a_type, b_type, c_type], algorithm)?;
                Product::new([op_a, op_b], size, [alpha, beta], matrices, arithmetic)
                    .batched(batch.into(), false)
                    .by(algorithm)
                    .submit(handle)
            }
        }
    };
}

macro_rules! single_ex {
    ($int:ty: $( fn $name:ident $scale:path )*) => {
        export! { $(
            /// Multiplies once in single precision: `C = alpha * op(A) * op(B) + beta * C`.
            pub fn $name(
                handle: Handle, op_a: c_int, op_b: c_int, m: $int, n: $int, k: $int, alpha: Factor,
                a: Address, a_type: c_int, lda: $int, b: Address, b_type: c_int, ldb: $int, beta: Factor,
                c: Address, c_type: c_int, ldc: $int,
            ) -> BlasStatus {
                handle.context()?;
                let size = [m.into(), n.into(), k.into()];
                let matrices = [
                    Matrix::new(a, a_type, lda.into()),
                    Matrix::new(b, b_type, ldb.into()),
                    Matrix::new(c, c_type, ldc.into()),
                ];
                let arithmetic = single([a_type, b_type, c_type], $scale)?;
                Product::new([op_a, op_b], size, [alpha, beta], matrices, arithmetic).submit(handle)
            }
        )* }
    };
}

gemm_ex! { c_int: fn cublasGemmEx fn cublasGemmBatchedEx fn cublasGemmStridedBatchedEx }
gemm_ex! { i64: fn cublasGemmEx_64 fn cublasGemmBatchedEx_64 fn cublasGemmStridedBatchedEx_64 }

single_ex! { c_int: fn cublasSgemmEx data::R_32F fn cublasCgemmEx data::C_32F
fn cublasCgemm3mEx data::C_32F }
single_ex! { i64: fn cublasSgemmEx_64 data::R_32F fn cublasCgemmEx_64 data::C_32F
fn cublasCgemm3mEx_64 data::C_32F }
