//! Tests of comparisons and selections.

use std::cmp::Ordering;

use crate::case::Case;
use crate::expect::{Expect, Format};
use crate::integers::{Int, TYPES};
use crate::lanes::{COPIED, Lanes, OperandKind};
use crate::values::Domain;

const PRED: (OperandKind, Domain) = (OperandKind::Pred, Domain::Pred);

/// Returns whether a comparison is true for an order of its operands. `None` tells that one of them is NaN.
fn holds(compare: &str, order: Option<Ordering>) -> bool {
    let Some(order) = order else {
        return matches!(compare, "equ" | "neu" | "ltu" | "leu" | "gtu" | "geu" | "nan");
    };
    match compare {
        "eq" | "equ" => order.is_eq(),
        "ne" | "neu" => order.is_ne(),
        "lt" | "ltu" | "lo" => order.is_lt(),
        "le" | "leu" | "ls" => order.is_le(),
        "gt" | "gtu" | "hi" => order.is_gt(),
        "ge" | "geu" | "hs" => order.is_ge(),
        "num" => true,
        _ => false,
    }
}

const FLOAT: &[&str] =
    &["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];
const SIGNED: &[&str] = &["eq", "ne", "lt", "le", "gt", "ge"];
const UNSIGNED: &[&str] = &["eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"];
const BITS: &[&str] = &["eq", "ne"];

/// A type of comparison operands, with its comparisons and its order.
#[derive(Clone, Copy)]
struct ComparedType {
    name: &'static str,
    source: (OperandKind, Domain),
    compares: &'static [&'static str],
    order: fn(u64, u64) -> Option<Ordering>,
}

#[allow(clippy::unnecessary_wraps, reason = "as the orders of floating-point numbers")]
fn order<const TYPE: usize>(a: u64, b: u64) -> Option<Ordering> {
    let int = TYPES[TYPE];
    Some(int.value(a).cmp(&int.value(b)))
}

fn singles(a: u64, b: u64) -> Option<Ordering> {
    f32::from_bits(a as u32).partial_cmp(&f32::from_bits(b as u32))
}

/// Compares singles, with subnormal ones as zero.
fn flushed_singles(a: u64, b: u64) -> Option<Ordering> {
    let flush = |bits: u64| if f32::from_bits(bits as u32).is_subnormal() { 0 } else { bits };
    singles(flush(a), flush(b))
}

fn doubles(a: u64, b: u64) -> Option<Ordering> {
    f64::from_bits(a).partial_cmp(&f64::from_bits(b))
}

/// Compares halves by their bits, as magnitudes with a sign.
fn halves(a: u64, b: u64) -> Option<Ordering> {
    if Format::Half.is_nan(a) || Format::Half.is_nan(b) {
        return None;
    }
    let number = |bits: u64| if bits & 0x8000 == 0 { bits as i32 } else { -((bits & 0x7fff) as i32) };
    Some(number(a).cmp(&number(b)))
}

/// Single precision with `.ftz`, which is written between the comparison and the type.
const FTZ: ComparedType = ComparedType {
    name: "ftz.f32",
    source: (OperandKind::F32, Domain::F32),
    compares: FLOAT,
    order: flushed_singles,
};

const FLOATS: [ComparedType; 4] = [
    ComparedType { name: "f16", source: (OperandKind::F16, Domain::F16), compares: FLOAT, order: halves },
    ComparedType { name: "f32", source: (OperandKind::F32, Domain::F32), compares: FLOAT, order: singles },
    FTZ,
    ComparedType { name: "f64", source: (OperandKind::F64, Domain::F64), compares: FLOAT, order: doubles },
];

fn integer(index: usize, order: fn(u64, u64) -> Option<Ordering>) -> ComparedType {
    let int: Int = TYPES[index];
    let compares = if int.signed { SIGNED } else { UNSIGNED };
    ComparedType { name: int.name, source: int.source(), compares, order }
}

fn types() -> Vec<ComparedType> {
    let bits = |name, source| ComparedType { name, source, compares: BITS, order: |a, b| Some(a.cmp(&b)) };
    let mut types = vec![
        bits("b16", TYPES[0].source()),
        bits("b32", TYPES[2].source()),
        bits("b64", TYPES[4].source()),
        integer(0, order::<0>),
        integer(1, order::<1>),
        integer(2, order::<2>),
        integer(3, order::<3>),
        integer(4, order::<4>),
        integer(5, order::<5>),
    ];
    types.extend(FLOATS);
    types
}

fn predicates(cases: &mut Vec<Case>) {
    for ty in types() {
        for compare in ty.compares {
            let reference = move |o: &[u64]| Expect::from(holds(compare, (ty.order)(o[0], o[1])));
            let spelling = format!("setp.{compare}.{}", ty.name);
            cases.push(Lanes::new(&spelling, OperandKind::Pred, &[ty.source; 2], reference).case());
        }
    }
}

fn combine(operation: &str, a: bool, b: bool) -> bool {
    match operation {
        "and" => a & b,
        "or" => a | b,
        _ => a ^ b,
    }
}

