//! The product of A and B, one tile of the result at a time. Neither alpha nor C is applied here.

use std::ops::Range;

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayViewMut2, ShapeBuilder};
use num_traits::{One, Zero};
use vgpu_arena::View;

use super::arithmetic::Arithmetic;
use super::element::Load;
use super::error::GemmError;
use super::matrix::{ColumnBuffer, Direction, Matrix, MatrixBlock, MatrixMemory};
use super::workers::Workers;

/// Rows and columns of a tile of the result. With sizes of half and twice as many, and [`DEPTH`]s of 128 to
/// 512, products were as fast within the noise: there only must be enough tiles to share out, and few enough
/// copies of the same block.
pub(super) const TILE: u64 = 256;
/// Columns of A and rows of B that are multiplied at once.
const DEPTH: u64 = 512;

/// Operation on a matrix before it is multiplied: `cublasOperation_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatrixOp {
    pub transposed: bool,
    pub conjugated: bool,
}

impl MatrixOp {
    /// Uses the matrix as it is stored.
    pub(super) const NONE: Self = Self { transposed: false, conjugated: false };

    pub(super) const fn from_wire(operation: u32) -> Result<Self, GemmError> {
        match operation {
            0 => Ok(Self::NONE),
            1 => Ok(Self { transposed: true, conjugated: false }),
            2 => Ok(Self { transposed: true, conjugated: true }),
            value => Err(GemmError::Invalid { name: "an operation", value: value as u64 }),
        }
    }

    /// Returns the rows and columns of the stored matrix, given those of the operand.
    pub(super) const fn stored(self, rows: u64, columns: u64) -> (u64, u64) {
        if self.transposed { (columns, rows) } else { (rows, columns) }
    }
}

/// A or B of each product, with the operation and the conversion of its elements.
#[derive(Clone, Copy)]
pub(super) struct Multiplicand<N> {
    pub matrix: Matrix,
    pub operation: MatrixOp,
    pub load: Load<N>,
}

impl<N: ndarray::LinalgScalar> Multiplicand<N> {
    /// Copies the given rows and columns of the operand. The block holds them as they are stored: the caller
    /// transposes its view if the operation does.
    fn read<R: Arithmetic<Number = N>>(
        &self,
        from: &MatrixMemory<'_>,
        (rows, columns): (&Range<u64>, &Range<u64>),
        block: &mut MatrixBlock<N>,
        column: &mut ColumnBuffer,
    ) {
        let (rows, columns) = if self.operation.transposed { (columns, rows) } else { (rows, columns) };
        block.read(from, rows, columns, self.load, column);
        if self.operation.conjugated {
            R::conjugate(&mut block.numbers);
        }
    }
}

/// Memory that a thread reuses for each tile.
pub(super) struct TileScratch<N> {
    blocks: [MatrixBlock<N>; 2],
    /// The newest tile, column by column.
    pub sums: Vec<N>,
    pub old: Vec<N>,
    pub column: ColumnBuffer,
}

impl<N> TileScratch<N> {
    pub(super) const fn new() -> Self {
        let blocks = [MatrixBlock::new(), MatrixBlock::new()];
        Self { blocks, sums: Vec::new(), old: Vec::new(), column: ColumnBuffer::new() }
    }
}

/// Returns the range number `at` of those with length `step` that together cover `0..end`.
pub(super) fn nth_range(at: u64, step: u64, end: u64) -> Range<u64> {
    at * step..end.min((at + 1) * step)
}

/// Returns the number of tiles of a result, and approximate number of operations for each.
pub(super) fn count_tiles(rows: u64, columns: u64, depth: u64) -> (u64, u64) {
    let tiles = rows.div_ceil(TILE).saturating_mul(columns.div_ceil(TILE));
    let depth = depth.saturating_mul(2).clamp(1, u64::MAX / (TILE * TILE));
    (tiles, rows.min(TILE) * columns.min(TILE) * depth)
}

/// The product of A and B of each product of a message.
pub(super) struct TiledProduct<'a, R: Arithmetic> {
    pub memory: &'a View,
    pub workers: &'a Workers<'a>,
    /// Factors A and B, or `None` if alpha or k is 0. The product is then 0, and neither may be read.
    pub factors: Option<[Multiplicand<R::Number>; 2]>,
    /// Number of columns of A and of rows of B, which is `k`.
    pub depth: u64,
}

impl<R: Arithmetic> TiledProduct<'_, R> {
    /// Checks the memory of A and B of product `index`, unless there are no factors.
    pub(super) fn check(&self, index: u64) -> Result<(), GemmError> {
        for input in self.factors.iter().flatten() {
            input.matrix.locate(self.memory, index, Direction::Read)?;
        }
        Ok(())
    }

    /// Computes one tile of product `index` into `scratch.sums`, whose contents are undefined if there are no
    /// factors. Finds A and B again, because the program may have changed arrays of addresses.
    pub(super) fn tile(
        &self,
        scratch: &mut TileScratch<R::Number>,
        index: u64,
        rows: &Range<u64>,
        columns: &Range<u64>,
    ) -> Result<(), GemmError> {
        let shape = ((rows.end - rows.start) as usize, (columns.end - columns.start) as usize);
        scratch.sums.resize(shape.0 * shape.1, R::Number::zero());
        self.workers.check_interrupt()?;
        let Some([a, b]) = &self.factors else { return Ok(()) };
        let from_a = a.matrix.locate(self.memory, index, Direction::Read)?;
        let from_b = b.matrix.locate(self.memory, index, Direction::Read)?;
        for at in 0..self.depth.div_ceil(DEPTH) {
            self.workers.check_interrupt()?;
            let depth = nth_range(at, DEPTH, self.depth);
            let [block_a, block_b] = &mut scratch.blocks;
            a.read::<R>(&from_a, (rows, &depth), block_a, &mut scratch.column);
            b.read::<R>(&from_b, (&depth, columns), block_b, &mut scratch.column);
            let (block_a, block_b) =
                (block_a.view(a.operation.transposed), block_b.view(b.operation.transposed));
            let mut sums = ArrayViewMut2::from_shape(shape.f(), &mut scratch.sums)
                .expect("as many sums as the tile has");
            // The first product replaces the sums of the previous tile.
            let keep = if at == 0 { R::Number::zero() } else { R::Number::one() };
            general_mat_mul(R::Number::one(), &block_a, &block_b, keep, &mut sums);
        }
        Ok(())
    }

    /// Replaces sums by `alpha * sums + beta * old`, without the terms whose matrices are absent.
    pub(super) fn combine(
        &self,
        (alpha, beta): (R::Factor, R::Factor),
        sums: &mut [R::Number],
        old: Option<&[R::Number]>,
    ) {
        match (self.factors.is_some(), old) {
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

/// Sums each of the given rows of an operand with `across` columns, for product `index`, into `totals`.
pub(super) fn add_rows<R: Arithmetic>(
    (memory, workers): (&View, &Workers<'_>),
    input: &Multiplicand<R::Number>,
    (index, rows, across): (u64, &Range<u64>, u64),
    scratch: &mut TileScratch<R::Number>,
    totals: &mut Vec<R::Number>,
) -> Result<(), GemmError> {
    totals.clear();
    totals.resize((rows.end - rows.start) as usize, R::Number::zero());
    let from = input.matrix.locate(memory, index, Direction::Read)?;
    for at in 0..across.div_ceil(DEPTH) {
        workers.check_interrupt()?;
        let columns = nth_range(at, DEPTH, across);
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
