//! Arguments of products and solves, and exports that accept them.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use vgpu_abi::blas::compute;
use vgpu_abi::call;

use crate::{gemm, gemm_ex, solve};

/// `cublasStatus_t`, as C programs see it.
pub type Status = c_uint;
/// `cublasHandle_t`, as C programs see it.
pub type Handle = *const c_void;

// Short names for the types of C parameters, so that a signature fits on a line.
type I = c_int;
type L = i64;
type U = usize;
type F = *const f32;

/// Arguments from which every kind of product can be called.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    pub op: [I; 2],
    pub size: [I; 3],
    pub alpha: Option<f32>,
    pub beta: Option<f32>,
    pub lead: [I; 3],
    pub c: U,
    pub batch: I,
    pub types: [I; 3],
    pub compute: I,
    pub algorithm: I,
}

/// Arguments of a product that are valid.
pub const GOOD: Args = Args {
    op: [0, 0],
    size: [8, 8, 8],
    alpha: Some(1.0),
    beta: Some(0.0),
    lead: [8, 8, 8],
    c: 0x30000,
    batch: 2,
    types: [0, 0, 0],
    compute: compute::F32,
    algorithm: -1,
};

pub const A: U = 0x10000;
pub const B: U = 0x20000;
pub const STRIDE: [L; 3] = [64, -64, 1 << 40];

fn place(scalar: Option<&f32>) -> F {
    scalar.map_or(ptr::null(), ptr::from_ref)
}

#[rustfmt::skip]
impl Args {
    pub fn sgemm(&self, handle: Handle) -> Status {
        let ([oa, ob], [m, n, k], [lda, ldb, ldc]) = (self.op, self.size, self.lead);
        let (alpha, beta) = (place(self.alpha.as_ref()), place(self.beta.as_ref()));
        call!(
            gemm::cublasSgemm_v2 as fn(Handle, I, I, I, I, I, F, U, I, U, I, F, U, I),
            handle, oa, ob, m, n, k, alpha, A, lda, B, ldb, beta, self.c, ldc,
        )
    }

    pub fn sgemm_batched(&self, handle: Handle) -> Status {
        let ([oa, ob], [m, n, k], [lda, ldb, ldc]) = (self.op, self.size, self.lead);
        let (alpha, beta) = (place(self.alpha.as_ref()), place(self.beta.as_ref()));
        call!(
            gemm::cublasSgemmBatched as fn(Handle, I, I, I, I, I, F, U, I, U, I, F, U, I, I),
            handle, oa, ob, m, n, k, alpha, A, lda, B, ldb, beta, self.c, ldc, self.batch,
        )
    }

    pub fn sgemm_strided(&self, handle: Handle) -> Status {
        let ([oa, ob], [m, n, k]) = (self.op, self.size.map(L::from));
        let ([lda, ldb, ldc], [sa, sb, sc]) = (self.lead.map(L::from), STRIDE);
        let (alpha, beta) = (place(self.alpha.as_ref()), place(self.beta.as_ref()));
        call!(
            gemm::cublasSgemmStridedBatched_64
                as fn(Handle, I, I, L, L, L, F, U, L, L, U, L, L, F, U, L, L, L),
            handle, oa, ob, m, n, k, alpha, A, lda, sa, B, ldb, sb, beta, self.c, ldc, sc, self.batch.into(),
        )
    }

    pub fn gemm_ex(&self, handle: Handle) -> Status {
        let ([oa, ob], [m, n, k], [lda, ldb, ldc]) = (self.op, self.size, self.lead);
        let ([ta, tb, tc], compute, algorithm) = (self.types, self.compute, self.algorithm);
        let (alpha, beta) = (place(self.alpha.as_ref()), place(self.beta.as_ref()));
        call!(
            gemm_ex::cublasGemmEx as fn(Handle, I, I, I, I, I, F, U, I, I, U, I, I, F, U, I, I, I, I),
            handle, oa, ob, m, n, k, alpha, A, ta, lda, B, tb, ldb, beta, self.c, tc, ldc, compute, algorithm,
        )
    }

