//! Templates of integer arithmetic, logic and shifts.

use iced_x86::code_asm::{AsmRegisterZmm, k5};
use vgpu_ptx::ir::window;

use super::body::{Action, Body, Templates};
use super::cache::Cache;
use super::registers::{Pair, ymm};
use crate::jit::effects::SIGNS;
use crate::jit::plain::plain_integers;
use crate::jit::template::{narrow, wide};
use crate::jit::value::{Emit, SlotKind};
use crate::machine::{Field, Inst, Opcode};

/// Emits the extension of lanes from 32 to 64 bits, with sign or with zeros.
pub(super) fn widen(e: &mut Cache<'_>, signed: bool, d: Pair, a: AsmRegisterZmm) -> Emit {
    e.asm.vextracti64x4(ymm(d.high), a, 1)?;
    if signed {
        e.asm.vpmovsxdq(d.high, ymm(d.high))?;
        e.asm.vpmovsxdq(d.low, ymm(a))
    } else {
        e.asm.vpmovzxdq(d.high, ymm(d.high))?;
        e.asm.vpmovzxdq(d.low, ymm(a))
    }
}

/// Moves the lanes of a 32-bit operand to the positions of 64-bit lanes. The upper words are undefined.
fn spread(e: &mut Cache<'_>, number: usize, a: AsmRegisterZmm) -> Emit<Pair> {
    if matches!(e.kinds[number], SlotKind::Scalar { .. }) {
        return Ok(Pair::narrow(a));
    }
    let d = e.result(true)?;
    widen(e, false, d, a)?;
    Ok(d)
}

/// Emits the 64-bit products of lanes of 32 bits.
fn multiply_wide(e: &mut Cache<'_>, signed: bool, d: Pair, a: AsmRegisterZmm, b: AsmRegisterZmm) -> Emit {
    let (a, b) = (spread(e, 0, a)?, spread(e, 1, b)?);
    if signed {
        e.asm.vpmuldq(d.low, a.low, b.low)?;
        e.asm.vpmuldq(d.high, a.high, b.high)
    } else {
        e.asm.vpmuludq(d.low, a.low, b.low)?;
        e.asm.vpmuludq(d.high, a.high, b.high)
    }
}

/// Emits the 64-bit products of lanes of 32 bits, added to `c`.
fn multiply_add_wide(e: &mut Cache<'_>, signed: bool, d: Pair, [a, b, c]: [Pair; 3]) -> Emit {
    multiply_wide(e, signed, d, a.low, b.low)?;
    e.asm.vpaddq(d.low, d.low, c.low)?;
    e.asm.vpaddq(d.high, d.high, c.high)
}

/// Emits the upper halves of the products of lanes of 32 bits.
fn multiply_high(
    e: &mut Cache<'_>,
    signed: bool,
    d: AsmRegisterZmm,
    a: AsmRegisterZmm,
    b: AsmRegisterZmm,
) -> Emit {
    let [odd, t] = e.temporaries()?;
    e.asm.vpsrlq(odd, a, 32)?;
    e.asm.vpsrlq(t, b, 32)?;
    if signed {
        e.asm.vpmuldq(odd, odd, t)?;
        e.asm.vpmuldq(d, a, b)?;
    } else {
        e.asm.vpmuludq(odd, odd, t)?;
        e.asm.vpmuludq(d, a, b)?;
    }
    e.asm.vpsrlq(d, d, 32)?;
    let upper = e.wide_constant(0xffff_ffff_0000_0000);
    // The upper halves of odd lanes are already in place.
    e.asm.vpternlogq(d, odd, upper, 0xf8)
}

/// Shifts lanes of 64 bits by counts of 32 bits.
fn shift_wide(e: &mut Cache<'_>, left: bool, d: Pair, a: Pair, by: Pair) -> Emit {
    let count = e.result(true)?;
    widen(e, false, count, by.low)?;
    for (d, a, count) in [(d.low, a.low, count.low), (d.high, a.high, count.high)] {
        if left {
            e.asm.vpsllvq(d, a, count)?;
        } else {
            e.asm.vpsrlvq(d, a, count)?;
        }
    }
    Ok(())
}

