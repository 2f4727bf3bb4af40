//! Element, compute and scale types, and their combinations that a matrix product accepts.

use core::ffi::c_int;

/// Values of `cudaDataType`, the types of elements.
#[allow(
    missing_docs,
    reason = "R or C for real or complex, the kind of number and its bits: as the header names them"
)]
pub mod data {
    use core::ffi::c_int;

    pub const R_32F: c_int = 0;
    pub const R_64F: c_int = 1;
    pub const R_16F: c_int = 2;
    pub const R_8I: c_int = 3;
    pub const C_32F: c_int = 4;
    pub const C_64F: c_int = 5;
    pub const C_16F: c_int = 6;
    pub const C_8I: c_int = 7;
    pub const R_8U: c_int = 8;
    pub const C_8U: c_int = 9;
    pub const R_32I: c_int = 10;
    pub const C_32I: c_int = 11;
    pub const R_32U: c_int = 12;
    pub const C_32U: c_int = 13;
    pub const R_16BF: c_int = 14;
    pub const C_16BF: c_int = 15;
    pub const R_8F_E4M3: c_int = 28;
    pub const R_8F_E5M2: c_int = 29;
}

/// Values of `cublasComputeType_t`, the types in which products are summed.
#[allow(missing_docs, reason = "the type in which products are summed: as the header names them")]
pub mod compute {
    use core::ffi::c_int;

    pub const F16: c_int = 64;
    pub const F16_PEDANTIC: c_int = 65;
    pub const F32: c_int = 68;
    pub const F32_PEDANTIC: c_int = 69;
    pub const F64: c_int = 70;
    pub const F64_PEDANTIC: c_int = 71;
    pub const I32: c_int = 72;
    pub const I32_PEDANTIC: c_int = 73;
    pub const F32_FAST_16F: c_int = 74;
    pub const F32_FAST_16BF: c_int = 75;
    pub const F32_FAST_TF32: c_int = 77;
    pub const F32_EMULATED_16BFX9: c_int = 78;
    /// Double precision emulated by fixed point, in CUDA 13 only.
    pub const F64_EMULATED_FIXEDPOINT: c_int = 79;
}

/// Returns the size of an element in bytes, or `None` for a type that is not in [`data`].
#[must_use]
pub const fn element_bytes(kind: c_int) -> Option<u64> {
    Some(match kind {
        data::R_8I | data::R_8U | data::R_8F_E4M3 | data::R_8F_E5M2 => 1,
        data::R_16F | data::R_16BF | data::C_8I | data::C_8U => 2,
        data::R_32F | data::R_32I | data::R_32U | data::C_16F | data::C_16BF => 4,
        data::R_64F | data::C_32F | data::C_32I | data::C_32U => 8,
        data::C_64F => 16,
        _ => return None,
    })
}

/// Types in which a product is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// The `cublasComputeType_t` in which products are summed.
    pub compute: c_int,
    /// `cudaDataType` of alpha and beta.
    pub scale: c_int,
}

/// Returns the compute type that `compute` stands for. Beside its own enumeration cuBLAS still takes the
/// `cudaDataType` of its older interface (measured).
#[must_use]
pub const fn canonical_compute(compute: c_int) -> c_int {
    match compute {
        data::R_16F => compute::F16,
        data::R_32F | data::C_32F => compute::F32,
        data::R_64F | data::C_64F => compute::F64,
        data::R_32I => compute::I32,
        own => own,
    }
}