    pub fn gemm_batched_ex(&self, handle: Handle) -> Status {
        let ([oa, ob], [m, n, k], [lda, ldb, ldc]) = (self.op, self.size, self.lead);
        let ([ta, tb, tc], compute, algorithm) = (self.types, self.compute, self.algorithm);
        let (alpha, beta) = (place(self.alpha.as_ref()), place(self.beta.as_ref()));
        call!(
            gemm_ex::cublasGemmBatchedEx
                as fn(Handle, I, I, I, I, I, F, U, I, I, U, I, I, F, U, I, I, I, I, I),
            handle, oa, ob, m, n, k, alpha, A, ta, lda, B, tb, ldb, beta, self.c, tc, ldc, self.batch, compute,
            algorithm,
        )
    }

    pub fn gemm_strided_ex(&self, handle: Handle) -> Status {
        let ([oa, ob], [m, n, k], [lda, ldb, ldc]) = (self.op, self.size, self.lead);
        let ([ta, tb, tc], [sa, sb, sc]) = (self.types, STRIDE);
        let (batch, compute, algorithm) = (self.batch, self.compute, self.algorithm);
        let (alpha, beta) = (place(self.alpha.as_ref()), place(self.beta.as_ref()));
        call!(
            gemm_ex::cublasGemmStridedBatchedEx
                as fn(Handle, I, I, I, I, I, F, U, I, I, L, U, I, I, L, F, U, I, I, L, I, I, I),
            handle, oa, ob, m, n, k, alpha, A, ta, lda, sa, B, tb, ldb, sb, beta, self.c, tc, ldc, sc,
            batch, compute, algorithm,
        )
    }

    /// Calls every kind of product and returns each one's name and status.
    pub fn all(&self, handle: Handle) -> [(&'static str, Status); 6] {
        [
            ("Sgemm", self.sgemm(handle)),
            ("SgemmBatched", self.sgemm_batched(handle)),
            ("SgemmStridedBatched_64", self.sgemm_strided(handle)),
            ("GemmEx", self.gemm_ex(handle)),
            ("GemmBatchedEx", self.gemm_batched_ex(handle)),
            ("GemmStridedBatchedEx", self.gemm_strided_ex(handle)),
        ]
    }
}

/// Calls `cublasGemmEx` for 8 by 8 matrices with scalars of any type.
#[rustfmt::skip]
pub fn gemm_with(handle: Handle, [ta, tb, tc]: [I; 3], compute: I, alpha: Handle, beta: Handle) -> Status {
    call!(
        gemm_ex::cublasGemmEx as fn(Handle, I, I, I, I, I, Handle, U, I, I, U, I, I, Handle, U, I, I, I, I),
        handle, 0, 0, 8, 8, 8, alpha, A, ta, 8, B, tb, 8, beta, B, tc, 8, compute, -1,
    )
}

/// Arguments of a triangular solve.
#[derive(Clone, Copy, Debug)]
pub struct Triangle {
    pub side: I,
    pub fill: I,
    pub op: I,
    pub diagonal: I,
    pub size: [I; 2],
    pub lead: [I; 2],
    pub batch: I,
    pub alpha: Option<f32>,
}

/// Valid arguments of a triangular solve.
pub const SOLVE: Triangle =
    Triangle { side: 0, fill: 0, op: 0, diagonal: 0, size: [8, 4], lead: [8, 8], batch: 2, alpha: Some(0.0) };

#[rustfmt::skip]
impl Triangle {
    pub fn batched(&self, handle: Handle) -> Status {
        let Self { side, fill, op, diagonal, size: [m, n], lead: [lda, ldb], batch, .. } = *self;
        call!(
            solve::cublasStrsmBatched as fn(Handle, I, I, I, I, I, I, F, U, I, U, I, I),
            handle, side, fill, op, diagonal, m, n, place(self.alpha.as_ref()), A, lda, B, ldb, batch,
        )
    }

    pub fn single(&self, handle: Handle) -> Status {
        let Self { side, fill, op, diagonal, size, lead, .. } = *self;
        let ([m, n], [lda, ldb]) = (size.map(L::from), lead.map(L::from));
        call!(
            solve::cublasStrsm_v2_64 as fn(Handle, I, I, I, I, L, L, F, U, L, U, L),
            handle, side, fill, op, diagonal, m, n, place(self.alpha.as_ref()), A, lda, B, ldb,
        )
    }
}
