//! A scalar reference of floating-point arithmetic, written from the ISA's text. LLVM's software
//! implementation rounds each result once; flushing and saturation are implemented here.

use rustc_apfloat::ieee::{BFloat, Double, Half, Single};
use rustc_apfloat::{Float, FloatConvert};

pub use rustc_apfloat::Round;

use crate::expect::{Expect, Format};

/// Modifiers of a floating-point instruction.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// Rounding of inexact results.
    pub round: Round,
    /// Whether subnormal operands and results become zeros of their sign.
    pub ftz: bool,
    /// Whether the result is clamped to 0..=1, and NaN becomes +0.
    pub sat: bool,
}

impl Mode {
    /// Modifiers of an instruction with rounding to nearest, `.rn`, and no others.
    pub const NEAREST: Self = Self { round: Round::NearestTiesToEven, ftz: false, sat: false };

    /// Parses the modifiers in an instruction's spelling.
    #[must_use]
    pub fn from_spelling(spelling: &str) -> Self {
        let has = |modifier: &str| spelling.split('.').any(|part| part == modifier);
        let round = if has("rz") || has("rzi") {
            Round::TowardZero
        } else if has("rm") || has("rmi") {
            Round::TowardNegative
        } else if has("rp") || has("rpi") {
            Round::TowardPositive
        } else {
            Round::NearestTiesToEven
        };
        Self { round, ftz: has("ftz"), sat: has("sat") }
    }
}

/// A floating-point format that the reference computes in.
pub trait FloatNumber: Float {
    /// The format.
    const FORMAT: Format;
}

impl FloatNumber for Half {
    const FORMAT: Format = Format::Half;
}
impl FloatNumber for BFloat {
    const FORMAT: Format = Format::Bfloat;
}
impl FloatNumber for Single {
    const FORMAT: Format = Format::Single;
}
impl FloatNumber for Double {
    const FORMAT: Format = Format::Double;
}

/// Decodes `bits`. With `ftz`, flushes a subnormal number.
#[must_use]
pub fn value<F: FloatNumber>(bits: u64, ftz: bool) -> F {
    let bits = u128::from(bits) & (u128::MAX >> (128 - F::BITS));
    flush(F::from_bits(bits), ftz)
}

fn flush<F: FloatNumber>(value: F, ftz: bool) -> F {
    if ftz && value.is_denormal() { F::ZERO.copy_sign(value) } else { value }
}

/// Returns the bits of a value.
#[must_use]
pub fn bits<F: FloatNumber>(value: F) -> u64 {
    value.to_bits() as u64
}

/// Returns the permitted results, given a function that computes the result for a rounding.
#[must_use]
pub fn finish<F: FloatNumber>(mode: Mode, compute: impl Fn(Round) -> F) -> Expect {
    let result = compute(mode.round);
    if result.is_nan() {
        return if mode.sat { Expect::Bits(0) } else { Expect::Nan(F::FORMAT) };
    }
    if mode.sat {
        let one = F::from_u128(1).value;
        return if result.is_zero() {
            Expect::OneOf(vec![0, bits(result)])
        } else if result.is_negative() {
            Expect::Bits(0)
        } else if result > one {
            Expect::Bits(bits(one))
        } else {
            Expect::Bits(bits(flush(result, mode.ftz)))
        };
    }
    let flushed = bits(flush(result, mode.ftz));
    // A result below the normal range was rounded up to the least normal number. The ISA does not say whether
    // such a result is subnormal.
    if mode.ftz && result.is_smallest_normalized() && compute(Round::TowardZero).is_denormal() {
        return Expect::OneOf(vec![flushed, bits(F::ZERO.copy_sign(result))]);
    }
    Expect::Bits(flushed)
}

/// Returns the permitted results of `add`.
#[must_use]
pub fn add<F: FloatNumber>(a: u64, b: u64, mode: Mode) -> Expect {
    let (a, b) = (value::<F>(a, mode.ftz), value::<F>(b, mode.ftz));
    finish(mode, |round| a.add_r(b, round).value)
}

/// Returns the permitted results of `sub`.
#[must_use]
pub fn sub<F: FloatNumber>(a: u64, b: u64, mode: Mode) -> Expect {
    let (a, b) = (value::<F>(a, mode.ftz), value::<F>(b, mode.ftz));
    finish(mode, |round| a.sub_r(b, round).value)
}

/// Returns the permitted results of `mul`.
#[must_use]
pub fn mul<F: FloatNumber>(a: u64, b: u64, mode: Mode) -> Expect {
    let (a, b) = (value::<F>(a, mode.ftz), value::<F>(b, mode.ftz));
    finish(mode, |round| a.mul_r(b, round).value)
}

/// Returns the permitted results of `div` with a rounding.
#[must_use]
pub fn div<F: FloatNumber>(a: u64, b: u64, mode: Mode) -> Expect {
    let (a, b) = (value::<F>(a, mode.ftz), value::<F>(b, mode.ftz));
    finish(mode, |round| a.div_r(b, round).value)
}

