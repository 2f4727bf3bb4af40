//! `D = epilogue(alpha * op(A) * op(B) + beta * C)`: what cuBLASLt adds to a product, tile by tile.
//!
//! The epilogue sees each element before it is rounded to D's type. Sums of D's rows need all tiles of these
//! rows, so one job makes all of them; otherwise a job makes a tile. Sums of A and B are jobs of their own.

use std::ops::Range;

use num_traits::Zero;
use vgpu_arena::View;
use vgpu_wire::body::gemm::GEMM_DEVICE_SCALARS;
use vgpu_wire::body::matmul::{Activation, BiasGradient, Epilogue, MatmulLt};

use super::activation::Activations;
use super::arithmetic::{Arithmetic, ComplexDouble, ComplexSingle, Double, Single, Whole};
use super::element::{Element, Output, load, store};
use super::error::GemmError;
use super::matrix::{Access, Column, Located, Matrix, Place, scalar};
use super::sums::{Input, Operation, Scratch, Sums, TILE, add_rows, nth, tiles};
use super::workers::Run;

/// Bits of a mask's leading dimension come in these portions.
const MASK_BITS: u64 = 128;

/// Carries out the products of a message. What does not count is not read, as with
/// [`multiply`](super::multiply).
///
/// # Errors
/// Those of [`GemmError`]. Nothing has been written unless it is [`GemmError::Halted`].
pub fn matmul(memory: &View, body: &MatmulLt, run: &Run<'_>) -> Result<(), GemmError> {
    // Numbers of cublasComputeType_t.
    let complex = matches!(Element::from_wire(body.types[3]), Some(Element::C32 | Element::C64));
    match (body.compute, complex) {
        (64 | 65 | 68 | 69 | 74 | 75 | 77 | 78, false) => carry_out::<Single>(memory, body, run),
        (68 | 69 | 74 | 75 | 77 | 78, true) => carry_out::<ComplexSingle>(memory, body, run),
        (70 | 71 | 79, false) => carry_out::<Double>(memory, body, run),
        (70 | 71 | 79, true) => carry_out::<ComplexDouble>(memory, body, run),
        (72 | 73, false) => carry_out::<Whole>(memory, body, run),
        _ => Err(unsupported(body)),
    }
}

fn unsupported(body: &MatmulLt) -> GemmError {
    let [a, b, _, d] = body.types;
    GemmError::Unsupported { types: [a, b, d], compute: body.compute, scale: body.scale }
}

const fn invalid(name: &'static str, value: u64) -> GemmError {
    GemmError::Invalid { name, value }
}

/// A matrix beside A and B, and how its elements are read and written.
struct Side<N> {
    matrix: Matrix,
    output: Output<N>,
}

/// The auxiliary matrix.
enum Auxiliary<N> {
    /// What GELU is given.
    Numbers(Side<N>),
    /// Bits, eight of a column to a byte.
    Mask(Matrix),
}

/// The products of a message, after all checks.
struct Products<'a, R: Arithmetic> {
    /// A and B count if alpha and k are not 0.
    sums: Sums<'a, R>,
    /// A or B, whose sums are stored.
    source: Option<Input<R::Number>>,
    /// C, unless beta is 0, and D. They have one type.
    c: Option<Matrix>,
    d: Side<R::Number>,
    alpha: R::Factor,
    beta: R::Factor,
    epilogue: Epilogue,
    activations: Option<Activations<R::Number>>,
    /// The bias, or where its gradient goes: one column.
    bias: Option<Side<R::Number>>,
    auxiliary: Option<Auxiliary<R::Number>>,
    /// k
    depth: u64,
}

/// What a thread keeps from job to job.
struct Work<N> {
    tile: Scratch<N>,
    bias: Vec<N>,
    numbers: Vec<N>,
    bytes: Vec<u8>,
    totals: Vec<N>,
}

