//! Templates of integer arithmetic, logic and shifts.

use iced_x86::code_asm::AsmRegisterYmm;
use vgpu_ptx::ir::window;

use super::body::{Action, Body, Templates};
use super::cache::{Cache, Pair, xmm};
use crate::jit::plain::plain_integers;
use crate::jit::template::{narrow, wide};
use crate::jit::value::{Emit, SlotKind};
use crate::machine::{Field, Inst, Opcode};

/// Emits the extension of eight lanes from 32 to 64 bits, with sign or with zeros.
pub(super) fn widen(e: &mut Cache<'_>, signed: bool, d: Pair, a: AsmRegisterYmm) -> Emit {
    e.asm.vextracti128(xmm(d.high), a, 1)?;
    if signed {
        e.asm.vpmovsxdq(d.high, xmm(d.high))?;
        e.asm.vpmovsxdq(d.low, xmm(a))
    } else {
        e.asm.vpmovzxdq(d.high, xmm(d.high))?;
        e.asm.vpmovzxdq(d.low, xmm(a))
    }
}

/// Emits the 64-bit products of lanes of 32 bits.
fn multiply_wide(e: &mut Cache<'_>, signed: bool, d: Pair, a: AsmRegisterYmm, b: AsmRegisterYmm) -> Emit {
    let other = e.result(true)?;
    widen(e, signed, d, a)?;
    widen(e, signed, other, b)?;
    if signed {
        e.asm.vpmuldq(d.low, d.low, other.low)?;
        e.asm.vpmuldq(d.high, d.high, other.high)
    } else {
        e.asm.vpmuludq(d.low, d.low, other.low)?;
        e.asm.vpmuludq(d.high, d.high, other.high)
    }
}

/// Emits the upper halves of the products of lanes of 32 bits.
fn multiply_high(
    e: &mut Cache<'_>,
    signed: bool,
    d: AsmRegisterYmm,
    a: AsmRegisterYmm,
    b: AsmRegisterYmm,
) -> Emit {
    let (odd, t) = (e.temporary()?, e.temporary()?);
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
    e.asm.vpblendd(d, d, odd, 0b1010_1010)
}

