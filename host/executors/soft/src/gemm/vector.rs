//! Vector operations: sums over elements, and one vector added to another.
//!
//! A single thread processes the elements in order and computes in f64, so results are reproducible and no
//! less exact than their types. All numbers are complex here; the imaginary part of real types is 0.

use std::ops::Range;

use half::{bf16, f16};
use num_complex::Complex64;
use num_traits::Zero;
use vgpu_arena::View;
use vgpu_wire::body::gemm::GEMM_DEVICE_SCALARS;
use vgpu_wire::body::vector::{
    VECTOR_ASUM, VECTOR_AXPY, VECTOR_DOT, VECTOR_DOT_CONJUGATE, VECTOR_NORM, VectorOp,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::element::{Element, Load, Store, as_elements, as_elements_mut, load_complex, store_complex};
use super::error::GemmError;
use super::matrix::{ColumnBuffer, Direction, Location, Matrix, MatrixMemory, scalar};
use super::workers::Workers;

/// Number of elements between two polls of the interrupt.
const CHUNK: u64 = 4096;

/// Carries out the vector operation of a message.
///
/// # Errors
/// Those of [`GemmError`]. Nothing has been written unless it is [`GemmError::Halted`].
pub fn vector(memory: &View, body: &VectorOp, workers: &Workers<'_>) -> Result<(), GemmError> {
    let refused = GemmError::Unsupported {
        types: [body.x_type, body.y_type, body.scalar_type],
        compute: body.compute,
        scale: body.scalar_type,
    };
    let format = |kind| VectorFormat::from_wire(kind).ok_or(refused);
    let (of_x, of_y, of_scalar) = (format(body.x_type)?, format(body.y_type)?, format(body.scalar_type)?);
    format(body.compute)?;
    let one_kind = of_x.complex == of_y.complex && of_x.complex == of_scalar.complex;
    let x = VectorOperand::new("x", of_x, body, 0);
    let y = VectorOperand::new("y", of_y, body, 1);
    let reader = VectorReader { memory, workers, elements: body.elements };
    let sum = match body.operation {
        VECTOR_DOT if one_kind => reader.dot(&x, &y, |x, y| x * y)?,
        VECTOR_DOT_CONJUGATE if one_kind => reader.dot(&x, &y, |x, y| x.conj() * y)?,
        VECTOR_NORM if !of_scalar.complex => reader.norm(&x)?,
        VECTOR_ASUM if !of_scalar.complex => reader.absolutes(&x)?,
        VECTOR_AXPY if one_kind => {
            let on_device = body.flags & GEMM_DEVICE_SCALARS != 0;
            let alpha =
                if on_device { scalar(memory, "alpha", body.alpha, of_scalar.element)? } else { body.alpha };
            return reader.add(of_scalar.number(alpha), &x, &y);
        }
        VECTOR_DOT..=VECTOR_AXPY => return Err(refused),
        value => return Err(GemmError::Invalid { name: "an operation on vectors", value: value.into() }),
    };
    let location = Location::Strided { address: body.result, stride: 0 };
    let result =
        Matrix { name: "the sum", element: of_scalar.element, rows: 1, columns: 1, leading: 1, location };
    let to = result.locate(memory, 0, Direction::Write)?;
    ColumnBuffer::new().write(&to, (0, 0), of_scalar.store, &[sum]);
    Ok(())
}

/// An element type, and its conversions from and to complex numbers.
#[derive(Clone, Copy)]
struct VectorFormat {
    element: Element,
    complex: bool,
    load: Load<Complex64>,
    store: Store<Complex64>,
}

/// Loads real elements as complex numbers with the imaginary part 0.
fn load_real<T: FromBytes + Immutable + Copy + Into<f64>>(bytes: &[u8], numbers: &mut [Complex64]) {
    for (number, &element) in numbers.iter_mut().zip(as_elements::<T>(bytes)) {
        *number = element.into().into();
    }
}

/// Stores the element that `convert` returns for each number.
fn store_as<T>(numbers: &[Complex64], bytes: &mut [u8], convert: impl Fn(Complex64) -> T)
where
    T: FromBytes + IntoBytes + Immutable,
{
    for (element, &number) in as_elements_mut(bytes).iter_mut().zip(numbers) {
        *element = convert(number);
    }
}

impl VectorFormat {
    /// Returns the format of a `cudaDataType`, or `None` if vectors of it are not supported.
    fn from_wire(kind: u32) -> Option<Self> {
        let element = Element::from_wire(kind)?;
        let complex = matches!(element, Element::C32 | Element::C64);
        let (load, store): (Load<Complex64>, Store<Complex64>) = match element {
            Element::F32 => {
                (load_real::<f32>, |from, bytes| store_as(from, bytes, |number| number.re as f32))
            }
            Element::F64 => (load_real::<f64>, |from, bytes| store_as(from, bytes, |number| number.re)),
            Element::F16 => {
                (load_real::<f16>, |from, bytes| store_as(from, bytes, |number| f16::from_f64(number.re)))
            }
            Element::Bf16 => {
                (load_real::<bf16>, |from, bytes| store_as(from, bytes, |number| bf16::from_f64(number.re)))
            }
            Element::C32 => (load_complex::<f32, f64>, |from, bytes| {
                store_as(from, bytes, |number| [number.re, number.im].map(|part| part as f32));
            }),
            Element::C64 => (load_complex::<f64, f64>, store_complex),
            Element::I8 | Element::I32 | Element::C8 => return None,
        };
        Some(Self { element, complex, load, store })
    }

    /// Reads a scalar of this format from its first bytes.
    fn number(&self, bytes: [u8; 16]) -> Complex64 {
        // Elements are read from memory that is aligned to words.
        let mut words = [0_u64; 2];
        words.as_mut_bytes().copy_from_slice(&bytes);
        let mut number = [Complex64::zero()];
        (self.load)(&words.as_bytes()[..self.element.bytes() as usize], &mut number);
        number[0]
    }
}

/// A vector of a message.
struct VectorOperand {
    format: VectorFormat,
    /// One column if elements are adjacent, else one row. It starts at the lowest address.
    matrix: Matrix,
    /// Whether elements are adjacent in memory.
    dense: bool,
    /// Whether the first element has the highest address.
    backwards: bool,
}

impl VectorOperand {
    fn new(name: &'static str, format: VectorFormat, body: &VectorOp, at: usize) -> Self {
        let (elements, step, first) = (body.elements, body.step[at], body.vector[at]);
        let VectorFormat { element, .. } = format;
        let (dense, backwards, leading) = (matches!(step, -1 | 1), step < 0, step.unsigned_abs());
        // If this overflows, so does the vector's extent, and no memory is that long.
        let span = elements.saturating_sub(1).wrapping_mul(leading).wrapping_mul(element.bytes());
        let address = if backwards { first.wrapping_sub(span) } else { first };
        let location = Location::Strided { address, stride: 0 };
        let (rows, columns) = if dense { (elements, 1) } else { (1, elements) };
        let leading = if dense { elements } else { leading };
        Self { format, matrix: Matrix { name, element, rows, columns, leading, location }, dense, backwards }
    }

    /// Returns the positions of elements `range` in memory, counted from the lowest address.
    fn places(&self, range: &Range<u64>) -> Range<u64> {
        let elements = self.matrix.rows * self.matrix.columns;
        if self.backwards { elements - range.end..elements - range.start } else { range.clone() }
    }

    /// Reads elements `range` in the order of the vector.
    fn read(
        &self,
        from: &MatrixMemory<'_>,
        range: &Range<u64>,
        column: &mut ColumnBuffer,
        to: &mut Vec<Complex64>,
    ) {
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

    /// Writes elements `range`, which `from` holds in order. Leaves `from` in an unspecified order.
    fn write(
        &self,
        to: &MatrixMemory<'_>,
        range: &Range<u64>,
        column: &mut ColumnBuffer,
        from: &mut [Complex64],
    ) {
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

/// Processes vectors in chunks of [`CHUNK`] elements, between which it polls the interrupt.
struct VectorReader<'a> {
    memory: &'a View,
    workers: &'a Workers<'a>,
    elements: u64,
}

impl VectorReader<'_> {
    /// Calls `act` with the range of each chunk.
    fn for_each_range(&self, mut act: impl FnMut(&Range<u64>)) -> Result<(), GemmError> {
        for start in (0..self.elements).step_by(CHUNK as usize) {
            self.workers.check_interrupt()?;
            act(&(start..self.elements.min(start + CHUNK)));
        }
        Ok(())
    }

    /// Calls `act` with the elements of each chunk of x.
    fn for_each_chunk(&self, x: &VectorOperand, mut act: impl FnMut(&[Complex64])) -> Result<(), GemmError> {
        if self.elements == 0 {
            return Ok(());
        }
        let from = x.matrix.locate(self.memory, 0, Direction::Read)?;
        let (mut column, mut xs) = (ColumnBuffer::new(), Vec::new());
        self.for_each_range(|range| {
            x.read(&from, range, &mut column, &mut xs);
            act(&xs);
        })
    }

    fn dot(
        &self,
        x: &VectorOperand,
        y: &VectorOperand,
        product: fn(Complex64, Complex64) -> Complex64,
    ) -> Result<Complex64, GemmError> {
        let mut sum = Complex64::zero();
        if self.elements == 0 {
            return Ok(sum);
        }
        let from_y = y.matrix.locate(self.memory, 0, Direction::Read)?;
        let (mut column, mut ys, mut start) = (ColumnBuffer::new(), Vec::new(), 0);
        self.for_each_chunk(x, |xs| {
            let range = start..start + xs.len() as u64;
            y.read(&from_y, &range, &mut column, &mut ys);
            sum += xs.iter().zip(&ys).map(|(&x, &y)| product(x, y)).sum::<Complex64>();
            start = range.end;
        })?;
        Ok(sum)
    }

    fn absolutes(&self, x: &VectorOperand) -> Result<Complex64, GemmError> {
        let mut sum = 0.0;
        self.for_each_chunk(x, |xs| sum += xs.iter().map(|x| x.re.abs() + x.im.abs()).sum::<f64>())?;
        Ok(sum.into())
    }

    /// Returns the Euclidean norm. It is scaled by the largest part so far, so that squares neither overflow
    /// nor underflow.
    fn norm(&self, x: &VectorOperand) -> Result<Complex64, GemmError> {
        let (mut largest, mut squares) = (0.0_f64, 0.0_f64);
        let mut accumulate = |part: f64| {
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
        self.for_each_chunk(x, |xs| xs.iter().flat_map(|x| [x.re, x.im]).for_each(&mut accumulate))?;
        Ok((largest * squares.sqrt()).into())
    }

    /// Computes `y = alpha * x + y`. As in BLAS, neither vector is read if alpha is 0.
    fn add(&self, alpha: Complex64, x: &VectorOperand, y: &VectorOperand) -> Result<(), GemmError> {
        if self.elements == 0 || alpha.is_zero() {
            return Ok(());
        }
        x.matrix.locate(self.memory, 0, Direction::Read)?;
        let to = y.matrix.locate(self.memory, 0, Direction::Write)?;
        let (mut column, mut ys, mut start) = (ColumnBuffer::new(), Vec::new(), 0);
        self.for_each_chunk(x, |xs| {
            let range = start..start + xs.len() as u64;
            y.read(&to, &range, &mut column, &mut ys);
            ys.iter_mut().zip(xs).for_each(|(y, &x)| *y += alpha * x);
            y.write(&to, &range, &mut column, &mut ys);
            start = range.end;
        })
    }
}