impl<N> Work<N> {
    const fn new() -> Self {
        Self {
            tile: Scratch::new(),
            bias: Vec::new(),
            numbers: Vec::new(),
            bytes: Vec::new(),
            totals: Vec::new(),
        }
    }
}

#[allow(clippy::many_single_char_names, reason = "the names of BLAS")]
fn carry_out<R: Arithmetic>(memory: &View, body: &MatmulLt, run: &Run<'_>) -> Result<(), GemmError> {
    let refused = unsupported(body);
    let epilogue =
        Epilogue::from_number(body.epilogue).ok_or(invalid("an epilogue", body.epilogue.into()))?;
    let [Some(of_a), Some(of_b), Some(of_c), Some(of_d)] = body.types.map(Element::from_wire) else {
        return Err(refused);
    };
    let scale = Element::from_wire(body.scale).ok_or(refused)?;
    let loads = [R::input(of_a).ok_or(refused)?, R::input(of_b).ok_or(refused)?];
    let output = R::output(of_d).ok_or(refused)?;
    R::factor(scale, [0; 16]).ok_or(refused)?;
    if of_c != of_d || (body.epilogue != 1 && R::ACTIVATIONS.is_none()) {
        return Err(refused);
    }

    let [m, n, k] = body.size;
    let [on_a, on_b] = [Operation::from_wire(body.operation[0])?, Operation::from_wire(body.operation[1])?];
    let matrix = |at: usize, name, element, (rows, columns)| {
        let place = Place::Strided { address: body.matrix[at], stride: body.stride[at] };
        Matrix { name, element, rows, columns, leading: body.leading[at], place }
    };
    let input = |at: usize| match at {
        0 => Ok::<_, GemmError>(Input {
            matrix: matrix(0, "A", of_a, on_a.stored(m, k)).fits()?,
            operation: on_a,
            load: loads[0],
        }),
        _ => Ok(Input {
            matrix: matrix(1, "B", of_b, on_b.stored(k, n)).fits()?,
            operation: on_b,
            load: loads[1],
        }),
    };
    let inputs = [input(0)?, input(1)?];
    let c = matrix(2, "C", of_c, (m, n));
    // One column of C may stand for all.
    let c = if c.leading == 0 { c } else { c.fits()? };
    let d = Side { matrix: matrix(3, "D", of_d, (m, n)).fits()?, output };
    let length = if epilogue.gradient == Some(BiasGradient::B) { n } else { m };
    let bias = epilogue.uses_bias().then(|| bias(body, length, R::output)).transpose()?;
    let auxiliary = epilogue.auxiliary.then(|| auxiliary(body, epilogue, R::output)).transpose()?;
    if m == 0 || n == 0 || body.batch == 0 {
        return Ok(());
    }

    let factor = |name, bytes: [u8; 16]| {
        let on_device = body.flags & GEMM_DEVICE_SCALARS != 0;
        let bytes = if on_device { scalar(memory, name, bytes, scale)? } else { bytes };
        R::factor(scale, bytes).ok_or(refused)
    };
    let (alpha, beta) = (factor("alpha", body.alpha)?, factor("beta", body.beta)?);
    let source = match epilogue.gradient {
        Some(BiasGradient::A) => Some(input(0)?),
        Some(BiasGradient::B) => {
            let Input { matrix, operation, load } = input(1)?;
            // Its columns are the rows of what is not turned.
            let operation = Operation { transposed: !operation.transposed, ..operation };
            Some(Input { matrix, operation, load })
        }
        _ => None,
    };
    let inputs = (k > 0 && alpha != R::NONE).then_some(inputs);
    let c = (beta != R::NONE).then_some(c);
    let sums = Sums { memory, run, inputs, depth: k };
    let activations = R::ACTIVATIONS;
    let source = source.filter(|_| k > 0);
    Products::<R> { sums, source, c, d, alpha, beta, epilogue, activations, bias, auxiliary, depth: k }
        .compute(body.batch.into())
}

