//! Rounding in all four directions to any format, by integer arithmetic. It is used for operations that need
//! not be fast.
//!
//! Sums, products, quotients and roots of short formats are computed as doubles that are *rounded to odd*:
//! the last bit of an inexact double is one. Rounding such a double to a format of at most 51 bits, in any
//! direction, gives the same number as rounding the exact value.

use vgpu_ptx::ir::Round;

/// A floating-point format, defined by the number of bits of its exponent and of its fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloatFormat {
    pub(crate) exponent: u32,
    pub(crate) fraction: u32,
}

/// Format of half precision, `.f16`.
pub(crate) const F16: FloatFormat = FloatFormat { exponent: 5, fraction: 10 };
/// Format of `.bf16`, the upper half of single precision.
pub(crate) const BF16: FloatFormat = FloatFormat { exponent: 8, fraction: 7 };
/// Format of `.tf32`, without the 13 lower bits of its register.
pub(crate) const TF32: FloatFormat = FloatFormat { exponent: 8, fraction: 10 };
/// Format of single precision, `.f32`.
pub(crate) const F32: FloatFormat = FloatFormat { exponent: 8, fraction: 23 };

impl FloatFormat {
    const fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// Returns the canonical NaN, which is all ones except the sign.
    pub(crate) const fn nan(self) -> u32 {
        (1 << (self.exponent + self.fraction)) - 1
    }

    pub(crate) const fn infinity(self) -> u32 {
        ((1 << self.exponent) - 1) << self.fraction
    }

    /// Returns the exact value of a number.
    pub(crate) fn decode(self, bits: u32) -> f64 {
        let fraction = bits & ((1 << self.fraction) - 1);
        let exponent = bits >> self.fraction & ((1 << self.exponent) - 1);
        let negative = bits >> (self.fraction + self.exponent) & 1 != 0;
        let scale = |significand: u32, exponent: i32| {
            // Powers of two down to 2^-149 are normal doubles.
            f64::from(significand) * f64::from_bits(((exponent + 1023) as u64) << 52)
        };
        let magnitude = if exponent == (1 << self.exponent) - 1 {
            if fraction == 0 { f64::INFINITY } else { f64::NAN }
        } else if exponent == 0 {
            scale(fraction, 1 - self.bias() - self.fraction as i32)
        } else {
            scale(fraction | 1 << self.fraction, exponent as i32 - self.bias() - self.fraction as i32)
        };
        if negative { -magnitude } else { magnitude }
    }

    /// Rounds a double to this format.
    pub(crate) fn encode(self, value: f64, round: Round) -> u32 {
        let bits = value.to_bits();
        let negative = bits >> 63 != 0;
        let sign = u32::from(negative) << (self.exponent + self.fraction);
        if value.is_nan() {
            return self.nan();
        }
        if value.is_infinite() {
            return sign | self.infinity();
        }
        if value == 0.0 {
            return sign;
        }
        // Doubles that are subnormal are far below every other format's least number: a sticky bit of it.
        let (significand, exponent) = match bits >> 52 & 0x7ff {
            0 => (1 << 52 | 1, -1023),
            biased => (bits & ((1 << 52) - 1) | 1 << 52, biased as i32 - 1023),
        };
        // The exponent of the result's last bit, before rounding.
        let least = exponent.max(1 - self.bias());
        let drop = (52 - self.fraction as i32 + (least - exponent)).min(63) as u32;
        let kept = if drop > 62 { 0 } else { significand >> drop };
        let rest = significand & ((1u64 << drop) - 1);
        let half = 1u64 << (drop - 1);
        let up = match round {
            Round::Nearest => rest > half || rest == half && kept & 1 != 0,
            Round::Zero => false,
            Round::Down => negative && rest != 0,
            Round::Up => !negative && rest != 0,
        };
        // A carry goes into the exponent, where it belongs.
        let biased = (least + self.bias() - 1) as u64;
        let magnitude = (biased << self.fraction) + kept + u64::from(up);
        if magnitude >= u64::from(self.infinity()) {
            let to_infinity = match round {
                Round::Nearest => true,
                Round::Zero => false,
                Round::Down => negative,
                Round::Up => !negative,
            };
            return sign | if to_infinity { self.infinity() } else { self.infinity() - 1 };
        }
        sign | magnitude as u32
    }

