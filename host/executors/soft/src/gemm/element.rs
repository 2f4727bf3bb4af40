//! Element types of matrices, and the conversions between the bytes of a column and numbers.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use num_complex::Complex;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The type of a matrix's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    F32,
    F64,
    F16,
    Bf16,
    I8,
    I32,
    /// Complex, with two parts of f32.
    C32,
    /// Complex, with two parts of f64.
    C64,
    /// Complex, with two parts of i8.
    C8,
}

impl Element {
    /// Returns the type with this `cudaDataType`, or `None` if products of it are not supported.
    pub(super) const fn from_wire(kind: u32) -> Option<Self> {
        Some(match kind {
            0 => Self::F32,
            1 => Self::F64,
            2 => Self::F16,
            3 => Self::I8,
            4 => Self::C32,
            5 => Self::C64,
            7 => Self::C8,
            10 => Self::I32,
            14 => Self::Bf16,
            _ => return None,
        })
    }

    /// Returns the size and alignment of an element in bytes.
    pub(super) const fn bytes(self) -> u64 {
        match self {
            Self::I8 => 1,
            Self::F16 | Self::Bf16 | Self::C8 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::C32 => 8,
            Self::C64 => 16,
        }
    }
}

/// Converts elements to as many numbers as the slice has. The bytes start at a multiple of 8.
pub(super) type Load<N> = fn(&[u8], &mut [N]);
/// Converts all numbers of the slice to elements.
pub(super) type Store<N> = fn(&[N], &mut [u8]);

/// The conversions of elements of C.
#[derive(Clone, Copy)]
pub(super) struct Output<N> {
    pub load: Load<N>,
    pub store: Store<N>,
}

/// Views bytes as elements of a type whose alignment is at most 8.
pub(super) fn as_elements<T: FromBytes + Immutable>(bytes: &[u8]) -> &[T] {
    <[T]>::ref_from_bytes(bytes).expect("columns are whole elements, aligned to 8 bytes")
}

pub(super) fn as_elements_mut<T: FromBytes + IntoBytes + Immutable>(bytes: &mut [u8]) -> &mut [T] {
    <[T]>::mut_from_bytes(bytes).expect("columns are whole elements, aligned to 8 bytes")
}

/// Loads elements that need no conversion.
pub(super) fn load<T: FromBytes + Immutable + Copy>(bytes: &[u8], numbers: &mut [T]) {
    numbers.copy_from_slice(as_elements(bytes));
}

/// Stores elements that need no conversion.
pub(super) fn store<T: FromBytes + IntoBytes + Immutable + Copy>(numbers: &[T], bytes: &mut [u8]) {
    as_elements_mut(bytes).copy_from_slice(numbers);
}

pub(super) fn load_f16(bytes: &[u8], numbers: &mut [f32]) {
    as_elements::<f16>(bytes).convert_to_f32_slice(numbers);
}

/// Stores numbers as f16, rounded to nearest with ties to even. Numbers that are too large become infinite.
pub(super) fn store_f16(numbers: &[f32], bytes: &mut [u8]) {
    as_elements_mut::<f16>(bytes).convert_from_f32_slice(numbers);
}

pub(super) fn load_bf16(bytes: &[u8], numbers: &mut [f32]) {
    as_elements::<bf16>(bytes).convert_to_f32_slice(numbers);
}

/// Stores numbers as bf16, rounded to nearest with ties to even.
pub(super) fn store_bf16(numbers: &[f32], bytes: &mut [u8]) {
    as_elements_mut::<bf16>(bytes).convert_from_f32_slice(numbers);
}

pub(super) fn load_i8<N: From<i8>>(bytes: &[u8], numbers: &mut [N]) {
    for (number, &element) in numbers.iter_mut().zip(as_elements::<i8>(bytes)) {
        *number = element.into();
    }
}

pub(super) fn load_i32(bytes: &[u8], numbers: &mut [f64]) {
    for (number, &element) in numbers.iter_mut().zip(as_elements::<i32>(bytes)) {
        *number = element.into();
    }
}

/// Stores the low 32 bits of whole numbers.
pub(super) fn store_i32(numbers: &[f64], bytes: &mut [u8]) {
    for (element, &number) in as_elements_mut::<i32>(bytes).iter_mut().zip(numbers) {
        *element = number as i64 as i32;
    }
}

/// Loads complex numbers, and converts their parts if the types differ.
pub(super) fn load_complex<P, N>(bytes: &[u8], numbers: &mut [Complex<N>])
where
    P: FromBytes + Immutable + Copy,
    N: From<P>,
{
    for (number, &[real, imaginary]) in numbers.iter_mut().zip(as_elements::<[P; 2]>(bytes)) {
        *number = Complex::new(real.into(), imaginary.into());
    }
}

pub(super) fn store_complex<N>(numbers: &[Complex<N>], bytes: &mut [u8])
where
    N: FromBytes + IntoBytes + Immutable + Copy,
{
    for (element, number) in as_elements_mut::<[N; 2]>(bytes).iter_mut().zip(numbers) {
        *element = [number.re, number.im];
    }
}
