//! Floating-point numbers of 8 bits, in the formats e4m3 and e5m2.

use vgpu_ptx::ir::{Eighth, Round};

use super::rounding::FloatFormat;

/// Bits of NaN in both formats.
const NAN: u32 = 0x7f;
/// Difference in the bits of e4m3 between a number and the number twice as large.
const STEP: u32 = 8;

/// Returns the format of all numbers of e5m2, and of the numbers of e4m3 below 256.
const fn format(of: Eighth) -> FloatFormat {
    match of {
        Eighth::E4m3 => FloatFormat { exponent: 4, fraction: 3 },
        Eighth::E5m2 => FloatFormat { exponent: 5, fraction: 2 },
    }
}

/// Returns the exact value of a number.
pub(crate) fn decode(of: Eighth, bits: u32) -> f64 {
    let (sign, magnitude) = (bits & 0x80, bits & 0x7f);
    if of == Eighth::E5m2 || magnitude < 0x78 {
        return format(of).decode(bits & 0xff);
    }
    // Bit patterns that are infinities in other formats are numbers here, twice as large as those one
    // exponent below.
    if magnitude == NAN { f64::NAN } else { 2.0 * format(of).decode(sign | (magnitude - STEP)) }
}

/// Rounds a value to the nearest number. Values beyond the greatest number become that number.
pub(crate) fn encode(of: Eighth, value: f64) -> u32 {
    let greatest = match of {
        Eighth::E4m3 => 448.0,
        Eighth::E5m2 => 57344.0,
    };
    if value.is_nan() {
        return NAN;
    }
    let value = value.clamp(-greatest, greatest);
    if of == Eighth::E4m3 && value.abs() >= 128.0 {
        return format(of).encode(value / 2.0, Round::Nearest) + STEP;
    }
    format(of).encode(value, Round::Nearest)
}

/// Replaces a negative value by zero, for `.relu`. NaN stays.
pub(crate) fn relu(value: f64) -> f64 {
    if value <= 0.0 { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_its_own_nearest() {
        for of in [Eighth::E4m3, Eighth::E5m2] {
            let mut last = -1.0;
            for bits in 0..0x7f {
                let value = decode(of, bits);
                if !value.is_finite() {
                    assert_eq!((of, bits == 0x7c || value.is_nan()), (Eighth::E5m2, true), "{bits:x}");
                    continue;
                }
                assert!(value > last, "{of:?} {bits:x}");
                assert_eq!((encode(of, value), encode(of, -value)), (bits, bits | 0x80), "{of:?} {value}");
                // Halfway to the one before: to the even one.
                let even = if bits % 2 == 0 { bits } else { bits.saturating_sub(1) };
                if bits != 0 {
                    assert_eq!(encode(of, f64::midpoint(value, last)), even, "{of:?} {value}");
                }
                last = value;
            }
            assert_eq!(encode(of, 1e9), encode(of, last), "{of:?}");
            assert_eq!((encode(of, f64::NAN), encode(of, f64::NEG_INFINITY)), (NAN, encode(of, -last)));
        }
        assert_eq!((decode(Eighth::E4m3, 0x7e), decode(Eighth::E5m2, 0x7b)), (448.0, 57344.0));
        assert_eq!((decode(Eighth::E4m3, 1), decode(Eighth::E5m2, 1)), (2f64.powi(-9), 2f64.powi(-16)));
    }
}