/// Emits the sum of `c` and the products of signed bytes. The processor multiplies unsigned bytes by signed
/// ones, so the signs of `a` are flipped and the resulting bias is subtracted.
fn dot4(e: &mut Cache<'_>, step: &Inst, d: Pair, [a, b, c]: [Pair; 3]) -> Emit {
    if e.is_small(step.a) {
        return products(e, d, a, b, c);
    }
    if e.is_small(step.b) {
        return products(e, d, b, a, c);
    }
    let signs = e.constant(SIGNS);
    let bias = if let Some(known) = e.dp4a_bias(step.b) {
        known
    } else {
        let [signs, sum] = e.temporaries()?;
        let sign = e.word(SIGNS);
        e.asm.vpbroadcastd(signs, sign)?;
        e.asm.vpxord(sum, sum, sum)?;
        e.asm.vpdpbusd(sum, signs, b.low)?;
        if e.kinds[1] == (SlotKind::Vector { wide: false }) && step.d != step.b {
            e.cache_dp4a_bias(step.b, sum);
        }
        sum
    };
    let flipped = e.temporary()?;
    e.asm.vpxord(flipped, a.low, signs)?;
    e.asm.vpsubd(d.low, c.low, bias)?;
    e.asm.vpdpbusd(d.low, flipped, b.low)
}

fn products(e: &mut Cache<'_>, d: Pair, unsigned: Pair, signed: Pair, c: Pair) -> Emit {
    if d.low != c.low {
        e.asm.vmovdqa64(d.low, c.low)?;
    }
    e.asm.vpdpbusd(d.low, unsigned.low, signed.low)
}

/// Returns whether an instruction adds products to its third operand.
pub(super) fn sums_up(step: &Inst) -> bool {
    step.opcode == Opcode::Dp4aLanes
}

/// Emits the combination of bit fields of several words in one word.
pub(super) fn fields(e: &mut Cache<'_>, step: &Inst, fields: &[Field]) -> Emit {
    let [d, t] = e.temporaries()?;
    for (number, field) in fields.iter().enumerate() {
        let from = e.read(SlotKind::Vector { wide: false }, field.at, false)?.low;
        let mask = e.constant(field.mask);
        let to = if number == 0 { d } else { t };
        let shifted = match (field.left, field.right) {
            (0, 0) => from,
            (left, 0) => {
                e.asm.vpslld(to, from, left)?;
                to
            }
            (_, right) => {
                e.asm.vpsrld(to, from, right)?;
                to
            }
        };
        if number == 0 {
            e.asm.vpandd(d, shifted, mask)?;
        } else {
            e.asm.vpternlogd(d, shifted, mask, 0xf8)?;
        }
    }
    e.write(false, step.d, Pair::narrow(d), step.blend, false)?;
    if !step.blend && fields.iter().all(|field| field.mask & SIGNS == 0) {
        e.note_small(step.d);
    }
    Ok(())
}

