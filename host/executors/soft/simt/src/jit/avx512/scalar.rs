//! Integers that all lanes share, in the general registers.

use std::any::TypeId;

use iced_x86::code_asm::{dword_ptr, eax, ecx, edx, qword_ptr, rax, rbx, rcx, rdx};

use super::cache::Cache;
use crate::jit::value::Emit;
use crate::machine::{Inst, Slot};
use crate::ops::bits::{And32, Not32, Or32, Shl32, Shl64, ShrS32, ShrU32, ShrU64, Xor32};
use crate::ops::convert::{Narrow, Upper32, Widen, WidenSigned};
use crate::ops::integer::{
    Add32, Add64, MadLo32, MadWideS32, MadWideU32, MaxS32, MaxU32, MinS32, MinU32, Mov32, Mov64, MulHiS32,
    MulHiU32, MulLo32, MulLo64, MulWideS32, MulWideU32, Neg32, Sub32, Sub64,
};
use crate::ops::{Scalar1, Scalar2, Scalar3};

/// An operation of integers that general registers do.
#[derive(Clone, Copy)]
enum Does {
    Copy,
    Add,
    Subtract,
    Multiply,
    And,
    Or,
    Xor,
    Not,
    Negate,
    Least {
        signed: bool,
    },
    Greatest {
        signed: bool,
    },
    ShiftLeft,
    ShiftRight {
        signed: bool,
    },
    /// The upper half of a product of words.
    High {
        signed: bool,
    },
    /// Words as 64 bits, multiplied where there are two, and added to a third operand.
    Widen {
        signed: bool,
    },
    Product {
        signed: bool,
        adds: bool,
    },
    MultiplyAdd,
    /// A word of 64 bits.
    Word {
        upper: bool,
    },
}

/// What a step of scalars does, and whether these have 64 bits.
fn does(step: &Inst) -> Option<(Does, bool)> {
    macro_rules! table {
        ($($step:ty => $does:expr, $wide:literal;)*) => { $(
            if step.opcode == TypeId::of::<$step>() {
                return Some(($does, $wide));
            }
        )* };
    }
    use Does::{
        Add, And, Copy, Greatest, High, Least, Multiply, MultiplyAdd, Negate, Not, Or, Product, ShiftLeft,
        ShiftRight, Subtract, Word, Xor,
    };
    table! {
        Scalar1<Mov32> => Copy, false;
        Scalar1<Mov64> => Copy, true;
        Scalar2<Add32> => Add, false;
        Scalar2<Add64> => Add, true;
        Scalar2<Sub32> => Subtract, false;
        Scalar2<Sub64> => Subtract, true;
        Scalar2<MulLo32> => Multiply, false;
        Scalar2<MulLo64> => Multiply, true;
        Scalar2<And32> => And, false;
        Scalar2<Or32> => Or, false;
        Scalar2<Xor32> => Xor, false;
        Scalar1<Not32> => Not, false;
        Scalar1<Neg32> => Negate, false;
        Scalar2<MinS32> => Least { signed: true }, false;
        Scalar2<MinU32> => Least { signed: false }, false;
        Scalar2<MaxS32> => Greatest { signed: true }, false;
        Scalar2<MaxU32> => Greatest { signed: false }, false;
        Scalar2<Shl32> => ShiftLeft, false;
        Scalar2<Shl64> => ShiftLeft, true;
        Scalar2<ShrU32> => ShiftRight { signed: false }, false;
        Scalar2<ShrU64> => ShiftRight { signed: false }, true;
        Scalar2<ShrS32> => ShiftRight { signed: true }, false;
        Scalar2<MulHiU32> => High { signed: false }, false;
        Scalar2<MulHiS32> => High { signed: true }, false;
        Scalar1<Widen> => Does::Widen { signed: false }, true;
        Scalar1<WidenSigned> => Does::Widen { signed: true }, true;
        Scalar2<MulWideU32> => Product { signed: false, adds: false }, true;
        Scalar2<MulWideS32> => Product { signed: true, adds: false }, true;
        Scalar3<MadWideU32> => Product { signed: false, adds: true }, true;
        Scalar3<MadWideS32> => Product { signed: true, adds: true }, true;
        Scalar3<MadLo32> => MultiplyAdd, false;
        Scalar1<Narrow> => Word { upper: false }, false;
        Scalar1<Upper32> => Word { upper: true }, false;
    }
    None
}

