//! Tests of integer arithmetic, as in the ISA's chapter of that name, without operations on single bits.

use crate::case::Case;
use crate::expect::Expect;
use crate::lanes::{Lanes, OperandKind};
use crate::values::Domain;

/// An integer type of the ISA.
#[derive(Clone, Copy)]
pub struct Int {
    pub name: &'static str,
    pub bits: u32,
    pub signed: bool,
}

/// All integer types of 16 bits and more.
pub const TYPES: [Int; 6] = [
    Int { name: "u16", bits: 16, signed: false },
    Int { name: "s16", bits: 16, signed: true },
    Int { name: "u32", bits: 32, signed: false },
    Int { name: "s32", bits: 32, signed: true },
    Int { name: "u64", bits: 64, signed: false },
    Int { name: "s64", bits: 64, signed: true },
];

impl Int {
    /// Returns the number that `bits` represent in this type.
    pub const fn value(self, bits: u64) -> i128 {
        let unused = 64 - self.bits;
        if self.signed {
            ((bits << unused) as i64 >> unused) as i128
        } else {
            (bits << unused >> unused) as i128
        }
    }

    /// Returns the low bits of a number, as many as the type has.
    pub const fn wrap(self, value: i128) -> u64 {
        value as u64 & (u64::MAX >> (64 - self.bits))
    }

    /// Returns the bits of the number of this type that is nearest to `value`.
    pub fn clamp(self, value: i128) -> u64 {
        let (low, high) = if self.signed {
            (-1 << (self.bits - 1), (1 << (self.bits - 1)) - 1)
        } else {
            (0, (1 << self.bits) - 1)
        };
        self.wrap(value.clamp(low, high))
    }

    /// Returns the kind of register that holds this type.
    pub const fn kind(self) -> OperandKind {
        match self.bits {
            64 => OperandKind::B64,
            32 => OperandKind::B32,
            _ => OperandKind::B16,
        }
    }

    /// Returns a source operand of this type.
    pub const fn source(self) -> (OperandKind, Domain) {
        (self.kind(), Domain::Int(self.bits))
    }

    /// Returns the type of twice the width.
    const fn wide(self) -> Self {
        Self { bits: 2 * self.bits, ..self }
    }
}

/// Returns a test of `op.type d, a, b`, given the operation on numbers. The low bits of its result count, and
/// `None` stands for an unspecified result.
fn binary(
    op: &str,
    int: Int,
    operation: impl Fn(i128, i128) -> Option<i128> + Send + Sync + 'static,
) -> Case {
    let spelling = format!("{op}.{}", int.name);
    let reference = move |operands: &[u64]| {
        let result = operation(int.value(operands[0]), int.value(operands[1]));
        result.map_or(Expect::Any, |result| Expect::Bits(int.wrap(result)))
    };
    Lanes::new(&spelling, int.kind(), &[int.source(), int.source()], reference).case()
}

/// Returns a test of `op.type d, a`, given the operation on numbers.
fn unary(op: &str, int: Int, operation: impl Fn(i128) -> i128 + Send + Sync + 'static) -> Case {
    let reference = move |operands: &[u64]| Expect::Bits(int.wrap(operation(int.value(operands[0]))));
    Lanes::new(&format!("{op}.{}", int.name), int.kind(), &[int.source()], reference).case()
}

/// Adds tests of products, and of products with a sum.
fn products(cases: &mut Vec<Case>, int: Int) {
    let source = int.source();
    for (half, shift) in [("lo", 0), ("hi", int.bits)] {
        // For unsigned operands of 64 bits, the product takes all 128 bits of the signed type, and wraps.
        let product =
            move |operands: &[u64]| int.value(operands[0]).wrapping_mul(int.value(operands[1])) >> shift;
        let spelling = format!("mul.{half}.{}", int.name);
        let reference = move |operands: &[u64]| Expect::Bits(int.wrap(product(operands)));
        cases.push(Lanes::new(&spelling, int.kind(), &[source; 2], reference).case());
        let spelling = format!("mad.{half}.{}", int.name);
        let reference = move |operands: &[u64]| {
            Expect::Bits(int.wrap(product(operands).wrapping_add(int.value(operands[2]))))
        };
        cases.push(Lanes::new(&spelling, int.kind(), &[source; 3], reference).case());
    }
    if int.bits < 64 {
        let wide = int.wide();
        let product = move |operands: &[u64]| int.value(operands[0]) * int.value(operands[1]);
        let reference = move |operands: &[u64]| Expect::Bits(wide.wrap(product(operands)));
        let spelling = format!("mul.wide.{}", int.name);
        cases.push(Lanes::new(&spelling, wide.kind(), &[source; 2], reference).case());
        let reference =
            move |operands: &[u64]| Expect::Bits(wide.wrap(product(operands) + wide.value(operands[2])));
        let spelling = format!("mad.wide.{}", int.name);
        cases.push(Lanes::new(&spelling, wide.kind(), &[source, source, wide.source()], reference).case());
    }
}