    /// Replaces a subnormal number by the zero of its sign.
    pub(crate) const fn flush(self, bits: u32) -> u32 {
        if bits & self.infinity() == 0 { bits & 1 << (self.exponent + self.fraction) } else { bits }
    }

    /// Clamps a number to [0, 1]. NaN becomes 0.
    pub(crate) fn saturate(self, bits: u32) -> u32 {
        let value = self.decode(bits);
        let one = (self.bias() as u32) << self.fraction;
        if value > 0.0 { if value < 1.0 { bits } else { one } } else { 0 }
    }
}

/// Moves an inexact double to its odd neighbour. `error` is the exact value minus the double.
fn to_odd(value: f64, error: f64) -> f64 {
    if !value.is_finite() || error == 0.0 || error.is_nan() || value.to_bits() & 1 != 0 {
        return value;
    }
    let away = (error > 0.0) == (value > 0.0);
    f64::from_bits(if away { value.to_bits() + 1 } else { value.to_bits() - 1 })
}

/// Returns the sum, rounded to odd. The exact zero sum of numbers with different signs is -0 if `down`.
pub(crate) fn add(a: f64, b: f64, down: bool) -> f64 {
    let sum = a + b;
    if sum == 0.0 {
        let negative = if a.is_sign_negative() == b.is_sign_negative() { a.is_sign_negative() } else { down };
        return if negative { -0.0 } else { 0.0 };
    }
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    to_odd(sum, error)
}

/// Returns the quotient of numbers of at most 24 bits, rounded to odd.
pub(crate) fn divide(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    if !quotient.is_finite() || quotient == 0.0 {
        return quotient;
    }
    // The remainder is a double: exact. Its sign and the divisor's say on which side the quotient is.
    let rest = quotient.mul_add(-b, a);
    to_odd(quotient, if b < 0.0 { -rest } else { rest })
}

/// Returns the square root of a number of at most 24 bits, rounded to odd.
pub(crate) fn root(a: f64) -> f64 {
    let root = a.sqrt();
    if !root.is_finite() || root == 0.0 { root } else { to_odd(root, root.mul_add(-root, a)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_agrees_with_the_hardware() {
        let mut state = 1u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Exponents around those of f32, to reach subnormals and infinity.
            let exponent = 1023 - 160 + (state >> 40) % 320;
            let value = f64::from_bits(exponent << 52 | state >> 12 | (state & 1) << 63);
            assert_eq!(F32.encode(value, Round::Nearest), (value as f32).to_bits(), "{value:e}");
            let narrow = value as f32;
            if narrow.is_finite() {
                assert_eq!(F32.decode(narrow.to_bits()), f64::from(narrow));
            }
        }
    }

    #[test]
    fn directions_enclose_the_value() {
        for (value, down, up) in [
            (1.0 + 2f64.powi(-30), 0x3f80_0000, 0x3f80_0001),
            (-1.0 - 2f64.powi(-30), 0xbf80_0001, 0xbf80_0000),
            (2f64.powi(-160), 0, 1),
            (-(2f64.powi(-160)), 0x8000_0001, 0x8000_0000),
            (1e300, 0x7f7f_ffff, 0x7f80_0000),
            (-1e300, 0xff80_0000, 0xff7f_ffff),
        ] {
            assert_eq!(F32.encode(value, Round::Down), down, "{value:e}");
            assert_eq!(F32.encode(value, Round::Up), up, "{value:e}");
            let zero = if value > 0.0 { down } else { up };
            assert_eq!(F32.encode(value, Round::Zero), zero, "{value:e}");
        }
    }

    #[test]
    fn sums_and_quotients_keep_a_sticky_bit() {
        assert_eq!(F32.encode(add(1.0, 2f64.powi(-140), false), Round::Up), 0x3f80_0001);
        assert_eq!(F32.encode(add(1.0, -(2f64.powi(-140)), false), Round::Zero), 0x3f7f_ffff);
        assert_eq!(F32.encode(divide(1.0, 3.0), Round::Up), 0x3eaa_aaab);
        assert_eq!(F32.encode(divide(1.0, 3.0), Round::Down), 0x3eaa_aaaa);
        assert_eq!(F32.encode(root(2.0), Round::Up), 0x3fb5_04f4);
        assert_eq!(add(1.0, -1.0, true).to_bits(), (-0.0f64).to_bits());
    }
}
