//! Templates of 32-bit floating-point arithmetic. Operands and results may be neither flushed nor canonical:
//! the processor treats subnormal operands as zero where the code flushes, and an instruction that reads a
//! result as bits finishes it first. Sequences of several instructions match the interpreter bit for bit.

use iced_x86::code_asm::AsmRegisterYmm;

use super::body::{Body, Templates};
use super::cache::Cache;
use crate::jit::plain::plain_floats;
use crate::jit::template::narrow;
use crate::jit::value::Emit;
use crate::machine::Opcode;

const ONE: u32 = 0x3f80_0000;
const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7f80_0000;

/// Emits a maximum or minimum. If one operand is NaN the result is the other one, and for two zeros the
/// maximum is +0 and the minimum -0.
fn extreme(e: &mut Cache<'_>, max: bool, d: AsmRegisterYmm, a: AsmRegisterYmm, b: AsmRegisterYmm) -> Emit {
    let t = e.temporary()?;
    // The processor returns its second operand for two zeros, and if either is NaN.
    if max {
        e.asm.vmaxps(d, a, b)?;
        e.asm.vmaxps(t, b, a)?;
        e.asm.vandps(d, d, t)?;
    } else {
        e.asm.vminps(d, a, b)?;
        e.asm.vminps(t, b, a)?;
        e.asm.vorps(d, d, t)?;
    }
    e.asm.vcmpunordps(t, a, a)?;
    e.asm.vblendvps(d, d, b, t)?;
    e.asm.vcmpunordps(t, b, b)?;
    e.asm.vblendvps(d, d, a, t)
}

/// Emits 2^x with the interpreter's sequence of operations.
fn exp2(e: &mut Cache<'_>, d: AsmRegisterYmm, a: AsmRegisterYmm) -> Emit {
    const ROUNDER: f32 = 12_582_912.0;
    let (x, n, f) = (e.temporary()?, e.temporary()?, e.temporary()?);
    let number = |e: &mut Cache<'_>, value: f32| e.constant(value.to_bits());
    // NaN is the second operand, which the processor returns.
    let (low, high, rounder) = (number(e, -160.0), number(e, 160.0), number(e, ROUNDER));
    e.asm.vmovups(x, low)?;
    e.asm.vmaxps(x, x, a)?;
    e.asm.vmovups(n, high)?;
    e.asm.vminps(x, n, x)?;
    e.asm.vaddps(n, x, rounder)?;
    e.asm.vsubps(f, n, rounder)?;
    e.asm.vsubps(f, x, f)?;
    let first = number(e, 1.540_353_e-4);
    e.asm.vmovups(d, first)?;
    for term in [1.333_355_8e-3, 9.618_129_e-3, 5.550_411e-2, 2.402_265e-1, 6.931_472_e-1, 1.0] {
        let term = number(e, term);
        e.asm.vmulps(d, d, f)?;
        e.asm.vaddps(d, d, term)?;
    }
    e.asm.vpslld(n, n, 9)?;
    e.asm.vpsrad(n, n, 9)?;
    e.asm.vpsrad(x, n, 1)?;
    e.asm.vpsubd(n, n, x)?;
    let bias = e.constant(127);
    for half in [x, n] {
        e.asm.vpaddd(half, half, bias)?;
        e.asm.vpslld(half, half, 23)?;
        e.asm.vmulps(d, d, half)?;
    }
    Ok(())
}

/// Emits a quotient. For divisors above 2^126 it is the product of the dividend and zero.
fn divide(e: &mut Cache<'_>, d: AsmRegisterYmm, a: AsmRegisterYmm, b: AsmRegisterYmm) -> Emit {
    let (large, t) = (e.temporary()?, e.temporary()?);
    let (sign, most, infinity) = (e.constant(!SIGN), e.constant(0x7e80_0000), e.constant(INFINITY));
    e.asm.vpand(t, b, sign)?;
    e.asm.vpcmpgtd(large, t, most)?;
    e.asm.vmovdqu(d, infinity)?;
    e.asm.vpcmpgtd(d, d, t)?;
    e.asm.vpand(large, large, d)?;
    e.asm.vxorps(t, t, t)?;
    e.asm.vmulps(t, t, a)?;
    e.asm.vdivps(d, a, b)?;
    e.asm.vblendvps(d, d, t, large)
}