/// Returns the types in which a product with these element types of A, B and C is computed under `compute`,
/// or `None` if cuBLAS has no such product.
///
/// The combinations are those that the manual lists for `cublasGemmEx`, and the further ones that the
/// libraries of CUDA 12.9 and 13.5 accept (the `FAST` types with 16-bit elements). Whether the device can
/// compute it is up to the host.
#[must_use]
pub const fn arithmetic(compute: c_int, [a, b, c]: [c_int; 3], cuda13: bool) -> Option<Arithmetic> {
    use data::{C_8I, C_32F, C_64F, R_8I, R_16BF, R_16F, R_32F, R_32I, R_64F};

    if a != b {
        return None;
    }
    let compute = canonical_compute(compute);
    let scale = match compute {
        compute::F16 | compute::F16_PEDANTIC => match (a, c) {
            (R_16F, R_16F) => R_16F,
            _ => return None,
        },
        compute::F32
        | compute::F32_PEDANTIC
        | compute::F32_FAST_16F
        | compute::F32_FAST_16BF
        | compute::F32_FAST_TF32
        | compute::F32_EMULATED_16BFX9 => match (a, c) {
            (R_32F | R_16F | R_16BF | R_8I, R_32F) | (R_16F, R_16F) | (R_16BF, R_16BF) => R_32F,
            (C_32F | C_8I, C_32F) => C_32F,
            _ => return None,
        },
        compute::F64 | compute::F64_PEDANTIC | compute::F64_EMULATED_FIXEDPOINT => {
            if compute == compute::F64_EMULATED_FIXEDPOINT && !cuda13 {
                return None;
            }
            match (a, c) {
                (R_64F, R_64F) => R_64F,
                (C_64F, C_64F) => C_64F,
                _ => return None,
            }
        }
        compute::I32 | compute::I32_PEDANTIC => match (a, c) {
            (R_8I, R_32I) => R_32I,
            _ => return None,
        },
        _ => return None,
    };
    Some(Arithmetic { compute, scale })
}

/// A scalar in the form in which it is sent: its value in the first bytes, then zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scalar(pub [u8; 16]);

impl Scalar {
    /// Reads a scalar from host memory.
    ///
    /// # Safety
    /// `place` is valid for reading a number of type `scale`.
    ///
    /// # Errors
    /// Returns `None` for a type that scalars cannot have.
    pub unsafe fn read(place: *const u8, scale: c_int) -> Option<Self> {
        let bytes = element_bytes(scale)? as usize;
        let mut scalar = [0; 16];
        // SAFETY: the caller vouches for the source, and no type has more than 16 bytes.
        unsafe { place.copy_to_nonoverlapping(scalar.as_mut_ptr(), bytes) };
        Some(Self(scalar))
    }

    /// Wraps the address of a scalar in device memory.
    #[must_use]
    pub const fn at(address: u64) -> Self {
        let mut scalar = [0; 16];
        let address = address.to_le_bytes();
        let mut i = 0;
        while i < address.len() {
            scalar[i] = address[i];
            i += 1;
        }
        Self(scalar)
    }

    /// Returns the real and the imaginary part of a scalar of a floating-point or integer type.
    fn parts(self, scale: c_int) -> Option<[f64; 2]> {
        let [a, b, ..] = self.0.as_chunks::<8>().0 else { return None };
        let low = |eight: &[u8; 8]| [eight[0], eight[1], eight[2], eight[3]];
        let high = |eight: &[u8; 8]| [eight[4], eight[5], eight[6], eight[7]];
        Some(match scale {
            data::R_32F => [f32::from_le_bytes(low(a)).into(), 0.0],
            data::C_32F => [f32::from_le_bytes(low(a)).into(), f32::from_le_bytes(high(a)).into()],
            data::R_64F => [f64::from_le_bytes(*a), 0.0],
            data::C_64F => [f64::from_le_bytes(*a), f64::from_le_bytes(*b)],
            data::R_32I => [i32::from_le_bytes(low(a)).into(), 0.0],
            // Only zero and one are tested for.
            data::R_16F => match u16::from_le_bytes([a[0], a[1]]) {
                0 | 0x8000 => [0.0, 0.0],
                0x3c00 => [1.0, 0.0],
                _ => return None,
            },
            _ => return None,
        })
    }

    /// Returns whether the scalar is zero.
    #[must_use]
    pub fn is_zero(self, scale: c_int) -> bool {
        self.parts(scale) == Some([0.0, 0.0])
    }

