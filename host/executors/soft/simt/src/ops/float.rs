//! Arithmetic of 32-bit floating-point numbers, rounded to nearest. A result that is NaN is the canonical
//! NaN.
//!
//! Subnormal numbers are flushed here and not by the CPU's control register, because Rust code must not
//! change that register. The parameter `IN` tells whether operands must be flushed; operands that are known
//! to be normal need not be.

use std::marker::PhantomData;

use super::{Op1, Op2, Op3, ops};

/// Canonical NaN of results.
pub(crate) const NAN: f32 = f32::from_bits(0x7fff_ffff);

const EXPONENT: u32 = 0x7f80_0000;
const SIGN: u32 = 0x8000_0000;

/// Replaces a subnormal number by the zero of its sign.
#[inline(always)]
pub(crate) const fn flush(x: f32) -> f32 {
    let bits = x.to_bits();
    if bits & EXPONENT == 0 { f32::from_bits(bits & SIGN) } else { x }
}

#[inline(always)]
pub(crate) const fn flush_if<const FTZ: bool>(x: f32) -> f32 {
    if FTZ { flush(x) } else { x }
}

/// Replaces a NaN by the canonical one. The bits are compared, because compilers may replace one NaN by
/// another and remove the choice.
#[inline(always)]
pub(crate) const fn canonical(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & !SIGN > EXPONENT { NAN.to_bits() } else { bits })
}

/// Flushes and canonicalizes the result of an operation.
#[inline(always)]
pub(crate) const fn finish<const FTZ: bool>(x: f32) -> f32 {
    canonical(flush_if::<FTZ>(x))
}

/// Clamps a number to [0, 1]. NaN and -0 become +0.
#[inline(always)]
pub(crate) const fn saturate(x: f32) -> f32 {
    if x > 0.0 { if x < 1.0 { x } else { 1.0 } } else { 0.0 }
}

/// The operation `O` with its modifiers: `IN` flushes the operands, `OUT` flushes the result.
pub(crate) struct Float<O, const IN: bool, const OUT: bool>(PhantomData<O>);

impl<O: Op1<A = f32, R = f32>, const IN: bool, const OUT: bool> Op1 for Float<O, IN, OUT> {
    type A = f32;
    type R = f32;
    #[inline(always)]
    fn f(a: f32) -> f32 {
        finish::<OUT>(O::f(flush_if::<IN>(a)))
    }
}

impl<O: Op2<A = f32, B = f32, R = f32>, const IN: bool, const OUT: bool> Op2 for Float<O, IN, OUT> {
    type A = f32;
    type B = f32;
    type R = f32;
    #[inline(always)]
    fn f(a: f32, b: f32) -> f32 {
        finish::<OUT>(O::f(flush_if::<IN>(a), flush_if::<IN>(b)))
    }
}

impl<O: Op3<A = f32, B = f32, C = f32, R = f32>, const IN: bool, const OUT: bool> Op3 for Float<O, IN, OUT> {
    type A = f32;
    type B = f32;
    type C = f32;
    type R = f32;
    #[inline(always)]
    fn f(a: f32, b: f32, c: f32) -> f32 {
        finish::<OUT>(O::f(flush_if::<IN>(a), flush_if::<IN>(b), flush_if::<IN>(c)))
    }
}