/// How a bias of `length` elements lies.
fn bias<N>(
    body: &MatmulLt,
    length: u64,
    output: impl Fn(Element) -> Option<Output<N>>,
) -> Result<Side<N>, GemmError> {
    let element = Element::from_wire(body.bias_type);
    let (element, output) =
        element.and_then(|element| Some((element, output(element)?))).ok_or(unsupported(body))?;
    let place = Place::Strided { address: body.bias, stride: body.bias_stride };
    let matrix =
        Matrix { name: "the bias", element, rows: length, columns: 1, leading: length.max(1), place };
    Ok(Side { matrix, output })
}

/// How the auxiliary matrix lies.
fn auxiliary<N>(
    body: &MatmulLt,
    epilogue: Epilogue,
    output: impl Fn(Element) -> Option<Output<N>>,
) -> Result<Auxiliary<N>, GemmError> {
    let [rows, columns, _] = body.size;
    let (name, address) = ("the auxiliary matrix", body.aux);
    if epilogue.masks() {
        if body.aux_leading < rows || !body.aux_leading.is_multiple_of(MASK_BITS) {
            return Err(invalid("a mask's leading dimension", body.aux_leading));
        }
        if body.aux_stride % 8 != 0 {
            return Err(invalid("a mask's stride", body.aux_stride.cast_unsigned()));
        }
        let place = Place::Strided { address, stride: body.aux_stride / 8 };
        let (rows, leading) = (rows.div_ceil(8), body.aux_leading / 8);
        return Ok(Auxiliary::Mask(Matrix { name, element: Element::I8, rows, columns, leading, place }));
    }
    let element = Element::from_wire(body.aux_type);
    let (element, output) =
        element.and_then(|element| Some((element, output(element)?))).ok_or(unsupported(body))?;
    let place = Place::Strided { address, stride: body.aux_stride };
    let matrix = Matrix { name, element, rows, columns, leading: body.aux_leading, place }.fits()?;
    Ok(Auxiliary::Numbers(Side { matrix, output }))
}