/// Adds tests of comparisons with a second predicate as destination, combined with a predicate or its
/// negation.
fn combined(cases: &mut Vec<Case>) {
    let some: [(ComparedType, &[&str]); 5] = [
        (integer(3, order::<3>), &["lt", "eq"]),
        (integer(4, order::<4>), &["gt", "hs"]),
        (integer(1, order::<1>), &["le"]),
        (FTZ, &["ge", "neu", "nan"]),
        (FLOATS[3], &["ltu", "num"]),
    ];
    for (ty, compares) in some {
        for compare in compares {
            for operation in ["and", "or", "xor"] {
                for negated in [false, true] {
                    let spelling = format!("setp.{compare}.{operation}.{}", ty.name);
                    let sign = if negated { "!" } else { "" };
                    let reference = move |o: &[u64]| {
                        let result = holds(compare, (ty.order)(o[0], o[1]));
                        let with = (o[2] == 1) != negated;
                        let p = u32::from(combine(operation, result, with));
                        let q = u32::from(combine(operation, !result, with));
                        Expect::from(p | q << 1)
                    };
                    let body = format!(
                        "{spelling} %p0|%p1, $0, $1, {sign}$2;\nselp.b32 %r0, 1, 0, %p0;\nselp.b32 %r1, 2, 0, %p1;\nor.b32 $d, %r0, %r1;"
                    );
                    let sources = [ty.source, ty.source, PRED];
                    let lanes = Lanes::new(&spelling, OperandKind::B32, &sources, reference).body(&body);
                    let name = format!("{spelling} p|q, a, b, {sign}c");
                    cases.push(lanes.named(&name).case());
                }
            }
        }
    }
    // One of the two destinations is the sink `_`.
    for (destinations, bits) in [("%p0|_", 1), ("_|%p0", 2)] {
        let ty = integer(3, order::<3>);
        let reference = move |o: &[u64]| {
            let less = holds("lt", (ty.order)(o[0], o[1]));
            Expect::from(if less { 1 & bits } else { 2 & bits } != 0)
        };
        let body = format!("setp.lt.s32 {destinations}, $0, $1;\nmov.pred $d, %p0;");
        let lanes = Lanes::new("setp.lt.s32", OperandKind::Pred, &[ty.source; 2], reference).body(&body);
        cases.push(lanes.named(&format!("setp.lt.s32 {}", destinations.replace("%p0", "p"))).case());
    }
}

/// Adds tests of pairs of halves, with one predicate for each half.
fn pairs(cases: &mut Vec<Case>) {
    for compare in ["eq", "lt", "geu", "nan"] {
        let spelling = format!("setp.{compare}.f16x2");
        let reference = move |o: &[u64]| {
            let half = |shift: u32| holds(compare, halves(o[0] >> shift & 0xffff, o[1] >> shift & 0xffff));
            Expect::from(u32::from(half(0)) | u32::from(half(16)) << 1)
        };
        let body = format!(
            "{spelling} %p0|%p1, $0, $1;\nselp.b32 %r0, 1, 0, %p0;\nselp.b32 %r1, 2, 0, %p1;\nor.b32 $d, %r0, %r1;"
        );
        let source = (OperandKind::Packed, Domain::F16x2);
        cases.push(Lanes::new(&spelling, OperandKind::B32, &[source; 2], reference).body(&body).case());
    }
}

/// Adds tests of `set`, whose results for true are all ones or 1.0.
fn sets(cases: &mut Vec<Case>) {
    for (to, kind, yes) in [
        ("u32", OperandKind::B32, u32::MAX),
        ("s32", OperandKind::B32, u32::MAX),
        ("f32", OperandKind::F32, 0x3f80_0000),
    ] {
        for (ty, compare) in
            [(integer(3, order::<3>), "lt"), (integer(4, order::<4>), "ge"), (FLOATS[1], "neu")]
        {
            let value = move |result: bool| Expect::from(if result { yes } else { 0 });
            let spelling = format!("set.{compare}.{to}.{}", ty.name);
            let reference = move |o: &[u64]| value(holds(compare, (ty.order)(o[0], o[1])));
            cases.push(Lanes::new(&spelling, kind, &[ty.source; 2], reference).case());
            let spelling = format!("set.{compare}.and.{to}.{}", ty.name);
            let reference = move |o: &[u64]| value(holds(compare, (ty.order)(o[0], o[1])) && o[2] == 1);
            let sources = [ty.source, ty.source, PRED];
            cases.push(Lanes::new(&spelling, kind, &sources, reference).case());
        }
    }
}

fn selections(cases: &mut Vec<Case>) {
    for (name, source) in COPIED {
        // A selection copies the bits, also those of a NaN.
        let reference = |o: &[u64]| Expect::Bits(if o[2] == 1 { o[0] } else { o[1] });
        let spelling = format!("selp.{name}");
        cases.push(Lanes::new(&spelling, source.0, &[source, source, PRED], reference).case());
    }
}

pub fn cases(cases: &mut Vec<Case>) {
    predicates(cases);
    combined(cases);
    pairs(cases);
    sets(cases);
    selections(cases);
}
