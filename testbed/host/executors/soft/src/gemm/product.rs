//! `C = alpha * op(A) * op(B) + beta * C`, tile by tile.

use std::ops::Range;

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayViewMut2, ShapeBuilder};
use num_traits::{One, Zero};
use vgpu_arena::View;
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS, Gemm};

use super::arithmetic::{Arithmetic, ComplexDouble, ComplexSingle, Double, Single, Whole};
use super::element::{Element, Load, Output};
use super::error::GemmError;
use super::matrix::{Access, Block, Column, Located, Matrix, Place, scalar};
use super::workers::Run;

/// Number of rows and of columns of a tile of C. Half and twice this size, with a [`DEPTH`] of 128 to 512,
/// were equally fast within noise. It only matters that there are enough tiles to distribute and few copies
/// of the same block.
const TILE: u64 = 256;
/// Number of columns of A and rows of B that are multiplied at once.
const DEPTH: u64 = 512;

/// Computes the products of a message.
///
/// As in BLAS, C is not read if `beta = 0`, and neither A nor B if `alpha = 0` or `k = 0`: a matrix that is
/// not read need not be valid memory, and a NaN in it has no effect.
///
/// # Errors Those of [`GemmError`]. Nothing has been written, unless the error is [`GemmError::Halted`] or
/// the program changed arrays of addresses meanwhile.
pub fn multiply(memory: &View, body: &Gemm, run: &Run<'_>) -> Result<(), GemmError> {
    // The arms are values of `cublasComputeType_t`.
    let complex = matches!(Element::from_wire(body.types[2]), Some(Element::C32 | Element::C64));
    match (body.compute, complex) {
        (64 | 65 | 68 | 69 | 74 | 75 | 77 | 78, false) => carry_out::<Single>(memory, body, run),
        (68 | 69 | 74 | 75 | 77 | 78, true) => carry_out::<ComplexSingle>(memory, body, run),
        (70 | 71 | 79, false) => carry_out::<Double>(memory, body, run),
        (70 | 71 | 79, true) => carry_out::<ComplexDouble>(memory, body, run),
        (72 | 73, false) => carry_out::<Whole>(memory, body, run),
        _ => Err(unsupported(body)),
    }
}

fn unsupported(body: &Gemm) -> GemmError {
    GemmError::Unsupported { types: body.types, compute: body.compute, scale: body.scale }
}

/// `cublasOperation_t`: the operation on a matrix before it is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub transposed: bool,
    pub conjugated: bool,
}

impl Operation {
    pub(super) const fn from_wire(operation: u32) -> Result<Self, GemmError> {
        match operation {
            0 => Ok(Self { transposed: false, conjugated: false }),
            1 => Ok(Self { transposed: true, conjugated: false }),
            2 => Ok(Self { transposed: true, conjugated: true }),
            value => Err(GemmError::Invalid { name: "an operation", value: value as u64 }),
        }
    }
}

/// A or B, with its operation and conversion.
struct Input<N> {
    matrix: Matrix,
    operation: Operation,
    load: Load<N>,
}

impl<N: ndarray::LinalgScalar> Input<N> {
    /// Copies rows and columns of op(A) or op(B).
    fn read<R: Arithmetic<Number = N>>(
        &self,
        from: &Located<'_>,
        (rows, columns): (&Range<u64>, &Range<u64>),
        block: &mut Block<N>,
        column: &mut Column,
    ) {
        let (rows, columns) = if self.operation.transposed { (columns, rows) } else { (rows, columns) };
        block.read(from, rows, columns, self.load, column);
        if self.operation.conjugated {
            R::conjugate(&mut block.numbers);
        }
    }
}

/// The products of a message, after all checks.
struct Products<'a, R: Arithmetic> {
    memory: &'a View,
    run: &'a Run<'a>,
    /// A and B; `None` if they do not affect the result.
    inputs: Option<[Input<R::Number>; 2]>,
    /// Number of terms of each sum: k.
    depth: u64,
    c: Matrix,
    output: Output<R::Number>,
    alpha: R::Factor,
    beta: R::Factor,
}

