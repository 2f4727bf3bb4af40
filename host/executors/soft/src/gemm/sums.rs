//! The product of A and B, a tile of the result at a time, before a factor or C is looked at.

use std::ops::Range;

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayViewMut2, ShapeBuilder};
use num_traits::{One, Zero};
use vgpu_arena::View;

use super::arithmetic::Arithmetic;
use super::element::Load;
use super::error::GemmError;
use super::matrix::{Access, Block, Column, Located, Matrix};
use super::workers::Run;

/// Rows and columns of a tile of the result. With sizes of half and twice as many, and [`DEPTH`]s of 128 to
/// 512, products were as fast within the noise: there only must be enough tiles to share out, and few enough
/// copies of the same block.
pub(super) const TILE: u64 = 256;
/// Columns of A and rows of B that are multiplied at once.
const DEPTH: u64 = 512;

/// What is done to a matrix before it is multiplied: `cublasOperation_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub transposed: bool,
    pub conjugated: bool,
}

impl Operation {
    /// The matrix as it is.
    pub(super) const NONE: Self = Self { transposed: false, conjugated: false };

    pub(super) const fn from_wire(operation: u32) -> Result<Self, GemmError> {
        match operation {
            0 => Ok(Self::NONE),
            1 => Ok(Self { transposed: true, conjugated: false }),
            2 => Ok(Self { transposed: true, conjugated: true }),
            value => Err(GemmError::Invalid { name: "an operation", value: value as u64 }),
        }
    }

    /// Rows and columns of the matrix of which it makes one with these.
    pub(super) const fn stored(self, rows: u64, columns: u64) -> (u64, u64) {
        if self.transposed { (columns, rows) } else { (rows, columns) }
    }
}

/// A or B, and how it is read.
pub(super) struct Input<N> {
    pub matrix: Matrix,
    pub operation: Operation,
    pub load: Load<N>,
}

impl<N: ndarray::LinalgScalar> Input<N> {
    /// Copies rows and columns of what the operation makes of the matrix. The block is to be transposed if
    /// the operation transposes.
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

/// What a thread keeps from tile to tile.
pub(super) struct Scratch<N> {
    blocks: [Block<N>; 2],
    /// The newest tile, column by column.
    pub sums: Vec<N>,
    pub old: Vec<N>,
    pub column: Column,
}

impl<N> Scratch<N> {
    pub(super) const fn new() -> Self {
        let blocks = [Block::new(), Block::new()];
        Self { blocks, sums: Vec::new(), old: Vec::new(), column: Column::new() }
    }
}

/// The `at`th of the ranges of `step` that cover 0 to `end`.
pub(super) fn nth(at: u64, step: u64, end: u64) -> Range<u64> {
    at * step..end.min((at + 1) * step)
}

/// How many tiles a result has, and about how many operations each takes.
pub(super) fn tiles(rows: u64, columns: u64, depth: u64) -> (u64, u64) {
    let tiles = rows.div_ceil(TILE).saturating_mul(columns.div_ceil(TILE));
    let depth = depth.saturating_mul(2).clamp(1, u64::MAX / (TILE * TILE));
    (tiles, rows.min(TILE) * columns.min(TILE) * depth)
}

/// A and B of a message, checked.
pub(super) struct Sums<'a, R: Arithmetic> {
    pub memory: &'a View,
    pub run: &'a Run<'a>,
    /// A and B, unless they do not count.
    pub inputs: Option<[Input<R::Number>; 2]>,
    /// k.
    pub depth: u64,
}

impl<R: Arithmetic> Sums<'_, R> {
    /// Looks for A and B of product `index`.
    pub(super) fn check(&self, index: u64) -> Result<(), GemmError> {
        for input in self.inputs.iter().flatten() {
            input.matrix.locate(self.memory, index, Access::Read)?;
        }
        Ok(())
    }

    /// Makes `scratch.sums` the tile of these rows and columns of product `index`; its contents mean nothing
    /// where A and B do not count. Looks for the matrices again: the program may have changed arrays of
    /// addresses.
    pub(super) fn tile(
        &self,
        scratch: &mut Scratch<R::Number>,
        index: u64,
        rows: &Range<u64>,
        columns: &Range<u64>,
    ) -> Result<(), GemmError> {
        let shape = ((rows.end - rows.start) as usize, (columns.end - columns.start) as usize);
        scratch.sums.resize(shape.0 * shape.1, R::Number::zero());
        self.run.go_on()?;
        let Some([a, b]) = &self.inputs else { return Ok(()) };
        let from_a = a.matrix.locate(self.memory, index, Access::Read)?;
        let from_b = b.matrix.locate(self.memory, index, Access::Read)?;
        for at in 0..self.depth.div_ceil(DEPTH) {
            self.run.go_on()?;
            let depth = nth(at, DEPTH, self.depth);
            let [block_a, block_b] = &mut scratch.blocks;
            a.read::<R>(&from_a, (rows, &depth), block_a, &mut scratch.column);
            b.read::<R>(&from_b, (&depth, columns), block_b, &mut scratch.column);
            let (block_a, block_b) =
                (block_a.view(a.operation.transposed), block_b.view(b.operation.transposed));
            let mut sums = ArrayViewMut2::from_shape(shape.f(), &mut scratch.sums)
                .expect("as many sums as the tile has");
            // The first product replaces what another tile has left there.
            let keep = if at == 0 { R::Number::zero() } else { R::Number::one() };
            general_mat_mul(R::Number::one(), &block_a, &block_b, keep, &mut sums);
        }
        Ok(())
    }

    /// Makes `alpha * sums + beta * old` of sums, leaving out what is not there.
    pub(super) fn combine(
        &self,
        (alpha, beta): (R::Factor, R::Factor),
        sums: &mut [R::Number],
        old: Option<&[R::Number]>,
    ) {
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

/// Adds up the rows of what the operation makes of a matrix with `across` columns: `totals` are those of
/// `rows` of product `index`.
pub(super) fn add_rows<R: Arithmetic>(
    (memory, run): (&View, &Run<'_>),
    input: &Input<R::Number>,
    (index, rows, across): (u64, &Range<u64>, u64),
    scratch: &mut Scratch<R::Number>,
    totals: &mut Vec<R::Number>,
) -> Result<(), GemmError> {
    totals.clear();
    totals.resize((rows.end - rows.start) as usize, R::Number::zero());
    let from = input.matrix.locate(memory, index, Access::Read)?;
    for at in 0..across.div_ceil(DEPTH) {
        run.go_on()?;
        let columns = nth(at, DEPTH, across);
        let block = &mut scratch.blocks[0];
        input.read::<R>(&from, (rows, &columns), block, &mut scratch.column);
        for column in block.view(input.operation.transposed).columns() {
            for (total, &number) in totals.iter_mut().zip(column) {
                *total = *total + number;
            }
        }
    }
    Ok(())
}
