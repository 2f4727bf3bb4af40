//! Tests of logic, shifts, and instructions that move or count bits and bytes.

use crate::case::Case;
use crate::expect::Expect;
use crate::integers::TYPES;
use crate::lanes::{Lanes, OperandKind};
use crate::values::Domain;

const WORD: (OperandKind, Domain) = (OperandKind::B32, Domain::Int(32));
const COUNT: (OperandKind, Domain) = (OperandKind::B32, Domain::Count);
const PRED: (OperandKind, Domain) = (OperandKind::Pred, Domain::Pred);

const fn sized(bits: u32) -> (OperandKind, Domain) {
    let kind = match bits {
        64 => OperandKind::B64,
        32 => OperandKind::B32,
        _ => OperandKind::B16,
    };
    (kind, Domain::Int(bits))
}

const fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

fn logic(cases: &mut Vec<Case>) {
    type Gate = fn(u64, u64) -> u64;
    let gates: [(&str, Gate); 3] = [("and", |a, b| a & b), ("or", |a, b| a | b), ("xor", |a, b| a ^ b)];
    for (name, gate) in gates {
        for bits in [16, 32, 64] {
            let reference = move |operands: &[u64]| Expect::Bits(gate(operands[0], operands[1]));
            let spelling = format!("{name}.b{bits}");
            cases.push(Lanes::new(&spelling, sized(bits).0, &[sized(bits); 2], reference).case());
        }
        let reference = move |operands: &[u64]| Expect::Bits(gate(operands[0], operands[1]));
        cases.push(Lanes::new(&format!("{name}.pred"), OperandKind::Pred, &[PRED; 2], reference).case());
    }
    for bits in [16, 32, 64] {
        let (kind, domain) = sized(bits);
        let not = move |operands: &[u64]| Expect::Bits(!operands[0] & mask(bits));
        cases.push(Lanes::new(&format!("not.b{bits}"), kind, &[(kind, domain)], not).case());
        let cnot = |operands: &[u64]| Expect::Bits((operands[0] == 0).into());
        cases.push(Lanes::new(&format!("cnot.b{bits}"), kind, &[(kind, domain)], cnot).case());
    }
    cases.push(
        Lanes::new("not.pred", OperandKind::Pred, &[PRED], |operands| Expect::Bits(operands[0] ^ 1)).case(),
    );
    // Both sources of a predicate operation may be negated.
    let body = "not.pred %p0, $0;\nand.pred $d, %p0, $1;";
    let reference = |operands: &[u64]| Expect::Bits((operands[0] ^ 1) & operands[1]);
    let lanes = Lanes::new("and.pred", OperandKind::Pred, &[PRED; 2], reference);
    cases.push(lanes.body(body).named("and.pred of not.pred").case());
}

fn shifts(cases: &mut Vec<Case>) {
    for bits in [16, 32, 64] {
        let (kind, domain) = sized(bits);
        let left = move |operands: &[u64]| {
            let shifted = u128::from(operands[0]) << operands[1].min(64);
            Expect::Bits(if operands[1] >= bits.into() { 0 } else { shifted as u64 & mask(bits) })
        };
        cases.push(Lanes::new(&format!("shl.b{bits}"), kind, &[(kind, domain), COUNT], left).case());
        let right =
            move |operands: &[u64]| Expect::Bits(operands[0].checked_shr(operands[1] as u32).unwrap_or(0));
        cases.push(Lanes::new(&format!("shr.b{bits}"), kind, &[(kind, domain), COUNT], right).case());
    }
    for int in TYPES {
        // A number of 128 bits, shifted by the greatest clamped amount, consists of copies of the sign.
        let right =
            move |operands: &[u64]| Expect::Bits(int.wrap(int.value(operands[0]) >> operands[1].min(64)));
        let spelling = format!("shr.{}", int.name);
        cases.push(Lanes::new(&spelling, int.kind(), &[int.source(), COUNT], right).case());
    }
    for left in [true, false] {
        for wrap in [true, false] {
            let funnel = move |operands: &[u64]| {
                let both = operands[1] << 32 | operands[0];
                let count = if wrap { operands[2] & 31 } else { operands[2].min(32) };
                let both = u128::from(both);
                Expect::Bits(
                    if left { (both << count >> 32) as u64 } else { (both >> count) as u64 } & mask(32),
                )
            };
            let (direction, mode) = (if left { "l" } else { "r" }, if wrap { "wrap" } else { "clamp" });
            let spelling = format!("shf.{direction}.{mode}.b32");
            cases.push(Lanes::new(&spelling, OperandKind::B32, &[WORD, WORD, COUNT], funnel).case());
        }
    }
}