impl<R: Arithmetic> Products<'_, R> {
    fn compute(&self, batch: u64) -> Result<(), GemmError> {
        self.check(batch)?;
        let (rows, columns) = (self.d.matrix.rows, self.d.matrix.columns);
        let (tiles, operations) = tiles(rows, columns, self.depth);
        let (down, across) = (rows.div_ceil(TILE), columns.div_ceil(TILE));
        let run = self.sums.run;
        if self.epilogue.gradient == Some(BiasGradient::Result) {
            let operations = operations.saturating_mul(across);
            return run.share(down.saturating_mul(batch), operations, Work::new, |work, job| {
                let (index, rows) = (job / down, nth(job % down, TILE, rows));
                work.totals.clear();
                work.totals.resize((rows.end - rows.start) as usize, R::Number::zero());
                for at in 0..across {
                    self.tile(work, index, &rows, nth(at, TILE, columns))?;
                }
                self.store_totals(work, index, &rows)
            });
        }
        run.share(tiles.saturating_mul(batch), operations, Work::new, |work, job| {
            let (index, tile) = (job / tiles, job % tiles);
            self.tile(work, index, &nth(tile % down, TILE, rows), nth(tile / down, TILE, columns))
        })?;
        self.sum_source(batch)
    }

    /// Looks for every matrix of the batch that will be reached.
    fn check(&self, batch: u64) -> Result<(), GemmError> {
        let memory = self.sums.memory;
        let (reads, writes) = (Access::Read, Access::Write);
        for index in 0..batch {
            self.sums.check(index)?;
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
                self.sums.run.go_on()?;
            }
        }
        Ok(())
    }

    /// The auxiliary matrix of product `index`, if there is one.
    fn locate_auxiliary(&self, index: u64) -> Result<Option<Located<'_>>, GemmError> {
        let access = if self.epilogue.reads_auxiliary() { Access::Read } else { Access::Write };
        match &self.auxiliary {
            Some(Auxiliary::Numbers(Side { matrix, .. }) | Auxiliary::Mask(matrix)) => {
                matrix.locate(self.sums.memory, index, access).map(Some)
            }
            None => Ok(None),
        }
    }

    /// Computes one tile of one D, and adds its rows to the totals if these are wanted.
    fn tile(
        &self,
        work: &mut Work<R::Number>,
        index: u64,
        rows: &Range<u64>,
        columns: Range<u64>,
    ) -> Result<(), GemmError> {
        let memory = self.sums.memory;
        self.sums.tile(&mut work.tile, index, rows, &columns)?;
        let Work { tile: Scratch { sums, old, column: buffer, .. }, bias, numbers, bytes, totals } = work;
        let down = (rows.end - rows.start) as usize;
        let d = self.d.matrix.locate(memory, index, Access::Write)?;
        let c = self.c.as_ref().map(|c| c.locate(memory, index, Access::Read)).transpose()?;
        let auxiliary = self.locate_auxiliary(index)?;
        if let Some(side) = self.bias.as_ref().filter(|_| self.epilogue.bias) {
            bias.resize(down, R::Number::zero());
            let from = side.matrix.locate(memory, index, Access::Read)?;
            buffer.read(&from, (rows.start, 0), side.output.load, bias);
        }
        for (column, sums) in columns.zip(sums.chunks_exact_mut(down)) {
            let place = (rows.start, column);
            old.resize(down, R::Number::zero());
            if let Some(c) = &c {
                buffer.read(c, place, self.d.output.load, old);
            }
            self.sums.combine((self.alpha, self.beta), sums, c.is_some().then_some(&**old));
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

    /// Reads or writes the part of the auxiliary matrix that belongs to the elements from `place`, row and
    /// column, on.
    fn apply_auxiliary(
        &self,
        at: &Located<'_>,
        place: (u64, u64),
        sums: &mut [R::Number],
        (buffer, numbers, bytes): (&mut Column, &mut Vec<R::Number>, &mut Vec<u8>),
    ) {
        let Some(activations) = &self.activations else { return };
        let reads = self.epilogue.reads_auxiliary();
        match &self.auxiliary {
            Some(Auxiliary::Mask(_)) => {
                let place = (place.0 / 8, place.1);
                bytes.resize(sums.len().div_ceil(8), 0);
                // Bits of rows that are not there keep what they were.
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

    /// Applies ReLU or GELU.
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

    /// Stores the totals of these rows in place of a bias.
    fn store_totals(
        &self,
        work: &mut Work<R::Number>,
        index: u64,
        rows: &Range<u64>,
    ) -> Result<(), GemmError> {
        let Some(side) = &self.bias else { return Ok(()) };
        let to = side.matrix.locate(self.sums.memory, index, Access::Write)?;
        work.tile.column.write(&to, (rows.start, 0), side.output.store, &work.totals);
        Ok(())
    }

    /// Stores the sums of A's rows or of B's columns, if they are wanted.
    fn sum_source(&self, batch: u64) -> Result<(), GemmError> {
        let wanted = matches!(self.epilogue.gradient, Some(BiasGradient::A | BiasGradient::B));
        let Some(side) = self.bias.as_ref().filter(|_| wanted) else { return Ok(()) };
        let (memory, run) = (self.sums.memory, self.sums.run);
        let length = side.matrix.rows;
        let strips = length.div_ceil(TILE);
        let operations = length.min(TILE).saturating_mul(self.depth);
        run.share(strips.saturating_mul(batch), operations, Work::new, |work, job| {
            let (index, rows) = (job / strips, nth(job % strips, TILE, length));
            work.totals.clear();
            work.totals.resize((rows.end - rows.start) as usize, R::Number::zero());
            if let Some(source) = &self.source {
                let what = (index, &rows, self.depth);
                add_rows::<R>((memory, run), source, what, &mut work.tile, &mut work.totals)?;
            }
            self.store_totals(work, index, &rows)
        })
    }
}
