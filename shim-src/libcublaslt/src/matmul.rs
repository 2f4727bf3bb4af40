//! Products: what of `D = alpha * op(A) * op(B) + beta * C` is one of cuBLAS's, where C and D are the same.

#![allow(clippy::too_many_arguments, reason = "as many as cuBLASLt has")]

use std::ffi::{c_int, c_void};

use vgpu_abi::blas::{
    Address, Arithmetic, BlasStatus, Factor, GEMM_DEFAULT, MatmulAlgo, MatmulHeuristicResult, OP_C, OP_N,
    OP_T, Out, POINTER_MODE_DEVICE, POINTER_MODE_HOST, arithmetic,
};
use vgpu_abi::{export, log};
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, Gemm};

use crate::handle::Handle;
use crate::kinds::{Desc, Layout, Preference, desc, layout};
use crate::record::{Kind, Record};
use crate::{CUDA13, DRIVER, Result};

/// A matrix as its layout describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Matrix {
    kind: c_int,
    rows: u64,
    columns: u64,
    leading: u64,
    batch: u64,
    stride: i64,
}

/// A product that a message can say.
#[derive(Clone, Copy, Debug)]
struct Product {
    arithmetic: Arithmetic,
    pointer_mode: c_int,
    operation: [c_int; 2],
    /// m, n, k.
    size: [u64; 3],
    /// A, B, D.
    matrix: [Matrix; 3],
    /// Whether C is laid out as D is.
    same: bool,
}

/// Refuses a descriptor that asks for what no message says.
fn usual<K: Kind>(record: Record<K>, what: &str) -> Result {
    let Some(id) = record.unusual()? else { return Ok(()) };
    log::info(format_args!("cuBLASLt: no product with attribute {id} of {what} as it is"));
    Err(BlasStatus::NOT_SUPPORTED)
}

fn matrix(record: Record<Layout>) -> Result<Matrix> {
    usual(record, "a matrix")?;
    let matrix = Matrix {
        kind: record.word(layout::TYPE)?,
        rows: record.number(layout::ROWS)?,
        columns: record.number(layout::COLS)?,
        leading: record.number(layout::LD)?,
        batch: record.number(layout::BATCH_COUNT)?,
        stride: record.number(layout::STRIDED_BATCH_OFFSET)?.cast_signed(),
    };
    // A negative leading dimension or count is a very large number here.
    let fits = matrix.leading >= matrix.rows.max(1)
        && i64::try_from(matrix.leading).is_ok()
        && i64::try_from(matrix.columns).is_ok()
        && i32::try_from(matrix.batch).is_ok();
    if fits { Ok(matrix) } else { Err(BlasStatus::INVALID_VALUE) }
}

impl Product {
    fn new(record: Record<Desc>, layouts: [Record<Layout>; 4]) -> Result<Self> {
        usual(record, "the product")?;
        let pointer_mode = record.word(desc::POINTER_MODE)?;
        if !matches!(pointer_mode, POINTER_MODE_HOST | POINTER_MODE_DEVICE) {
            return Err(BlasStatus::NOT_SUPPORTED);
        }
        let operation = [record.word(desc::TRANSA)?, record.word(desc::TRANSB)?];
        if operation.iter().any(|operation| !matches!(*operation, OP_N | OP_T | OP_C)) {
            return Err(BlasStatus::INVALID_VALUE);
        }
        let [a, b, c, d] = layouts.map(matrix);
        let (a, b, c, d) = (a?, b?, c?, d?);
        let arithmetic = arithmetic(record.word(desc::COMPUTE_TYPE)?, [a.kind, b.kind, d.kind], CUDA13)
            .filter(|arithmetic| Ok(arithmetic.scale) == record.word(desc::SCALE_TYPE))
            .ok_or(BlasStatus::NOT_SUPPORTED)?;
        let turned = |matrix: Matrix, operation| match operation {
            OP_N => [matrix.rows, matrix.columns],
            _ => [matrix.columns, matrix.rows],
        };
        let (left, right) = (turned(a, operation[0]), turned(b, operation[1]));
        let result = [left[0], right[1]];
        let shapes = left[1] == right[0] && [[c.rows, c.columns], [d.rows, d.columns]] == [result; 2];
        if !shapes || [a.batch, b.batch, c.batch] != [d.batch; 3] {
            return Err(BlasStatus::INVALID_VALUE);
        }
        let size = [result[0], result[1], left[1]];
        Ok(Self { arithmetic, pointer_mode, operation, size, matrix: [a, b, d], same: c == d })
    }

