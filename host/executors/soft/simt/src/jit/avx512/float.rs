//! Templates of 32-bit floating-point arithmetic. Operands and results may be neither flushed nor canonical:
//! the processor treats subnormal operands as zero where the code flushes, and an instruction that reads a
//! result as bits finishes it first. Sequences of several instructions match the interpreter bit for bit.

use iced_x86::code_asm::{AsmRegisterZmm, k5};

use super::body::{Body, Templates};
use super::cache::Cache;
use crate::jit::plain::plain_floats;
use crate::jit::template::narrow;
use crate::jit::value::{Emit, SlotKind};
use crate::machine::{Inst, Opcode};

const ONE: u32 = 0x3f80_0000;
const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7f80_0000;
/// Comparison predicate "less" of the floating-point instructions; the next constants are other predicates.
const LESS: u32 = 1;
const UNORDERED: u32 = 3;

/// Emits a maximum or minimum. If one operand is NaN the result is the other one, and for two zeros the
/// maximum is +0 and the minimum -0.
fn extreme(e: &mut Cache<'_>, max: bool, d: AsmRegisterZmm, a: AsmRegisterZmm, b: AsmRegisterZmm) -> Emit {
    let t = e.temporary()?;
    // The processor returns its second operand for two zeros, and if either is NaN.
    if max {
        e.asm.vmaxps(d, a, b)?;
        e.asm.vmaxps(t, b, a)?;
        e.asm.vpandd(d, d, t)?;
    } else {
        e.asm.vminps(d, a, b)?;
        e.asm.vminps(t, b, a)?;
        e.asm.vpord(d, d, t)?;
    }
    e.asm.vcmpps(k5, a, a, UNORDERED)?;
    e.asm.vmovaps(d.k5(), b)?;
    e.asm.vcmpps(k5, b, b, UNORDERED)?;
    e.asm.vmovaps(d.k5(), a)
}

