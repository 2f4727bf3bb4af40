//! Computes matrix products tile by tile, and applies their epilogues.
//!
//! The epilogue works on each element before it is rounded to D's type. Sums of D's rows need all tiles of
//! these rows, so a single job computes them; otherwise each tile is a job. Sums of A and B are jobs of their
//! own.

use std::ops::Range;

use num_traits::Zero;
use vgpu_wire::body::matmul::{Activation, BiasGradient, Epilogue};

use super::activation::Activations;
use super::arithmetic::Arithmetic;
use super::element::{Output, load, store};
use super::error::GemmError;
use super::matrix::{ColumnBuffer, Direction, Matrix, MatrixMemory};
use super::product::{Multiplicand, TILE, TileScratch, TiledProduct, add_rows, count_tiles, nth_range};

/// A matrix and the conversions of its elements.
pub(super) struct TypedMatrix<N> {
    pub matrix: Matrix,
    pub output: Output<N>,
}

/// The auxiliary matrix of an epilogue.
pub(super) enum Auxiliary<N> {
    /// The operands of GELU, one number for each element of D.
    Numbers(TypedMatrix<N>),
    /// The mask of ReLU: one bit per element, eight consecutive elements of a column in a byte.
    Mask(Matrix),
}

/// A batch of products `D = epilogue(alpha * op(A) * op(B) + beta * C)` whose message has been checked.
pub(super) struct Matmul<'a, R: Arithmetic> {
    /// The product of A and B. It has no factors if `alpha = 0` or `k = 0`.
    pub product: TiledProduct<'a, R>,
    /// A or B, if the epilogue stores the sums of its rows or columns.
    pub source: Option<Multiplicand<R::Number>>,
    /// C, unless `beta = 0`. It has the element type of D.
    pub c: Option<Matrix>,
    pub d: TypedMatrix<R::Number>,
    pub alpha: R::Factor,
    pub beta: R::Factor,
    pub epilogue: Epilogue,
    /// Activation functions, or `None` if the numbers are complex or whole, for which cuBLASLt has no
    /// epilogues.
    pub activations: Option<Activations<R::Number>>,
    /// Bias, or destination of its gradient, as one column.
    pub bias: Option<TypedMatrix<R::Number>>,
    pub auxiliary: Option<Auxiliary<R::Number>>,
}

/// Memory that a thread reuses for each job.
struct MatmulScratch<N> {
    tile: TileScratch<N>,
    bias: Vec<N>,
    numbers: Vec<N>,
    bytes: Vec<u8>,
    totals: Vec<N>,
}

impl<N> MatmulScratch<N> {
    const fn new() -> Self {
        Self {
            tile: TileScratch::new(),
            bias: Vec::new(),
            numbers: Vec::new(),
            bytes: Vec::new(),
            totals: Vec::new(),
        }
    }
}