/// Template of sums, also used to combine the values of two lanes in a reduction.
const ADD: Body = narrow!(|e, d, a, b| e.asm.vaddps(d, a, b));
const MAX: Body = narrow!(|e, d, a, b| extreme(e, true, d, a, b));

pub(super) fn register(table: &mut Templates) {
    plain_floats!(table);
    table.lanes(Opcode::AddF32, ADD);
    table.lanes(Opcode::MaxF32, MAX);
    table.butterfly(Opcode::Butterfly, None);
    table.butterfly(Opcode::ButterflyAdd, Some(ADD));
    table.butterfly(Opcode::ButterflyMax, Some(MAX));
    table.lanes(Opcode::DivF32, narrow!(|e, d, a, b| e.asm.vdivps(d, a, b)));
    table.lanes(Opcode::DivApproxF32, narrow!(|e, d, a, b| divide(e, d, a, b)));
    table.lanes(
        Opcode::RcpF32,
        narrow!(|e, d, a| {
            let one = e.constant(ONE);
            e.asm.vmovups(d, one)?;
            e.asm.vdivps(d, d, a)
        }),
    );
    table.lanes(
        Opcode::RsqrtF32,
        narrow!(|e, d, a| {
            let (one, t) = (e.constant(ONE), e.temporary()?);
            e.asm.vsqrtps(t, a)?;
            e.asm.vmovups(d, one)?;
            e.asm.vdivps(d, d, t)
        }),
    );
    table.lanes(
        Opcode::SaturateF32,
        narrow!(|e, d, a| {
            // Integers order the bits of numbers from +0 up, in either mode: comparisons of floats would take
            // a subnormal number for zero where the code flushes. NaN, and what has a sign, becomes +0.
            let (one, infinity) = (e.constant(ONE), e.constant(INFINITY));
            let nan = e.temporary()?;
            e.asm.vpxor(d, d, d)?;
            e.asm.vpmaxsd(d, a, d)?;
            e.asm.vpcmpgtd(nan, d, infinity)?;
            e.asm.vpminsd(d, d, one)?;
            e.asm.vpandn(d, nan, d)
        }),
    );
    table.lanes(
        Opcode::AbsF32,
        narrow!(|e, d, a| {
            let magnitude = e.constant(!SIGN);
            e.asm.vandps(d, a, magnitude)
        }),
    );
    table.lanes(
        Opcode::NegF32,
        narrow!(|e, d, a| {
            let sign = e.constant(SIGN);
            e.asm.vxorps(d, a, sign)
        }),
    );
    table.lanes(
        Opcode::AbsFtzF32,
        narrow!(|e, d, a| {
            let magnitude = e.constant(!SIGN);
            flush(e, d, a)?;
            e.asm.vandps(d, d, magnitude)
        }),
    );
    table.lanes(
        Opcode::NegFtzF32,
        narrow!(|e, d, a| {
            let sign = e.constant(SIGN);
            flush(e, d, a)?;
            e.asm.vxorps(d, d, sign)
        }),
    );
}

/// Replaces subnormal numbers by zero of the same sign. All other numbers stay unchanged.
pub(super) fn flush(e: &mut Cache<'_>, d: AsmRegisterYmm, a: AsmRegisterYmm) -> Emit {
    let t = e.temporary()?;
    let exponent = e.constant(INFINITY);
    e.asm.vpand(d, a, exponent)?;
    e.asm.vpxor(t, t, t)?;
    e.asm.vpcmpeqd(d, d, t)?;
    e.asm.vpsrld(d, d, 1)?;
    e.asm.vpandn(d, d, a)
}