/// Memory that a thread reuses for each tile.
struct Scratch<N> {
    blocks: [Block<N>; 2],
    sums: Vec<N>,
    old: Vec<N>,
    column: Column,
}

impl<N> Scratch<N> {
    const fn new() -> Self {
        let blocks = [Block::new(), Block::new()];
        Self { blocks, sums: Vec::new(), old: Vec::new(), column: Column::new() }
    }
}

fn carry_out<R: Arithmetic>(memory: &View, body: &Gemm, run: &Run<'_>) -> Result<(), GemmError> {
    let refused = unsupported(body);
    let [Some(of_a), Some(of_b), Some(of_c)] = body.types.map(Element::from_wire) else {
        return Err(refused);
    };
    let scale = Element::from_wire(body.scale).ok_or(refused)?;
    let loads = [R::input(of_a).ok_or(refused)?, R::input(of_b).ok_or(refused)?];
    let output = R::output(of_c).ok_or(refused)?;
    R::factor(scale, [0; 16]).ok_or(refused)?;

    let [m, n, k] = body.size;
    let [on_a, on_b] = [Operation::from_wire(body.operation[0])?, Operation::from_wire(body.operation[1])?];
    let matrix = |at: usize, name, element, operation: Operation, rows, columns| {
        let (rows, columns) = if operation.transposed { (columns, rows) } else { (rows, columns) };
        let address = body.matrix[at];
        let place = if body.flags & GEMM_POINTERS != 0 {
            Place::Array { address }
        } else {
            Place::Strided { address, stride: body.stride[at] }
        };
        Matrix { name, element, rows, columns, leading: body.leading[at], place }.fits()
    };
    let inputs = [
        Input { matrix: matrix(0, "A", of_a, on_a, m, k)?, operation: on_a, load: loads[0] },
        Input { matrix: matrix(1, "B", of_b, on_b, k, n)?, operation: on_b, load: loads[1] },
    ];
    let as_it_is = Operation { transposed: false, conjugated: false };
    let result = matrix(2, "C", of_c, as_it_is, m, n)?;
    if m == 0 || n == 0 || body.batch == 0 {
        return Ok(());
    }

    let factor = |name, bytes: [u8; 16]| {
        let on_device = body.flags & GEMM_DEVICE_SCALARS != 0;
        let bytes = if on_device { scalar(memory, name, bytes, scale)? } else { bytes };
        R::factor(scale, bytes).ok_or(refused)
    };
    let (alpha, beta) = (factor("alpha", body.alpha)?, factor("beta", body.beta)?);
    let inputs = (k > 0 && alpha != R::NONE).then_some(inputs);
    Products::<R> { memory, run, inputs, depth: k, c: result, output, alpha, beta }.compute(body.batch)
}

/// Sets every matrix of a batch to 0.
pub(super) fn clear<R: Arithmetic>(
    memory: &View,
    c: Matrix,
    batch: u32,
    output: Output<R::Number>,
    run: &Run<'_>,
) -> Result<(), GemmError> {
    let (alpha, beta) = (R::NONE, R::NONE);
    Products::<R> { memory, run, inputs: None, depth: 0, c, output, alpha, beta }.compute(batch)
}

/// Range number `at` of the ranges of length `step` that cover 0 to `end`.
pub(super) fn nth(at: u64, step: u64, end: u64) -> Range<u64> {
    at * step..end.min((at + 1) * step)
}