impl<R: Arithmetic> Matmul<'_, R> {
    /// Checks all memory of the batch, then computes it.
    pub(super) fn compute(&self, batch: u64) -> Result<(), GemmError> {
        self.check(batch)?;
        let (rows, columns) = (self.d.matrix.rows, self.d.matrix.columns);
        let (tiles, operations) = count_tiles(rows, columns, self.product.depth);
        let (down, across) = (rows.div_ceil(TILE), columns.div_ceil(TILE));
        let workers = self.product.workers;
        if self.epilogue.gradient == Some(BiasGradient::Result) {
            let operations = operations.saturating_mul(across);
            return workers.distribute(
                down.saturating_mul(batch),
                operations,
                MatmulScratch::new,
                |work, job| {
                    let (index, rows) = (job / down, nth_range(job % down, TILE, rows));
                    work.totals.clear();
                    work.totals.resize((rows.end - rows.start) as usize, R::Number::zero());
                    for at in 0..across {
                        self.tile(work, index, &rows, nth_range(at, TILE, columns))?;
                    }
                    self.store_totals(work, index, &rows)
                },
            );
        }
        workers.distribute(tiles.saturating_mul(batch), operations, MatmulScratch::new, |work, job| {
            let (index, tile) = (job / tiles, job % tiles);
            self.tile(work, index, &nth_range(tile % down, TILE, rows), nth_range(tile / down, TILE, columns))
        })?;
        self.sum_source(batch)
    }

    /// Checks the memory of every matrix of the batch that will be accessed.
    fn check(&self, batch: u64) -> Result<(), GemmError> {
        let memory = self.product.memory;
        let (reads, writes) = (Direction::Read, Direction::Write);
        for index in 0..batch {
            self.product.check(index)?;
            if let Some(source) = &self.source {
                source.matrix.locate(memory, index, reads)?;
            }
            if let Some(c) = &self.c {
                c.locate(memory, index, reads)?;
            }
            if let Some(bias) = &self.bias {
                let access = if self.epilogue.bias { reads } else { writes };
                bias.matrix.locate(memory, index, access)?;
            }
            self.locate_auxiliary(index)?;
            self.d.matrix.locate(memory, index, writes)?;
            if index % 1024 == 1023 {
                self.product.workers.check_interrupt()?;
            }
        }
        Ok(())
    }

    /// Finds the auxiliary matrix of product `index` and checks its memory. Returns `None` if the epilogue
    /// has none.
    fn locate_auxiliary(&self, index: u64) -> Result<Option<MatrixMemory<'_>>, GemmError> {
        let access = if self.epilogue.reads_auxiliary() { Direction::Read } else { Direction::Write };
        match &self.auxiliary {
            Some(Auxiliary::Numbers(TypedMatrix { matrix, .. }) | Auxiliary::Mask(matrix)) => {
                matrix.locate(self.product.memory, index, access).map(Some)
            }
            None => Ok(None),
        }
    }

    /// Computes one tile of the D of product `index`. Adds its columns to the totals if the epilogue sums
    /// rows. Finds the matrices again, because the program may have changed arrays of addresses.
    fn tile(
        &self,
        work: &mut MatmulScratch<R::Number>,
        index: u64,
        rows: &Range<u64>,
        columns: Range<u64>,
    ) -> Result<(), GemmError> {
        let memory = self.product.memory;
        self.product.tile(&mut work.tile, index, rows, &columns)?;
        let MatmulScratch {
            tile: TileScratch { sums, old, column: buffer, .. },
            bias,
            numbers,
            bytes,
            totals,
        } = work;
        let down = (rows.end - rows.start) as usize;
        let d = self.d.matrix.locate(memory, index, Direction::Write)?;
        let c = self.c.as_ref().map(|c| c.locate(memory, index, Direction::Read)).transpose()?;
        let auxiliary = self.locate_auxiliary(index)?;
        if let Some(side) = self.bias.as_ref().filter(|_| self.epilogue.bias) {
            bias.resize(down, R::Number::zero());
            let from = side.matrix.locate(memory, index, Direction::Read)?;
            buffer.read(&from, (rows.start, 0), side.output.load, bias);
        }
        for (column, sums) in columns.zip(sums.chunks_exact_mut(down)) {
            let place = (rows.start, column);
            old.resize(down, R::Number::zero());
            if let Some(c) = &c {
                buffer.read(c, place, self.d.output.load, old);
            }
            self.product.combine((self.alpha, self.beta), sums, c.is_some().then_some(&**old));
            if self.epilogue.bias {
                sums.iter_mut().zip(&*bias).for_each(|(sum, &bias)| *sum = *sum + bias);
            }
            if let Some(auxiliary) = &auxiliary {
                self.apply_auxiliary(auxiliary, place, sums, (buffer, numbers, bytes));
            }
            self.activate(sums);
            if self.epilogue.gradient == Some(BiasGradient::Result) {
                totals.iter_mut().zip(&*sums).for_each(|(total, &sum)| *total = *total + sum);
            }
            buffer.write(&d, place, self.d.output.store, sums);
        }
        Ok(())
    }

    /// Reads or writes the part of the auxiliary matrix that corresponds to one column of a tile. `place` has
    /// the row and the column of its first element.
    fn apply_auxiliary(
        &self,
        at: &MatrixMemory<'_>,
        place: (u64, u64),
        sums: &mut [R::Number],
        (buffer, numbers, bytes): (&mut ColumnBuffer, &mut Vec<R::Number>, &mut Vec<u8>),
    ) {
        let Some(activations) = &self.activations else { return };
        let reads = self.epilogue.reads_auxiliary();
        match &self.auxiliary {
            Some(Auxiliary::Mask(_)) => {
                let place = (place.0 / 8, place.1);
                bytes.resize(sums.len().div_ceil(8), 0);
                // Bits beyond the last row keep their values.
                buffer.read(at, place, load::<u8>, bytes);
                for (row, sum) in sums.iter_mut().enumerate() {
                    let (byte, bit) = (&mut bytes[row / 8], 1 << (row % 8));
                    if !reads {
                        let set = if (activations.is_in_mask)(*sum) { bit } else { 0 };
                        *byte = *byte & !bit | set;
                    } else if *byte & bit == 0 {
                        *sum = R::Number::zero();
                    }
                }
                if !reads {
                    buffer.write(at, place, store::<u8>, bytes);
                }
            }
            Some(Auxiliary::Numbers(side)) if reads => {
                numbers.resize(sums.len(), R::Number::zero());
                buffer.read(at, place, side.output.load, numbers);
                for (sum, &at) in sums.iter_mut().zip(&*numbers) {
                    *sum = *sum * (activations.gelu_slope)(at);
                }
            }
            Some(Auxiliary::Numbers(side)) => buffer.write(at, place, side.output.store, sums),
            None => {}
        }
    }

    /// Applies ReLU or GELU to one column of a tile.
    fn activate(&self, sums: &mut [R::Number]) {
        let Some(activations) = &self.activations else { return };
        match self.epilogue.activation {
            Activation::Relu => {
                for sum in sums.iter_mut().filter(|sum| !(activations.is_positive)(**sum)) {
                    *sum = R::Number::zero();
                }
            }
            Activation::Gelu => sums.iter_mut().for_each(|sum| *sum = (activations.gelu)(*sum)),
            Activation::None | Activation::ReluGradient | Activation::GeluGradient => {}
        }
    }

    /// Stores the totals of rows `rows` of the tile to the gradient of the bias.
    fn store_totals(
        &self,
        work: &mut MatmulScratch<R::Number>,
        index: u64,
        rows: &Range<u64>,
    ) -> Result<(), GemmError> {
        let Some(side) = &self.bias else { return Ok(()) };
        let to = side.matrix.locate(self.product.memory, index, Direction::Write)?;
        work.tile.column.write(&to, (rows.start, 0), side.output.store, &work.totals);
        Ok(())
    }

    /// Stores the sums of A's rows or of B's columns, if the epilogue has them.
    fn sum_source(&self, batch: u64) -> Result<(), GemmError> {
        let wanted = matches!(self.epilogue.gradient, Some(BiasGradient::A | BiasGradient::B));
        let Some(side) = self.bias.as_ref().filter(|_| wanted) else { return Ok(()) };
        let (memory, workers) = (self.product.memory, self.product.workers);
        let length = side.matrix.rows;
        let strips = length.div_ceil(TILE);
        let operations = length.min(TILE).saturating_mul(self.product.depth);
        workers.distribute(strips.saturating_mul(batch), operations, MatmulScratch::new, |work, job| {
            let (index, rows) = (job / strips, nth_range(job % strips, TILE, length));
            work.totals.clear();
            work.totals.resize((rows.end - rows.start) as usize, R::Number::zero());
            if let Some(source) = &self.source {
                let what = (index, &rows, self.product.depth);
                add_rows::<R>((memory, workers), source, what, &mut work.tile, &mut work.totals)?;
            }
            self.store_totals(work, index, &rows)
        })
    }
}
