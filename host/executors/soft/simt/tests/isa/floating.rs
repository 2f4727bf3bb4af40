//! Tests of floating-point arithmetic in single and double precision with exact rounding.

use rustc_apfloat::ieee::{Double, Single};

use crate::case::Case;
use crate::expect::{Expect, Format};
use crate::floats::{self, FloatNumber, Mode};
use crate::lanes::{Lanes, OperandKind};
use crate::values::Domain;

const SINGLE: (OperandKind, Domain) = (OperandKind::F32, Domain::F32);
const DOUBLE: (OperandKind, Domain) = (OperandKind::F64, Domain::F64);

/// Returns all combinations of the given modifiers of one instruction, in the order of the ISA.
pub fn modifiers(choices: &[&[&str]]) -> Vec<String> {
    let mut all = vec![String::new()];
    for choice in choices {
        all = all.iter().flat_map(|head| choice.iter().map(move |tail| format!("{head}{tail}"))).collect();
    }
    all
}

const ROUNDINGS: &[&str] = &[".rn", ".rz", ".rm", ".rp"];
const FTZ: &[&str] = &["", ".ftz"];
const SAT: &[&str] = &["", ".sat"];

type Unary = fn(u64, Mode) -> Expect;
type Binary = fn(u64, u64, Mode) -> Expect;

fn unary(cases: &mut Vec<Case>, spelling: &str, source: (OperandKind, Domain), operation: Unary) {
    let mode = Mode::from_spelling(spelling);
    let reference = move |operands: &[u64]| operation(operands[0], mode);
    cases.push(Lanes::new(spelling, source.0, &[source], reference).extra(1500).case());
}

fn binary(cases: &mut Vec<Case>, spelling: &str, source: (OperandKind, Domain), operation: Binary) {
    let mode = Mode::from_spelling(spelling);
    let reference = move |operands: &[u64]| operation(operands[0], operands[1], mode);
    cases.push(Lanes::new(spelling, source.0, &[source; 2], reference).case());
}

/// Adds tests of sums, differences, products, and quotients.
fn arithmetic(cases: &mut Vec<Case>) {
    let single: [(&str, Binary); 3] =
        [("add", floats::add::<Single>), ("sub", floats::sub::<Single>), ("mul", floats::mul::<Single>)];
    let double: [(&str, Binary); 3] =
        [("add", floats::add::<Double>), ("sub", floats::sub::<Double>), ("mul", floats::mul::<Double>)];
    // Without a modifier, the rounding is to nearest.
    let roundings: Vec<&str> = ROUNDINGS.iter().copied().chain([""]).collect();
    for (name, operation) in single {
        for modifiers in modifiers(&[&roundings, FTZ, SAT]) {
            binary(cases, &format!("{name}{modifiers}.f32"), SINGLE, operation);
        }
    }
    for (name, operation) in double {
        for rounding in &roundings {
            binary(cases, &format!("{name}{rounding}.f64"), DOUBLE, operation);
        }
    }
    for modifiers in modifiers(&[ROUNDINGS, FTZ]) {
        binary(cases, &format!("div{modifiers}.f32"), SINGLE, floats::div::<Single>);
        unary(cases, &format!("rcp{modifiers}.f32"), SINGLE, floats::rcp::<Single>);
        unary(cases, &format!("sqrt{modifiers}.f32"), SINGLE, floats::sqrt::<Single>);
    }
    for rounding in ROUNDINGS {
        binary(cases, &format!("div{rounding}.f64"), DOUBLE, floats::div::<Double>);
        unary(cases, &format!("rcp{rounding}.f64"), DOUBLE, floats::rcp::<Double>);
        unary(cases, &format!("sqrt{rounding}.f64"), DOUBLE, floats::sqrt::<Double>);
    }
}