impl<R: Arithmetic> Products<'_, R> {
    fn compute(&self, batch: u32) -> Result<(), GemmError> {
        self.check(batch.into())?;
        let (rows, columns) = (self.c.rows, self.c.columns);
        let tiles = rows.div_ceil(TILE).saturating_mul(columns.div_ceil(TILE));
        let depth = self.depth.saturating_mul(2).clamp(1, u64::MAX / (TILE * TILE));
        let operations = rows.min(TILE) * columns.min(TILE) * depth;
        let jobs = tiles.saturating_mul(batch.into());
        self.run.share(jobs, operations, Scratch::new, |scratch, job| {
            self.tile(scratch, job / tiles, job % tiles)
        })
    }

    /// Checks the memory of every matrix of the batch that will be accessed.
    fn check(&self, batch: u64) -> Result<(), GemmError> {
        for index in 0..batch {
            for input in self.inputs.iter().flatten() {
                input.matrix.locate(self.memory, index, Access::Read)?;
            }
            self.c.locate(self.memory, index, Access::Write)?;
            if index % 1024 == 1023 {
                self.run.go_on()?;
            }
        }
        Ok(())
    }

    /// Computes one tile of one C. The matrices are located and checked again, because the program may have
    /// changed arrays of addresses.
    fn tile(&self, scratch: &mut Scratch<R::Number>, index: u64, tile: u64) -> Result<(), GemmError> {
        let down = self.c.rows.div_ceil(TILE);
        let rows = nth(tile % down, TILE, self.c.rows);
        let columns = nth(tile / down, TILE, self.c.columns);
        let shape = ((rows.end - rows.start) as usize, (columns.end - columns.start) as usize);
        scratch.sums.resize(shape.0 * shape.1, R::Number::zero());
        let c = self.c.locate(self.memory, index, Access::Write)?;
        self.run.go_on()?;
        if let Some([a, b]) = &self.inputs {
            let from_a = a.matrix.locate(self.memory, index, Access::Read)?;
            let from_b = b.matrix.locate(self.memory, index, Access::Read)?;
            for at in 0..self.depth.div_ceil(DEPTH) {
                self.run.go_on()?;
                let depth = nth(at, DEPTH, self.depth);
                let [block_a, block_b] = &mut scratch.blocks;
                a.read::<R>(&from_a, (&rows, &depth), block_a, &mut scratch.column);
                b.read::<R>(&from_b, (&depth, &columns), block_b, &mut scratch.column);
                let (block_a, block_b) =
                    (block_a.view(a.operation.transposed), block_b.view(b.operation.transposed));
                let mut sums = ArrayViewMut2::from_shape(shape.f(), &mut scratch.sums)
                    .expect("as many sums as the tile has");
                // The first product replaces the previous tile's sums.
                let keep = if at == 0 { R::Number::zero() } else { R::Number::one() };
                general_mat_mul(R::Number::one(), &block_a, &block_b, keep, &mut sums);
            }
        }
        for (column, sums) in columns.zip(scratch.sums.chunks_exact_mut(shape.0)) {
            let place = (rows.start, column);
            scratch.old.resize(sums.len(), R::Number::zero());
            let adds = self.beta != R::NONE;
            if adds {
                scratch.column.read(&c, place, self.output.load, &mut scratch.old);
            }
            self.finish(sums, adds.then_some(&scratch.old));
            scratch.column.write(&c, place, self.output.store, sums);
        }
        Ok(())
    }

    /// Replaces `sums` by `alpha * sums + beta * old`, without the terms that are absent.
    fn finish(&self, sums: &mut [R::Number], old: Option<&Vec<R::Number>>) {
        let (alpha, beta) = (self.alpha, self.beta);
        match (self.inputs.is_some(), old) {
            (true, None) => sums.iter_mut().for_each(|sum| *sum = R::times(alpha, *sum)),
            (true, Some(old)) => {
                for (sum, &old) in sums.iter_mut().zip(old) {
                    *sum = R::times(alpha, *sum) + R::times(beta, old);
                }
            }
            (false, None) => sums.fill(R::Number::zero()),
            (false, Some(old)) => {
                for (sum, &old) in sums.iter_mut().zip(old) {
                    *sum = R::times(beta, old);
                }
            }
        }
    }
}
