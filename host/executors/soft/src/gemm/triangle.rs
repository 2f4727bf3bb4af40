//! Triangular solves: `op(A) * X = alpha * B` or `X * op(A) = alpha * B`. X replaces B.
//!
//! All forms are reduced to `T * Y = alpha * Z` with T triangular. With A on the right, Y is the transpose of
//! X and T that of op(A). The columns of Y do not depend on each other, so strips of them are distributed to
//! threads. Within a strip, blocks of rows are solved in order, starting at the tip of T, and the product of
//! each with its part of T is subtracted from the remaining rows.

use std::ops::Range;

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis};
use num_traits::{One, Zero};
use vgpu_arena::View;
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS, TriangularSolve};

use super::arithmetic::{Arithmetic, ComplexOf, Double, Single};
use super::element::{Element, Output};
use super::error::GemmError;
use super::matmul::clear;
use super::matrix::{ColumnBuffer, Direction, Location, Matrix, MatrixBlock, MatrixMemory, scalar};
use super::product::{MatrixOp, nth_range};
use super::workers::Workers;

/// Number of rows that are solved at once.
const STEP: u64 = 64;
/// Number of columns of Y in a strip.
const STRIP: u64 = 64;

/// Computes the solves of a message. The other triangle of A is not read, nor the diagonal if it is unit, and
/// nothing of A if `alpha = 0`. A singular A causes divisions by zero, as in BLAS.
///
/// # Errors
/// Those of [`GemmError`]. Nothing has been written, unless the error is [`GemmError::Halted`] or the program
/// changed arrays of addresses meanwhile.
pub fn solve(memory: &View, body: &TriangularSolve, workers: &Workers<'_>) -> Result<(), GemmError> {
    match Element::from_wire(body.element) {
        Some(Element::F32) => execute::<Single>(memory, body, workers),
        Some(Element::F64) => execute::<Double>(memory, body, workers),
        Some(Element::C32) => execute::<ComplexOf<f32>>(memory, body, workers),
        Some(Element::C64) => execute::<ComplexOf<f64>>(memory, body, workers),
        _ => Err(unsupported(body)),
    }
}

fn unsupported(body: &TriangularSolve) -> GemmError {
    GemmError::Unsupported { types: [body.element; 3], compute: 0, scale: body.element }
}

/// Reads an enumeration of the two values 0 and 1. Any other value is [`GemmError::Invalid`].
const fn flag(name: &'static str, value: u32) -> Result<bool, GemmError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(GemmError::Invalid { name, value: value as u64 }),
    }
}

/// Triangular solves of a message that has passed the checks of its fields.
struct Solve<'a, R: Arithmetic> {
    memory: &'a View,
    workers: &'a Workers<'a>,
    a: Matrix,
    b: Matrix,
    output: Output<R::Number>,
    alpha: R::Factor,
    /// Whether A is on the right of X, so that Y is the transpose of X.
    right: bool,
    /// Whether T is the transpose of A.
    turned: bool,
    /// Whether the elements of T are conjugated.
    conjugated: bool,
    /// Whether T (not A) is a lower triangle.
    lower: bool,
    /// Whether the diagonal of T is taken as ones.
    unit: bool,
}

/// Memory that a thread reuses for each strip.
struct StripScratch<N> {
    block: MatrixBlock<N>,
    numbers: Vec<N>,
    column: ColumnBuffer,
}