ops! {
    /// Clamps a number to [0, 1] for `.sat`.
    Saturate: f32 => f32 = |a| saturate(a);
    Add: f32, f32 => f32 = |a, b| a + b;
    /// Computes `add.rz`: a sum that was rounded away from zero is moved back by one unit.
    AddZero: f32, f32 => f32 = |a, b| {
        let sum = a + b;
        let part = sum - a;
        let error = (a - (sum - part)) + (b - part);
        let overflow = sum.is_infinite() && a.is_finite() && b.is_finite();
        let away = overflow || (error != 0.0 && (error > 0.0) != (sum > 0.0) && sum.is_finite());
        if away { f32::from_bits(sum.to_bits() - 1) } else { sum }
    };
    Sub: f32, f32 => f32 = |a, b| a - b;
    Mul: f32, f32 => f32 = |a, b| a * b;
    Fma: f32, f32, f32 => f32 = |a, b, c| a.mul_add(b, c);
    Div: f32, f32 => f32 = |a, b| a / b;
    /// Computes `div.approx`. For divisors above 2^126 the ISA demands 0, or NaN if the dividend is infinite.
    DivApprox: f32, f32 => f32 = |a, b| {
        let magnitude = b.to_bits() & !SIGN;
        let large = magnitude > 0x7e80_0000 && magnitude < EXPONENT;
        if large { a * 0.0 } else { a / b }
    };
    Rcp: f32 => f32 = |a| 1.0 / a;
    Sqrt: f32 => f32 = |a| a.sqrt();
    Rsqrt: f32 => f32 = |a| 1.0 / a.sqrt();

    /// Returns the smaller number. A number takes precedence over NaN, and -0 is less than +0.
    Min: f32, f32 => f32 = |a, b| min(a, b);
    Max: f32, f32 => f32 = |a, b| max(a, b);
    MinNan: f32, f32 => f32 = |a, b| if a.is_nan() || b.is_nan() { NAN } else { min(a, b) };
    MaxNan: f32, f32 => f32 = |a, b| if a.is_nan() || b.is_nan() { NAN } else { max(a, b) };

    /// Clears the sign, also that of NaN, whose bits the ISA leaves open.
    Abs: f32 => f32 = |a| f32::from_bits(a.to_bits() & !SIGN);
    AbsFtz: f32 => f32 = |a| f32::from_bits(flush(a).to_bits() & !SIGN);
    Neg: f32 => f32 = |a| f32::from_bits(a.to_bits() ^ SIGN);
    NegFtz: f32 => f32 = |a| f32::from_bits(flush(a).to_bits() ^ SIGN);
    /// Gives `b` the sign of `a`, in the ISA's order of operands.
    CopySign: u32, u32 => u32 = |a, b| a & SIGN | b & !SIGN;

    /// Computes `ex2.approx`: 2^n by the exponent, and 2^f for f in -0.5..0.5 by a polynomial.
    Ex2: f32 => f32 = |a| exp2(a);
    /// Computes `lg2.approx`, by [`log2`].
    Lg2: f32 => f32 = |a| log2(a);
    /// Computes `sin.approx`, by [`sine`].
    Sin: f32 => f32 = |a| sine(a, 0);
    /// Computes `cos.approx`, by [`sine`].
    Cos: f32 => f32 = |a| sine(a, 1);
    /// Computes `tanh.approx`, by [`tanh`].
    Tanh: f32 => f32 = |a| tanh(a);
}

#[inline(always)]
fn min(a: f32, b: f32) -> f32 {
    // Equal numbers differ in bits only if they are zeros: the result is -0 if either is.
    let less = if a == b {
        f32::from_bits(a.to_bits() | b.to_bits())
    } else if a < b {
        a
    } else {
        b
    };
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        less
    }
}

#[inline(always)]
fn max(a: f32, b: f32) -> f32 {
    let more = if a == b {
        f32::from_bits(a.to_bits() & b.to_bits())
    } else if a > b {
        a
    } else {
        b
    };
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        more
    }
}

/// The number 1.5 * 2^23. Adding it to a number below 2^22 in magnitude and subtracting it again rounds the
/// number to an integer.
const ROUNDER: f32 = 12_582_912.0;

/// Computes 2^x within 2 ulp. Subnormal results are rounded twice.
#[inline(always)]
fn exp2(x: f32) -> f32 {
    // Beyond these all results are 0 or infinite. NaN passes both comparisons.
    let x = if x < -160.0 { -160.0 } else { x };
    let x = if x > 160.0 { 160.0 } else { x };
    let rounded = x + ROUNDER;
    let n = rounded - ROUNDER;
    let f = x - n;
    // Taylor's series of e^(f ln 2): the term after the last is below 2^-26 for |f| <= 0.5.
    let p = 1.540_353_e-4_f32;
    let p = p * f + 1.333_355_8e-3;
    let p = p * f + 9.618_129_e-3;
    let p = p * f + 5.550_411e-2;
    let p = p * f + 2.402_265e-1;
    let p = p * f + 6.931_472_e-1;
    let p = p * f + 1.0;
    // 2^n alone may be out of range, so it is applied in two factors.
    let n = (rounded.to_bits() << 9).cast_signed() >> 9;
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n - half)
}

