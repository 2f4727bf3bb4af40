//! Tests that approximations stay within the ISA's error bounds, and follow its tables of special values
//! exactly.

use std::f64::consts::PI;

use crate::case::Case;
use crate::expect::{Expect, Format};
use crate::lanes::{Lanes, OperandKind};
use crate::values::Domain;

/// Maximum permitted error of an approximation.
#[derive(Clone, Copy)]
enum Bound {
    /// Maximum absolute error.
    Absolute(f64),
    /// Maximum error as a fraction of the exact result.
    Relative(f64),
}

/// Smallest normal number of single precision.
const NORMAL: f64 = f32::MIN_POSITIVE as f64;

const fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// Decodes an operand, which `.ftz` flushes if it is subnormal.
fn flushed(bits: u64, ftz: bool) -> f64 {
    let value = single(bits);
    f64::from(if ftz && value.is_subnormal() { 0.0_f32.copysign(value) } else { value })
}

/// Returns the permitted results for an exact result. Zero, infinity and NaN must be exact, other results may
/// differ by the bound. Results below the normal range may be flushed, and must be with `.ftz`.
fn around(exact: f64, bound: Bound, ftz: bool) -> Expect {
    if exact.is_nan() {
        return Expect::Nan(Format::Single);
    }
    if exact == 0.0 || exact.is_infinite() {
        return Expect::from((exact as f32).to_bits());
    }
    let error = match bound {
        Bound::Absolute(error) => error,
        Bound::Relative(part) => part * exact.abs(),
    };
    // Results beyond the greatest number are infinite, and near it the ISA's bound permits either.
    let round_out =
        |value: f64| if value.abs() >= f64::from(f32::MAX) { value.signum() * f64::INFINITY } else { value };
    let (mut low, mut high) = (round_out(exact - error), round_out(exact + error));
    if exact.abs() - error < NORMAL {
        let spare = f64::from(f32::from_bits(1));
        if ftz {
            // With `.ftz`, results below the normal range are zeros.
            let least = |bound: f64| if bound.abs() < NORMAL { 0.0 } else { bound };
            (low, high) = if exact > 0.0 { (0.0, least(high)) } else { (least(low), 0.0) };
        } else {
            (low, high) = (low - spare, high + spare);
        }
    }
    Expect::Between(low, high)
}

type Function = fn(f64) -> f64;

/// Functions of one operand, each with its error bound and the domain of most test operands.
const FUNCTIONS: [(&str, Function, Bound, Domain); 5] = [
    ("rcp", |a| 1.0 / a, Bound::Relative(ULP), Domain::F32),
    ("sqrt", f64::sqrt, Bound::Relative(ULP), Domain::F32),
    (
        "rsqrt",
        |a| if a == 0.0 { f64::INFINITY.copysign(a) } else { 1.0 / a.sqrt() },
        Bound::Relative(RSQRT),
        Domain::F32,
    ),
    ("ex2", f64::exp2, Bound::Relative(2.0 * ULP), Domain::Range(-150, 130)),
    ("tanh", f64::tanh, Bound::Relative(0.000_488_281_25), Domain::Range(-12, 12)),
];

/// Value of one unit in the last place for a number just above a power of two.
const ULP: f64 = 1.0 / (1 << 23) as f64;
/// Error bound of `rsqrt`, 2^-22.9.
const RSQRT: f64 = 1.277_635e-7;

/// Returns a test of an instruction with one operand, for the edge values of all numbers and for numbers of
/// two domains.
fn case(
    spelling: &str,
    seed: u64,
    domains: [Domain; 2],
    reference: impl Fn(u64) -> Expect + Send + Sync + 'static,
) -> Case {
    let mut random = crate::values::Random::new(seed);
    let edges = Domain::F32.edges();
    let tuples = (0..4000).map(|index| vec![domains[index % 2].random(&mut random, &edges)]).collect();
    let source = (OperandKind::F32, Domain::F32);
    Lanes::new(spelling, OperandKind::F32, &[source], move |operands| reference(operands[0]))
        .also(tuples)
        .case()
}

fn functions(cases: &mut Vec<Case>) {
    for (name, function, bound, domain) in FUNCTIONS {
        for ftz in [false, true] {
            if name == "tanh" && ftz {
                continue;
            }
            let spelling = format!("{name}.approx{}.f32", if ftz { ".ftz" } else { "" });
            cases.push(case(&spelling, 5, [domain; 2], move |a| {
                let a = flushed(a, ftz);
                // The table of special values: 2^0 is exactly 1.
                let one = Expect::from(1.0_f32.to_bits());
                if name == "ex2" && a == 0.0 { one } else { around(function(a), bound, ftz) }
            }));
        }
    }
}

/// Returns the permitted results of the logarithm. The bound is absolute around 1, where the result is near
/// zero, and relative elsewhere.
fn logarithm(operand: u64, ftz: bool) -> Expect {
    let a = flushed(operand, ftz);
    let bound = 2.0_f64.powi(-22);
    let bound = if a > 0.5 && a < 2.0 { Bound::Absolute(bound) } else { Bound::Relative(bound) };
    match a.log2() {
        // The logarithm of 1 is within the absolute bound of zero.
        0.0 => Expect::Between(-2.0_f64.powi(-22), 2.0_f64.powi(-22)),
        exact => around(exact, bound, ftz),
    }
}