/// Emits a step of scalars that general registers do better. Returns false if it is none of these.
pub(super) fn emit(e: &mut Cache<'_>, step: &Inst) -> Emit<bool> {
    let Some((does, wide)) = does(step) else { return Ok(false) };
    let at = |slot: Slot| rbx + slot.offset() as i32;
    let (a, b) = (dword_ptr(at(step.a)), dword_ptr(at(step.b)));
    match does {
        Does::Widen { signed: true } => e.asm.movsxd(rax, a)?,
        Does::Widen { .. } => e.asm.mov(eax, a)?,
        Does::Word { upper } => {
            e.asm.mov(eax, dword_ptr(at(step.a) + if upper { 4 } else { 0 }))?;
        }
        Does::High { signed: true } | Does::Product { signed: true, .. } => {
            e.asm.movsxd(rax, a)?;
            e.asm.movsxd(rcx, b)?;
            e.asm.imul_2(rax, rcx)?;
        }
        Does::High { .. } | Does::Product { .. } => {
            e.asm.mov(eax, a)?;
            e.asm.mov(ecx, b)?;
            e.asm.imul_2(rax, rcx)?;
        }
        _ if wide => {
            e.asm.mov(rax, qword_ptr(at(step.a)))?;
            let b = qword_ptr(at(step.b));
            match does {
                Does::Add => e.asm.add(rax, b)?,
                Does::Subtract => e.asm.sub(rax, b)?,
                Does::Multiply => e.asm.imul_2(rax, b)?,
                Does::ShiftLeft | Does::ShiftRight { .. } => shift_wide(e, step, does)?,
                _ => {}
            }
        }
        _ => {
            e.asm.mov(eax, a)?;
            match does {
                Does::Add => e.asm.add(eax, b)?,
                Does::Subtract => e.asm.sub(eax, b)?,
                Does::Multiply | Does::MultiplyAdd => e.asm.imul_2(eax, b)?,
                Does::And => e.asm.and(eax, b)?,
                Does::Or => e.asm.or(eax, b)?,
                Does::Xor => e.asm.xor(eax, b)?,
                Does::Not => e.asm.not(eax)?,
                Does::Negate => e.asm.neg(eax)?,
                Does::Least { .. } | Does::Greatest { .. } => {
                    e.asm.mov(ecx, b)?;
                    e.asm.cmp(ecx, eax)?;
                    match does {
                        Does::Least { signed: true } => e.asm.cmovl(eax, ecx)?,
                        Does::Least { .. } => e.asm.cmovb(eax, ecx)?,
                        Does::Greatest { signed: true } => e.asm.cmovg(eax, ecx)?,
                        _ => e.asm.cmova(eax, ecx)?,
                    }
                }
                Does::ShiftLeft | Does::ShiftRight { .. } => shift(e, step, does)?,
                _ => {}
            }
        }
    }
    match does {
        Does::High { .. } => e.asm.shr(rax, 32)?,
        Does::Product { adds: true, .. } => e.asm.add(rax, qword_ptr(at(step.c)))?,
        Does::MultiplyAdd => e.asm.add(eax, dword_ptr(at(step.c)))?,
        _ => {}
    }
    if wide {
        e.asm.mov(qword_ptr(at(step.d)), rax)?;
    } else {
        e.asm.mov(dword_ptr(at(step.d)), eax)?;
    }
    e.forget(step.d);
    Ok(true)
}

/// Shifts the word in `eax`. Counts beyond the width give zeros, or copies of the sign.
fn shift(e: &mut Cache<'_>, step: &Inst, does: Does) -> Emit {
    e.asm.mov(ecx, dword_ptr(rbx + step.b.offset() as i32))?;
    if let Does::ShiftRight { signed: true } = does {
        e.asm.mov(edx, 31)?;
        e.asm.cmp(ecx, edx)?;
        e.asm.cmova(ecx, edx)?;
        return e.asm.sarx(eax, eax, ecx);
    }
    if let Does::ShiftLeft = does {
        e.asm.shlx(eax, eax, ecx)?;
    } else {
        e.asm.shrx(eax, eax, ecx)?;
    }
    e.asm.cmp(ecx, 32)?;
    e.asm.sbb(edx, edx)?;
    e.asm.and(eax, edx)
}

/// Shifts the 64 bits in `rax`, with zeros behind them.
fn shift_wide(e: &mut Cache<'_>, step: &Inst, does: Does) -> Emit {
    e.asm.mov(ecx, dword_ptr(rbx + step.b.offset() as i32))?;
    if let Does::ShiftLeft = does {
        e.asm.shlx(rax, rax, rcx)?;
    } else {
        e.asm.shrx(rax, rax, rcx)?;
    }
    e.asm.cmp(ecx, 64)?;
    e.asm.sbb(rdx, rdx)?;
    e.asm.and(rax, rdx)
}