/// Returns 2^n for -126 <= n <= 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + 127) << 23).cast_unsigned())
}

/// Computes the binary logarithm within 2 ulp, or within 2^-22 for results between -1 and 1.
#[inline(always)]
fn log2(x: f32) -> f32 {
    const TWO_23: f32 = 8_388_608.0;
    let subnormal = x.to_bits() & EXPONENT == 0;
    let scaled = if subnormal { x * TWO_23 } else { x };
    // m is in sqrt(0.5) .. sqrt(2), and x = m * 2^e.
    let bits = scaled.to_bits();
    let e = (bits.wrapping_sub(0x3f35_04f3)).cast_signed() >> 23;
    let m = f32::from_bits(bits.wrapping_sub((e << 23).cast_unsigned()));
    let e = e as f32 - if subnormal { 23.0 } else { 0.0 };
    // ln m = 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 0.1716: s + s^3/3 + ... + s^9/9, in doubles.
    let m = f64::from(m);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let p = z * (1.0 / 11.0) + 1.0 / 9.0;
    let p = z * p + 1.0 / 7.0;
    let p = z * p + 1.0 / 5.0;
    let p = z * p + 1.0 / 3.0;
    let p = z * p + 1.0;
    let result = (f64::from(e) + s * p * (2.0 * std::f64::consts::LOG2_E)) as f32;
    let result = if x == f32::INFINITY { f32::INFINITY } else { result };
    let result = if x < 0.0 { NAN } else { result };
    let result = if x == 0.0 { f32::NEG_INFINITY } else { result };
    if x.is_nan() { NAN } else { result }
}

/// Computes the sine of `x` plus `quadrants` quarters of a turn, in double precision. The result is within
/// 2^-23 up to about 2^30, and between -1 and 1 beyond, where the ISA promises nothing.
#[inline(always)]
fn sine(x: f32, quadrants: i32) -> f32 {
    /// The number 1.5 * 2^52, which rounds doubles as the constant of the same name above rounds singles.
    const ROUNDER: f64 = 6_755_399_441_055_744.0;
    const PI_2_HIGH: f64 = 1.570_796_326_734_125_6;
    const PI_2_LOW: f64 = 6.077_100_506_506_192e-11;
    let magnitude = f64::from(x);
    let rounded = magnitude * std::f64::consts::FRAC_2_PI + ROUNDER;
    let n = rounded - ROUNDER;
    let r = (magnitude - n * PI_2_HIGH) - n * PI_2_LOW;
    // Beyond the reach of the reduction r may be anything; the polynomials need their interval.
    let r = r.clamp(-0.8, 0.8);
    let z = r * r;
    let sine = r + r * z * (-1.0 / 6.0 + z * (1.0 / 120.0 + z * (-1.0 / 5040.0 + z * (1.0 / 362_880.0))));
    let cosine = 1.0 + z * (-0.5 + z * (1.0 / 24.0 + z * (-1.0 / 720.0 + z * (1.0 / 40_320.0))));
    let quadrant = (rounded.to_bits() as i32).wrapping_add(quadrants);
    let value = if quadrant & 1 != 0 { cosine } else { sine };
    let value = if quadrant & 2 != 0 { -value } else { value };
    // sin(-0) is -0, which the sum of products above has lost or not.
    let value = if quadrants == 0 && x == 0.0 { magnitude } else { value };
    if x.is_finite() { value as f32 } else { NAN }
}

/// Computes the hyperbolic tangent within a relative error of 2^-11.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    let z = x * x;
    // The series for small arguments, where the quotient would cancel.
    let small = x * (1.0 + z * (-1.0 / 3.0 + z * (2.0 / 15.0 - z * (17.0 / 315.0))));
    let e = exp2(x * (2.0 * std::f32::consts::LOG2_E));
    let large = 1.0 - 2.0 / (e + 1.0);
    if x.abs() < 0.25 { small } else { large }
}
