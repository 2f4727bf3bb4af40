//! Half precision and bfloat16, single and packed in pairs.

use rustc_apfloat::ieee::{BFloat, Double, Half};

use crate::case::Case;
use crate::expect::{self, Expect};
use crate::floating::modifiers;
use crate::floats::{self, Mode, Number};
use crate::lanes::{Kind, Lanes};
use crate::values::Domain;

/// A format as the ISA names it.
struct Format {
    name: &'static str,
    single: Domain,
    packed: Domain,
}

const HALF: Format = Format { name: "f16", single: Domain::F16, packed: Domain::F16x2 };
const BFLOAT: Format = Format { name: "bf16", single: Domain::Bf16, packed: Domain::Bf16x2 };

/// The instruction on one number, and on two beside each other.
fn both(
    cases: &mut Vec<Case>,
    head: &str,
    format: &Format,
    sources: usize,
    reference: impl Fn(&[u64], Mode) -> Expect + Clone + Send + Sync + 'static,
) {
    let mode = Mode::of(head);
    let spelling = format!("{head}.{}", format.name);
    let one = reference.clone();
    let source = (Kind::F16, format.single);
    let lanes = Lanes::new(&spelling, Kind::F16, &vec![source; sources], move |o| one(o, mode));
    cases.push(lanes.extra(1000).case());
    let two = move |operands: &[u64]| {
        let half = |shift: u32| {
            let halves: Vec<u64> = operands.iter().map(|word| word >> shift & 0xffff).collect();
            reference(&halves, mode)
        };
        Expect::halves(half(0), half(16))
    };
    let source = (Kind::Packed, format.packed);
    cases.push(Lanes::new(&(spelling + "x2"), Kind::Packed, &vec![source; sources], two).extra(1000).case());
}

/// Negative results become 0, NaN stays.
fn relu(result: Expect) -> Expect {
    match result {
        // A negative zero may be either.
        Expect::Bits(0x8000) => Expect::OneOf(vec![0, 0x8000]),
        Expect::Bits(bits) if bits & 0x8000 != 0 => Expect::Bits(0),
        // A result at the edge of the normal range, and its zero.
        Expect::OneOf(choices) if choices[0] & 0x8000 != 0 => Expect::OneOf(vec![0, 0x8000]),
        other => other,
    }
}

fn fused<F: Number>(cases: &mut Vec<Case>, format: &Format, modifiers: &[&str]) {
    for modifier in modifiers {
        let clamp = modifier.contains("relu");
        both(cases, &format!("fma.rn{modifier}"), format, 3, move |o, mode| {
            let result = floats::fma::<F>(o[0], o[1], o[2], mode);
            if clamp { relu(result) } else { result }
        });
    }
}

fn extrema_and_signs<F: Number>(cases: &mut Vec<Case>, format: &Format, flushes: &[&str]) {
    for (name, max) in [("min", false), ("max", true)] {
        for modifiers in modifiers(&[flushes, &["", ".NaN"]]) {
            let nan = modifiers.contains("NaN");
            both(cases, &format!("{name}{modifiers}"), format, 2, move |o, mode| {
                floats::extremum::<F>(o[0], o[1], mode, max, nan)
            });
        }
    }
    for ftz in flushes {
        both(cases, &format!("abs{ftz}"), format, 1, |o, mode| floats::abs::<F>(o[0], mode));
        both(cases, &format!("neg{ftz}"), format, 1, |o, mode| floats::neg::<F>(o[0], mode));
    }
}

fn arithmetic<F: Number>(cases: &mut Vec<Case>, format: &Format, modifiers: &[String]) {
    for modifiers in modifiers {
        both(cases, &format!("add{modifiers}"), format, 2, |o, mode| floats::add::<F>(o[0], o[1], mode));
        both(cases, &format!("sub{modifiers}"), format, 2, |o, mode| floats::sub::<F>(o[0], o[1], mode));
        both(cases, &format!("mul{modifiers}"), format, 2, |o, mode| floats::mul::<F>(o[0], o[1], mode));
    }
}

