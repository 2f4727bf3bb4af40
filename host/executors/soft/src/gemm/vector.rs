//! Operations on vectors: sums over their elements, and one vector added to another.
//!
//! One thread takes the elements in their order and computes in f64, so a result is the same every time and
//! none is less exact than its types say. Every number is a complex one here; of real types the imaginary
//! part is 0.

use std::ops::Range;

use half::{bf16, f16};
use num_complex::Complex64;
use num_traits::Zero;
use vgpu_arena::View;
use vgpu_wire::body::gemm::GEMM_DEVICE_SCALARS;
use vgpu_wire::body::vector::{
    VECTOR_ASUM, VECTOR_AXPY, VECTOR_DOT, VECTOR_DOT_CONJUGATE, VECTOR_NORM, VectorOp,
};
use zerocopy::IntoBytes;

use super::element::{Element, Load, Store, load_complex, store_complex};
use super::error::GemmError;
use super::matrix::{Access, Column, Located, Matrix, Place, scalar};
use super::workers::Run;

/// Elements between two looks at whether to stop.
const PORTION: u64 = 4096;

/// Carries out the operation of a message.
///
/// # Errors
/// Those of [`GemmError`]. Nothing has been written unless it is [`GemmError::Halted`].
pub fn vector(memory: &View, body: &VectorOp, run: &Run<'_>) -> Result<(), GemmError> {
    let refused = GemmError::Unsupported {
        types: [body.x_type, body.y_type, body.scalar_type],
        compute: body.compute,
        scale: body.scalar_type,
    };
    let format = |kind| Format::of(kind).ok_or(refused);
    let (of_x, of_y, of_scalar) = (format(body.x_type)?, format(body.y_type)?, format(body.scalar_type)?);
    format(body.compute)?;
    let one_kind = of_x.complex == of_y.complex && of_x.complex == of_scalar.complex;
    let x = Vector::new("x", of_x, body, 0);
    let y = Vector::new("y", of_y, body, 1);
    let portions = Portions { memory, run, elements: body.elements };
    let sum = match body.operation {
        VECTOR_DOT if one_kind => portions.dot(&x, &y, |x, y| x * y)?,
        VECTOR_DOT_CONJUGATE if one_kind => portions.dot(&x, &y, |x, y| x.conj() * y)?,
        VECTOR_NORM if !of_scalar.complex => portions.norm(&x)?,
        VECTOR_ASUM if !of_scalar.complex => portions.absolutes(&x)?,
        VECTOR_AXPY if one_kind => {
            let on_device = body.flags & GEMM_DEVICE_SCALARS != 0;
            let alpha =
                if on_device { scalar(memory, "alpha", body.alpha, of_scalar.element)? } else { body.alpha };
            return portions.add(of_scalar.number(alpha), &x, &y);
        }
        VECTOR_DOT..=VECTOR_AXPY => return Err(refused),
        value => return Err(GemmError::Invalid { name: "an operation on vectors", value: value.into() }),
    };
    let place = Place::Strided { address: body.result, stride: 0 };
    let result =
        Matrix { name: "the sum", element: of_scalar.element, rows: 1, columns: 1, leading: 1, place };
    let to = result.locate(memory, 0, Access::Write)?;
    Column::new().write(&to, (0, 0), of_scalar.store, &[sum]);
    Ok(())
}

/// A type of elements, and how they become numbers and are made of them.
#[derive(Clone, Copy)]
struct Format {
    element: Element,
    complex: bool,
    load: Load<Complex64>,
    store: Store<Complex64>,
}

/// Makes a number of each `N` bytes.
fn load_each<const N: usize>(bytes: &[u8], to: &mut [Complex64], load: impl Fn([u8; N]) -> Complex64) {
    for (number, bytes) in to.iter_mut().zip(bytes.as_chunks().0) {
        *number = load(*bytes);
    }
}

/// The same in the other direction.
fn store_each<const N: usize>(from: &[Complex64], bytes: &mut [u8], store: impl Fn(Complex64) -> [u8; N]) {
    for (&number, bytes) in from.iter().zip(bytes.as_chunks_mut().0) {
        *bytes = store(number);
    }
}

