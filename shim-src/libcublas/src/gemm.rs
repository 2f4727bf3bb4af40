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
    ($int:ty: $( fn $name:ident $element:ident )*) => {
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
                Product::new([op_a, op_b], size, [alpha, beta], matrices, $element.arithmetic()).submit(handle)
            }
        )* }
    };
}

macro_rules! gemm_batched {
    ($int:ty: $( fn $name:ident $element:ident )*) => {
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
                    .submit(handle)
            }
        )* }
    };
}

macro_rules! gemm_strided {
    ($int:ty: $( fn $name:ident $element:ident )*) => {
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
                    .submit(handle)
            }
        )* }
    };
}

// The "3m" forms are another algorithm for complex products, which the host may choose or not.
gemm! {
    c_int: fn cublasSgemm_v2 S fn cublasDgemm_v2 D fn cublasCgemm_v2 C fn cublasZgemm_v2 Z fn cublasHgemm H
        fn cublasCgemm3m C fn cublasZgemm3m Z
}
gemm! {
    i64: fn cublasSgemm_v2_64 S fn cublasDgemm_v2_64 D fn cublasCgemm_v2_64 C fn cublasZgemm_v2_64 Z
    fn cublasHgemm_64 H
        fn cublasCgemm3m_64 C fn cublasZgemm3m_64 Z
}

gemm_batched! {
    c_int: fn cublasSgemmBatched S fn cublasDgemmBatched D fn cublasCgemmBatched C fn cublasZgemmBatched Z
        fn cublasHgemmBatched H fn cublasCgemm3mBatched C
}
gemm_batched! {
    i64: fn cublasSgemmBatched_64 S fn cublasDgemmBatched_64 D fn cublasCgemmBatched_64 C
    fn cublasZgemmBatched_64 Z
        fn cublasHgemmBatched_64 H fn cublasCgemm3mBatched_64 C
}

gemm_strided! {
    c_int: fn cublasSgemmStridedBatched S fn cublasDgemmStridedBatched D fn cublasCgemmStridedBatched C
        fn cublasZgemmStridedBatched Z fn cublasHgemmStridedBatched H fn cublasCgemm3mStridedBatched C
}
gemm_strided! {
    i64: fn cublasSgemmStridedBatched_64 S fn cublasDgemmStridedBatched_64 D
    fn cublasCgemmStridedBatched_64 C
        fn cublasZgemmStridedBatched_64 Z fn cublasHgemmStridedBatched_64 H
        fn cublasCgemm3mStridedBatched_64 C
}
