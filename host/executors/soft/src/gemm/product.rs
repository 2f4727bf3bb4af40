//! `C = alpha * op(A) * op(B) + beta * C`, tile by tile.

use num_traits::Zero;
use vgpu_arena::View;
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS, Gemm};

use super::arithmetic::{Arithmetic, ComplexDouble, ComplexSingle, Double, Single, Whole};
use super::element::{Element, Output};
use super::error::GemmError;
use super::matrix::{Access, Matrix, Place, scalar};
use super::sums::{Input, Operation, Scratch, Sums, TILE, nth, tiles};
use super::workers::Run;

/// Computes the products of a message.
///
/// As in BLAS, C is not read if `beta = 0`, and neither A nor B if `alpha = 0` or `k = 0`: a matrix that is
/// not read need not be valid memory, and a NaN in it has no effect.
///
/// # Errors
/// Those of [`GemmError`]. Nothing has been written, unless the error is [`GemmError::Halted`] or
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

/// The products of a message, after all checks.
struct Products<'a, R: Arithmetic> {
    sums: Sums<'a, R>,
    c: Matrix,
    output: Output<R::Number>,
    alpha: R::Factor,
    beta: R::Factor,
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
        let (rows, columns) = operation.stored(rows, columns);
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
    let result = matrix(2, "C", of_c, Operation::NONE, m, n)?;
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
    let sums = Sums { memory, run, inputs, depth: k };
    Products::<R> { sums, c: result, output, alpha, beta }.compute(body.batch)
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
    let sums = Sums { memory, run, inputs: None, depth: 0 };
    Products::<R> { sums, c, output, alpha, beta }.compute(batch)
}

impl<R: Arithmetic> Products<'_, R> {
    fn compute(&self, batch: u32) -> Result<(), GemmError> {
        self.check(batch.into())?;
        let (tiles, operations) = tiles(self.c.rows, self.c.columns, self.sums.depth);
        let jobs = tiles.saturating_mul(batch.into());
        self.sums.run.share(jobs, operations, Scratch::new, |scratch, job| {
            self.tile(scratch, job / tiles, job % tiles)
        })
    }

    /// Checks the memory of every matrix of the batch that will be accessed.
    fn check(&self, batch: u64) -> Result<(), GemmError> {
        for index in 0..batch {
            self.sums.check(index)?;
            self.c.locate(self.sums.memory, index, Access::Write)?;
            if index % 1024 == 1023 {
                self.sums.run.go_on()?;
            }
        }
        Ok(())
    }

    /// Computes one tile of one C.
    fn tile(&self, scratch: &mut Scratch<R::Number>, index: u64, tile: u64) -> Result<(), GemmError> {
        let down = self.c.rows.div_ceil(TILE);
        let rows = nth(tile % down, TILE, self.c.rows);
        let columns = nth(tile / down, TILE, self.c.columns);
        // Looked for again: the program may have changed arrays of addresses.
        let c = self.c.locate(self.sums.memory, index, Access::Write)?;
        self.sums.tile(scratch, index, &rows, &columns)?;
        let Scratch { sums, old, column: buffer, .. } = scratch;
        for (column, sums) in columns.zip(sums.chunks_exact_mut((rows.end - rows.start) as usize)) {
            let place = (rows.start, column);
            old.resize(sums.len(), R::Number::zero());
            let adds = self.beta != R::NONE;
            if adds {
                buffer.read(&c, place, self.output.load, old);
            }
            self.sums.combine((self.alpha, self.beta), sums, adds.then_some(&**old));
            buffer.write(&c, place, self.output.store, sums);
        }
        Ok(())
    }
}