/// Adds tests of dot products of bytes, or of halves and bytes, with a sum.
fn dot_products(cases: &mut Vec<Case>) {
    let byte =
        |word: u64, index: u32, signed: bool| Int { name: "", bits: 8, signed }.value(word >> (8 * index));
    let half =
        |word: u64, index: u32, signed: bool| Int { name: "", bits: 16, signed }.value(word >> (16 * index));
    let word = (OperandKind::B32, Domain::Int(32));
    for (a, a_signed) in [("u32", false), ("s32", true)] {
        for (b, b_signed) in [("u32", false), ("s32", true)] {
            let dot = move |operands: &[u64]| {
                let products =
                    (0..4).map(|i| byte(operands[0], i, a_signed) * byte(operands[1], i, b_signed));
                Expect::Bits((products.sum::<i128>() + i128::from(operands[2])) as u64 & 0xffff_ffff)
            };
            cases.push(
                Lanes::new(&format!("dp4a.{a}.{b}"), OperandKind::B32, &[word; 3], dot).extra(2000).case(),
            );
            for (mode, first) in [("lo", 0), ("hi", 2)] {
                let dot = move |operands: &[u64]| {
                    let products = (0..2)
                        .map(|i| half(operands[0], i, a_signed) * byte(operands[1], first + i, b_signed));
                    Expect::Bits((products.sum::<i128>() + i128::from(operands[2])) as u64 & 0xffff_ffff)
                };
                cases.push(
                    Lanes::new(&format!("dp2a.{mode}.{a}.{b}"), OperandKind::B32, &[word; 3], dot).case(),
                );
            }
        }
    }
}

pub fn cases(cases: &mut Vec<Case>) {
    for int in TYPES {
        cases.push(binary("add", int, |a, b| Some(a + b)));
        cases.push(binary("sub", int, |a, b| Some(a - b)));
        // The ISA leaves the result of a division by zero to the machine.
        cases.push(binary("div", int, i128::checked_div));
        cases.push(binary("rem", int, i128::checked_rem));
        cases.push(binary("min", int, |a, b| Some(a.min(b))));
        cases.push(binary("max", int, |a, b| Some(a.max(b))));
        let distance = move |o: &[u64]| {
            let (a, b, c) = (int.value(o[0]), int.value(o[1]), int.value(o[2]));
            Expect::Bits(int.wrap(c + (a - b).abs()))
        };
        let spelling = format!("sad.{}", int.name);
        cases.push(Lanes::new(&spelling, int.kind(), &[int.source(); 3], distance).case());
        if int.signed {
            cases.push(unary("abs", int, i128::abs));
            cases.push(unary("neg", int, |a| -a));
        }
        products(cases, int);
    }
    let s32 = TYPES[3];
    cases.push(binary("add.sat", s32, move |a, b| Some(s32.value(s32.clamp(a + b)))));
    cases.push(binary("sub.sat", s32, move |a, b| Some(s32.value(s32.clamp(a - b)))));
    let sum = move |operands: &[u64]| {
        let product = (s32.value(operands[0]) * s32.value(operands[1])) >> 32;
        Expect::Bits(s32.clamp(product + s32.value(operands[2])))
    };
    cases.push(Lanes::new("mad.hi.sat.s32", OperandKind::B32, &[s32.source(); 3], sum).case());
    dot_products(cases);
}
