//! Matrix products of one element type: `cublas<t>gemm`, `...Batched`, `...StridedBatched`, each with 32-bit
//! and with 64-bit sizes.

#![allow(clippy::too_many_arguments, reason = "as many as BLAS has")]

use std::ffi::{c_int, c_longlong};

use vgpu_abi::blas::{Address, Arithmetic, BlasStatus, Factor, compute, data};
use vgpu_abi::export;

use crate::handle::Handle;
use crate::product::{Matrix, Product};

/// An element type: its `cudaDataType`, and the `cublasComputeType_t` of its products.
#[derive(Clone, Copy)]
struct Element(c_int, c_int);

const S: Element = Element(data::R_32F, compute::F32);
const D: Element = Element(data::R_64F, compute::F64);
const C: Element = Element(data::C_32F, compute::F32);
const Z: Element = Element(data::C_64F, compute::F64);
const H: Element = Element(data::R_16F, compute::F16);

impl Element {
    const fn matrix(self, address: Address, leading: i64) -> Matrix {
        Matrix::new(address, self.0, leading)
    }

    fn arithmetic(self) -> Arithmetic {
        Arithmetic { compute: self.1, scale: self.0 }
    }
}

macro_rules! gemm {
    ($int:ty: $( $name:ident $element:ident )*) => {
        export! { $(
            /// Multiplies once: `C = alpha * op(A) * op(B) + beta * C`.
            pub fn $name(
                handle: Handle, op_a: c_int, op_b: c_int, m: $int, n: $int, k: $int, alpha: Factor,
                a: Address, lda: $int, b: Address, ldb: $int, beta: Factor, c: Address, ldc: $int,
            ) -> BlasStatus {
                let size = [m.into(), n.into(), k.into()];
                let matrices = [
                    $element.matrix(a, lda.into()),
                    $element.matrix(b, ldb.into()),
                    $element.matrix(c, ldc.into()),
                ];
                Product::new([op_a, op_b], size, [alpha, beta], matrices, $element.arithmetic()).run(handle)
            }
        )* }
    };
}

macro_rules! gemm_batched {
    ($int:ty: $( $name:ident $element:ident )*) => {
        export! { $(
            /// Multiplies a batch. A, B and C are arrays of the matrices' addresses in device memory.
            pub fn $name(
                handle: Handle, op_a: c_int, op_b: c_int, m: $int, n: $int, k: $int, alpha: Factor,
                a: Address, lda: $int, b: Address, ldb: $int, beta: Factor, c: Address, ldc: $int,
                batch: $int,
            ) -> BlasStatus {
                let size = [m.into(), n.into(), k.into()];
                let matrices = [
                    $element.matrix(a, lda.into()),
                    $element.matrix(b, ldb.into()),
                    $element.matrix(c, ldc.into()),
                ];
                Product::new([op_a, op_b], size, [alpha, beta], matrices, $element.arithmetic())
                    .batched(batch.into(), true)
                    .run(handle)
            }
        )* }
    };
}

macro_rules! gemm_strided {
    ($int:ty: $( $name:ident $element:ident )*) => {
        export! { $(
            /// Multiplies a batch whose matrices lie at equal distances.
            pub fn $name(
                handle: Handle, op_a: c_int, op_b: c_int, m: $int, n: $int, k: $int, alpha: Factor,
                a: Address, lda: $int, stride_a: c_longlong, b: Address, ldb: $int, stride_b: c_longlong,
                beta: Factor, c: Address, ldc: $int, stride_c: c_longlong, batch: $int,
            ) -> BlasStatus {
                let size = [m.into(), n.into(), k.into()];
                let matrices = [
                    $element.matrix(a, lda.into()).every(stride_a),
                    $element.matrix(b, ldb.into()).every(stride_b),
                    $element.matrix(c, ldc.into()).every(stride_c),
                ];
                Product::new([op_a, op_b], size, [alpha, beta], matrices, $element.arithmetic())
                    .batched(batch.into(), false)
                    .run(handle)
            }
        )* }
    };
}

// The "3m" forms are another algorithm for complex products, which the host may choose or not.
gemm! {
    c_int: cublasSgemm_v2 S cublasDgemm_v2 D cublasCgemm_v2 C cublasZgemm_v2 Z cublasHgemm H
        cublasCgemm3m C cublasZgemm3m Z
}
gemm! {
    i64: cublasSgemm_v2_64 S cublasDgemm_v2_64 D cublasCgemm_v2_64 C cublasZgemm_v2_64 Z cublasHgemm_64 H
        cublasCgemm3m_64 C cublasZgemm3m_64 Z
}

gemm_batched! {
    c_int: cublasSgemmBatched S cublasDgemmBatched D cublasCgemmBatched C cublasZgemmBatched Z
        cublasHgemmBatched H cublasCgemm3mBatched C
}
gemm_batched! {
    i64: cublasSgemmBatched_64 S cublasDgemmBatched_64 D cublasCgemmBatched_64 C cublasZgemmBatched_64 Z
        cublasHgemmBatched_64 H cublasCgemm3mBatched_64 C
}

gemm_strided! {
    c_int: cublasSgemmStridedBatched S cublasDgemmStridedBatched D cublasCgemmStridedBatched C
        cublasZgemmStridedBatched Z cublasHgemmStridedBatched H cublasCgemm3mStridedBatched C
}
gemm_strided! {
    i64: cublasSgemmStridedBatched_64 S cublasDgemmStridedBatched_64 D cublasCgemmStridedBatched_64 C
        cublasZgemmStridedBatched_64 Z cublasHgemmStridedBatched_64 H
        cublasCgemm3mStridedBatched_64 C
}