pub(super) fn register(table: &mut Templates) {
    plain_integers!(table);
    table.lanes(Opcode::Mov32, narrow!(|e, d, a| e.asm.vmovdqa64(d, a)));
    table.lanes(Opcode::Mov64, wide!(|e, d, a| e.asm.vmovdqa64(d, a)));
    table.lanes(
        Opcode::SharedToGeneric,
        wide!(|e, d, a| {
            let base = e.wide_constant(window::SHARED);
            e.asm.vpaddq(d, a, base)
        }),
    );
    table.lanes(
        Opcode::GenericToShared,
        wide!(|e, d, a| {
            let base = e.wide_constant(window::SHARED);
            e.asm.vpsubq(d, a, base)
        }),
    );
    table.lanes(Opcode::And32, narrow!(|e, d, a, b| e.asm.vpandd(d, a, b)));
    table.lanes(Opcode::Or32, narrow!(|e, d, a, b| e.asm.vpord(d, a, b)));
    table.lanes(Opcode::Xor32, narrow!(|e, d, a, b| e.asm.vpxord(d, a, b)));
    table.lanes(Opcode::And64, wide!(|e, d, a, b| e.asm.vpandq(d, a, b)));
    table.lanes(Opcode::Or64, wide!(|e, d, a, b| e.asm.vporq(d, a, b)));
    table.lanes(Opcode::Xor64, wide!(|e, d, a, b| e.asm.vpxorq(d, a, b)));
    table.lanes(Opcode::ShrS64, |e, _, d, [a, by, _]| {
        let count = e.result(true)?;
        widen(e, false, count, by.low)?;
        e.asm.vpsravq(d.low, a.low, count.low)?;
        e.asm.vpsravq(d.high, a.high, count.high)
    });
    table.lanes(Opcode::MulLo64, wide!(|e, d, a, b| e.asm.vpmullq(d, a, b)));
    table.lanes(
        Opcode::Add16,
        narrow!(|e, d, a, b| {
            let mask = e.constant(0xffff);
            e.asm.vpaddd(d, a, b)?;
            e.asm.vpandd(d, d, mask)
        }),
    );
    table.lanes(
        Opcode::Sub16,
        narrow!(|e, d, a, b| {
            let mask = e.constant(0xffff);
            e.asm.vpsubd(d, a, b)?;
            e.asm.vpandd(d, d, mask)
        }),
    );
    table.lanes(
        Opcode::MulLo16,
        narrow!(|e, d, a, b| {
            let mask = e.constant(0xffff);
            e.asm.vpmulld(d, a, b)?;
            e.asm.vpandd(d, d, mask)
        }),
    );
    table.lanes(Opcode::MadLo64, |e, _, d, [a, b, c]| {
        e.asm.vpmullq(d.low, a.low, b.low)?;
        e.asm.vpmullq(d.high, a.high, b.high)?;
        e.asm.vpaddq(d.low, d.low, c.low)?;
        e.asm.vpaddq(d.high, d.high, c.high)
    });
    table.lanes(Opcode::MadWideS32, |e, _, d, operands| multiply_add_wide(e, true, d, operands));
    table.lanes(Opcode::MadWideU32, |e, _, d, operands| multiply_add_wide(e, false, d, operands));
    table.lanes(
        Opcode::Neg32,
        narrow!(|e, d, a| {
            e.asm.vpxord(d, d, d)?;
            e.asm.vpsubd(d, d, a)
        }),
    );
    table.lanes(
        Opcode::Neg64,
        wide!(|e, d, a| {
            e.asm.vpxorq(d, d, d)?;
            e.asm.vpsubq(d, d, a)
        }),
    );
    table.lanes(Opcode::Not32, narrow!(|e, d, a| e.asm.vpternlogd(d, a, a, 0x55)));
    table.lanes(Opcode::Not64, wide!(|e, d, a| e.asm.vpternlogd(d, a, a, 0x55)));
    table.lanes(
        Opcode::Cnot32,
        narrow!(|e, d, a| {
            let one = e.word(1);
            e.asm.vptestnmd(k5, a, a)?;
            e.asm.vpbroadcastd(d.k5().z(), one)
        }),
    );
    let body: Body = |e, step, d, operands| dot4(e, step, d, operands);
    table.lanes(Opcode::Dp4aS32, body);
    table.lanes(Opcode::Dp4aLanes, body);
    table.add(Opcode::Fields, Action::Fields);
    table.lanes(Opcode::Splat32, narrow!(|e, d, a| e.asm.vmovdqa64(d, a)));
    table.lanes(Opcode::Splat64, wide!(|e, d, a| e.asm.vmovdqa64(d, a)));
}