    /// Returns whether the scalar is one.
    #[must_use]
    pub fn is_one(self, scale: c_int) -> bool {
        self.parts(scale) == Some([1.0, 0.0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types of A and B, and of C, that NVIDIA's `cublasGemmEx` of 12.9 and 13.5 accepts under each compute
    /// type of [`IN_F32`].
    const F32_PAIRS: &[(c_int, c_int)] = &[(0, 0), (2, 0), (2, 2), (3, 0), (4, 4), (7, 4), (14, 0), (14, 14)];
    const IN_F32: &[c_int] = &[0, 4, 68, 69, 74, 75, 77, 78];
    /// The other combinations that it accepts: compute type, type of A and B, type of C. It refuses all
    /// combinations in neither list as not supported.
    const OTHERS: &[(c_int, c_int, c_int)] = &[
        (1, 1, 1),
        (1, 5, 5),
        (2, 2, 2),
        (10, 3, 10),
        (64, 2, 2),
        (65, 2, 2),
        (70, 1, 1),
        (70, 5, 5),
        (71, 1, 1),
        (71, 5, 5),
        (72, 3, 10),
        (73, 3, 10),
    ];
    const TRIED_TYPES: &[c_int] =
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 28, 29, 30, 31, 33];
    const TRIED_COMPUTE: &[c_int] =
        &[0, 1, 2, 4, 10, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80];

    fn taken() -> Vec<(c_int, c_int, c_int)> {
        let in_f32 =
            IN_F32.iter().flat_map(|&compute| F32_PAIRS.iter().map(move |&(ab, c)| (compute, ab, c)));
        in_f32.chain(OTHERS.iter().copied()).collect()
    }

    #[test]
    fn takes_what_cublas_takes() {
        let taken = taken();
        for &compute in TRIED_COMPUTE {
            for &a in TRIED_TYPES {
                for &b in TRIED_TYPES {
                    for &c in TRIED_TYPES {
                        let twelve = a == b && taken.contains(&(compute, a, c));
                        assert_eq!(
                            arithmetic(compute, [a, b, c], false).is_some(),
                            twelve,
                            "{compute} {a} {b} {c}"
                        );
                        let thirteen = twelve || (compute == 79 && a == b && a == c && matches!(a, 1 | 5));
                        assert_eq!(
                            arithmetic(compute, [a, b, c], true).is_some(),
                            thirteen,
                            "{compute} {a} {b} {c}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn every_scale_type_is_a_scalar() {
        for (compute, ab, c) in taken() {
            let Some(found) = arithmetic(compute, [ab, ab, c], false) else { panic!("{compute} {ab} {c}") };
            let zero = Scalar([0; 16]);
            assert!(zero.is_zero(found.scale), "{found:?}");
            assert!(!zero.is_one(found.scale));
        }
    }

    #[test]
    fn scalars() {
        let scalar = |bytes: &[u8], scale| {
            // SAFETY: the test gives as many bytes as the type has.
            unsafe { Scalar::read(bytes.as_ptr(), scale) }.unwrap_or_else(|| panic!("type {scale}"))
        };
        let one = scalar(&1f32.to_le_bytes(), data::R_32F);
        assert!(one.is_one(data::R_32F) && !one.is_zero(data::R_32F));
        assert_eq!(one.0, [0, 0, 0x80, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(scalar(&(-0f32).to_le_bytes(), data::R_32F).is_zero(data::R_32F));
        assert!(!scalar(&f32::NAN.to_le_bytes(), data::R_32F).is_zero(data::R_32F));
        assert!(scalar(&[0, 0x3c], data::R_16F).is_one(data::R_16F));
        assert!(scalar(&[0, 0x80], data::R_16F).is_zero(data::R_16F));
        assert!(!scalar(&[1, 0], data::R_16F).is_zero(data::R_16F));
        assert!(scalar(&1i32.to_le_bytes(), data::R_32I).is_one(data::R_32I));
        let complex = [1f64.to_le_bytes(), 0f64.to_le_bytes()].concat();
        assert!(scalar(&complex, data::C_64F).is_one(data::C_64F));
        let imaginary = [0f32.to_le_bytes(), 1f32.to_le_bytes()].concat();
        assert!(!scalar(&imaginary, data::C_32F).is_zero(data::C_32F));
        assert!(!scalar(&imaginary, data::C_32F).is_one(data::C_32F));
        assert_eq!(Scalar::at(0x1122_3344_5566_7788).0[..8], 0x1122_3344_5566_7788u64.to_le_bytes());
        // SAFETY: nothing is read for a type without a size.
        assert_eq!(unsafe { Scalar::read(core::ptr::null(), 999) }, None);
    }
}