/// Returns the permitted results of `fma`, which rounds once.
#[must_use]
pub fn fma<F: FloatNumber>(a: u64, b: u64, c: u64, mode: Mode) -> Expect {
    let (a, b, c) = (value::<F>(a, mode.ftz), value::<F>(b, mode.ftz), value::<F>(c, mode.ftz));
    finish(mode, |round| a.mul_add_r(b, c, round).value)
}

/// Returns the permitted results of `rcp` with a rounding.
#[must_use]
pub fn rcp<F: FloatNumber>(a: u64, mode: Mode) -> Expect {
    let a = value::<F>(a, mode.ftz);
    finish(mode, |round| F::from_u128(1).value.div_r(a, round).value)
}

/// Returns the permitted results of `sqrt` with a rounding, computed by the integer root of the significand
/// and a sticky bit.
#[must_use]
pub fn sqrt<F: FloatNumber>(a: u64, mode: Mode) -> Expect {
    let a = value::<F>(a, mode.ftz);
    if a.is_nan() || (a.is_negative() && !a.is_zero()) {
        return Expect::Nan(F::FORMAT);
    }
    if a.is_zero() || a.is_infinite() {
        return Expect::Bits(bits(a));
    }
    // a = significand * 2^exponent with an even exponent, and a significand of 123 or 124 bits.
    let mut exponent = a.ilogb() - 122;
    exponent -= exponent & 1;
    let significand = a.scalbn(60 - a.ilogb()).to_u128(128).value << 62 << (a.ilogb() - 122 - exponent);
    let root = significand.isqrt();
    let rest = u128::from(root * root != significand);
    finish(mode, |round| F::from_u128_r(root << 1 | rest, round).value.scalbn_r(exponent / 2 - 1, round))
}

/// Returns the permitted results of `abs`.
#[must_use]
pub fn abs<F: FloatNumber>(a: u64, mode: Mode) -> Expect {
    let a = value::<F>(a, mode.ftz);
    finish(mode, |_| a.abs())
}

/// Returns the permitted results of `neg`.
#[must_use]
pub fn neg<F: FloatNumber>(a: u64, mode: Mode) -> Expect {
    let a = value::<F>(a, mode.ftz);
    finish(mode, |_| -a)
}

/// Returns the permitted results of `min` and `max`. With one NaN the result is the other operand, or NaN if
/// `nan`. The number -0 is less than +0.
#[must_use]
pub fn extremum<F: FloatNumber>(a: u64, b: u64, mode: Mode, max: bool, nan: bool) -> Expect {
    let (a, b) = (value::<F>(a, mode.ftz), value::<F>(b, mode.ftz));
    if (a.is_nan() && b.is_nan()) || (nan && (a.is_nan() || b.is_nan())) {
        return Expect::Nan(F::FORMAT);
    }
    let a_first = if a.is_nan() {
        false
    } else if b.is_nan() {
        true
    } else if a.is_zero() && b.is_zero() {
        a.is_negative() != max
    } else {
        (a < b) != max
    };
    Expect::Bits(bits(if a_first { a } else { b }))
}

/// Returns the permitted results of conversions between floating-point formats. `.ftz` only affects single
/// precision. `integral` tells that the result is rounded to a whole number.
#[must_use]
pub fn convert<From: FloatNumber + FloatConvert<To>, To: FloatNumber>(
    a: u64,
    mode: Mode,
    integral: bool,
) -> Expect {
    let single = |format: Format| mode.ftz && format == Format::Single;
    let a = value::<From>(a, single(From::FORMAT));
    let mode = Mode { ftz: single(To::FORMAT), ..mode };
    finish(mode, |round| {
        let a = if integral { a.round_to_integral(round).value } else { a };
        a.convert_r(round, &mut false).value
    })
}

/// Returns the result of a conversion to an integer of `width` bits, which is rounded and then clamped.
#[must_use]
pub fn to_int<F: FloatNumber>(a: u64, mode: Mode, width: u32, signed: bool) -> u64 {
    let ftz = mode.ftz && F::FORMAT == Format::Single;
    let a = value::<F>(a, ftz);
    let mask = u64::MAX >> (64 - width);
    if a.is_nan() {
        return if width == 64 || F::FORMAT == Format::Double { 1 << (width - 1) } else { 0 };
    }
    let rounded = a.round_to_integral(mode.round).value;
    let (low, high) =
        if signed { (-(1_i128 << (width - 1)), (1_i128 << (width - 1)) - 1) } else { (0, i128::from(mask)) };
    // Clamps to the range of 128 bits, which contains all others.
    let wide = rounded.to_i128_r(128, Round::TowardZero, &mut false).value;
    wide.clamp(low, high) as u64 & mask
}

/// Returns the permitted results of a conversion from an integer, given as its value.
#[must_use]
pub fn from_int<F: FloatNumber>(a: i128, mode: Mode) -> Expect {
    finish(mode, |round| F::from_i128_r(a, round).value)
}
