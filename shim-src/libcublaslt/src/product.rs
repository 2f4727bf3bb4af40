//! A product as its descriptors describe it, checked as cuBLASLt checks it, and the message that it becomes.

use std::ffi::c_int;
use std::sync::Once;

use vgpu_abi::blas::{
    Address, Arithmetic, BlasStatus, Factor, GEMM_DEFAULT, OP_C, OP_N, OP_T, POINTER_MODE_DEVICE,
    POINTER_MODE_HOST, Scalar, arithmetic,
};
use vgpu_abi::log;
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, Gemm};
use vgpu_wire::body::matmul::MatmulLt;
use vgpu_wire::facts::exec;

use crate::epilogue::Finish;
use crate::kinds::{Desc, Layout, desc};
use crate::matrix::{Matrix, in_other_order, usual};
use crate::record::Record;
use crate::{CUDA13, DRIVER, Result};

/// A product of matrices by columns, which a message can carry.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    arithmetic: Arithmetic,
    pointer_mode: c_int,
    operation: [c_int; 2],
    /// The sizes m, n and k, in elements.
    size: [u64; 3],
    /// The matrices A, B, C and D.
    matrix: [Matrix; 4],
    /// Whether A and B have changed places, because the transpose of the program's product is computed.
    swapped: bool,
    finish: Finish,
}

/// Addresses of a product's operands.
#[derive(Clone, Copy, Debug)]
pub struct Operands {
    /// The factors alpha and beta.
    pub factors: [Factor; 2],
    /// Device addresses of A, B, C and D.
    pub matrix: [Address; 4],
    /// Device memory for the host's use, and its length in bytes.
    pub workspace: (Address, usize),
}

/// Refuses the product if the host does not know [`MatmulLt`], and logs so once.
fn announced() -> Result {
    static TOLD: Once = Once::new();
    if DRIVER.can(exec::EPILOGUES)? {
        return Ok(());
    }
    TOLD.call_once(|| {
        log::warn(format_args!(
            "cuBLASLt: the device's host does products without epilogues and with a C that is D alone; others \
             are not supported"
        ));
    });
    Err(BlasStatus::NOT_SUPPORTED)
}

impl Product {
    /// Reads and checks the descriptors. If that of C is null, D's is taken.
    pub fn new(record: Record<Desc>, [a, b, c, d]: [Record<Layout>; 4]) -> Result<Self> {
        usual(record, "the product")?;
        let pointer_mode = record.word(desc::POINTER_MODE)?;
        if !matches!(pointer_mode, POINTER_MODE_HOST | POINTER_MODE_DEVICE) {
            log::info(format_args!("cuBLASLt: no product in pointer mode {pointer_mode}"));
            return Err(BlasStatus::NOT_SUPPORTED);
        }
        let operation = [record.word(desc::TRANSA)?, record.word(desc::TRANSB)?];
        if operation.iter().any(|operation| !matches!(*operation, OP_N | OP_T | OP_C)) {
            return Err(BlasStatus::INVALID_VALUE);
        }
        let c = if c.is_null() { d } else { c };
        let (a, b, d) = (Matrix::read(a)?.fits()?, Matrix::read(b)?.fits()?, Matrix::read(d)?.fits()?);
        let c = Matrix::read(c)?.fits_or_repeats()?;
        let arithmetic = arithmetic(record.word(desc::COMPUTE_TYPE)?, [a.kind, b.kind, d.kind], CUDA13)
            .filter(|arithmetic| c.kind == d.kind && Ok(arithmetic.scale) == record.word(desc::SCALE_TYPE))
            .ok_or(BlasStatus::NOT_SUPPORTED)?;
        let (left, right) = (a.turned(operation[0]), b.turned(operation[1]));
        let result = [left[0], right[1]];
        let shapes = left[1] == right[0] && [[c.rows, c.columns], [d.rows, d.columns]] == [result; 2];
        if !shapes || [a.batch, b.batch, c.batch] != [d.batch; 3] || c.by_rows != d.by_rows {
            return Err(BlasStatus::INVALID_VALUE);
        }
        let finish = Finish::read(record, operation, &a, &d)?;
        let size = [result[0], result[1], left[1]];
        let matrix = [a, b, c, d];
        Self { arithmetic, pointer_mode, operation, size, matrix, swapped: false, finish }.by_columns()
    }

    /// Returns the same product with matrices by columns. A matrix by rows is the transpose of one by
    /// columns, and the transpose of a product is the product of the transposes in the other order.
    fn by_columns(self) -> Result<Self> {
        let [a, b, c, d] = self.matrix;
        let operation = |matrix: Matrix, operation| {
            if matrix.by_rows == d.by_rows {
                return Ok(operation);
            }
            in_other_order(operation, matrix.kind).ok_or(BlasStatus::NOT_SUPPORTED)
        };
        let [on_a, on_b] = [operation(a, self.operation[0])?, operation(b, self.operation[1])?];
        let [rows, columns, summands] = self.size;
        Ok(if d.by_rows {
            let size = [columns, rows, summands];
            Self { operation: [on_b, on_a], size, matrix: [b, a, c, d], swapped: true, ..self }
        } else {
            Self { operation: [on_a, on_b], ..self }
        })
    }

