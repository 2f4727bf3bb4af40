//! A matrix product as cuBLAS checks it, and the message that it becomes.

use std::ffi::c_int;

use vgpu_abi::blas::{
    Address, Arithmetic, BlasStatus, Factor, GEMM_DEFAULT, OP_C, OP_N, OP_T, POINTER_MODE_DEVICE,
};
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS, Gemm};

use crate::handle::Handle;
use crate::{DRIVER, Result};

/// A matrix, or as many as there are products.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// Where it is, or where an array of addresses is.
    pub address: Address,
    /// `cudaDataType` of its elements.
    pub kind: c_int,
    /// Leading dimension, elements.
    pub leading: i64,
    /// Elements from one product's matrix to the next's.
    pub stride: i64,
}

impl Matrix {
    /// A matrix, or one of an array of addresses.
    pub const fn new(address: Address, kind: c_int, leading: i64) -> Self {
        Self { address, kind, leading, stride: 0 }
    }

    /// With others so far from it and each other.
    pub const fn every(self, stride: i64) -> Self {
        Self { stride, ..self }
    }
}

/// `C = alpha * op(A) * op(B) + beta * C`, once or for a batch.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Operations on A and B.
    pub operation: [c_int; 2],
    /// m, n, k.
    pub size: [i64; 3],
    /// The factor of the product.
    pub alpha: Factor,
    /// The factor of C.
    pub beta: Factor,
    /// A, B, C.
    pub matrix: [Matrix; 3],
    /// How many products.
    pub batch: i64,
    /// Whether the addresses are those of arrays of addresses.
    pub pointers: bool,
    /// How it is computed.
    pub arithmetic: Arithmetic,
    /// `cublasGemmAlgo_t`
    pub algorithm: c_int,
}

/// Whether a matrix of so many rows can have this leading dimension.
pub fn holds(leading: i64, rows: i64) -> bool {
    leading >= rows.max(1)
}

/// Whether it is a `cublasOperation_t` that the library performs.
pub fn is_operation(operation: c_int) -> bool {
    matches!(operation, OP_N | OP_T | OP_C)
}

impl Product {
    /// One product, with the algorithm that the library chooses.
    pub const fn new(
        operation: [c_int; 2],
        size: [i64; 3],
        [alpha, beta]: [Factor; 2],
        matrix: [Matrix; 3],
        arithmetic: Arithmetic,
    ) -> Self {
        let algorithm = GEMM_DEFAULT;
        Self { operation, size, alpha, beta, matrix, batch: 1, pointers: false, arithmetic, algorithm }
    }

    /// So many of them; `pointers`: the addresses are those of arrays of addresses.
    pub const fn batched(self, batch: i64, pointers: bool) -> Self {
        Self { batch, pointers, ..self }
    }

    /// With that algorithm.
    pub const fn by(self, algorithm: c_int) -> Self {
        Self { algorithm, ..self }
    }

    /// Checks it; gives it to the handle's stream unless nothing is to be done.
    pub fn run(&self, handle: Handle) -> Result {
        let context = handle.context()?;
        let [m, n, k] = self.size;
        self.check()?;
        if m == 0 || n == 0 || self.batch == 0 {
            return Ok(());
        }
        let (mode, scale) = (context.pointer_mode(), self.arithmetic.scale);
        let alpha = self.alpha.get(mode, scale)?;
        let beta = self.beta.get(mode, scale)?;
        if self.matrix[2].address == Address(0) {
            return Err(BlasStatus::INVALID_VALUE);
        }
        let on_device = mode == POINTER_MODE_DEVICE;
        // Without a product there still is `beta * C`, unless that changes nothing.
        if !on_device && (k == 0 || alpha.is_zero(scale)) && beta.is_one(scale) {
            return Ok(());
        }
        let pointers = if self.pointers { GEMM_POINTERS } else { 0 };
        let scalars = if on_device { GEMM_DEVICE_SCALARS } else { 0 };
        let message = Gemm {
            stream: 0,
            flags: pointers | scalars,
            operation: self.operation.map(c_int::cast_unsigned),
            types: self.matrix.map(|matrix| matrix.kind.cast_unsigned()),
            compute: self.arithmetic.compute.cast_unsigned(),
            scale: scale.cast_unsigned(),
            algorithm: self.algorithm,
            math: context.math_mode().cast_unsigned(),
            batch: u32::try_from(self.batch).map_err(|_| BlasStatus::NOT_SUPPORTED)?,
            size: self.size.map(i64::cast_unsigned),
            leading: self.matrix.map(|matrix| matrix.leading.cast_unsigned()),
            stride: self.matrix.map(|matrix| matrix.stride),
            matrix: self.matrix.map(|matrix| matrix.address.0 as u64),
            alpha: alpha.0,
            beta: beta.0,
            workspace: context.workspace() as u64,
            workspace_bytes: context.workspace_bytes() as u64,
        };
        DRIVER.multiply(context.stream(), &message)
    }

    /// Operations, sizes, leading dimensions. Nothing of it depends on the handle.
    fn check(&self) -> Result {
        let [m, n, k] = self.size;
        let [lead_a, lead_b, lead_c] = self.matrix.map(|matrix| matrix.leading);
        let [on_a, on_b] = self.operation;
        let good = is_operation(on_a)
            && is_operation(on_b)
            && m >= 0
            && n >= 0
            && k >= 0
            && self.batch >= 0
            && holds(lead_a, if on_a == OP_N { m } else { k })
            && holds(lead_b, if on_b == OP_N { k } else { n })
            && holds(lead_c, m);
        if good { Ok(()) } else { Err(BlasStatus::INVALID_VALUE) }
    }
}
