//! Tests of `cvt` between all types, with each rounding and saturation.

use rustc_apfloat::ieee::{BFloat, Double, Half, Single};

use crate::case::Case;
use crate::expect::Expect;
use crate::floating::modifiers;
use crate::floats::{self, Mode};
use crate::half::relu;
use crate::integers::{Int, TYPES};
use crate::lanes::{Lanes, OperandKind};
use crate::values::Domain;

const U8: Int = Int { name: "u8", bits: 8, signed: false };
const S8: Int = Int { name: "s8", bits: 8, signed: true };

/// Returns a source operand with more bits than its type, because the additional bits must be ignored.
const fn noisy(kind: OperandKind) -> (OperandKind, Domain) {
    match kind {
        OperandKind::B64 => (kind, Domain::Int(64)),
        OperandKind::B32 => (kind, Domain::Int(32)),
        _ => (kind, Domain::Int(16)),
    }
}

/// Returns the expected result of type `int` in a register that may be wider. It is extended with its sign.
fn extended(int: Int, bits: u64, kind: OperandKind) -> Expect {
    let value = int.value(bits) as u64;
    Expect::Bits(value & (u64::MAX >> (64 - 8 * kind.bytes())))
}

fn all_ints() -> impl Iterator<Item = Int> + Clone {
    [U8, S8].into_iter().chain(TYPES)
}

fn between_integers(cases: &mut Vec<Case>) {
    for to in all_ints() {
        for from in all_ints() {
            for sat in ["", ".sat"] {
                let convert = move |bits: u64| {
                    let value = from.value(bits);
                    if sat.is_empty() { to.wrap(value) } else { to.clamp(value) }
                };
                let spelling = format!("cvt{sat}.{}.{}", to.name, from.name);
                let reference = move |o: &[u64]| extended(to, convert(o[0]), to.kind());
                let lanes = Lanes::new(&spelling, to.kind(), &[noisy(from.kind())], reference);
                cases.push(lanes.also((0..256).map(|byte| vec![byte]).collect()).case());
            }
        }
    }
    // Registers may be wider than the types: GGML's kernels convert bytes within words.
    for (to, from, dst, src) in [
        (TYPES[3], S8, OperandKind::B32, OperandKind::B32),
        (TYPES[3], U8, OperandKind::B32, OperandKind::B32),
        (TYPES[3], TYPES[1], OperandKind::B32, OperandKind::B32),
        (TYPES[5], TYPES[3], OperandKind::B64, OperandKind::B64),
        (TYPES[3], TYPES[5], OperandKind::B64, OperandKind::B64),
        (S8, TYPES[3], OperandKind::B32, OperandKind::B32),
        (U8, TYPES[3], OperandKind::B64, OperandKind::B32),
    ] {
        let spelling = format!("cvt.{}.{}", to.name, from.name);
        let reference = move |o: &[u64]| extended(to, to.wrap(from.value(o[0])), dst);
        let name = format!("{spelling} from {src:?} to {dst:?}");
        cases.push(Lanes::new(&spelling, dst, &[noisy(src)], reference).named(&name).case());
    }
}

const HALF: (OperandKind, Domain) = (OperandKind::F16, Domain::F16);
const BFLOAT: (OperandKind, Domain) = (OperandKind::F16, Domain::Bf16);
const SINGLE: (OperandKind, Domain) = (OperandKind::F32, Domain::F32);
const DOUBLE: (OperandKind, Domain) = (OperandKind::F64, Domain::F64);
const TO_INTEGER: &[&str] = &[".rni", ".rzi", ".rmi", ".rpi"];
const ROUNDINGS: &[&str] = &[".rn", ".rz", ".rm", ".rp"];

fn to_integers(cases: &mut Vec<Case>) {
    type Reference = fn(u64, Mode, u32, bool) -> u64;
    let sources: [(&str, (OperandKind, Domain), Reference); 4] = [
        ("bf16", BFLOAT, floats::to_int::<BFloat>),
        ("f16", HALF, floats::to_int::<Half>),
        ("f32", SINGLE, floats::to_int::<Single>),
        ("f64", DOUBLE, floats::to_int::<Double>),
    ];
    for (name, source, convert) in sources {
        let flushes: &[&str] = if name == "f32" { &["", ".ftz"] } else { &[""] };
        for modifiers in modifiers(&[TO_INTEGER, flushes]) {
            for to in all_ints() {
                let spelling = format!("cvt{modifiers}.{}.{name}", to.name);
                let mode = Mode::from_spelling(&spelling);
                let reference =
                    move |o: &[u64]| extended(to, convert(o[0], mode, to.bits, to.signed), to.kind());
                cases.push(Lanes::new(&spelling, to.kind(), &[source], reference).extra(1500).case());
            }
        }
    }
}

