//! Compares the references of floating-point arithmetic with the host's arithmetic and with exact arguments,
//! because a test against a wrong reference would be worthless.

use libtest_mimic::{Failed, Trial};
use rustc_apfloat::ieee::{BFloat, Double, Half, Single};

use crate::expect::{Expect, Format};
use crate::floats::{self, Mode, Round};
use crate::values::{Domain, tuples};

const DIRECTED: [Round; 3] = [Round::TowardZero, Round::TowardNegative, Round::TowardPositive];

const fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// Compares a reference with the host for all tuples.
fn agree(
    domains: &[Domain],
    reference: impl Fn(&[u64]) -> Expect,
    host: impl Fn(&[u64]) -> u64,
) -> Result<(), Failed> {
    for operands in tuples(domains, 3000) {
        let (expect, host) = (reference(&operands), host(&operands));
        if !expect.allows(host) {
            return Err(format!("{operands:#x?}: {expect:x?}, by the host {host:#x}").into());
        }
    }
    Ok(())
}

/// Compares results that are rounded to nearest with the host's.
fn nearest() -> Result<(), Failed> {
    /// A reference, and the host's operation that it is compared with.
    type Pair<F> = (fn(u64, u64, Mode) -> Expect, fn(F, F) -> F);
    const MODE: Mode = Mode::NEAREST;
    const DOUBLE: fn(u64) -> f64 = f64::from_bits;
    let (s, d) = (Domain::F32, Domain::F64);
    let singles: [Pair<f32>; 4] = [
        (floats::add::<Single>, |a, b| a + b),
        (floats::sub::<Single>, |a, b| a - b),
        (floats::mul::<Single>, |a, b| a * b),
        (floats::div::<Single>, |a, b| a / b),
    ];
    for (reference, host) in singles {
        let host = |o: &[u64]| host(single(o[0]), single(o[1])).to_bits().into();
        agree(&[s; 2], |o| reference(o[0], o[1], MODE), host)?;
    }
    let doubles: [Pair<f64>; 3] = [
        (floats::add::<Double>, |a, b| a + b),
        (floats::mul::<Double>, |a, b| a * b),
        (floats::div::<Double>, |a, b| a / b),
    ];
    for (reference, host) in doubles {
        agree(&[d; 2], |o| reference(o[0], o[1], MODE), |o| host(DOUBLE(o[0]), DOUBLE(o[1])).to_bits())?;
    }
    agree(&[s], |o| floats::sqrt::<Single>(o[0], MODE), |o| single(o[0]).sqrt().to_bits().into())?;
    agree(&[d], |o| floats::sqrt::<Double>(o[0], MODE), |o| DOUBLE(o[0]).sqrt().to_bits())?;
    let fused = |o: &[u64]| single(o[0]).mul_add(single(o[1]), single(o[2])).to_bits().into();
    agree(&[s; 3], |o| floats::fma::<Single>(o[0], o[1], o[2], MODE), fused)?;
    let fused = |o: &[u64]| DOUBLE(o[0]).mul_add(DOUBLE(o[1]), DOUBLE(o[2])).to_bits();
    agree(&[d; 3], |o| floats::fma::<Double>(o[0], o[1], o[2], MODE), fused)?;
    let narrowed = |o: &[u64]| (DOUBLE(o[0]) as f32).to_bits().into();
    agree(&[d], |o| floats::convert::<Double, Single>(o[0], MODE, false), narrowed)
}

/// Returns the bits of an expected number, or `None` if it is not exact.
fn bits(expect: &Expect) -> Option<u64> {
    if let Expect::Bits(bits) = expect { Some(*bits) } else { None }
}

/// Returns whether `rounded` is the exact value `exact`, rounded in a direction.
fn is_rounded(exact: f64, rounded: f32, round: Round) -> bool {
    let (value, above, below) =
        (f64::from(rounded), f64::from(rounded.next_up()), f64::from(rounded.next_down()));
    match round {
        Round::TowardNegative => value <= exact && above > exact,
        Round::TowardPositive => value >= exact && below < exact,
        _ if exact >= 0.0 => value <= exact && above > exact,
        _ => value >= exact && below < exact,
    }
}

/// Compares directed roundings with exact products. The product of two singles is an exact double.
fn directed() -> Result<(), Failed> {
    for operands in tuples(&[Domain::F32; 2], 5000) {
        let exact = f64::from(single(operands[0])) * f64::from(single(operands[1]));
        if !exact.is_finite() || exact == 0.0 {
            continue;
        }
        for round in DIRECTED {
            let mode = Mode { round, ..Mode::NEAREST };
            for expect in [
                floats::mul::<Single>(operands[0], operands[1], mode),
                floats::convert::<Double, Single>(exact.to_bits(), mode, false),
                floats::fma::<Single>(operands[0], operands[1], 0x8000_0000, mode),
            ] {
                let rounded = single(bits(&expect).ok_or("a product without a value")?);
                if !is_rounded(exact, rounded, round) {
                    return Err(format!("{operands:#x?} {round:?}: {rounded:e} for {exact:e}").into());
                }
            }
        }
    }
    Ok(())
}

/// Returns the value of a 16-bit number, computed from the definition of its format.
fn defined(bits: u16, exponent_bits: i32, significand_bits: i32) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits & 0x7fff) >> significand_bits;
    let significand = f64::from(bits & ((1 << significand_bits) - 1)) / f64::from(1 << significand_bits);
    let bias = (1 << (exponent_bits - 1)) - 1;
    match exponent {
        0 => sign * significand * 2.0_f64.powi(1 - bias),
        _ if exponent == (1 << exponent_bits) - 1 => {
            if significand == 0.0 {
                sign * f64::INFINITY
            } else {
                f64::NAN
            }
        }
        _ => sign * (1.0 + significand) * 2.0_f64.powi(exponent - bias),
    }
}

/// Checks that each number of 16 bits has its defined value, and that values in between are rounded to the
/// nearest, or to the even one.
fn narrow() -> Result<(), Failed> {
    type Convert = fn(u64, Mode, bool) -> Expect;
    let formats: [(Format, i32, i32, Convert, Convert); 2] = [
        (Format::Half, 5, 10, floats::convert::<Half, Single>, floats::convert::<Double, Half>),
        (Format::Bfloat, 8, 7, floats::convert::<BFloat, Single>, floats::convert::<Double, BFloat>),
    ];
    for (format, exponent_bits, significand_bits, widen, narrow) in formats {
        let value = |bits: u16| defined(bits, exponent_bits, significand_bits);
        for number in 0..=u16::MAX {
            if format.is_nan(number.into()) {
                continue;
            }
            let widened = bits(&widen(number.into(), Mode::NEAREST, false)).ok_or("a number is a NaN")?;
            if f64::from(single(widened)).to_bits() != value(number).to_bits() {
                return Err(format!("{format:?} {number:#x} is {:e}", single(widened)).into());
            }
            // Values between this number and the next one of its sign are tested.
            let next = value(number + 1);
            if !next.is_finite() {
                continue;
            }
            let middle = f64::midpoint(value(number), next);
            let even = number + (number & 1);
            let nearer = |part: f64| value(number) + (next - value(number)) * part;
            for (from, to) in [(middle, even), (nearer(0.499), number), (nearer(0.501), number + 1)] {
                if bits(&narrow(from.to_bits(), Mode::NEAREST, false)) != Some(to.into()) {
                    return Err(format!("{format:?} {from:e} should be {to:#x}").into());
                }
            }
        }
    }
    Ok(())
}

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("references::nearest", nearest),
        Trial::test("references::directed", directed),
        Trial::test("references::narrow", narrow),
    ]
}