impl Format {
    /// The format of a `cudaDataType`, if vectors of it are known here.
    fn of(kind: u32) -> Option<Self> {
        let element = Element::from_wire(kind)?;
        let complex = matches!(element, Element::C32 | Element::C64);
        let (load, store): (Load<Complex64>, Store<Complex64>) = match element {
            Element::F32 => (
                |bytes, to| load_each(bytes, to, |bytes| f64::from(f32::from_le_bytes(bytes)).into()),
                |from, bytes| store_each(from, bytes, |number| (number.re as f32).to_le_bytes()),
            ),
            Element::F64 => (
                |bytes, to| load_each(bytes, to, |bytes| f64::from_le_bytes(bytes).into()),
                |from, bytes| store_each(from, bytes, |number| number.re.to_le_bytes()),
            ),
            Element::F16 => (
                |bytes, to| load_each(bytes, to, |bytes| f16::from_le_bytes(bytes).to_f64().into()),
                |from, bytes| store_each(from, bytes, |number| f16::from_f64(number.re).to_le_bytes()),
            ),
            Element::Bf16 => (
                |bytes, to| load_each(bytes, to, |bytes| bf16::from_le_bytes(bytes).to_f64().into()),
                |from, bytes| store_each(from, bytes, |number| bf16::from_f64(number.re).to_le_bytes()),
            ),
            Element::C32 => (load_complex::<f32, f64>, |from, bytes| {
                store_each::<8>(from, bytes, |number| {
                    let [real, imaginary] = [number.re, number.im].map(|part| (part as f32).to_bits());
                    (u64::from(imaginary) << 32 | u64::from(real)).to_le_bytes()
                });
            }),
            Element::C64 => (load_complex::<f64, f64>, store_complex),
            Element::I8 | Element::I32 | Element::C8 => return None,
        };
        Some(Self { element, complex, load, store })
    }

    /// The number in the first bytes.
    fn number(&self, bytes: [u8; 16]) -> Complex64 {
        // In words, because elements are read from places that are aligned.
        let mut words = [0_u64; 2];
        words.as_mut_bytes().copy_from_slice(&bytes);
        let mut number = [Complex64::zero()];
        (self.load)(&words.as_bytes()[..self.element.bytes() as usize], &mut number);
        number[0]
    }
}

/// A vector of the message.
struct Vector {
    format: Format,
    /// One column if elements lie side by side, else one row; from the lowest address on.
    matrix: Matrix,
    /// Whether elements lie side by side.
    dense: bool,
    /// Whether the first element lies last.
    backwards: bool,
}

impl Vector {
    fn new(name: &'static str, format: Format, body: &VectorOp, at: usize) -> Self {
        let (elements, step, first) = (body.elements, body.step[at], body.vector[at]);
        let Format { element, .. } = format;
        let (dense, backwards, leading) = (matches!(step, -1 | 1), step < 0, step.unsigned_abs());
        // Where this overflows, the vector's extent does too, and no memory is that long.
        let span = elements.saturating_sub(1).wrapping_mul(leading).wrapping_mul(element.bytes());
        let address = if backwards { first.wrapping_sub(span) } else { first };
        let place = Place::Strided { address, stride: 0 };
        let (rows, columns) = if dense { (elements, 1) } else { (1, elements) };
        let leading = if dense { elements } else { leading };
        Self { format, matrix: Matrix { name, element, rows, columns, leading, place }, dense, backwards }
    }

    /// Where elements `range` lie, counted from the lowest address.
    fn places(&self, range: &Range<u64>) -> Range<u64> {
        let elements = self.matrix.rows * self.matrix.columns;
        if self.backwards { elements - range.end..elements - range.start } else { range.clone() }
    }

    /// Reads elements `range`, in their order.
    fn read(&self, from: &Located<'_>, range: &Range<u64>, column: &mut Column, to: &mut Vec<Complex64>) {
        to.resize((range.end - range.start) as usize, Complex64::zero());
        let places = self.places(range);
        if self.dense {
            column.read(from, (places.start, 0), self.format.load, to);
        } else {
            for (place, number) in places.zip(to.chunks_exact_mut(1)) {
                column.read(from, (0, place), self.format.load, number);
            }
        }
        if self.backwards {
            to.reverse();
        }
    }

