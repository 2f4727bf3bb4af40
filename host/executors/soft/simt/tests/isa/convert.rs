//! `cvt` between all types, with each rounding and saturation.

use rustc_apfloat::ieee::{BFloat, Double, Half, Single};

use crate::case::Case;
use crate::expect::Expect;
use crate::floating::modifiers;
use crate::floats::{self, Mode};
use crate::integers::{Int, TYPES};
use crate::lanes::{Kind, Lanes};
use crate::values::Domain;

const U8: Int = Int { name: "u8", bits: 8, signed: false };
const S8: Int = Int { name: "s8", bits: 8, signed: true };

/// Sources with more bits than their type has: those above must not matter.
const fn noisy(kind: Kind) -> (Kind, Domain) {
    match kind {
        Kind::B64 => (kind, Domain::Int(64)),
        Kind::B32 => (kind, Domain::Int(32)),
        _ => (kind, Domain::Int(16)),
    }
}

/// A result of type `int` in a register that may be wider: extended by its sign.
fn extended(int: Int, bits: u64, kind: Kind) -> Expect {
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
        (TYPES[3], S8, Kind::B32, Kind::B32),
        (TYPES[3], U8, Kind::B32, Kind::B32),
        (TYPES[3], TYPES[1], Kind::B32, Kind::B32),
        (TYPES[5], TYPES[3], Kind::B64, Kind::B64),
        (TYPES[3], TYPES[5], Kind::B64, Kind::B64),
        (S8, TYPES[3], Kind::B32, Kind::B32),
        (U8, TYPES[3], Kind::B64, Kind::B32),
    ] {
        let spelling = format!("cvt.{}.{}", to.name, from.name);
        let reference = move |o: &[u64]| extended(to, to.wrap(from.value(o[0])), dst);
        let name = format!("{spelling} from {src:?} to {dst:?}");
        cases.push(Lanes::new(&spelling, dst, &[noisy(src)], reference).named(&name).case());
    }
}

const HALF: (Kind, Domain) = (Kind::F16, Domain::F16);
const BFLOAT: (Kind, Domain) = (Kind::F16, Domain::Bf16);
const SINGLE: (Kind, Domain) = (Kind::F32, Domain::F32);
const DOUBLE: (Kind, Domain) = (Kind::F64, Domain::F64);
const TO_INTEGER: &[&str] = &[".rni", ".rzi", ".rmi", ".rpi"];
const ROUNDINGS: &[&str] = &[".rn", ".rz", ".rm", ".rp"];

fn to_integers(cases: &mut Vec<Case>) {
    type Reference = fn(u64, Mode, u32, bool) -> u64;
    let sources: [(&str, (Kind, Domain), Reference); 4] = [
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
                let mode = Mode::of(&spelling);
                let reference =
                    move |o: &[u64]| extended(to, convert(o[0], mode, to.bits, to.signed), to.kind());
                cases.push(Lanes::new(&spelling, to.kind(), &[source], reference).extra(1500).case());
            }
        }
    }
}

fn from_integers(cases: &mut Vec<Case>) {
    type Reference = fn(i128, Mode) -> Expect;
    let targets: [(&str, Kind, Reference); 4] = [
        ("bf16", Kind::F16, floats::from_int::<BFloat>),
        ("f16", Kind::F16, floats::from_int::<Half>),
        ("f32", Kind::F32, floats::from_int::<Single>),
        ("f64", Kind::F64, floats::from_int::<Double>),
    ];
    for (name, kind, convert) in targets {
        for rounding in ROUNDINGS {
            for from in all_ints() {
                let spelling = format!("cvt{rounding}.{name}.{}", from.name);
                let mode = Mode::of(&spelling);
                let reference = move |o: &[u64]| convert(from.value(o[0]), mode);
                let lanes = Lanes::new(&spelling, kind, &[noisy(from.kind())], reference);
                cases.push(lanes.also(ties(from.bits)).case());
            }
        }
    }
}

/// Integers halfway between two numbers of 8, 11, 24 and 53 bits, and their neighbours.
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

fn float(cases: &mut Vec<Case>, spelling: &str, kind: Kind, source: (Kind, Domain), convert: Convert) {
    let mode = Mode::of(spelling);
    let integral = TO_INTEGER.iter().any(|rounding| spelling.contains(rounding));
    let reference = move |o: &[u64]| convert(o[0], mode, integral);
    cases.push(Lanes::new(spelling, kind, &[source], reference).extra(2000).case());
}