/// Emits the lower halves of the products of lanes of 64 bits.
fn multiply_low(e: &mut Cache<'_>, d: AsmRegisterYmm, a: AsmRegisterYmm, b: AsmRegisterYmm) -> Emit {
    let t = e.temporary()?;
    e.asm.vpshufd(t, b, 0b10_11_00_01)?;
    e.asm.vpmulld(t, t, a)?;
    // The two cross products of a lane are adjacent. Their sum belongs to the upper half.
    e.asm.vpsrlq(d, t, 32)?;
    e.asm.vpaddd(t, t, d)?;
    e.asm.vpsllq(t, t, 32)?;
    e.asm.vpmuludq(d, a, b)?;
    e.asm.vpaddq(d, d, t)
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

/// Emits the sum of `c` and the products of signed bytes. Bytes at even and odd positions are widened to 16
/// bits separately, so that no sum overflows.
fn dot4(
    e: &mut Cache<'_>,
    d: AsmRegisterYmm,
    a: AsmRegisterYmm,
    b: AsmRegisterYmm,
    c: AsmRegisterYmm,
) -> Emit {
    let (t, u) = (e.temporary()?, e.temporary()?);
    e.asm.vpsraw(t, a, 8)?;
    e.asm.vpsraw(u, b, 8)?;
    e.asm.vpmaddwd(t, t, u)?;
    e.asm.vpsllw(d, a, 8)?;
    e.asm.vpsllw(u, b, 8)?;
    e.asm.vpsraw(d, d, 8)?;
    e.asm.vpsraw(u, u, 8)?;
    e.asm.vpmaddwd(d, d, u)?;
    e.asm.vpaddd(t, t, c)?;
    e.asm.vpaddd(d, d, t)
}

/// Emits the sum of `c` and the products of signed bytes if all bytes of `a` are known to be below 128. Sums
/// of two products then stay below 2^15.
pub(super) fn small_dot4(e: &mut Cache<'_>, d: Pair, [a, b, c]: [Pair; 3]) -> Emit {
    let ones = e.constant(0x0001_0001);
    e.asm.vpmaddubsw(d.low, a.low, b.low)?;
    e.asm.vpmaddwd(d.low, d.low, ones)?;
    e.asm.vpaddd(d.low, d.low, c.low)
}

/// Emits code that clears the upper 16 bits of each lane.
fn low16(e: &mut Cache<'_>, d: AsmRegisterYmm) -> Emit {
    let zero = e.temporary()?;
    e.asm.vpxor(zero, zero, zero)?;
    e.asm.vpblendw(d, d, zero, 0b1010_1010)
}

/// Emits the combination of bit fields of several words in one word.
pub(super) fn fields(e: &mut Cache<'_>, step: &Inst, fields: &[Field]) -> Emit {
    let (d, t) = (e.result(false)?, e.temporary()?);
    for (number, field) in fields.iter().enumerate() {
        let from = e.read(SlotKind::Vector { wide: false }, field.at, false)?.low;
        let mask = e.constant(field.mask);
        let to = if number == 0 { d.low } else { t };
        match (field.left, field.right) {
            (0, 0) => e.asm.vpand(to, from, mask)?,
            (left, 0) => {
                e.asm.vpslld(to, from, left)?;
                e.asm.vpand(to, to, mask)?;
            }
            (_, right) => {
                e.asm.vpsrld(to, from, right)?;
                e.asm.vpand(to, to, mask)?;
            }
        }
        if number > 0 {
            e.asm.vpor(d.low, d.low, t)?;
        }
    }
    e.write(false, step.d, d, step.blend, false)
}

pub(super) fn register(table: &mut Templates) {
    plain_integers!(table);
    table.lanes(Opcode::Mov32, narrow!(|e, d, a| e.asm.vmovdqa(d, a)));
    table.lanes(Opcode::Mov64, wide!(|e, d, a| e.asm.vmovdqa(d, a)));
    table.lanes(Opcode::And32, narrow!(|e, d, a, b| e.asm.vpand(d, a, b)));
    table.lanes(Opcode::Or32, narrow!(|e, d, a, b| e.asm.vpor(d, a, b)));
    table.lanes(Opcode::Xor32, narrow!(|e, d, a, b| e.asm.vpxor(d, a, b)));
    table.lanes(Opcode::And64, wide!(|e, d, a, b| e.asm.vpand(d, a, b)));
    table.lanes(Opcode::Or64, wide!(|e, d, a, b| e.asm.vpor(d, a, b)));
    table.lanes(Opcode::Xor64, wide!(|e, d, a, b| e.asm.vpxor(d, a, b)));
    table.lanes(Opcode::MulLo64, wide!(|e, d, a, b| multiply_low(e, d, a, b)));
    table.lanes(
        Opcode::Add16,
        narrow!(|e, d, a, b| {
            e.asm.vpaddd(d, a, b)?;
            low16(e, d)
        }),
    );
    table.lanes(
        Opcode::Sub16,
        narrow!(|e, d, a, b| {
            e.asm.vpsubd(d, a, b)?;
            low16(e, d)
        }),
    );
    table.lanes(
        Opcode::MulLo16,
        narrow!(|e, d, a, b| {
            e.asm.vpmulld(d, a, b)?;
            low16(e, d)
        }),
    );
    table.lanes(Opcode::MadLo64, |e, _, d, [a, b, c]| {
        multiply_low(e, d.low, a.low, b.low)?;
        multiply_low(e, d.high, a.high, b.high)?;
        e.asm.vpaddq(d.low, d.low, c.low)?;
        e.asm.vpaddq(d.high, d.high, c.high)
    });
    table.lanes(Opcode::MadWideS32, |e, _, d, [a, b, c]| {
        multiply_wide(e, true, d, a.low, b.low)?;
        e.asm.vpaddq(d.low, d.low, c.low)?;
        e.asm.vpaddq(d.high, d.high, c.high)
    });
    table.lanes(Opcode::MadWideU32, |e, _, d, [a, b, c]| {
        multiply_wide(e, false, d, a.low, b.low)?;
        e.asm.vpaddq(d.low, d.low, c.low)?;
        e.asm.vpaddq(d.high, d.high, c.high)
    });
    table.lanes(
        Opcode::Neg32,
        narrow!(|e, d, a| {
            e.asm.vpxor(d, d, d)?;
            e.asm.vpsubd(d, d, a)
        }),
    );
    table.lanes(
        Opcode::Neg64,
        wide!(|e, d, a| {
            e.asm.vpxor(d, d, d)?;
            e.asm.vpsubq(d, d, a)
        }),
    );
    table.lanes(
        Opcode::Not32,
        narrow!(|e, d, a| {
            let ones = e.constant(u32::MAX);
            e.asm.vpxor(d, a, ones)
        }),
    );
    table.lanes(
        Opcode::Not64,
        wide!(|e, d, a| {
            let ones = e.constant(u32::MAX);
            e.asm.vpxor(d, a, ones)
        }),
    );
    table.lanes(
        Opcode::Cnot32,
        narrow!(|e, d, a| {
            e.asm.vpxor(d, d, d)?;
            e.asm.vpcmpeqd(d, d, a)?;
            e.asm.vpsrld(d, d, 31)
        }),
    );
    let body: Body = narrow!(|e, d, a, b, c| dot4(e, d, a, b, c));
    table.lanes(Opcode::Dp4aS32, body);
    table.dot4(Opcode::Dp4aLanes, body);
    table.add(Opcode::Fields, Action::Fields);
    table.lanes(Opcode::Splat32, narrow!(|e, d, a| e.asm.vmovdqa(d, a)));
    table.lanes(Opcode::Splat64, wide!(|e, d, a| e.asm.vmovdqa(d, a)));
}