/// Returns the value of a half.
pub fn value(bits: u64) -> f64 {
    match floats::convert::<Half, Double>(bits, Mode::NEAREST, false) {
        Expect::Bits(bits) => f64::from_bits(bits),
        _ => f64::NAN,
    }
}

/// Returns the value of a bfloat, which is the upper half of a single.
fn bfloat_value(bits: u64) -> f64 {
    f64::from(f32::from_bits((bits as u32) << 16))
}

/// The bfloats that are so near to an exact value, of the few around it; zeros may have either sign.
fn near_bfloat(exact: f64, error: f64) -> Expect {
    if exact.is_nan() {
        return Expect::Nan(expect::Format::Bfloat);
    }
    let Expect::Bits(nearest) = floats::convert::<Double, BFloat>(exact.to_bits(), Mode::NEAREST, false)
    else {
        return Expect::Any;
    };
    let flush = |bits: u64| if bits & 0x7f80 == 0 { bits & 0x8000 } else { bits };
    let around = nearest.saturating_sub(3)..=nearest + 3;
    let within = |bits: &u64| *bits == nearest || (bfloat_value(*bits) - exact).abs() <= error;
    Expect::OneOf(around.filter(within).flat_map(|bits| [bits, flush(bits)]).collect())
}

/// The halves that are so near to an exact value, of the few around it.
fn near(exact: f64, error: f64, ftz: bool) -> Expect {
    if exact.is_nan() {
        return Expect::Nan(expect::Format::Half);
    }
    let Expect::Bits(nearest) = floats::convert::<Double, Half>(exact.to_bits(), Mode::NEAREST, false) else {
        return Expect::Any;
    };
    // Rounding itself costs half of the last place.
    let around = nearest.saturating_sub(3)..=nearest + 3;
    let within = |bits: &u64| *bits == nearest || (value(*bits) - exact).abs() <= error;
    let flush = |bits: u64| if ftz && bits & 0x7c00 == 0 { bits & 0x8000 } else { bits };
    Expect::OneOf(around.filter(within).map(flush).collect())
}

/// Approximations, within the ISA's bounds of 2^-9.9 of the result and of 2^-10.987.
fn approximations(cases: &mut Vec<Case>) {
    for ftz in ["", ".ftz"] {
        both(cases, &format!("ex2.approx{ftz}"), &HALF, 1, |o, mode| {
            let a = value(flushed(o[0], mode));
            near(a.exp2(), a.exp2() * 2.0_f64.powf(-9.9), mode.ftz)
        });
    }
    both(cases, "tanh.approx", &HALF, 1, |o, mode| {
        near(value(flushed(o[0], mode)).tanh(), 2.0_f64.powf(-10.987), mode.ftz)
    });
    // Relative to the result, and absolute.
    both(cases, "ex2.approx.ftz", &BFLOAT, 1, |o, _| {
        let flushed = if o[0] & 0x7f80 == 0 { o[0] & 0x8000 } else { o[0] };
        let exact = bfloat_value(flushed).exp2();
        near_bfloat(exact, exact * 2.0_f64.powi(-7))
    });
    both(cases, "tanh.approx", &BFLOAT, 1, |o, _| near_bfloat(bfloat_value(o[0]).tanh(), 2.0_f64.powi(-8)));
}

/// Flushes a half with `.ftz`.
const fn flushed(bits: u64, mode: Mode) -> u64 {
    if mode.ftz && bits & 0x7c00 == 0 { bits & 0x8000 } else { bits }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    arithmetic::<Half>(&mut cases, &HALF, &modifiers(&[&["", ".rn"], &["", ".ftz"], &["", ".sat"]]));
    fused::<Half>(&mut cases, &HALF, &["", ".ftz", ".sat", ".ftz.sat", ".relu", ".ftz.relu"]);
    extrema_and_signs::<Half>(&mut cases, &HALF, &["", ".ftz"]);
    approximations(&mut cases);
    arithmetic::<BFloat>(&mut cases, &BFLOAT, &modifiers(&[&["", ".rn"]]));
    fused::<BFloat>(&mut cases, &BFLOAT, &["", ".relu"]);
    extrema_and_signs::<BFloat>(&mut cases, &BFLOAT, &[""]);
    cases
}
