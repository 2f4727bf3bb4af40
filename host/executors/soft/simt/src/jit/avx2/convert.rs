//! Templates of conversions.

use iced_x86::code_asm::AsmRegisterYmm;

use super::body::{Body, Templates};
use super::cache::{Cache, xmm};
use super::integer::widen;
use crate::jit::plain::plain_conversions;
use crate::jit::template::narrow;
use crate::jit::value::Emit;
use crate::machine::Opcode;
use crate::ops::convert::BEYOND;

/// Extracts the lower or the upper words of lanes of 64 bits.
pub(super) fn words(
    e: &mut Cache<'_>,
    upper: bool,
    d: AsmRegisterYmm,
    low: AsmRegisterYmm,
    high: AsmRegisterYmm,
) -> Emit {
    e.asm.vshufps(d, low, high, if upper { 0b11_01_11_01 } else { 0b10_00_10_00 })?;
    // The shuffle works on each half of the registers separately.
    e.asm.vpermq(d, d, 0b11_01_10_00)
}

/// Converts halves in the lower or the upper 16 bits to singles.
fn from_half(e: &mut Cache<'_>, upper: bool, d: AsmRegisterYmm, a: AsmRegisterYmm) -> Emit {
    if upper {
        e.asm.vpsrld(d, a, 16)?;
    } else {
        let mask = e.constant(0xffff);
        e.asm.vpand(d, a, mask)?;
    }
    e.asm.vpackusdw(d, d, d)?;
    e.asm.vpermq(d, d, 0b10_00)?;
    e.asm.vcvtph2ps(d, xmm(d))
}

/// Rounds singles to the nearest half. NaN becomes the canonical one.
fn to_half(e: &mut Cache<'_>, d: AsmRegisterYmm, a: AsmRegisterYmm) -> Emit {
    let t = e.temporary()?;
    e.asm.vcvtps2ph(xmm(d), a, 0)?;
    e.asm.vpmovzxwd(d, xmm(d))?;
    let nan = e.constant(0x7fff);
    e.asm.vcmpunordps(t, a, a)?;
    e.asm.vblendvps(d, d, nan, t)
}

pub(super) fn register(table: &mut Templates) {
    plain_conversions!(table);
    table.lanes(Opcode::Narrow, |e, _, d, [a, ..]| words(e, false, d.low, a.low, a.high));
    table.lanes(Opcode::Upper32, |e, _, d, [a, ..]| words(e, true, d.low, a.low, a.high));
    table.lanes(Opcode::NarrowAddress, |e, _, d, [a, ..]| {
        let (t, zero) = (e.temporary()?, e.temporary()?);
        words(e, true, t, a.low, a.high)?;
        words(e, false, d.low, a.low, a.high)?;
        let beyond = e.constant(BEYOND);
        // The mask is all ones where the upper word is 0.
        e.asm.vpxor(zero, zero, zero)?;
        e.asm.vpcmpeqd(t, t, zero)?;
        e.asm.vpandn(t, t, beyond)?;
        e.asm.vpor(d.low, d.low, t)
    });
    table.lanes(Opcode::Pack32, |e, _, d, [a, b, _]| {
        let t = e.temporary()?;
        e.asm.vpunpckldq(d.low, a.low, b.low)?;
        e.asm.vpunpckhdq(t, a.low, b.low)?;
        e.asm.vperm2i128(d.high, d.low, t, 0x31)?;
        e.asm.vperm2i128(d.low, d.low, t, 0x20)
    });
    table.lanes(
        Opcode::Pack16,
        narrow!(|e, d, a, b| {
            e.asm.vpslld(d, b, 16)?;
            e.asm.vpblendw(d, d, a, 0b0101_0101)
        }),
    );
    table.lanes(
        Opcode::Low8,
        narrow!(|e, d, a| {
            let mask = e.constant(0xff);
            e.asm.vpand(d, a, mask)
        }),
    );
    table.lanes(
        Opcode::Low16,
        narrow!(|e, d, a| {
            let mask = e.constant(0xffff);
            e.asm.vpand(d, a, mask)
        }),
    );
    table.lanes(
        Opcode::Sign8,
        narrow!(|e, d, a| {
            e.asm.vpslld(d, a, 24)?;
            e.asm.vpsrad(d, d, 24)
        }),
    );
    table.lanes(
        Opcode::Sign16,
        narrow!(|e, d, a| {
            e.asm.vpslld(d, a, 16)?;
            e.asm.vpsrad(d, d, 16)
        }),
    );
    table.lanes(
        Opcode::FromS16,
        narrow!(|e, d, a| {
            e.asm.vpslld(d, a, 16)?;
            e.asm.vpsrad(d, d, 16)?;
            e.asm.vcvtdq2ps(d, d)
        }),
    );
    table.lanes(
        Opcode::FromS8,
        narrow!(|e, d, a| {
            e.asm.vpslld(d, a, 24)?;
            e.asm.vpsrad(d, d, 24)?;
            e.asm.vcvtdq2ps(d, d)
        }),
    );
}