fn execute<R: Arithmetic>(
    memory: &View,
    body: &TriangularSolve,
    workers: &Workers<'_>,
) -> Result<(), GemmError> {
    let refused = unsupported(body);
    let element = Element::from_wire(body.element).ok_or(refused)?;
    let output = R::output(element).ok_or(refused)?;
    let right = flag("a side", body.side)?;
    let upper = flag("a fill mode", body.fill)?;
    let unit = flag("a diagonal", body.diagonal)?;
    let operation = MatrixOp::from_wire(body.operation)?;
    let [m, n] = body.size;
    let (order, strips) = if right { (n, m) } else { (m, n) };
    let matrix = |at: usize, name, rows, columns| {
        let address = body.matrix[at];
        let location = if body.flags & GEMM_POINTERS != 0 {
            Location::Array { address }
        } else {
            Location::Strided { address, stride: 0 }
        };
        Matrix { name, element, rows, columns, leading: body.leading[at], location }.fits()
    };
    let (a, b) = (matrix(0, "A", order, order)?, matrix(1, "B", m, n)?);
    if body.flags & GEMM_POINTERS == 0 && body.batch > 1 {
        return Err(GemmError::Invalid { name: "the batch of one address", value: body.batch.into() });
    }
    if m == 0 || n == 0 || body.batch == 0 {
        return Ok(());
    }
    let on_device = body.flags & GEMM_DEVICE_SCALARS != 0;
    let alpha = if on_device { scalar(memory, "alpha", body.alpha, element)? } else { body.alpha };
    let alpha = R::factor(element, alpha).ok_or(refused)?;
    if alpha == R::NONE {
        return clear::<R>(memory, b, body.batch, output, workers);
    }
    let turned = operation.transposed != right;
    let solves = Solve::<R> {
        memory,
        workers,
        a,
        b,
        output,
        alpha,
        right,
        turned,
        conjugated: operation.conjugated,
        lower: upper == turned,
        unit,
    };
    solves.check(body.batch.into())?;

    let count = strips.div_ceil(STRIP);
    let operations = order.saturating_mul(order).saturating_mul(strips.min(STRIP));
    let scratch =
        || StripScratch { block: MatrixBlock::new(), numbers: Vec::new(), column: ColumnBuffer::new() };
    let jobs = count.saturating_mul(body.batch.into());
    workers.distribute(jobs, operations, scratch, |scratch, job| {
        solves.strip(scratch, job / count, nth_range(job % count, STRIP, strips))
    })
}