fn from_integers(cases: &mut Vec<Case>) {
    type Reference = fn(i128, Mode) -> Expect;
    let targets: [(&str, OperandKind, Reference); 4] = [
        ("bf16", OperandKind::F16, floats::from_int::<BFloat>),
        ("f16", OperandKind::F16, floats::from_int::<Half>),
        ("f32", OperandKind::F32, floats::from_int::<Single>),
        ("f64", OperandKind::F64, floats::from_int::<Double>),
    ];
    for (name, kind, convert) in targets {
        for rounding in ROUNDINGS {
            for from in all_ints() {
                let spelling = format!("cvt{rounding}.{name}.{}", from.name);
                let mode = Mode::from_spelling(&spelling);
                let reference = move |o: &[u64]| convert(from.value(o[0]), mode);
                let lanes = Lanes::new(&spelling, kind, &[noisy(from.kind())], reference);
                cases.push(lanes.also(ties(from.bits)).case());
            }
        }
    }
}

/// Returns integers halfway between two numbers of 8, 11, 24 and 53 bits, and their neighbours.
fn ties(bits: u32) -> Vec<Vec<u64>> {
    let mut ties = Vec::new();
    for precision in [8, 11, 24, 53] {
        for shift in 1..bits.saturating_sub(precision).max(1) {
            for odd in [0_u64, 1] {
                let tie = (1 << (precision - 1) | odd) << shift | 1 << (shift - 1);
                ties.extend([tie - 1, tie, tie + 1].map(|value| vec![value & (u64::MAX >> (64 - bits))]));
            }
        }
    }
    ties
}

type Convert = fn(u64, Mode, bool) -> Expect;

fn float(
    cases: &mut Vec<Case>,
    spelling: &str,
    kind: OperandKind,
    source: (OperandKind, Domain),
    convert: Convert,
) {
    let mode = Mode::from_spelling(spelling);
    let integral = TO_INTEGER.iter().any(|rounding| spelling.contains(rounding));
    let reference = move |o: &[u64]| convert(o[0], mode, integral);
    cases.push(Lanes::new(spelling, kind, &[source], reference).extra(2000).case());
}

fn between_floats(cases: &mut Vec<Case>) {
    let to_half = floats::convert::<Single, Half>;
    let exact: [(&str, OperandKind, (OperandKind, Domain), Convert); 6] = [
        ("cvt.f32.f16", OperandKind::F32, HALF, floats::convert::<Half, Single>),
        ("cvt.ftz.f32.f16", OperandKind::F32, HALF, floats::convert::<Half, Single>),
        ("cvt.f32.bf16", OperandKind::F32, BFLOAT, floats::convert::<BFloat, Single>),
        ("cvt.f64.f16", OperandKind::F64, HALF, floats::convert::<Half, Double>),
        ("cvt.f64.f32", OperandKind::F64, SINGLE, floats::convert::<Single, Double>),
        ("cvt.ftz.f64.f32", OperandKind::F64, SINGLE, floats::convert::<Single, Double>),
    ];
    for (spelling, kind, source, convert) in exact {
        float(cases, spelling, kind, source, convert);
    }
    for rounding in ROUNDINGS {
        for modifiers in modifiers(&[&["", ".ftz"], &["", ".sat"]]) {
            float(cases, &format!("cvt{rounding}{modifiers}.f16.f32"), OperandKind::F16, SINGLE, to_half);
            let spelling = format!("cvt{rounding}{modifiers}.f32.f64");
            float(cases, &spelling, OperandKind::F32, DOUBLE, floats::convert::<Double, Single>);
        }
        let spelling = format!("cvt{rounding}.f16.f64");
        float(cases, &spelling, OperandKind::F16, DOUBLE, floats::convert::<Double, Half>);
    }
    float(cases, "cvt.f64.bf16", OperandKind::F64, BFLOAT, floats::convert::<BFloat, Double>);
    for rounding in ROUNDINGS {
        let to_bfloat: [(&str, (OperandKind, Domain), Convert); 3] = [
            ("f32", SINGLE, floats::convert::<Single, BFloat>),
            ("f64", DOUBLE, floats::convert::<Double, BFloat>),
            ("f16", HALF, floats::convert::<Half, BFloat>),
        ];
        for (from, source, convert) in to_bfloat {
            float(cases, &format!("cvt{rounding}.bf16.{from}"), OperandKind::F16, source, convert);
        }
        let spelling = format!("cvt{rounding}.f16.bf16");
        float(cases, &spelling, OperandKind::F16, BFLOAT, floats::convert::<BFloat, Half>);
    }
    for rounding in TO_INTEGER {
        for modifiers in modifiers(&[&["", ".ftz"], &["", ".sat"]]) {
            let spelling = format!("cvt{rounding}{modifiers}.f32.f32");
            float(cases, &spelling, OperandKind::F32, SINGLE, floats::convert::<Single, Single>);
        }
        float(
            cases,
            &format!("cvt{rounding}.f16.f16"),
            OperandKind::F16,
            HALF,
            floats::convert::<Half, Half>,
        );
        let spelling = format!("cvt{rounding}.bf16.bf16");
        float(cases, &spelling, OperandKind::F16, BFLOAT, floats::convert::<BFloat, BFloat>);
        let spelling = format!("cvt{rounding}.f64.f64");
        float(cases, &spelling, OperandKind::F64, DOUBLE, floats::convert::<Double, Double>);
    }
    for modifiers in [".ftz", ".sat", ".ftz.sat"] {
        let spelling = format!("cvt{modifiers}.f32.f32");
        float(cases, &spelling, OperandKind::F32, SINGLE, floats::convert::<Single, Single>);
    }
}