/// Returns operands whose product and sum nearly cancel, or are slightly beside a tie. Rounding twice gives
/// wrong results for them.
fn close_calls(double: bool) -> Vec<Vec<u64>> {
    let mut random = crate::values::Random::new(77);
    let one = |bits: u64| if double { 0x3ff0_0000_0000_0000 | bits >> 12 } else { 0x3f80_0000 | bits >> 41 };
    let pick = |value: f64, single: f32| if double { value.to_bits() } else { single.to_bits().into() };
    (0..600)
        .map(|index| {
            let (a, b) = (one(random.bits()), one(random.bits()));
            // c is about -a*b, or a power of two far below one unit of a*b's last place.
            let c = if double {
                let (a, b) = (f64::from_bits(a), f64::from_bits(b));
                if index % 2 == 0 {
                    pick(-(a * b), 0.0)
                } else {
                    pick(f64::exp2(-53.0 - f64::from(index % 7)), 0.0)
                }
            } else {
                let (a, b) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
                if index % 2 == 0 {
                    pick(0.0, -(a * b))
                } else {
                    pick(0.0, f32::exp2(-24.0 - (index % 7) as f32))
                }
            };
            vec![a, b, c]
        })
        .collect()
}

fn fused(cases: &mut Vec<Case>) {
    // `fma` and `mad` are two names of the same operation.
    for modifiers in modifiers(&[&["fma", "mad"], ROUNDINGS, FTZ, SAT]) {
        let spelling = format!("{modifiers}.f32");
        let mode = Mode::from_spelling(&spelling);
        let reference = move |o: &[u64]| floats::fma::<Single>(o[0], o[1], o[2], mode);
        let lanes = Lanes::new(&spelling, OperandKind::F32, &[SINGLE; 3], reference);
        cases.push(lanes.extra(1500).also(close_calls(false)).case());
    }
    for modifiers in modifiers(&[&["fma", "mad"], ROUNDINGS]) {
        let spelling = format!("{modifiers}.f64");
        let mode = Mode::from_spelling(&spelling);
        let reference = move |o: &[u64]| floats::fma::<Double>(o[0], o[1], o[2], mode);
        let lanes = Lanes::new(&spelling, OperandKind::F64, &[DOUBLE; 3], reference);
        cases.push(lanes.also(close_calls(true)).case());
    }
}

fn extremum<F: FloatNumber>(max: bool, nan: bool) -> impl Fn(u64, u64, Mode) -> Expect {
    move |a, b, mode| floats::extremum::<F>(a, b, mode, max, nan)
}

fn signs_and_extrema(cases: &mut Vec<Case>) {
    for (name, max) in [("min", false), ("max", true)] {
        for modifiers in modifiers(&[FTZ, &["", ".NaN"]]) {
            let spelling = format!("{name}{modifiers}.f32");
            let (mode, nan) = (Mode::from_spelling(&spelling), modifiers.contains("NaN"));
            let reference = move |o: &[u64]| extremum::<Single>(max, nan)(o[0], o[1], mode);
            cases.push(Lanes::new(&spelling, OperandKind::F32, &[SINGLE; 2], reference).case());
        }
        let reference = move |o: &[u64]| extremum::<Double>(max, false)(o[0], o[1], Mode::NEAREST);
        cases.push(Lanes::new(&format!("{name}.f64"), OperandKind::F64, &[DOUBLE; 2], reference).case());
    }
    for ftz in FTZ {
        unary(cases, &format!("abs{ftz}.f32"), SINGLE, floats::abs::<Single>);
        unary(cases, &format!("neg{ftz}.f32"), SINGLE, floats::neg::<Single>);
    }
    unary(cases, "abs.f64", DOUBLE, floats::abs::<Double>);
    unary(cases, "neg.f64", DOUBLE, floats::neg::<Double>);
    // `copysign` gives the sign of the first operand to the second.
    let sign = |top: u64, format: Format| {
        move |o: &[u64]| {
            if format.is_nan(o[1]) {
                Expect::Nan(format)
            } else {
                Expect::Bits(o[0] & top | o[1] & (top - 1))
            }
        }
    };
    let reference = sign(1 << 31, Format::Single);
    cases.push(Lanes::new("copysign.f32", OperandKind::F32, &[SINGLE; 2], reference).case());
    let reference = sign(1 << 63, Format::Double);
    cases.push(Lanes::new("copysign.f64", OperandKind::F64, &[DOUBLE; 2], reference).case());
}

pub fn cases(cases: &mut Vec<Case>) {
    arithmetic(cases);
    fused(cases);
    signs_and_extrema(cases);
}