impl<R: Arithmetic> Solve<'_, R> {
    /// Checks the memory of A and B of every solve of the batch. Polls the interrupt between matrices.
    fn check(&self, batch: u64) -> Result<(), GemmError> {
        for index in 0..batch {
            self.a.locate(self.memory, index, Direction::Read)?;
            self.b.locate(self.memory, index, Direction::Write)?;
            if index % 1024 == 1023 {
                self.workers.check_interrupt()?;
            }
        }
        Ok(())
    }

    /// Solves for the columns `strip` of Y, and stores them to B. Polls the interrupt between blocks of rows.
    fn strip(
        &self,
        scratch: &mut StripScratch<R::Number>,
        index: u64,
        strip: Range<u64>,
    ) -> Result<(), GemmError> {
        self.workers.check_interrupt()?;
        let order = self.a.rows;
        let a = self.a.locate(self.memory, index, Direction::Read)?;
        let b = self.b.locate(self.memory, index, Direction::Write)?;
        let shape = (order as usize, (strip.end - strip.start) as usize);
        let mut y = Array2::from_elem(shape, R::Number::zero());
        self.read(&b, &strip, &mut y, scratch);
        y.mapv_inplace(|number| R::times(self.alpha, number));
        let steps = order.div_ceil(STEP);
        for done in 0..steps {
            self.workers.check_interrupt()?;
            let at = if self.lower { done } else { steps - 1 - done };
            self.step(&a, &nth_range(at, STEP, order), y.view_mut(), scratch)?;
        }
        self.write(&b, &strip, &y, scratch);
        Ok(())
    }

    /// Solves for the rows `step` of Y, and subtracts their product from the rows that are not yet solved.
    fn step(
        &self,
        a: &MatrixMemory<'_>,
        step: &Range<u64>,
        mut y: ArrayViewMut2<'_, R::Number>,
        scratch: &mut StripScratch<R::Number>,
    ) -> Result<(), GemmError> {
        let order = self.a.rows;
        let (start, end) = (step.start as usize, step.end as usize);
        let rest = if self.lower { step.end..order } else { 0..step.start };
        let (mut near, mut left) = y.view_mut().split_at(Axis(0), if self.lower { end } else { start });
        if !self.lower {
            std::mem::swap(&mut near, &mut left);
        }
        let here = if self.lower { start..end } else { 0..end - start };
        let mut solved = near.slice_axis_mut(Axis(0), here.into());
        self.triangle(a, (step, step), scratch);
        self.substitute(scratch.block.view(self.turned), solved.view_mut());
        // The product is computed in pieces that need no more memory than the triangle.
        for at in 0..(rest.end - rest.start).div_ceil(STEP) {
            self.workers.check_interrupt()?;
            let piece = nth_range(at, STEP, rest.end - rest.start);
            let rows = rest.start + piece.start..rest.start + piece.end;
            self.triangle(a, (&rows, step), scratch);
            let piece = piece.start as usize..piece.end as usize;
            let mut target = left.slice_axis_mut(Axis(0), piece.into());
            let minus = R::Number::zero() - R::Number::one();
            let block = scratch.block.view(self.turned);
            general_mat_mul(minus, &block, &solved, R::Number::one(), &mut target);
        }
        Ok(())
    }

    /// Copies rows and columns of T to the scratch block, as A stores them: the caller transposes its view if
    /// T is the transpose of A.
    fn triangle(
        &self,
        a: &MatrixMemory<'_>,
        (rows, columns): (&Range<u64>, &Range<u64>),
        scratch: &mut StripScratch<R::Number>,
    ) {
        let (rows, columns) = if self.turned { (columns, rows) } else { (rows, columns) };
        scratch.block.read(a, rows, columns, self.output.load, &mut scratch.column);
        if self.conjugated {
            R::conjugate(&mut scratch.block.numbers);
        }
    }

    /// Solves `T * Y = Z` for one block by substitution. `triangle` is its part of T, and `rows` holds Z
    /// before and Y after.
    fn substitute(&self, mut triangle: ArrayView2<'_, R::Number>, mut rows: ArrayViewMut2<'_, R::Number>) {
        if !self.lower {
            // With rows and columns in reverse order, an upper triangle is a lower one.
            triangle.invert_axis(Axis(0));
            triangle.invert_axis(Axis(1));
            rows.invert_axis(Axis(0));
        }
        for at in 0..rows.nrows() {
            let (before, mut rest) = rows.view_mut().split_at(Axis(0), at);
            let mut row = rest.row_mut(0);
            for (known, &factor) in before.rows().into_iter().zip(triangle.row(at)) {
                row.zip_mut_with(&known, |number, &known| *number = *number - factor * known);
            }
            if !self.unit {
                let diagonal = triangle[(at, at)];
                row.mapv_inplace(|number| number / diagonal);
            }
        }
    }

    /// Copies a strip of B to `y`.
    fn read(
        &self,
        b: &MatrixMemory<'_>,
        strip: &Range<u64>,
        y: &mut Array2<R::Number>,
        scratch: &mut StripScratch<R::Number>,
    ) {
        let lines = if self.right { y.rows_mut() } else { y.columns_mut() };
        for (line, mut numbers) in (0..).zip(lines) {
            scratch.numbers.resize(numbers.len(), R::Number::zero());
            let place = if self.right { (strip.start, line) } else { (0, strip.start + line) };
            scratch.column.read(b, place, self.output.load, &mut scratch.numbers);
            numbers.iter_mut().zip(&scratch.numbers).for_each(|(number, &read)| *number = read);
        }
    }

    /// Copies a strip of X to B.
    fn write(
        &self,
        b: &MatrixMemory<'_>,
        strip: &Range<u64>,
        y: &Array2<R::Number>,
        scratch: &mut StripScratch<R::Number>,
    ) {
        let lines = if self.right { y.rows() } else { y.columns() };
        for (line, numbers) in (0..).zip(lines) {
            scratch.numbers.clear();
            scratch.numbers.extend(&numbers);
            let place = if self.right { (strip.start, line) } else { (0, strip.start + line) };
            scratch.column.write(b, place, self.output.store, &scratch.numbers);
        }
    }
}
