//! Tests of half precision and bfloat16, single and packed in pairs.

use rustc_apfloat::ieee::{BFloat, Double, Half};

use crate::case::Case;
use crate::expect::{self, Expect};
use crate::floating::modifiers;
use crate::floats::{self, FloatNumber, Mode};
use crate::lanes::{Lanes, OperandKind};
use crate::values::Domain;

/// A 16-bit format with its name in the ISA.
struct ShortFormat {
    name: &'static str,
    single: Domain,
    packed: Domain,
    /// Function that decodes a number; the next field is one that rounds a double to the nearest number.
    value: fn(u64) -> f64,
    round: fn(u64, Mode, bool) -> Expect,
    expected: expect::Format,
}

const HALF: ShortFormat = ShortFormat {
    name: "f16",
    single: Domain::F16,
    packed: Domain::F16x2,
    value,
    round: floats::convert::<Double, Half>,
    expected: expect::Format::Half,
};
const BFLOAT: ShortFormat = ShortFormat {
    name: "bf16",
    single: Domain::Bf16,
    packed: Domain::Bf16x2,
    value: bfloat_value,
    round: floats::convert::<Double, BFloat>,
    expected: expect::Format::Bfloat,
};

/// Adds cases for an instruction on one number, and on two numbers in a register.
fn both(
    cases: &mut Vec<Case>,
    head: &str,
    format: &ShortFormat,
    sources: usize,
    reference: impl Fn(&[u64], Mode) -> Expect + Clone + Send + Sync + 'static,
) {
    let mode = Mode::from_spelling(head);
    let spelling = format!("{head}.{}", format.name);
    let one = reference.clone();
    let source = (OperandKind::F16, format.single);
    let lanes = Lanes::new(&spelling, OperandKind::F16, &vec![source; sources], move |o| one(o, mode));
    cases.push(lanes.extra(1000).case());
    let two = move |operands: &[u64]| {
        let half = |shift: u32| {
            let halves: Vec<u64> = operands.iter().map(|word| word >> shift & 0xffff).collect();
            reference(&halves, mode)
        };
        Expect::halves(half(0), half(16))
    };
    let source = (OperandKind::Packed, format.packed);
    cases.push(
        Lanes::new(&(spelling + "x2"), OperandKind::Packed, &vec![source; sources], two).extra(1000).case(),
    );
}

/// Replaces negative results by 0, and keeps NaN.
pub fn relu(result: Expect) -> Expect {
    match result {
        // The ISA leaves the sign of a zero open.
        Expect::Bits(0x8000) => Expect::OneOf(vec![0, 0x8000]),
        Expect::Bits(bits) if bits & 0x8000 != 0 => Expect::Bits(0),
        // The least normal number or the zero that `.ftz` replaces it by, of which negative ones become zero.
        Expect::OneOf(choices) if choices[0] & 0x8000 != 0 => Expect::OneOf(vec![0, 0x8000]),
        other => other,
    }
}

fn fused<F: FloatNumber>(cases: &mut Vec<Case>, format: &ShortFormat, modifiers: &[&str]) {
    for modifier in modifiers {
        let clamp = modifier.contains("relu");
        both(cases, &format!("fma.rn{modifier}"), format, 3, move |o, mode| {
            let result = floats::fma::<F>(o[0], o[1], o[2], mode);
            if clamp { relu(result) } else { result }
        });
    }
}

fn extrema_and_signs<F: FloatNumber>(cases: &mut Vec<Case>, format: &ShortFormat, flushes: &[&str]) {
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

fn arithmetic<F: FloatNumber>(cases: &mut Vec<Case>, format: &ShortFormat, modifiers: &[String]) {
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

/// Returns the value of a bfloat16 number, which is the upper half of a single.
fn bfloat_value(bits: u64) -> f64 {
    f64::from(f32::from_bits((bits as u32) << 16))
}

/// Returns the numbers of a format within `error` of an exact value. `choices` returns the permitted results
/// for each of them.
fn near(format: &ShortFormat, exact: f64, error: f64, choices: impl Fn(u64) -> [u64; 2]) -> Expect {
    if exact.is_nan() {
        return Expect::Nan(format.expected);
    }
    let Expect::Bits(nearest) = (format.round)(exact.to_bits(), Mode::NEAREST, false) else {
        return Expect::Any;
    };
    // The nearest number is always permitted, because rounding alone costs half a unit in the last place.
    let around = nearest.saturating_sub(3)..=nearest + 3;
    let within = |bits: &u64| *bits == nearest || ((format.value)(*bits) - exact).abs() <= error;
    Expect::OneOf(around.filter(within).flat_map(choices).collect())
}

/// Adds tests of approximations within the ISA's bounds of 2^-9.9 of the result and of 2^-10.987.
fn approximations(cases: &mut Vec<Case>) {
    for ftz in ["", ".ftz"] {
        both(cases, &format!("ex2.approx{ftz}"), &HALF, 1, |o, mode| {
            let a = value(flushed(o[0], mode));
            near(&HALF, a.exp2(), a.exp2() * 2.0_f64.powf(-9.9), |bits| [flushed(bits, mode); 2])
        });
    }
    both(cases, "tanh.approx", &HALF, 1, |o, mode| {
        let a = value(flushed(o[0], mode));
        near(&HALF, a.tanh(), 2.0_f64.powf(-10.987), |bits| [flushed(bits, mode); 2])
    });
    // The error bound is relative to the result. Zeros may have either sign.
    let flush = |bits: u64| if bits & 0x7f80 == 0 { bits & 0x8000 } else { bits };
    let either = move |bits: u64| [bits, flush(bits)];
    both(cases, "ex2.approx.ftz", &BFLOAT, 1, move |o, _| {
        let exact = bfloat_value(flush(o[0])).exp2();
        near(&BFLOAT, exact, exact * 2.0_f64.powi(-7), either)
    });
    both(cases, "tanh.approx", &BFLOAT, 1, move |o, _| {
        near(&BFLOAT, bfloat_value(o[0]).tanh(), 2.0_f64.powi(-8), either)
    });
}

/// Returns the bits of a half, which `.ftz` flushes if it is subnormal.
const fn flushed(bits: u64, mode: Mode) -> u64 {
    if mode.ftz && bits & 0x7c00 == 0 { bits & 0x8000 } else { bits }
}

pub fn cases(cases: &mut Vec<Case>) {
    arithmetic::<Half>(cases, &HALF, &modifiers(&[&["", ".rn"], &["", ".ftz"], &["", ".sat"]]));
    fused::<Half>(cases, &HALF, &["", ".ftz", ".sat", ".ftz.sat", ".relu", ".ftz.relu"]);
    extrema_and_signs::<Half>(cases, &HALF, &["", ".ftz"]);
    approximations(cases);
    arithmetic::<BFloat>(cases, &BFLOAT, &modifiers(&[&["", ".rn"]]));
    fused::<BFloat>(cases, &BFLOAT, &["", ".relu"]);
    extrema_and_signs::<BFloat>(cases, &BFLOAT, &[""]);
}
