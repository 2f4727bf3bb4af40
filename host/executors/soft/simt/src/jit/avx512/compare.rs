//! Templates of comparisons, which leave the bits of sixteen lanes in `k5`, and of selections.

use iced_x86::code_asm::{byte_ptr, k5, k6, rbx, word_ptr};

use super::body::{Action, Body, Templates};
use super::cache::Cache;
use crate::jit::template::narrow;
use crate::jit::value::Emit;
use crate::machine::{Inst, Opcode};

/// Comparison predicate "equal" of the integer instructions; the next constants are other predicates.
const EQUAL: u32 = 0;
const LESS: u32 = 1;
const LESS_OR_EQUAL: u32 = 2;

/// Loads the bits of the current half of the predicate `c` to `k5`.
fn load_predicate(e: &mut Cache<'_>, step: &Inst) -> Emit {
    e.asm.kmovw(k5, word_ptr(rbx + (step.c.offset() + 2 * e.half) as i32))
}

/// Registers comparisons of 32-bit integers.
macro_rules! words {
    ($table:ident, $($test:ident: $mnemonic:ident, $predicate:expr;)*) => { $(
        $table.lanes(Opcode::$test, narrow!(|e, _d, a, b| e.asm.$mnemonic(k5, a, b, $predicate)));
    )* };
}

/// Registers comparisons of 64-bit integers.
macro_rules! wides {
    ($table:ident, $($test:ident: $mnemonic:ident, $predicate:expr;)*) => { $(
        $table.lanes(Opcode::$test, |e, _, _, [a, b, _]| {
            e.asm.$mnemonic(k6, a.high, b.high, $predicate)?;
            e.asm.$mnemonic(k5, a.low, b.low, $predicate)?;
            e.asm.kunpckbw(k5, k6, k5)
        });
    )* };
}

/// Registers comparisons of floats. Those in `Flushed` rely on the processor to flush subnormal operands.
macro_rules! floats {
    ($table:ident, $($test:ident: $predicate:expr;)*) => { $(
        let body: Body = narrow!(|e, _d, a, b| e.asm.vcmpps(k5, a, b, $predicate));
        $table.lanes(Opcode::$test, body);
    )* };
}

pub(super) fn register(table: &mut Templates) {
    words! { table,
        Eq32: vpcmpd, EQUAL; LtS32: vpcmpd, LESS; LeS32: vpcmpd, LESS_OR_EQUAL;
        LtU32: vpcmpud, LESS; LeU32: vpcmpud, LESS_OR_EQUAL;
    }
    wides! { table,
        Eq64: vpcmpq, EQUAL; LtS64: vpcmpq, LESS; LeS64: vpcmpq, LESS_OR_EQUAL;
        LtU64: vpcmpuq, LESS; LeU64: vpcmpuq, LESS_OR_EQUAL;
    }
    // Equal, less, less or equal, and equal or unordered.
    floats! { table, EqF32: 0; LtF32: 1; LeF32: 2; EquF32: 8; }
    table.lanes(Opcode::NanF32, narrow!(|e, _d, a, b| e.asm.vcmpps(k5, a, b, 3)));
    table.lanes(Opcode::Selp32, |e, step, d, [a, b, _]| {
        let (a, b) = if step.form.inverted == 0 { (a, b) } else { (b, a) };
        load_predicate(e, step)?;
        e.asm.vpblendmd(d.low.k5(), b.low, a.low)
    });
    table.lanes(Opcode::Selp64, |e, step, d, [a, b, _]| {
        let (a, b) = if step.form.inverted == 0 { (a, b) } else { (b, a) };
        load_predicate(e, step)?;
        e.asm.vpblendmq(d.low.k5(), b.low, a.low)?;
        e.asm.kmovb(k5, byte_ptr(rbx + (step.c.offset() + 2 * e.half + 1) as i32))?;
        e.asm.vpblendmq(d.high.k5(), b.high, a.high)
    });
    for opcode in [Opcode::AndPred, Opcode::OrPred, Opcode::XorPred] {
        table.add(opcode, Action::Logic { shared: false });
    }
}