    fn run(
        &self,
        [alpha, beta]: [Factor; 2],
        [a, b, c, d]: [Address; 4],
        (workspace, bytes): (Address, usize),
        stream: usize,
    ) -> Result {
        let batch = self.matrix[2].batch;
        if self.size[..2].contains(&0) || batch == 0 {
            return Ok(());
        }
        let scale = self.arithmetic.scale;
        let on_device = self.pointer_mode == POINTER_MODE_DEVICE;
        let alpha = alpha.get(self.pointer_mode, scale)?;
        let beta = beta.get(self.pointer_mode, scale)?;
        if d == Address(0) {
            return Err(BlasStatus::INVALID_VALUE);
        }
        let counts = on_device || !beta.is_zero(scale);
        if counts && (c != d || !self.same) {
            log::info(format_args!("cuBLASLt: no product with a C that is not D"));
            return Err(BlasStatus::NOT_SUPPORTED);
        }
        if !on_device && (self.size[2] == 0 || alpha.is_zero(scale)) && beta.is_one(scale) {
            return Ok(());
        }
        let message = Gemm {
            stream: 0,
            flags: if on_device { GEMM_DEVICE_SCALARS } else { 0 },
            operation: self.operation.map(c_int::cast_unsigned),
            types: self.matrix.map(|matrix| matrix.kind.cast_unsigned()),
            compute: self.arithmetic.compute.cast_unsigned(),
            scale: scale.cast_unsigned(),
            algorithm: GEMM_DEFAULT,
            math: 0,
            batch: batch as u32,
            size: self.size,
            leading: self.matrix.map(|matrix| matrix.leading),
            stride: self.matrix.map(|matrix| matrix.stride),
            matrix: [a, b, d].map(|address| address.0 as u64),
            alpha: alpha.0,
            beta: beta.0,
            workspace: workspace.0 as u64,
            workspace_bytes: if workspace.0 == 0 { 0 } else { bytes as u64 },
        };
        DRIVER.multiply(stream, &message)
    }
}

export! {
    /// `D = alpha * op(A) * op(B) + beta * C`. The algorithm is the host's choice, whatever is given.
    pub fn cublasLtMatmul(
        handle: Handle, product: Record<Desc>, alpha: Factor, a: Address, a_layout: Record<Layout>,
        b: Address, b_layout: Record<Layout>, beta: Factor, c: Address, c_layout: Record<Layout>,
        d: Address, d_layout: Record<Layout>, _algorithm: *const c_void, workspace: Address, bytes: usize,
        stream: usize,
    ) -> BlasStatus {
        handle.check()?;
        let product = Product::new(product, [a_layout, b_layout, c_layout, d_layout])?;
        product.run([alpha, beta], [a, b, c, d], (workspace, bytes), stream)
    }

    /// Stores the algorithms that there are for a product: one, which needs no workspace and stands for the host's choice.
    /// How well it fills the device is not known.
    pub fn cublasLtMatmulAlgoGetHeuristic(
        handle: Handle, product: Record<Desc>, a: Record<Layout>, b: Record<Layout>, c: Record<Layout>,
        d: Record<Layout>, preference: Record<Preference>, wanted: c_int, results: Out<MatmulHeuristicResult>,
        found: Out<c_int>,
    ) -> BlasStatus {
        handle.check()?;
        let (results, found) = (results.check()?, found.check()?);
        preference.check()?;
        if wanted < 1 {
            return Err(BlasStatus::INVALID_VALUE);
        }
        found.set(0)?;
        Product::new(product, [a, b, c, d])?;
        results.set(MatmulHeuristicResult {
            algo: MatmulAlgo::default(),
            workspace_bytes: 0,
            state: BlasStatus::SUCCESS,
            waves: 0.0,
            reserved: [0; 4],
        })?;
        found.set(1)
    }
}
