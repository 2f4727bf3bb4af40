//! The number types in which products are computed, with the element types that each reads and writes.

use half::f16;
use ndarray::LinalgScalar;
use num_complex::{Complex32, Complex64};

use super::activation::{self, Activations};
use super::element::{
    Element, Load, Output, load, load_bf16, load_complex, load_f16, load_i8, load_i32, store, store_bf16,
    store_complex, store_f16, store_i32,
};

/// A number type to compute in. It accepts more combinations than cuBLAS, such as different types for A and
/// B; cuBLAS's shim refuses those that cuBLAS lacks.
pub(super) trait Arithmetic: 'static {
    /// Type in which numbers are multiplied and summed.
    type Number: LinalgScalar + Send + Sync;
    /// Type of alpha and beta.
    type Factor: Copy + PartialEq + Send + Sync;

    /// The scalar 0.
    const NONE: Self::Factor;

    /// How elements of A and B of this type are read; `None` if they are not supported.
    fn input(element: Element) -> Option<Load<Self::Number>>;

    /// How elements of C of this type are read and written; `None` if they are not supported.
    fn output(element: Element) -> Option<Output<Self::Number>>;

    /// Reads alpha or beta of this type from its first bytes.
    fn factor(scale: Element, bytes: [u8; 16]) -> Option<Self::Factor>;

    fn times(factor: Self::Factor, number: Self::Number) -> Self::Number;

    /// Replaces numbers by their conjugates.
    fn conjugate(_numbers: &mut [Self::Number]) {}

    /// What activations need; `None` where numbers are complex or whole, for which cuBLASLt has no epilogues.
    const ACTIVATIONS: Option<Activations<Self::Number>> = None;
}

/// The first bytes of a scalar.
fn low<const N: usize>(bytes: [u8; 16]) -> [u8; N] {
    let mut low = [0; N];
    low.copy_from_slice(&bytes[..N]);
    low
}

/// Single precision, for f32 and every 16-bit type.
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
            Element::F32 => Some(f32::from_le_bytes(low(bytes))),
            Element::F16 => Some(f16::from_le_bytes(low(bytes)).to_f32()),
            _ => None,
        }
    }

    fn times(factor: f32, number: f32) -> f32 {
        factor * number
    }

    const ACTIVATIONS: Option<Activations<f32>> = Some(activation::SINGLE);
}

/// Double precision throughout.
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
        (scale == Element::F64).then(|| f64::from_le_bytes(low(bytes)))
    }

    fn times(factor: f64, number: f64) -> f64 {
        factor * number
    }

    const ACTIVATIONS: Option<Activations<f64>> = Some(activation::DOUBLE);
}

/// Complex numbers with parts in single precision.
pub(super) struct ComplexSingle;

impl Arithmetic for ComplexSingle {
    type Number = Complex32;
    type Factor = Complex32;

    const NONE: Complex32 = Complex32::ZERO;

    fn input(element: Element) -> Option<Load<Complex32>> {
        Some(match element {
            Element::C32 => load_complex::<f32, f32>,
            Element::C8 => load_complex::<i8, f32>,
            _ => return None,
        })
    }

    fn output(element: Element) -> Option<Output<Complex32>> {
        (element == Element::C32).then_some(Output { load: load_complex::<f32, f32>, store: store_complex })
    }

    fn factor(scale: Element, bytes: [u8; 16]) -> Option<Complex32> {
        let [real, imaginary] = [low(bytes), low((u128::from_le_bytes(bytes) >> 32).to_le_bytes())];
        (scale == Element::C32)
            .then(|| Complex32::new(f32::from_le_bytes(real), f32::from_le_bytes(imaginary)))
    }

    fn times(factor: Complex32, number: Complex32) -> Complex32 {
        factor * number
    }

    fn conjugate(numbers: &mut [Complex32]) {
        for number in numbers {
            *number = number.conj();
        }
    }
}

/// Complex numbers with parts in double precision.
pub(super) struct ComplexDouble;

impl Arithmetic for ComplexDouble {
    type Number = Complex64;
    type Factor = Complex64;

    const NONE: Complex64 = Complex64::ZERO;

    fn input(element: Element) -> Option<Load<Complex64>> {
        (element == Element::C64).then_some(load_complex::<f64, f64>)
    }

    fn output(element: Element) -> Option<Output<Complex64>> {
        (element == Element::C64).then_some(Output { load: load_complex::<f64, f64>, store: store_complex })
    }

    fn factor(scale: Element, bytes: [u8; 16]) -> Option<Complex64> {
        let [real, imaginary] = [low(bytes), low((u128::from_le_bytes(bytes) >> 64).to_le_bytes())];
        (scale == Element::C64)
            .then(|| Complex64::new(f64::from_le_bytes(real), f64::from_le_bytes(imaginary)))
    }

    fn times(factor: Complex64, number: Complex64) -> Complex64 {
        factor * number
    }

    fn conjugate(numbers: &mut [Complex64]) {
        for number in numbers {
            *number = number.conj();
        }
    }
}

/// Products of i8, summed to i32 modulo 2^32. The sums are whole numbers, which f64 represents exactly.
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
        (scale == Element::I32).then(|| i32::from_le_bytes(low(bytes)))
    }

    fn times(factor: i32, number: f64) -> f64 {
        factor.wrapping_mul(number as i64 as i32).into()
    }
}