fn fields(cases: &mut Vec<Case>) {
    for int in &TYPES[2..] {
        let extract = move |operands: &[u64]| {
            let (a, at, length) = (operands[0], operands[1] & 255, operands[2] & 255);
            let top = u64::from(int.bits) - 1;
            let sign = int.signed && length > 0 && a >> (at + length - 1).min(top) & 1 == 1;
            let bit = |i: u64| if i < length && at + i <= top { a >> (at + i) & 1 } else { sign.into() };
            Expect::Bits((0..=top).map(|i| bit(i) << i).sum())
        };
        let spelling = format!("bfe.{}", int.name);
        let lanes = Lanes::new(&spelling, int.kind(), &[int.source(), COUNT, COUNT], extract);
        cases.push(lanes.extra(1000).case());
    }
    for bits in [32, 64] {
        let insert = move |operands: &[u64]| {
            let (a, at, length) = (operands[0], operands[2] & 255, operands[3] & 255);
            let inserted = (0..length).filter(|i| at + i < bits.into());
            Expect::Bits(inserted.fold(operands[1], |f, i| f & !(1 << (at + i)) | (a >> i & 1) << (at + i)))
        };
        let (kind, domain) = sized(bits);
        let sources = [(kind, domain), (kind, domain), COUNT, COUNT];
        cases.push(Lanes::new(&format!("bfi.b{bits}"), kind, &sources, insert).extra(1000).case());
    }
    for (mode, wrap) in [("clamp", false), ("wrap", true)] {
        let reference = move |operands: &[u64]| {
            let (at, width) =
                if wrap { (operands[0] & 31, operands[1] & 31) } else { (operands[0], operands[1]) };
            Expect::Bits((0..32).filter(|&i| i >= at && i - at < width).map(|i| 1 << i).sum())
        };
        cases.push(Lanes::new(&format!("bmsk.{mode}.b32"), OperandKind::B32, &[COUNT; 2], reference).case());
    }
}

fn counts(cases: &mut Vec<Case>) {
    for bits in [32, 64] {
        let source = sized(bits);
        let count = |operands: &[u64]| Expect::Bits(operands[0].count_ones().into());
        cases.push(Lanes::new(&format!("popc.b{bits}"), OperandKind::B32, &[source], count).case());
        let count = move |operands: &[u64]| {
            Expect::Bits((operands[0] << (64 - bits)).leading_zeros().min(bits).into())
        };
        cases.push(Lanes::new(&format!("clz.b{bits}"), OperandKind::B32, &[source], count).case());
        let reverse = move |operands: &[u64]| Expect::Bits(operands[0].reverse_bits() >> (64 - bits));
        cases.push(Lanes::new(&format!("brev.b{bits}"), source.0, &[source], reverse).case());
    }
    for int in &TYPES[2..] {
        for shift in [false, true] {
            let find = move |operands: &[u64]| {
                let value = int.value(operands[0]);
                let bits = if value < 0 { !value } else { value };
                let found = 127_u32.checked_sub(bits.leading_zeros());
                Expect::from(found.map_or(u32::MAX, |at| if shift { int.bits - 1 - at } else { at }))
            };
            let spelling = format!("bfind{}.{}", if shift { ".shiftamt" } else { "" }, int.name);
            cases.push(Lanes::new(&spelling, OperandKind::B32, &[int.source()], find).case());
        }
    }
}

/// Index of the source byte for each of the four result bytes, by mode and by the two low bits of the
/// control.
const PERMUTES: [(&str, [[u32; 4]; 4]); 6] = [
    ("f4e", [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]]),
    ("b4e", [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]]),
    ("rc8", [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]]),
    ("ecl", [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]]),
    ("ecr", [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]]),
    ("rc16", [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]]),
];

fn permutes(cases: &mut Vec<Case>) {
    let any = |operands: &[u64]| {
        let both = operands[1] << 32 | operands[0];
        let byte = |i: u32| {
            let select = operands[2] >> (4 * i) & 15;
            let byte = both >> (8 * (select & 7)) & 255;
            if select & 8 == 0 { byte } else { (byte >> 7) * 255 }
        };
        Expect::Bits((0..4).map(|i| byte(i) << (8 * i)).sum())
    };
    cases.push(Lanes::new("prmt.b32", OperandKind::B32, &[WORD; 3], any).extra(2000).case());
    for (mode, table) in PERMUTES {
        let reference = move |operands: &[u64]| {
            let both = operands[1] << 32 | operands[0];
            let picks = table[(operands[2] & 3) as usize];
            Expect::Bits((0..4).map(|i| (both >> (8 * picks[i]) & 255) << (8 * i)).sum())
        };
        cases.push(Lanes::new(&format!("prmt.b32.{mode}"), OperandKind::B32, &[WORD; 3], reference).case());
    }
}

/// Adds tests of `lop3` for truth tables that depend on one, some and all inputs.
fn truth_tables(cases: &mut Vec<Case>) {
    for table in [0x00_u64, 0xff, 0x80, 0xfe, 0x96, 0xca, 0xe8, 0xf0, 0xcc, 0xaa, 0x1b, 0x6d] {
        let reference = move |operands: &[u64]| {
            let bit = |i: u64| {
                let row = (operands[0] >> i & 1) << 2 | (operands[1] >> i & 1) << 1 | operands[2] >> i & 1;
                table >> row & 1
            };
            Expect::Bits((0..32).map(|i| bit(i) << i).sum())
        };
        let body = format!("lop3.b32 $d, $0, $1, $2, {table:#04x};");
        let lanes = Lanes::new("lop3.b32", OperandKind::B32, &[WORD; 3], reference).body(&body);
        cases.push(lanes.named(&format!("lop3.b32 {table:#04x}")).case());
    }
}

pub fn cases(cases: &mut Vec<Case>) {
    logic(cases);
    shifts(cases);
    fields(cases);
    counts(cases);
    permutes(cases);
    truth_tables(cases);
}
