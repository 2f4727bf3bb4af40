//! Tests of `mov`: copies, and registers that consist of parts.

use crate::case::Case;
use crate::expect::Expect;
use crate::lanes::{COPIED, Lanes, OperandKind};
use crate::values::Domain;

const fn bits(kind: OperandKind, bits: u32) -> (OperandKind, Domain) {
    (kind, Domain::Int(bits))
}

fn copies(cases: &mut Vec<Case>) {
    for (name, source) in COPIED.into_iter().chain([("pred", (OperandKind::Pred, Domain::Pred))]) {
        let reference = |o: &[u64]| Expect::Bits(o[0]);
        cases.push(Lanes::new(&format!("mov.{name}"), source.0, &[source], reference).case());
    }
    for (text, value) in [("0", 0), ("1", 1), ("-1", 1)] {
        let reference = move |_: &[u64]| Expect::Bits(value);
        let lanes =
            Lanes::new("mov.pred", OperandKind::Pred, &[(OperandKind::Pred, Domain::Pred)], reference);
        let body = format!("mov.pred $d, {text};");
        cases.push(lanes.body(&body).named(&format!("mov.pred p, {text}")).case());
    }
}

/// Adds tests of packing and unpacking. The first of several parts is the lowest.
fn parts(cases: &mut Vec<Case>) {
    let halves = bits(OperandKind::B16, 16);
    let words = bits(OperandKind::B32, 32);
    let pack =
        |shift: u32| move |o: &[u64]| Expect::Bits(o.iter().rev().fold(0, |all, part| all << shift | part));
    let two = Lanes::new("mov.b32", OperandKind::B32, &[halves; 2], pack(16)).body("mov.b32 $d, {$0, $1};");
    cases.push(two.named("mov.b32 d, {a, b}").case());
    let two = Lanes::new("mov.b64", OperandKind::B64, &[words; 2], pack(32)).body("mov.b64 $d, {$0, $1};");
    cases.push(two.named("mov.b64 d, {a, b}").case());
    let four =
        Lanes::new("mov.b64", OperandKind::B64, &[halves; 4], pack(16)).body("mov.b64 $d, {$0,$1,$2,$3};");
    cases.push(four.named("mov.b64 d, {a, b, c, d}").case());
    // A scope that declares names of its own, as inline assembly does.
    for (part, name) in ["low", "high"].into_iter().enumerate() {
        let reference = move |o: &[u64]| Expect::Bits(o[0] >> (16 * part) & 0xffff);
        let body = format!("{{ .reg .f16 low,high;\n mov.b32 {{low,high}}, $0;\n mov.b16 $d, {name};}}");
        let lanes = Lanes::new("mov.b16", OperandKind::B16, &[words], reference).body(&body);
        cases.push(lanes.named(&format!("mov.b32 {{low,high}}, a: {name}")).case());
        let reference = move |o: &[u64]| Expect::Bits(o[0] >> (32 * part) & 0xffff_ffff);
        let body = format!("{{.reg .b32 low,high; mov.b64 {{low,high}}, $0; mov.b32 $d, {name};}}");
        let lanes =
            Lanes::new("mov.b64", OperandKind::B32, &[bits(OperandKind::B64, 64)], reference).body(&body);
        cases.push(lanes.named(&format!("mov.b64 {{low,high}}, a: {name}")).case());
    }
    // The source is a destination, too, so all elements must be read before any is written.
    let swap = |o: &[u64]| Expect::Bits(o[0] >> 16 | (o[0] & 0xffff) << 16);
    let body = "{.reg .b16 x, y; mov.b32 {x, y}, $0; mov.b32 $d, {y, x};}";
    let lanes = Lanes::new("mov.b32", OperandKind::B32, &[words], swap).body(body);
    cases.push(lanes.named("mov.b32 {x, y}, a; d, {y, x}").case());
    let quarter = |o: &[u64]| Expect::Bits(o[0] >> 32 & 0xffff);
    let body = "{.reg .b16 x; mov.b64 {_, _, x, _}, $0; mov.b16 $d, x;}";
    let lanes = Lanes::new("mov.b64", OperandKind::B16, &[bits(OperandKind::B64, 64)], quarter).body(body);
    cases.push(lanes.named("mov.b64 {_, _, x, _}, a").case());
}

pub fn cases(cases: &mut Vec<Case>) {
    copies(cases);
    parts(cases);
}