/// Returns the permitted results of sine and cosine. The bound depends on the size of the angle; there is
/// none beyond 100 pi.
fn angle(operand: u64, ftz: bool, function: Function) -> Expect {
    let a = flushed(operand, ftz);
    let exact = function(a);
    if a.is_nan() || a.is_infinite() {
        return Expect::Nan(Format::Single);
    }
    if a == 0.0 {
        return Expect::from((exact as f32).to_bits());
    }
    let error = if a.abs() <= 2.0 * PI {
        2.0_f64.powf(-20.5)
    } else if a.abs() <= 100.0 * PI {
        2.0_f64.powf(-14.7)
    } else {
        return Expect::Any;
    };
    Expect::Between(exact - error, exact + error)
}

fn transcendental(cases: &mut Vec<Case>) {
    type Reference = fn(u64, bool) -> Expect;
    let functions: [(&str, Reference, Domain); 3] = [
        ("lg2", logarithm, Domain::Range(0, 4)),
        ("sin", |a, ftz| angle(a, ftz, f64::sin), Domain::Range(-320, 320)),
        ("cos", |a, ftz| angle(a, ftz, f64::cos), Domain::Range(-320, 320)),
    ];
    for (name, function, domain) in functions {
        for ftz in [false, true] {
            let spelling = format!("{name}.approx{}.f32", if ftz { ".ftz" } else { "" });
            cases.push(case(&spelling, 6, [domain, Domain::Range(-7, 7)], move |a| function(a, ftz)));
        }
    }
}

/// Adds tests of quotients. `.approx` has an error bound only for divisors up to 2^126, and gives zero or NaN
/// beyond; `.full` has it for all divisors.
fn quotients(cases: &mut Vec<Case>) {
    for form in ["approx", "full"] {
        for ftz in [false, true] {
            let spelling = format!("div.{form}{}.f32", if ftz { ".ftz" } else { "" });
            let reference = move |operands: &[u64]| {
                let (a, b) = (flushed(operands[0], ftz), flushed(operands[1], ftz));
                let usual = around(a / b, Bound::Relative(2.0 * ULP), ftz);
                let large = b.is_finite() && b.abs() > 2.0_f64.powi(126);
                let small = b != 0.0 && b.abs() < NORMAL;
                match (form, &usual) {
                    ("approx", _) if large && a.is_infinite() => Expect::Nan(Format::Single),
                    ("approx", Expect::Between(low, high)) if large => {
                        // The ISA demands zero here, but the quotient within its bound is also accepted.
                        Expect::Between(low.min(0.0), high.max(0.0))
                    }
                    // The ISA demands zero, and leaves its sign open.
                    ("approx", Expect::Bits(_)) if large => Expect::Between(0.0, 0.0),
                    // Subnormal divisors are outside of the bound's range.
                    ("approx", _) if small => Expect::Any,
                    _ => usual,
                }
            };
            let source = (OperandKind::F32, Domain::F32);
            cases.push(Lanes::new(&spelling, OperandKind::F32, &[source; 2], reference).extra(3000).case());
        }
    }
}

/// Adds tests of `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`. The ISA defines both on the upper 32 bits
/// of numbers, and leaves the last bit of the fraction open.
fn upper_halves(cases: &mut Vec<Case>) {
    const UPPER: u64 = 0xffff_ffff_0000_0000;
    const INFINITY: u64 = 0x7ff0_0000_0000_0000;
    let functions: [(&str, Function); 2] = [("rcp", |a| 1.0 / a), ("rsqrt", |a| 1.0 / a.sqrt())];
    for (name, function) in functions {
        let reference = move |o: &[u64]| {
            let (sign, upper) = (o[0] & 1 << 63, o[0] & UPPER);
            let magnitude = upper & !(1 << 63);
            match magnitude {
                // The reciprocal of a zero or a subnormal number is infinite.
                _ if magnitude < 1 << 52 => return Expect::Bits(sign | INFINITY),
                _ if magnitude > INFINITY => return Expect::Nan(Format::Double),
                _ if name == "rsqrt" && sign != 0 => return Expect::Nan(Format::Double),
                INFINITY => return Expect::Bits(sign),
                _ => {}
            }
            let exact = function(f64::from_bits(upper)).to_bits() & UPPER;
            let around = [exact - (1 << 32), exact, exact + (1 << 32)];
            // Results below the normal range are flushed to zeros of their sign.
            let flush = |bits: u64| if bits & INFINITY == 0 { bits & 1 << 63 } else { bits };
            Expect::OneOf(around.map(flush).to_vec())
        };
        let source = (OperandKind::F64, Domain::F64);
        let spelling = format!("{name}.approx.ftz.f64");
        cases.push(Lanes::new(&spelling, OperandKind::F64, &[source], reference).extra(3000).case());
    }
}

pub fn cases(cases: &mut Vec<Case>) {
    upper_halves(cases);
    functions(cases);
    transcendental(cases);
    quotients(cases);
}
