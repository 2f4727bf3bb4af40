//! Tests of arithmetic with carry. Each chain of instructions is compared with arithmetic of wider integers.

use crate::case::Case;
use crate::expect::Expect;
use crate::lanes::{Lanes, OperandKind};
use crate::values::Domain;

const WIDE: (OperandKind, Domain) = (OperandKind::B64, Domain::Int(64));
const WORD: (OperandKind, Domain) = (OperandKind::B32, Domain::Int(32));

/// Function that computes the expected result of a chain from three operands of 64 bits.
type Reference = fn(u64, u64, u64) -> u64;

/// Returns a case for statements between the words `%l0`, `%h0`, `%l1`, `%h1` of two operands and the words
/// `%x`, `%y` of the result.
fn words(name: &str, covered: &str, code: &str, reference: fn(u64, u64) -> u64) -> Case {
    let body = format!(
        "{{\n.reg.b32 %l0, %h0, %l1, %h1, %x, %y;\nmov.b64 {{%l0, %h0}}, $0;\nmov.b64 {{%l1, %h1}}, $1;\n{code}\nmov.b64 $d, {{%x, %y}};\n}}"
    );
    Lanes::new(covered, OperandKind::B64, &[WIDE; 2], move |o| Expect::Bits(reference(o[0], o[1])))
        .body(&body)
        .named(name)
        .extra(1000)
        .case()
}

pub fn cases(cases: &mut Vec<Case>) {
    cases.extend([
        words(
            "sum of two words",
            "add.cc.u32",
            "add.cc.u32 %x, %l0, %l1;\naddc.u32 %y, %h0, %h1;",
            u64::wrapping_add,
        ),
        words(
            "difference of two words",
            "sub.cc.s32",
            "sub.cc.s32 %x, %l0, %l1;\nsubc.s32 %y, %h0, %h1;",
            u64::wrapping_sub,
        ),
        words(
            "upper words of a sum",
            "addc.cc.s32",
            "add.cc.s32 %x, %l0, %l1;\naddc.cc.s32 %x, %h0, %h1;\naddc.s32 %y, 0, 0;",
            |a, b| ((u128::from(a) + u128::from(b)) >> 32) as u64,
        ),
        words(
            "upper words of a difference",
            "subc.cc.u32",
            "sub.cc.u32 %x, %l0, %l1;\nsubc.cc.u32 %x, %h0, %h1;\nsubc.u32 %y, 0, 0;",
            |a, b| ((i128::from(a) - i128::from(b)) >> 32) as u64,
        ),
        words(
            "upper words of a product and a sum",
            "mad.lo.cc.u32",
            "mad.lo.cc.u32 %x, %l0, %l1, %h0;\nmadc.hi.cc.u32 %x, %l0, %l1, %h1;\naddc.u32 %y, 0, 0;",
            |a, b| {
                let product = u128::from(a & 0xffff_ffff) * u128::from(b & 0xffff_ffff);
                ((product + u128::from(a >> 32 | b >> 32 << 32)) >> 32) as u64
            },
        ),
        words(
            "a signed product and a sum",
            "madc.hi.s32",
            "mad.lo.cc.s32 %x, %l0, %l1, %h0;\nmadc.hi.s32 %y, %l0, %l1, %h1;",
            |a, b| {
                let product = i64::from(a as i32).wrapping_mul(i64::from(b as i32));
                (product as u64).wrapping_add(a >> 32 | b >> 32 << 32)
            },
        ),
        words(
            "carries of upper and lower products",
            "madc.lo.cc.u32",
            "mad.hi.cc.u32 %x, %l0, %h0, %l1;\nmadc.lo.cc.u32 %x, %l0, %h0, %h1;\naddc.u32 %y, 0, 0;",
            |a, b| {
                let product = (a & 0xffff_ffff) * (a >> 32);
                let carry = ((product >> 32) + (b & 0xffff_ffff)) >> 32;
                (product & 0xffff_ffff) + (b >> 32) + carry
            },
        ),
    ]);
    // Operations on 64 bits: the third operand plus the carry of a sum, or minus the borrow of a difference.
    let longs: [(&str, &str, Reference); 2] = [
        ("add.cc.u64", "addc.s64", |a, b, c| c.wrapping_add(u64::from(a.checked_add(b).is_none()))),
        ("sub.cc.u64", "subc.u64", |a, b, c| c.wrapping_sub(u64::from(a < b))),
    ];
    for (first, second, reference) in longs {
        let body = format!("{{\n.reg.b64 %x;\n{first} %x, $0, $1;\n{second} $d, $2, 0;\n}}");
        let lanes = Lanes::new(first, OperandKind::B64, &[WIDE; 3], move |o| {
            Expect::Bits(reference(o[0], o[1], o[2]))
        });
        cases.push(lanes.body(&body).named(&format!("{first} and {second}")).extra(1000).case());
    }
    // A difference clears the carry if it borrows. NVIDIA's division of 128 bits relies on this.
    let body = "{\n.reg.b32 %x;\nsub.cc.u32 %x, $0, $1;\naddc.u32 $d, 0, 0;\n}";
    let fits = |o: &[u64]| Expect::Bits((o[0] >= o[1]).into());
    cases.push(
        Lanes::new("sub.cc.u32", OperandKind::B32, &[WORD; 2], fits).body(body).named("no borrow").case(),
    );
    // An instruction that only reads the carry (`addc` without `.cc`) leaves it for the next one.
    let body = "{\n.reg.b32 %x;\nadd.cc.u32 %x, $0, $1;\naddc.u32 %x, 0, 0;\naddc.u32 $d, %x, 0;\n}";
    let twice = |o: &[u64]| Expect::Bits(2 * ((o[0] + o[1]) >> 32));
    cases.push(
        Lanes::new("addc.u32", OperandKind::B32, &[WORD; 2], twice).body(body).named("a carry twice").case(),
    );
}