    /// Refuses a product that the host cannot compute, as far as its operands' addresses do not matter.
    pub fn can(&self) -> Result {
        let [_, _, c, d] = self.matrix;
        if self.finish.is_none() && c == d { Ok(()) } else { announced() }
    }

    /// Sends the product to a stream, unless it would change nothing.
    pub fn submit(&self, operands: Operands, stream: usize) -> Result {
        if self.size[..2].contains(&0) || self.matrix[3].batch == 0 {
            return Ok(());
        }
        let scale = self.arithmetic.scale;
        let on_device = self.pointer_mode == POINTER_MODE_DEVICE;
        let [alpha, beta] = operands.factors;
        let (alpha, beta) = (alpha.get(self.pointer_mode, scale)?, beta.get(self.pointer_mode, scale)?);
        self.finish.check_addresses()?;
        let [_, _, c, d] = operands.matrix;
        let counts = on_device || !beta.is_zero(scale);
        if d == Address(0) || (counts && c == Address(0)) {
            return Err(BlasStatus::INVALID_VALUE);
        }
        let in_place = !counts || (c == d && self.matrix[2] == self.matrix[3]);
        if !self.finish.is_none() || !in_place {
            announced()?;
            return DRIVER.matmul(stream, &self.own_message(&operands, alpha, beta));
        }
        if !on_device && (self.size[2] == 0 || alpha.is_zero(scale)) && beta.is_one(scale) {
            return Ok(());
        }
        DRIVER.multiply(stream, &self.message(&operands, alpha, beta))
    }

    const fn flags(&self) -> u32 {
        if self.pointer_mode == POINTER_MODE_DEVICE { GEMM_DEVICE_SCALARS } else { 0 }
    }

    /// Returns the device addresses of A, B, C and D in the order of the message.
    fn addresses(&self, operands: &Operands) -> [u64; 4] {
        let [a, b, c, d] = operands.matrix.map(|address| address.0 as u64);
        if self.swapped { [b, a, c, d] } else { [a, b, c, d] }
    }

    /// Returns the message for a product without an epilogue whose C is D.
    fn message(&self, operands: &Operands, alpha: Scalar, beta: Scalar) -> Gemm {
        let [a, b, _, d] = self.addresses(operands);
        let [of_a, of_b, _, of_d] = self.matrix;
        let matrices = [of_a, of_b, of_d];
        let (workspace, bytes) = operands.workspace;
        Gemm {
            stream: 0,
            flags: self.flags(),
            operation: self.operation.map(c_int::cast_unsigned),
            types: matrices.map(|matrix| matrix.kind.cast_unsigned()),
            compute: self.arithmetic.compute.cast_unsigned(),
            scale: self.arithmetic.scale.cast_unsigned(),
            algorithm: GEMM_DEFAULT,
            math: 0,
            batch: of_d.batch as u32,
            size: self.size,
            leading: matrices.map(|matrix| matrix.leading),
            stride: matrices.map(|matrix| matrix.stride),
            matrix: [a, b, d],
            alpha: alpha.0,
            beta: beta.0,
            workspace: workspace.0 as u64,
            workspace_bytes: if workspace.0 == 0 { 0 } else { bytes as u64 },
        }
    }

    /// Returns the message for a product with an epilogue, or with a C that is not D.
    fn own_message(&self, operands: &Operands, alpha: Scalar, beta: Scalar) -> MatmulLt {
        let Finish { number, bias, aux, aux_leading, .. } = self.finish;
        let (workspace, bytes) = operands.workspace;
        MatmulLt {
            stream: 0,
            flags: self.flags(),
            operation: self.operation.map(c_int::cast_unsigned),
            types: self.matrix.map(|matrix| matrix.kind.cast_unsigned()),
            compute: self.arithmetic.compute.cast_unsigned(),
            scale: self.arithmetic.scale.cast_unsigned(),
            epilogue: number,
            bias_type: bias.kind.cast_unsigned(),
            aux_type: aux.kind.cast_unsigned(),
            batch: self.matrix[3].batch as u32,
            size: self.size,
            leading: self.matrix.map(|matrix| matrix.leading),
            stride: self.matrix.map(|matrix| matrix.stride),
            matrix: self.addresses(operands),
            alpha: alpha.0,
            beta: beta.0,
            bias: bias.address,
            bias_stride: bias.stride,
            aux: aux.address,
            aux_leading,
            aux_stride: aux.stride,
            workspace: workspace.0 as u64,
            workspace_bytes: if workspace.0 == 0 { 0 } else { bytes as u64 },
            reserved: [0; 2],
        }
    }
}