/// Emits 2^x with the interpreter's sequence of operations.
fn exp2(e: &mut Cache<'_>, d: AsmRegisterZmm, a: AsmRegisterZmm) -> Emit {
    const ROUNDER: f32 = 12_582_912.0;
    let [x, n, f] = e.temporaries()?;
    let (low, high) = (e.word((-160.0_f32).to_bits()), e.word(160.0_f32.to_bits()));
    let rounder = e.constant(ROUNDER.to_bits());
    // NaN is the second operand, which the processor returns.
    e.asm.vpbroadcastd(x, low)?;
    e.asm.vmaxps(x, x, a)?;
    e.asm.vpbroadcastd(n, high)?;
    e.asm.vminps(x, n, x)?;
    e.asm.vaddps(n, x, rounder)?;
    e.asm.vsubps(f, n, rounder)?;
    e.asm.vsubps(f, x, f)?;
    let first = e.word(1.540_353_e-4_f32.to_bits());
    e.asm.vpbroadcastd(d, first)?;
    for term in [1.333_355_8e-3_f32, 9.618_129_e-3, 5.550_411e-2, 2.402_265e-1, 6.931_472_e-1, 1.0] {
        let term = e.constant(term.to_bits());
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

/// Emits a division by a constant power of two as a multiplication, which has the same result. Returns false
/// if the divisor is not a power of two.
fn divide_by_power(e: &mut Cache<'_>, step: &Inst, d: AsmRegisterZmm, a: AsmRegisterZmm) -> Emit<bool> {
    let is_scalar = e.kinds[1] == SlotKind::Scalar { wide: false };
    let Some(divisor) = e.known(step.b).filter(|_| is_scalar).map(|bits| bits as u32) else {
        return Ok(false);
    };
    let exponent = divisor >> 23 & 0xff;
    // The reciprocal must be a normal number, too.
    if divisor & 0x7f_ffff != 0 || !(1..253).contains(&exponent) {
        return Ok(false);
    }
    let reciprocal = e.constant(divisor & SIGN | (254 - exponent) << 23);
    e.asm.vmulps(d, a, reciprocal)?;
    Ok(true)
}

/// Emits a quotient. For divisors above 2^126 it is the product of the dividend and zero.
fn divide(e: &mut Cache<'_>, d: AsmRegisterZmm, a: AsmRegisterZmm, b: AsmRegisterZmm) -> Emit {
    let t = e.temporary()?;
    let (sign, most, infinity) = (e.constant(!SIGN), e.constant(0x7e80_0000), e.constant(INFINITY));
    e.asm.vpandd(t, b, sign)?;
    e.asm.vpcmpgtd(k5, t, most)?;
    e.asm.vpcmpd(k5.k5(), t, infinity, LESS)?;
    e.asm.vpxord(t, t, t)?;
    e.asm.vmulps(t, t, a)?;
    e.asm.vdivps(d, a, b)?;
    e.asm.vmovaps(d.k5(), t)
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
    table.lanes(Opcode::AddZeroF32, narrow!(|e, d, a, b| e.asm.vaddps(d.rz_sae(), a, b)));
    table.lanes(Opcode::DivF32, |e, step, d, [a, b, _]| {
        if divide_by_power(e, step, d.low, a.low)? { Ok(()) } else { e.asm.vdivps(d.low, a.low, b.low) }
    });
    table.lanes(Opcode::DivApproxF32, |e, step, d, [a, b, _]| {
        if divide_by_power(e, step, d.low, a.low)? { Ok(()) } else { divide(e, d.low, a.low, b.low) }
    });
    table.lanes(
        Opcode::RcpF32,
        narrow!(|e, d, a| {
            let one = e.word(ONE);
            e.asm.vpbroadcastd(d, one)?;
            e.asm.vdivps(d, d, a)
        }),
    );
    table.lanes(
        Opcode::RsqrtF32,
        narrow!(|e, d, a| {
            let (one, t) = (e.word(ONE), e.temporary()?);
            e.asm.vsqrtps(t, a)?;
            e.asm.vpbroadcastd(d, one)?;
            e.asm.vdivps(d, d, t)
        }),
    );
    table.lanes(
        Opcode::SaturateF32,
        narrow!(|e, d, a| {
            // Integers order the bits of numbers from +0 up, in either mode: comparisons of floats would take
            // a subnormal number for zero where the code flushes. NaN, and what has a sign, becomes +0.
            let (one, infinity) = (e.constant(ONE), e.constant(INFINITY));
            e.asm.vpxord(d, d, d)?;
            e.asm.vpmaxsd(d, a, d)?;
            e.asm.vpcmpgtd(k5, d, infinity)?;
            e.asm.vpminsd(d, d, one)?;
            e.asm.vpxord(d.k5(), d, d)
        }),
    );
    table.lanes(
        Opcode::AbsF32,
        narrow!(|e, d, a| {
            let magnitude = e.constant(!SIGN);
            e.asm.vpandd(d, a, magnitude)
        }),
    );
    table.lanes(
        Opcode::NegF32,
        narrow!(|e, d, a| {
            let sign = e.constant(SIGN);
            e.asm.vpxord(d, a, sign)
        }),
    );
    table.lanes(
        Opcode::AbsFtzF32,
        narrow!(|e, d, a| {
            let magnitude = e.constant(!SIGN);
            flush(e, d, a)?;
            e.asm.vpandd(d, d, magnitude)
        }),
    );
    table.lanes(
        Opcode::NegFtzF32,
        narrow!(|e, d, a| {
            let sign = e.constant(SIGN);
            flush(e, d, a)?;
            e.asm.vpxord(d, d, sign)
        }),
    );
}

/// Replaces subnormal numbers by zero of the same sign. All other numbers stay unchanged.
pub(super) fn flush(e: &mut Cache<'_>, d: AsmRegisterZmm, a: AsmRegisterZmm) -> Emit {
    let (exponent, sign) = (e.constant(INFINITY), e.constant(SIGN));
    e.asm.vptestnmd(k5, a, exponent)?;
    e.asm.vmovdqa64(d, a)?;
    e.asm.vpandd(d.k5(), a, sign)
}
