//! The number types in which products are computed, and the element types that each reads and writes.

use std::marker::PhantomData;
use std::ops::Neg;

use half::f16;
use ndarray::LinalgScalar;
use num_complex::Complex;
use num_traits::{ConstZero, Num};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::activation::{self, Activations};
use super::element::{
    Element, Load, Output, load, load_bf16, load_complex, load_f16, load_i8, load_i32, store, store_bf16,
    store_complex, store_f16, store_i32,
};

/// A number type for computations. It accepts more combinations than cuBLAS, such as different types for A
/// and B; the cuBLAS shim refuses those that cuBLAS lacks.
pub(super) trait Arithmetic: 'static {
    /// Type in which numbers are multiplied and summed.
    type Number: LinalgScalar + Send + Sync;
    /// Type of alpha and beta.
    type Factor: Copy + PartialEq + Send + Sync;

    /// The scalar with the value 0, as alpha or beta.
    const NONE: Self::Factor;

    /// Returns the conversion of elements of A and B of this type, or `None` if they are not supported.
    fn input(element: Element) -> Option<Load<Self::Number>>;

    /// Returns the conversions between numbers and elements of C of this type, or `None` if they are not
    /// supported.
    fn output(element: Element) -> Option<Output<Self::Number>>;

    /// Reads alpha or beta of type `scale` from its first bytes. Returns `None` if computations do not have
    /// scalars of that type.
    fn factor(scale: Element, bytes: [u8; 16]) -> Option<Self::Factor>;

    fn times(factor: Self::Factor, number: Self::Number) -> Self::Number;

    /// Replaces numbers by their conjugates. Real numbers stay as they are.
    fn conjugate(_numbers: &mut [Self::Number]) {}

    /// Activation functions, or `None` for complex and whole numbers, for which cuBLASLt has no epilogues.
    const ACTIVATIONS: Option<Activations<Self::Number>> = None;
}

/// Reads a scalar from the first bytes of its field in the message, little-endian.
fn read<T: FromBytes>(bytes: &[u8; 16]) -> Option<T> {
    T::read_from_prefix(bytes).ok().map(|(scalar, _)| scalar)
}

/// Single precision, for f32 and all 16-bit types.
pub(super) struct Single;

impl Arithmetic for Single {
    type Number = f32;
    type Factor = f32;

    const NONE: f32 = 0.0;

    fn input(element: Element) -> Option<Load<f32>> {
        Some(match element {
            Element::F32 => load,
            Element::F16 => load_f16,
            Element::Bf16 => load_bf16,
            Element::I8 => load_i8,
            _ => return None,
        })
    }

    fn output(element: Element) -> Option<Output<f32>> {
        Some(match element {
            Element::F32 => Output { load, store },
            Element::F16 => Output { load: load_f16, store: store_f16 },
            Element::Bf16 => Output { load: load_bf16, store: store_bf16 },
            _ => return None,
        })
    }

    fn factor(scale: Element, bytes: [u8; 16]) -> Option<f32> {
        match scale {
            Element::F32 => read(&bytes),
            Element::F16 => read(&bytes).map(f16::to_f32),
            _ => None,
        }
    }

    fn times(factor: f32, number: f32) -> f32 {
        factor * number
    }

    const ACTIVATIONS: Option<Activations<f32>> = Some(activation::SINGLE);
}

/// Double precision, for f64.
pub(super) struct Double;

impl Arithmetic for Double {
    type Number = f64;
    type Factor = f64;

    const NONE: f64 = 0.0;

    fn input(element: Element) -> Option<Load<f64>> {
        (element == Element::F64).then_some(load)
    }

    fn output(element: Element) -> Option<Output<f64>> {
        (element == Element::F64).then_some(Output { load, store })
    }

    fn factor(scale: Element, bytes: [u8; 16]) -> Option<f64> {
        read(&bytes).filter(|_| scale == Element::F64)
    }

    fn times(factor: f64, number: f64) -> f64 {
        factor * number
    }

    const ACTIVATIONS: Option<Activations<f64>> = Some(activation::DOUBLE);
}

/// Type of the real and imaginary components of complex numbers: `f32` or `f64`.
pub(super) trait Component:
    Num
    + ConstZero
    + Neg<Output = Self>
    + Copy
    + From<i8>
    + FromBytes
    + IntoBytes
    + Immutable
    + Send
    + Sync
    + 'static
{
    /// The type of complex elements with such parts.
    const ELEMENT: Element;
}

impl Component for f32 {
    const ELEMENT: Element = Element::C32;
}

impl Component for f64 {
    const ELEMENT: Element = Element::C64;
}

/// Complex numbers with parts of type `P`.
pub(super) struct ComplexOf<P>(PhantomData<P>);

impl<P: Component> Arithmetic for ComplexOf<P> {
    type Number = Complex<P>;
    type Factor = Complex<P>;

    const NONE: Complex<P> = Complex::new(P::ZERO, P::ZERO);

    fn input(element: Element) -> Option<Load<Complex<P>>> {
        match element {
            Element::C8 if P::ELEMENT == Element::C32 => Some(load_complex::<i8, P>),
            _ => (element == P::ELEMENT).then_some(load_complex::<P, P>),
        }
    }

    fn output(element: Element) -> Option<Output<Complex<P>>> {
        (element == P::ELEMENT).then_some(Output { load: load_complex::<P, P>, store: store_complex })
    }

    fn factor(scale: Element, bytes: [u8; 16]) -> Option<Complex<P>> {
        let [real, imaginary] = read(&bytes).filter(|_: &[P; 2]| scale == P::ELEMENT)?;
        Some(Complex::new(real, imaginary))
    }

    fn times(factor: Complex<P>, number: Complex<P>) -> Complex<P> {
        factor * number
    }

    fn conjugate(numbers: &mut [Complex<P>]) {
        for number in numbers {
            *number = number.conj();
        }
    }
}

/// Products of i8, summed modulo 2^32. The sums are whole numbers, which f64 represents exactly up to 2^53.
pub(super) struct Whole;

impl Arithmetic for Whole {
    type Number = f64;
    type Factor = i32;

    const NONE: i32 = 0;

    fn input(element: Element) -> Option<Load<f64>> {
        (element == Element::I8).then_some(load_i8)
    }

    fn output(element: Element) -> Option<Output<f64>> {
        (element == Element::I32).then_some(Output { load: load_i32, store: store_i32 })
    }

    fn factor(scale: Element, bytes: [u8; 16]) -> Option<i32> {
        read(&bytes).filter(|_| scale == Element::I32)
    }

    fn times(factor: i32, number: f64) -> f64 {
        factor.wrapping_mul(number as i64 as i32).into()
    }
}
