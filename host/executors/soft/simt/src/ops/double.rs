//! Arithmetic of 64-bit floating-point numbers. A software implementation rounds in directions other than to
//! nearest.

use rustc_apfloat::ieee::Double;
use rustc_apfloat::{Float as _, Round as Direction};
use vgpu_ptx::ir::{Binary, Round};

use super::ops;

/// Canonical NaN of results.
pub(crate) const NAN: f64 = f64::from_bits(0x7fff_ffff_ffff_ffff);

const SIGN: u64 = 1 << 63;

#[inline(always)]
pub(super) const fn canonical(x: f64) -> f64 {
    let bits = x.to_bits();
    // The bits are compared, for the reason that `float::canonical` states.
    f64::from_bits(if bits & !SIGN > f64::INFINITY.to_bits() { NAN.to_bits() } else { bits })
}

ops! {
    Add: f64, f64 => f64 = |a, b| canonical(a + b);
    Sub: f64, f64 => f64 = |a, b| canonical(a - b);
    Mul: f64, f64 => f64 = |a, b| canonical(a * b);
    Div: f64, f64 => f64 = |a, b| canonical(a / b);
    Fma: f64, f64, f64 => f64 = |a, b, c| canonical(a.mul_add(b, c));
    Min: f64, f64 => f64 = |a, b| min(a, b);
    Max: f64, f64 => f64 = |a, b| -min(-a, -b);
    Neg: u64 => u64 = |a| a ^ SIGN;
    Abs: u64 => u64 = |a| a & !SIGN;
    CopySign: u64, u64 => u64 = |a, b| a & SIGN | b & !SIGN;
    Rcp: f64 => f64 = |a| canonical(1.0 / a);
    Sqrt: f64 => f64 = |a| canonical(a.sqrt());
    /// Computes `rcp.approx.ftz.f64`, which reads and writes only upper halves.
    RcpApprox: f64 => f64 = |a| upper(1.0 / upper(a));
    /// Computes `rsqrt.approx.f64`. With `.ftz` it reads and writes only upper halves.
    Rsqrt: f64 => f64 = |a| canonical(1.0 / a.sqrt());
    RsqrtFtz: f64 => f64 = |a| upper(1.0 / upper(a).sqrt());
}

fn min(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        return canonical(b);
    }
    if b.is_nan() {
        return a;
    }
    if a == b {
        f64::from_bits(a.to_bits() | b.to_bits())
    } else if a < b {
        a
    } else {
        b
    }
}

/// Clears the 32 lower bits of a number, and flushes a subnormal one. As the ISA defines it, a NaN whose
/// fraction is only in the lower bits becomes infinity.
fn upper(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = bits >> 52 & 0x7ff;
    f64::from_bits(bits & if exponent == 0 { SIGN } else { !0xffff_ffff })
}

const fn direction(round: Round) -> Direction {
    match round {
        Round::Nearest => Direction::NearestTiesToEven,
        Round::Zero => Direction::TowardZero,
        Round::Down => Direction::TowardNegative,
        Round::Up => Direction::TowardPositive,
    }
}

fn double(bits: u64) -> Double {
    Double::from_bits(u128::from(bits))
}

fn bits(value: Double) -> u64 {
    if value.is_nan() { NAN.to_bits() } else { value.to_bits() as u64 }
}

/// Computes a sum, difference, product or quotient, rounded in a direction.
pub(crate) fn binary(op: Binary, a: u64, b: u64, round: Round) -> u64 {
    let (a, b, round) = (double(a), double(b), direction(round));
    bits(match op {
        Binary::Add => a.add_r(b, round).value,
        Binary::Sub => a.sub_r(b, round).value,
        Binary::Mul => a.mul_r(b, round).value,
        _ => a.div_r(b, round).value,
    })
}

/// Computes a fused product and sum, rounded in a direction.
pub(crate) fn fused(a: u64, b: u64, c: u64, round: Round) -> u64 {
    bits(double(a).mul_add_r(double(b), double(c), direction(round)).value)
}

/// Computes a square root, rounded in a direction.
pub(crate) fn root(a: f64, round: Round) -> f64 {
    if a.is_nan() || a <= 0.0 || a.is_infinite() {
        return canonical(a.sqrt());
    }
    // Tiny numbers are scaled by an even power of two, so that the remainder below is exact.
    let (scaled, back) = if a < 1e-200 { (a * 2f64.powi(600), 2f64.powi(-300)) } else { (a, 1.0) };
    let nearest = scaled.sqrt();
    let rest = nearest.mul_add(-nearest, scaled);
    let beside = match round {
        Round::Down | Round::Zero if rest < 0.0 => -1,
        Round::Up if rest > 0.0 => 1,
        _ => 0,
    };
    f64::from_bits(nearest.to_bits().wrapping_add_signed(beside)) * back
}
