//! Templates of conversions.

use iced_x86::code_asm::{AsmRegisterZmm, CodeAssembler, k5};

use super::body::{Body, Templates};
use super::cache::Cache;
use super::integer::widen;
use super::registers::{Pair, ymm};
use crate::jit::plain::plain_conversions;
use crate::jit::template::narrow;
use crate::jit::value::Emit;
use crate::machine::Opcode;
use crate::ops::convert::BEYOND;

/// Extracts the lower or the upper words of lanes of 64 bits.
fn words(e: &mut Cache<'_>, upper: usize, d: AsmRegisterZmm, a: Pair) -> Emit {
    let order = e.order(upper)?;
    e.asm.vmovdqa64(d, order)?;
    e.asm.vpermi2d(d, a.low, a.high)
}

/// Converts halves in the lower or the upper 16 bits to singles.
pub(super) fn from_half(e: &mut Cache<'_>, upper: bool, d: AsmRegisterZmm, a: AsmRegisterZmm) -> Emit {
    if upper {
        e.asm.vpsrld(d, a, 16)?;
        e.asm.vpmovdw(ymm(d), d)?;
    } else {
        e.asm.vpmovdw(ymm(d), a)?;
    }
    e.asm.vcvtph2ps(d, ymm(d))
}

/// Rounds singles to the nearest half. NaN becomes the canonical one.
fn to_half(e: &mut Cache<'_>, d: AsmRegisterZmm, a: AsmRegisterZmm) -> Emit {
    let nan = e.word(0x7fff);
    e.asm.vcvtps2ph(ymm(d), a, 0)?;
    e.asm.vpmovzxwd(d, ymm(d))?;
    e.asm.vcmpps(k5, a, a, 3)?;
    e.asm.vpbroadcastd(d.k5(), nan)
}

/// Rounds pairs of singles to halves, the first to the lower half. Changes the last two registers; `d` may be
/// the first of them.
pub(super) fn to_halves(
    e: &mut Cache<'_>,
    d: AsmRegisterZmm,
    [low, high]: [AsmRegisterZmm; 2],
    [t, upper]: [AsmRegisterZmm; 2],
) -> Emit {
    to_half(e, t, low)?;
    to_half(e, upper, high)?;
    e.asm.vpslld(upper, upper, 16)?;
    e.asm.vpord(d, t, upper)
}

/// Function that emits an operation on two singles.
type Operation = fn(&mut CodeAssembler, AsmRegisterZmm, AsmRegisterZmm, AsmRegisterZmm) -> Emit;

const ADD: Operation = |asm, d, a, b| asm.vaddps(d, a, b);
const SUBTRACT: Operation = |asm, d, a, b| asm.vsubps(d, a, b);
const MULTIPLY: Operation = |asm, d, a, b| asm.vmulps(d, a, b);

/// Emits an operation on halves, computed in singles: on one half in each word, or on two.
fn halves(
    e: &mut Cache<'_>,
    pair: bool,
    operation: Operation,
    d: AsmRegisterZmm,
    [a, b]: [AsmRegisterZmm; 2],
) -> Emit {
    let [low, high, other] = e.temporaries()?;
    for (is_upper, to) in [(false, low), (true, high)].into_iter().take(1 + usize::from(pair)) {
        from_half(e, is_upper, to, a)?;
        from_half(e, is_upper, other, b)?;
        operation(e.asm, to, to, other)?;
    }
    if pair { to_halves(e, d, [low, high], [d, other]) } else { to_half(e, d, low) }
}

/// Sign-extends the low bits of words; `unused` is the number of upper bits.
fn extend(e: &mut Cache<'_>, unused: u32, d: AsmRegisterZmm, a: AsmRegisterZmm) -> Emit {
    e.asm.vpslld(d, a, unused)?;
    e.asm.vpsrad(d, d, unused)
}