    /// Writes elements `range`, which `from` has in their order; it is left in any.
    fn write(&self, to: &Located<'_>, range: &Range<u64>, column: &mut Column, from: &mut [Complex64]) {
        if self.backwards {
            from.reverse();
        }
        let places = self.places(range);
        if self.dense {
            column.write(to, (places.start, 0), self.format.store, from);
        } else {
            for (place, number) in places.zip(from.chunks_exact(1)) {
                column.write(to, (0, place), self.format.store, number);
            }
        }
    }
}

/// Goes through vectors portion by portion.
struct Portions<'a> {
    memory: &'a View,
    run: &'a Run<'a>,
    elements: u64,
}

impl Portions<'_> {
    /// Calls `act` with each portion.
    fn each(&self, mut act: impl FnMut(&Range<u64>)) -> Result<(), GemmError> {
        for start in (0..self.elements).step_by(PORTION as usize) {
            self.run.go_on()?;
            act(&(start..self.elements.min(start + PORTION)));
        }
        Ok(())
    }

    /// Calls `act` with the elements of each portion of x.
    fn of(&self, x: &Vector, mut act: impl FnMut(&[Complex64])) -> Result<(), GemmError> {
        if self.elements == 0 {
            return Ok(());
        }
        let from = x.matrix.locate(self.memory, 0, Access::Read)?;
        let (mut column, mut xs) = (Column::new(), Vec::new());
        self.each(|range| {
            x.read(&from, range, &mut column, &mut xs);
            act(&xs);
        })
    }

    fn dot(
        &self,
        x: &Vector,
        y: &Vector,
        product: fn(Complex64, Complex64) -> Complex64,
    ) -> Result<Complex64, GemmError> {
        let mut sum = Complex64::zero();
        if self.elements == 0 {
            return Ok(sum);
        }
        let from_y = y.matrix.locate(self.memory, 0, Access::Read)?;
        let (mut column, mut ys, mut start) = (Column::new(), Vec::new(), 0);
        self.of(x, |xs| {
            let range = start..start + xs.len() as u64;
            y.read(&from_y, &range, &mut column, &mut ys);
            sum += xs.iter().zip(&ys).map(|(&x, &y)| product(x, y)).sum::<Complex64>();
            start = range.end;
        })?;
        Ok(sum)
    }

    fn absolutes(&self, x: &Vector) -> Result<Complex64, GemmError> {
        let mut sum = 0.0;
        self.of(x, |xs| sum += xs.iter().map(|x| x.re.abs() + x.im.abs()).sum::<f64>())?;
        Ok(sum.into())
    }

    /// The Euclidean norm, scaled by the largest part so far: squares neither overflow nor vanish.
    fn norm(&self, x: &Vector) -> Result<Complex64, GemmError> {
        let (mut largest, mut squares) = (0.0_f64, 0.0_f64);
        let mut take = |part: f64| {
            let part = part.abs();
            if part > largest {
                squares = 1.0 + squares * (largest / part).powi(2);
                largest = part;
            } else if part >= largest {
                squares += if part == 0.0 { 0.0 } else { 1.0 };
            } else {
                squares += (part / largest).powi(2);
            }
        };
        self.of(x, |xs| xs.iter().flat_map(|x| [x.re, x.im]).for_each(&mut take))?;
        Ok((largest * squares.sqrt()).into())
    }

    /// `y = alpha * x + y`. As in BLAS neither is read where alpha is 0.
    fn add(&self, alpha: Complex64, x: &Vector, y: &Vector) -> Result<(), GemmError> {
        if self.elements == 0 || alpha.is_zero() {
            return Ok(());
        }
        x.matrix.locate(self.memory, 0, Access::Read)?;
        let to = y.matrix.locate(self.memory, 0, Access::Write)?;
        let (mut column, mut ys, mut start) = (Column::new(), Vec::new(), 0);
        self.of(x, |xs| {
            let range = start..start + xs.len() as u64;
            y.read(&to, &range, &mut column, &mut ys);
            ys.iter_mut().zip(xs).for_each(|(y, &x)| *y += alpha * x);
            y.write(&to, &range, &mut column, &mut ys);
            start = range.end;
        })
    }
}
