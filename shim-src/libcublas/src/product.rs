//! A matrix product as cuBLAS checks it, and the message that it becomes.

use std::ffi::c_int;

use vgpu_abi::blas::{
    Address, Arithmetic, BlasStatus, Factor, GEMM_DEFAULT, OP_C, OP_N, OP_T, POINTER_MODE_DEVICE,
};
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS, Gemm};

use crate::handle::Handle;
use crate::{DRIVER, Result};

/// An operand of a product, or of a batch of products.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// Device address of the matrix, or of an array of addresses if [`Product::pointers`] is set.
    pub address: Address,
    /// `cudaDataType` of the elements.
    pub kind: c_int,
    /// Leading dimension in elements.
    pub leading: i64,
    /// Elements from one product's matrix to the next product's.
    pub stride: i64,
}

impl Matrix {
    /// Creates a matrix without a stride: of a single product, or of a batch over arrays of addresses.
    pub const fn new(address: Address, kind: c_int, leading: i64) -> Self {
        Self { address, kind, leading, stride: 0 }
    }

    /// Returns the same matrix for a batch whose matrices lie `stride` elements apart.
    pub const fn every(self, stride: i64) -> Self {
        Self { stride, ..self }
    }
}

/// `C = alpha * op(A) * op(B) + beta * C`, once or for a batch.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// `cublasOperation_t` for A and for B.
    pub operation: [c_int; 2],
    /// The sizes m, n and k, in elements.
    pub size: [i64; 3],
    /// Factor of the product.
    pub alpha: Factor,
    /// Factor by which C is multiplied.
    pub beta: Factor,
    /// The operands A, B and C.
    pub matrix: [Matrix; 3],
    /// Number of products.
    pub batch: i64,
    /// Whether the addresses of the operands are those of arrays of addresses.
    pub pointers: bool,
    /// Compute type of the product and type of alpha and beta.
    pub arithmetic: Arithmetic,
    /// `cublasGemmAlgo_t` that the program asked for.
    pub algorithm: c_int,
}

/// Returns whether a column-major matrix of `rows` rows can have this leading dimension.
pub fn holds(leading: i64, rows: i64) -> bool {
    leading >= rows.max(1)
}

/// Returns whether this is a `cublasOperation_t` that the library performs.
pub fn is_operation(operation: c_int) -> bool {
    matches!(operation, OP_N | OP_T | OP_C)
}

impl Product {
    /// Creates a single product, with the library's default algorithm.
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

    /// Returns the same product for a batch of `batch`. With `pointers` the operands' addresses are those of
    /// arrays of addresses.
    pub const fn batched(self, batch: i64, pointers: bool) -> Self {
        Self { batch, pointers, ..self }
    }

    /// Returns the same product with the algorithm that the program asked for.
    pub const fn by(self, algorithm: c_int) -> Self {
        Self { algorithm, ..self }
    }

    /// Checks the product and sends it to the handle's stream, unless it would change nothing.
    pub fn submit(&self, handle: Handle) -> Result {
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
        // Even without a product C becomes `beta * C`, unless beta is one.
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

    /// Checks operations, sizes and leading dimensions, which need no handle.
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