pub(super) fn register(table: &mut Templates) {
    plain_conversions!(table);
    table.lanes(Opcode::Narrow, |e, _, d, [a, ..]| words(e, 0, d.low, a));
    table.lanes(Opcode::Upper32, |e, _, d, [a, ..]| words(e, 1, d.low, a));
    table.lanes(Opcode::NarrowAddress, |e, _, d, [a, ..]| {
        let t = e.temporary()?;
        words(e, 1, t, a)?;
        words(e, 0, d.low, a)?;
        let beyond = e.constant(BEYOND);
        e.asm.vptestmd(k5, t, t)?;
        e.asm.vpord(d.low.k5(), d.low, beyond)
    });
    table.lanes(Opcode::Pack32, |e, _, d, [a, b, _]| {
        for (to, first) in [(d.low, 0), (d.high, 8)] {
            let pattern = e.pattern(|lane| first + lane / 2 + 16 * (lane % 2));
            e.asm.vmovdqu64(to, pattern)?;
            e.asm.vpermi2d(to, a.low, b.low)?;
        }
        Ok(())
    });
    table.lanes(
        Opcode::Pack16,
        narrow!(|e, d, a, b| {
            let mask = e.constant(0xffff);
            e.asm.vpslld(d, b, 16)?;
            e.asm.vpternlogd(d, a, mask, 0xf8)
        }),
    );
    table.lanes(
        Opcode::Low8,
        narrow!(|e, d, a| {
            let mask = e.constant(0xff);
            e.asm.vpandd(d, a, mask)
        }),
    );
    table.lanes(
        Opcode::Low16,
        narrow!(|e, d, a| {
            let mask = e.constant(0xffff);
            e.asm.vpandd(d, a, mask)
        }),
    );
    table.lanes(Opcode::Sign8, narrow!(|e, d, a| extend(e, 24, d, a)));
    table.lanes(Opcode::Sign16, narrow!(|e, d, a| extend(e, 16, d, a)));
    table.lanes(
        Opcode::FromS16,
        narrow!(|e, d, a| {
            extend(e, 16, d, a)?;
            e.asm.vcvtdq2ps(d, d)
        }),
    );
    table.lanes(
        Opcode::FromS8,
        narrow!(|e, d, a| {
            extend(e, 24, d, a)?;
            e.asm.vcvtdq2ps(d, d)
        }),
    );
    table.lanes(
        Opcode::ToS32Zero,
        narrow!(|e, d, a| {
            // Numbers above the greatest integer become that, and NaN becomes 0.
            let (end, most) = (e.constant(2_147_483_648_f32.to_bits()), e.word(i32::MAX as u32));
            e.asm.vcvttps2dq(d, a)?;
            e.asm.vcmpps(k5, a, end, 13)?;
            e.asm.vpbroadcastd(d.k5(), most)?;
            e.asm.vcmpps(k5, a, a, 3)?;
            e.asm.vpxord(d.k5(), d, d)
        }),
    );
    table.lanes(
        Opcode::ZeroF32,
        narrow!(|e, d, a| {
            let nan = e.word(0x7fff_ffff);
            e.asm.vrndscaleps(d, a, 0b1011)?;
            e.asm.vcmpps(k5, a, a, 3)?;
            e.asm.vpbroadcastd(d.k5(), nan)
        }),
    );
    table.lanes(Opcode::AddF16x2, narrow!(|e, d, a, b| halves(e, true, ADD, d, [a, b])));
    table.lanes(Opcode::AddF16, narrow!(|e, d, a, b| halves(e, false, ADD, d, [a, b])));
    table.lanes(Opcode::SubF16x2, narrow!(|e, d, a, b| halves(e, true, SUBTRACT, d, [a, b])));
    table.lanes(Opcode::SubF16, narrow!(|e, d, a, b| halves(e, false, SUBTRACT, d, [a, b])));
    table.lanes(Opcode::MulF16x2, narrow!(|e, d, a, b| halves(e, true, MULTIPLY, d, [a, b])));
    table.lanes(Opcode::MulF16, narrow!(|e, d, a, b| halves(e, false, MULTIPLY, d, [a, b])));
}
