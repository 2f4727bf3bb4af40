//! Templates that are written the same for both translators, because the instructions have the same names for
//! both register widths. Operations, helpers and body forms are resolved where the macros are expanded.

/// Adds the templates of integer arithmetic to a table.
macro_rules! plain_integers {
    ($table:ident) => {
        $table.op2::<Add32>(narrow!(|e, d, a, b| e.asm.vpaddd(d, a, b)));
        $table.op2::<Sub32>(narrow!(|e, d, a, b| e.asm.vpsubd(d, a, b)));
        $table.op2::<Add64>(wide!(|e, d, a, b| e.asm.vpaddq(d, a, b)));
        $table.op2::<Sub64>(wide!(|e, d, a, b| e.asm.vpsubq(d, a, b)));
        $table.op1::<LocalToGeneric>(wide!(|e, d, a| {
            let base = e.wide_constant(window::LOCAL);
            e.asm.vpaddq(d, a, base)
        }));
        $table.op1::<GenericToLocal>(wide!(|e, d, a| {
            let base = e.wide_constant(window::LOCAL);
            e.asm.vpsubq(d, a, base)
        }));
        // As in PTX, counts beyond the width give zeros, or copies of the sign.
        $table.op2::<Shl32>(narrow!(|e, d, a, b| e.asm.vpsllvd(d, a, b)));
        $table.op2::<ShrU32>(narrow!(|e, d, a, b| e.asm.vpsrlvd(d, a, b)));
        $table.op2::<ShrS32>(narrow!(|e, d, a, b| e.asm.vpsravd(d, a, b)));
        $table.op2::<Shl64>(|e, _, d, [a, b, _]| shift_wide(e, true, d, a, b));
        $table.op2::<ShrU64>(|e, _, d, [a, b, _]| shift_wide(e, false, d, a, b));
        $table.op2::<MinS32>(narrow!(|e, d, a, b| e.asm.vpminsd(d, a, b)));
        $table.op2::<MaxS32>(narrow!(|e, d, a, b| e.asm.vpmaxsd(d, a, b)));
        $table.op2::<MinU32>(narrow!(|e, d, a, b| e.asm.vpminud(d, a, b)));
        $table.op2::<MaxU32>(narrow!(|e, d, a, b| e.asm.vpmaxud(d, a, b)));
        $table.op2::<MulLo32>(narrow!(|e, d, a, b| e.asm.vpmulld(d, a, b)));
        $table.op2::<MulHiU32>(narrow!(|e, d, a, b| multiply_high(e, false, d, a, b)));
        $table.op2::<MulHiS32>(narrow!(|e, d, a, b| multiply_high(e, true, d, a, b)));
        $table.op2::<MulWideU32>(|e, _, d, [a, b, _]| multiply_wide(e, false, d, a.low, b.low));
        $table.op2::<MulWideS32>(|e, _, d, [a, b, _]| multiply_wide(e, true, d, a.low, b.low));
        $table.op3::<MadLo32>(narrow!(|e, d, a, b, c| {
            e.asm.vpmulld(d, a, b)?;
            e.asm.vpaddd(d, d, c)
        }));
        $table.op1::<Abs32>(narrow!(|e, d, a| e.asm.vpabsd(d, a)));
    };
}

/// Adds the templates of floating-point arithmetic to a table.
macro_rules! plain_floats {
    ($table:ident) => {
        $table.float2::<Sub>(narrow!(|e, d, a, b| e.asm.vsubps(d, a, b)));
        $table.float2::<Mul>(narrow!(|e, d, a, b| e.asm.vmulps(d, a, b)));
        $table.float3::<Fma>(narrow!(|e, d, a, b, c| {
            e.asm.vmovaps(d, a)?;
            e.asm.vfmadd213ps(d, b, c)
        }));
        $table.float2::<Min>(narrow!(|e, d, a, b| extreme(e, false, d, a, b)));
        $table.float1::<Sqrt>(narrow!(|e, d, a| e.asm.vsqrtps(d, a)));
        $table.float1::<Ex2>(narrow!(|e, d, a| exp2(e, d, a)));
    };
}

/// Adds the templates of conversions to a table.
macro_rules! plain_conversions {
    ($table:ident) => {
        $table.op1::<Widen>(|e, _, d, [a, ..]| widen(e, false, d, a.low));
        $table.op1::<WidenSigned>(|e, _, d, [a, ..]| widen(e, true, d, a.low));
        $table.op1::<FromS32>(narrow!(|e, d, a| e.asm.vcvtdq2ps(d, a)));
        $table.op1::<FromBfloat>(narrow!(|e, d, a| e.asm.vpslld(d, a, 16)));
        let lower: Body = narrow!(|e, d, a| from_half(e, false, d, a));
        let upper: Body = narrow!(|e, d, a| from_half(e, true, d, a));
        $table.op1::<FromHalf>(lower);
        $table.op1::<FromUpperHalf>(upper);
        // Subnormal singles are far below the smallest half: flushed or not, they become zero.
        $table.op1::<ToHalf>(narrow!(|e, d, a| to_half(e, d, a)));
        $table.op1::<ToHalfFtz>(narrow!(|e, d, a| to_half(e, d, a)));
        let all = SlotKind::Vector { wide: false };
        let halves = |body| Action::bitwise([all, SlotKind::None, SlotKind::None], all, body);
        $table.add::<FromHalves<false>>(halves(lower));
        $table.add::<FromHalves<true>>(halves(upper));
    };
}
pub(super) use {plain_conversions, plain_floats, plain_integers};