fn between_floats(cases: &mut Vec<Case>) {
    let to_half = floats::convert::<Single, Half>;
    let exact: [(&str, Kind, (Kind, Domain), Convert); 6] = [
        ("cvt.f32.f16", Kind::F32, HALF, floats::convert::<Half, Single>),
        ("cvt.ftz.f32.f16", Kind::F32, HALF, floats::convert::<Half, Single>),
        ("cvt.f32.bf16", Kind::F32, BFLOAT, floats::convert::<BFloat, Single>),
        ("cvt.f64.f16", Kind::F64, HALF, floats::convert::<Half, Double>),
        ("cvt.f64.f32", Kind::F64, SINGLE, floats::convert::<Single, Double>),
        ("cvt.ftz.f64.f32", Kind::F64, SINGLE, floats::convert::<Single, Double>),
    ];
    for (spelling, kind, source, convert) in exact {
        float(cases, spelling, kind, source, convert);
    }
    for rounding in ROUNDINGS {
        for modifiers in modifiers(&[&["", ".ftz"], &["", ".sat"]]) {
            float(cases, &format!("cvt{rounding}{modifiers}.f16.f32"), Kind::F16, SINGLE, to_half);
            let spelling = format!("cvt{rounding}{modifiers}.f32.f64");
            float(cases, &spelling, Kind::F32, DOUBLE, floats::convert::<Double, Single>);
        }
        let spelling = format!("cvt{rounding}.f16.f64");
        float(cases, &spelling, Kind::F16, DOUBLE, floats::convert::<Double, Half>);
    }
    float(cases, "cvt.f64.bf16", Kind::F64, BFLOAT, floats::convert::<BFloat, Double>);
    for rounding in ROUNDINGS {
        let to_bfloat: [(&str, (Kind, Domain), Convert); 3] = [
            ("f32", SINGLE, floats::convert::<Single, BFloat>),
            ("f64", DOUBLE, floats::convert::<Double, BFloat>),
            ("f16", HALF, floats::convert::<Half, BFloat>),
        ];
        for (from, source, convert) in to_bfloat {
            float(cases, &format!("cvt{rounding}.bf16.{from}"), Kind::F16, source, convert);
        }
        let spelling = format!("cvt{rounding}.f16.bf16");
        float(cases, &spelling, Kind::F16, BFLOAT, floats::convert::<BFloat, Half>);
    }
    for rounding in TO_INTEGER {
        for modifiers in modifiers(&[&["", ".ftz"], &["", ".sat"]]) {
            let spelling = format!("cvt{rounding}{modifiers}.f32.f32");
            float(cases, &spelling, Kind::F32, SINGLE, floats::convert::<Single, Single>);
        }
        float(cases, &format!("cvt{rounding}.f16.f16"), Kind::F16, HALF, floats::convert::<Half, Half>);
        let spelling = format!("cvt{rounding}.bf16.bf16");
        float(cases, &spelling, Kind::F16, BFLOAT, floats::convert::<BFloat, BFloat>);
        let spelling = format!("cvt{rounding}.f64.f64");
        float(cases, &spelling, Kind::F64, DOUBLE, floats::convert::<Double, Double>);
    }
    for modifiers in [".ftz", ".sat", ".ftz.sat"] {
        let spelling = format!("cvt{modifiers}.f32.f32");
        float(cases, &spelling, Kind::F32, SINGLE, floats::convert::<Single, Single>);
    }
}

/// Converts every half.
fn every_half(cases: &mut Vec<Case>) {
    let reference = |o: &[u64]| floats::convert::<Half, Single>(o[0], Mode::NEAREST, false);
    let lanes = Lanes::new("cvt.f32.f16", Kind::F32, &[HALF], reference);
    let all = (0..=0xffff).map(|bits| vec![bits]).collect();
    cases.push(lanes.named("cvt.f32.f16 of all halves").also(all).case());
}

/// Two numbers into one register: the first operand is the upper half.
fn packs(cases: &mut Vec<Case>) {
    let targets: [(&str, Convert); 2] =
        [("f16x2", floats::convert::<Single, Half>), ("bf16x2", floats::convert::<Single, BFloat>)];
    for (name, convert) in targets {
        for modifiers in modifiers(&[&[".rn", ".rz"], &["", ".relu"]]) {
            let spelling = format!("cvt{modifiers}.{name}.f32");
            let (mode, relu) = (Mode::of(&spelling), modifiers.contains("relu"));
            let reference = move |o: &[u64]| {
                let half = |bits: u64| match convert(bits, mode, false) {
                    Expect::Bits(0x8000) if relu => Expect::OneOf(vec![0, 0x8000]),
                    Expect::Bits(bits) if relu && bits & 0x8000 != 0 => Expect::Bits(0),
                    other => other,
                };
                Expect::halves(half(o[1]), half(o[0]))
            };
            let lanes = Lanes::new(&spelling, Kind::B32, &[SINGLE; 2], reference);
            cases.push(lanes.case());
        }
    }
}

/// To half and bfloat without numbers below zero.
fn positive(cases: &mut Vec<Case>) {
    let targets: [(&str, Convert); 2] =
        [("f16", floats::convert::<Single, Half>), ("bf16", floats::convert::<Single, BFloat>)];
    for (name, convert) in targets {
        for rounding in [".rn", ".rz"] {
            let spelling = format!("cvt{rounding}.relu.{name}.f32");
            let mode = Mode::of(&spelling);
            let reference = move |o: &[u64]| match convert(o[0], mode, false) {
                Expect::Bits(0x8000) => Expect::OneOf(vec![0, 0x8000]),
                Expect::Bits(bits) if bits & 0x8000 != 0 => Expect::Bits(0),
                other => other,
            };
            cases.push(Lanes::new(&spelling, Kind::F16, &[SINGLE], reference).extra(2000).case());
        }
    }
}

/// Conversions to 10 bits of fraction. The reference divides the number by its last place, which is a power
/// of two.
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
            cases.push(Lanes::new(&spelling, Kind::B32, &[SINGLE], reference).extra(3000).case());
        }
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    positive(&mut cases);
    to_tf32(&mut cases);
    between_integers(&mut cases);
    to_integers(&mut cases);
    from_integers(&mut cases);
    between_floats(&mut cases);
    every_half(&mut cases);
    packs(&mut cases);
    cases
}