/// Adds a test that converts every half.
fn every_half(cases: &mut Vec<Case>) {
    let reference = |o: &[u64]| floats::convert::<Half, Single>(o[0], Mode::NEAREST, false);
    let lanes = Lanes::new("cvt.f32.f16", OperandKind::F32, &[HALF], reference);
    let all = (0..=0xffff).map(|bits| vec![bits]).collect();
    cases.push(lanes.named("cvt.f32.f16 of all halves").also(all).case());
}

/// Adds tests of conversions of two numbers into one register, with the first operand in the upper half, and
/// of one number alone. With `.relu`, negative results become zero.
fn narrowed(cases: &mut Vec<Case>) {
    let targets: [(&str, Convert); 2] =
        [("f16", floats::convert::<Single, Half>), ("bf16", floats::convert::<Single, BFloat>)];
    for (name, convert) in targets {
        for modifiers in modifiers(&[&[".rn", ".rz"], &["", ".relu"]]) {
            let (mode, clamps) = (Mode::from_spelling(&modifiers), modifiers.contains("relu"));
            let number = move |bits: u64| {
                let result = convert(bits, mode, false);
                if clamps { relu(result) } else { result }
            };
            let pair = move |o: &[u64]| Expect::halves(number(o[1]), number(o[0]));
            let spelling = format!("cvt{modifiers}.{name}x2.f32");
            cases.push(Lanes::new(&spelling, OperandKind::B32, &[SINGLE; 2], pair).case());
            if clamps {
                let spelling = format!("cvt{modifiers}.{name}.f32");
                let single = move |o: &[u64]| number(o[0]);
                cases.push(Lanes::new(&spelling, OperandKind::F16, &[SINGLE], single).extra(2000).case());
            }
        }
    }
}

/// Adds tests of conversions to 10 bits of fraction. The reference divides the number by its last place,
/// which is a power of two.
fn to_tf32(cases: &mut Vec<Case>) {
    for (rounding, clamps) in
        [("rna", &["", ".satfinite"][..]), ("rn", &["", ".relu"]), ("rz", &["", ".satfinite.relu"])]
    {
        for clamp in clamps {
            let spelling = format!("cvt.{rounding}{clamp}.tf32.f32");
            let reference = move |o: &[u64]| {
                let value = f64::from(f32::from_bits(o[0] as u32));
                if value.is_nan() {
                    return Expect::Bits(0x7fff_ffff);
                }
                if clamp.contains("relu") && value < 0.0 {
                    return Expect::OneOf(vec![0, 0x8000_0000]);
                }
                let exponent = (o[0] >> 23 & 0xff).max(1) as i32 - 127;
                let place = 2.0_f64.powi(exponent - 10);
                let places = value / place;
                let rounded = place
                    * match rounding {
                        "rna" => places.round(),
                        "rn" => places.round_ties_even(),
                        _ => places.trunc(),
                    };
                let most = 2.0_f64.powi(127) * (2.0 - 2.0_f64.powi(-10));
                let rounded = if clamp.contains("satfinite") { rounded.clamp(-most, most) } else { rounded };
                let bits = (rounded as f32).to_bits();
                if clamp.contains("relu") && bits == 1 << 31 {
                    Expect::OneOf(vec![0, bits.into()])
                } else {
                    Expect::from(bits)
                }
            };
            cases.push(Lanes::new(&spelling, OperandKind::B32, &[SINGLE], reference).extra(3000).case());
        }
    }
}

pub fn cases(cases: &mut Vec<Case>) {
    to_tf32(cases);
    between_integers(cases);
    to_integers(cases);
    from_integers(cases);
    between_floats(cases);
    every_half(cases);
    narrowed(cases);
}
