//! Templates of comparisons, whose results are masks of lanes, and of selections.

use super::body::{Action, Body, Templates};
use super::integer::widen;
use crate::jit::template::narrow;
use crate::machine::Opcode;

/// Registers comparisons of floats. Those in `Flushed` rely on the processor to flush subnormal operands.
macro_rules! floats {
    ($table:ident, $($test:ident: $mnemonic:ident;)*) => { $(
        let body: Body = narrow!(|e, d, a, b| e.asm.$mnemonic(d, a, b));
        $table.lanes(Opcode::$test, body);
    )* };
}

pub(super) fn register(table: &mut Templates) {
    table.lanes(Opcode::Eq32, narrow!(|e, d, a, b| e.asm.vpcmpeqd(d, a, b)));
    table.lanes(Opcode::LtS32, narrow!(|e, d, a, b| e.asm.vpcmpgtd(d, b, a)));
    table.lanes(
        Opcode::LeS32,
        narrow!(|e, d, a, b| {
            e.asm.vpminsd(d, a, b)?;
            e.asm.vpcmpeqd(d, d, a)
        }),
    );
    table.lanes(
        Opcode::LeU32,
        narrow!(|e, d, a, b| {
            e.asm.vpminud(d, a, b)?;
            e.asm.vpcmpeqd(d, d, a)
        }),
    );
    table.lanes(
        Opcode::LtU32,
        narrow!(|e, d, a, b| {
            let t = e.temporary()?;
            e.asm.vpmaxud(d, a, b)?;
            e.asm.vpcmpeqd(d, d, a)?;
            e.asm.vpcmpeqd(t, t, t)?;
            e.asm.vpxor(d, d, t)
        }),
    );
    table.lanes(Opcode::Eq64, |e, _, d, [a, b, _]| {
        e.asm.vpcmpeqq(d.low, a.low, b.low)?;
        e.asm.vpcmpeqq(d.high, a.high, b.high)
    });
    table.lanes(Opcode::LtS64, |e, _, d, [a, b, _]| {
        e.asm.vpcmpgtq(d.low, b.low, a.low)?;
        e.asm.vpcmpgtq(d.high, b.high, a.high)
    });
    table.lanes(Opcode::LeS64, |e, _, d, [a, b, _]| {
        let t = e.temporary()?;
        e.asm.vpcmpgtq(d.low, a.low, b.low)?;
        e.asm.vpcmpgtq(d.high, a.high, b.high)?;
        e.asm.vpcmpeqd(t, t, t)?;
        e.asm.vpxor(d.low, d.low, t)?;
        e.asm.vpxor(d.high, d.high, t)
    });
    floats! { table, EqF32: vcmpeqps; LtF32: vcmpltps; LeF32: vcmpleps; EquF32: vcmpeq_uqps; }
    table.lanes(Opcode::NanF32, narrow!(|e, d, a, b| e.asm.vcmpunordps(d, a, b)));
    table.lanes(Opcode::Selp32, |e, step, d, [a, b, mask]| {
        let (a, b) = if step.form.inverted == 0 { (a, b) } else { (b, a) };
        e.asm.vblendvps(d.low, b.low, a.low, mask.low)
    });
    table.lanes(Opcode::Selp64, |e, step, d, [a, b, mask]| {
        let (a, b) = if step.form.inverted == 0 { (a, b) } else { (b, a) };
        let masks = e.result(true)?;
        widen(e, true, masks, mask.low)?;
        e.asm.vblendvpd(d.low, b.low, a.low, masks.low)?;
        e.asm.vblendvpd(d.high, b.high, a.high, masks.high)
    });
    for opcode in [Opcode::AndPred, Opcode::OrPred, Opcode::XorPred] {
        table.add(opcode, Action::Logic { shared: false });
    }
}
