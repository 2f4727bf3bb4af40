//! Templates that are written the same for both translators, because the instructions have the same names for
//! both register widths. Operations, helpers and body forms are resolved where the macros are expanded.

/// Adds the templates of integer arithmetic to a table.
macro_rules! plain_integers {
    ($table:ident) => {
        $table.lanes(Opcode::Add32, narrow!(|e, d, a, b| e.asm.vpaddd(d, a, b)));
        $table.lanes(Opcode::Sub32, narrow!(|e, d, a, b| e.asm.vpsubd(d, a, b)));
        $table.lanes(Opcode::Add64, wide!(|e, d, a, b| e.asm.vpaddq(d, a, b)));
        $table.lanes(Opcode::Sub64, wide!(|e, d, a, b| e.asm.vpsubq(d, a, b)));
        $table.lanes(
            Opcode::LocalToGeneric,
            wide!(|e, d, a| {
                let base = e.wide_constant(window::LOCAL);
                e.asm.vpaddq(d, a, base)
            }),
        );
        $table.lanes(
            Opcode::GenericToLocal,
            wide!(|e, d, a| {
                let base = e.wide_constant(window::LOCAL);
                e.asm.vpsubq(d, a, base)
            }),
        );
        // As in PTX, counts beyond the width give zeros, or copies of the sign.
        $table.lanes(Opcode::Shl32, narrow!(|e, d, a, b| e.asm.vpsllvd(d, a, b)));
        $table.lanes(Opcode::ShrU32, narrow!(|e, d, a, b| e.asm.vpsrlvd(d, a, b)));
        $table.lanes(Opcode::ShrS32, narrow!(|e, d, a, b| e.asm.vpsravd(d, a, b)));
        $table.lanes(Opcode::Shl64, |e, _, d, [a, b, _]| shift_wide(e, true, d, a, b));
        $table.lanes(Opcode::ShrU64, |e, _, d, [a, b, _]| shift_wide(e, false, d, a, b));
        $table.lanes(Opcode::MinS32, narrow!(|e, d, a, b| e.asm.vpminsd(d, a, b)));
        $table.lanes(Opcode::MaxS32, narrow!(|e, d, a, b| e.asm.vpmaxsd(d, a, b)));
        $table.lanes(Opcode::MinU32, narrow!(|e, d, a, b| e.asm.vpminud(d, a, b)));
        $table.lanes(Opcode::MaxU32, narrow!(|e, d, a, b| e.asm.vpmaxud(d, a, b)));
        $table.lanes(Opcode::MulLo32, narrow!(|e, d, a, b| e.asm.vpmulld(d, a, b)));
        $table.lanes(Opcode::MulHiU32, narrow!(|e, d, a, b| multiply_high(e, false, d, a, b)));
        $table.lanes(Opcode::MulHiS32, narrow!(|e, d, a, b| multiply_high(e, true, d, a, b)));
        $table.lanes(Opcode::MulWideU32, |e, _, d, [a, b, _]| multiply_wide(e, false, d, a.low, b.low));
        $table.lanes(Opcode::MulWideS32, |e, _, d, [a, b, _]| multiply_wide(e, true, d, a.low, b.low));
        $table.lanes(
            Opcode::MadLo32,
            narrow!(|e, d, a, b, c| {
                e.asm.vpmulld(d, a, b)?;
                e.asm.vpaddd(d, d, c)
            }),
        );
        $table.lanes(Opcode::Abs32, narrow!(|e, d, a| e.asm.vpabsd(d, a)));
    };
}

/// Adds the templates of floating-point arithmetic to a table.
macro_rules! plain_floats {
    ($table:ident) => {
        $table.lanes(Opcode::SubF32, narrow!(|e, d, a, b| e.asm.vsubps(d, a, b)));
        $table.lanes(Opcode::MulF32, narrow!(|e, d, a, b| e.asm.vmulps(d, a, b)));
        $table.lanes(
            Opcode::FmaF32,
            narrow!(|e, d, a, b, c| {
                e.asm.vmovaps(d, a)?;
                e.asm.vfmadd213ps(d, b, c)
            }),
        );
        $table.lanes(Opcode::MinF32, narrow!(|e, d, a, b| extreme(e, false, d, a, b)));
        $table.lanes(Opcode::SqrtF32, narrow!(|e, d, a| e.asm.vsqrtps(d, a)));
        $table.lanes(Opcode::Ex2F32, narrow!(|e, d, a| exp2(e, d, a)));
    };
}

/// Adds the templates of conversions to a table.
macro_rules! plain_conversions {
    ($table:ident) => {
        $table.lanes(Opcode::Widen, |e, _, d, [a, ..]| widen(e, false, d, a.low));
        $table.lanes(Opcode::WidenSigned, |e, _, d, [a, ..]| widen(e, true, d, a.low));
        $table.lanes(Opcode::FromS32, narrow!(|e, d, a| e.asm.vcvtdq2ps(d, a)));
        $table.lanes(Opcode::FromBfloat, narrow!(|e, d, a| e.asm.vpslld(d, a, 16)));
        let lower: Body = narrow!(|e, d, a| from_half(e, false, d, a));
        let upper: Body = narrow!(|e, d, a| from_half(e, true, d, a));
        $table.lanes(Opcode::FromHalf, lower);
        $table.lanes(Opcode::FromUpperHalf, upper);
        // Subnormal singles are far below the smallest half: flushed or not, they become zero.
        $table.lanes(Opcode::ToHalf, narrow!(|e, d, a| to_half(e, d, a)));
        $table.lanes(Opcode::ToHalfFtz, narrow!(|e, d, a| to_half(e, d, a)));
        $table.lanes(Opcode::FromLowerHalves, lower);
        $table.lanes(Opcode::FromUpperHalves, upper);
    };
}
pub(super) use {plain_conversions, plain_floats, plain_integers};
