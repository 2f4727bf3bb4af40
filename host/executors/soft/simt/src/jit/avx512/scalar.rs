//! Scalar integer arithmetic in general registers.

use iced_x86::code_asm::{dword_ptr, eax, ecx, edx, qword_ptr, rax, rbx, rcx, rdx};

use super::cache::Cache;
use crate::jit::value::Emit;
use crate::machine::{Inst, Opcode, Slot, set};

/// A scalar operation that general registers can compute.
#[derive(Clone, Copy)]
enum ScalarOp {
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
    /// Upper half of the product of two words.
    High {
        signed: bool,
    },
    /// Extension of a word to 64 bits.
    Widen {
        signed: bool,
    },
    Product {
        signed: bool,
        adds: bool,
    },
    MultiplyAdd,
    /// Selection of one of the two words of a 64-bit value.
    Word {
        upper: bool,
    },
}

/// Returns the operation of a scalar instruction, and whether its operands have 64 bits.
fn scalar_op(step: &Inst) -> Option<(ScalarOp, bool)> {
    use ScalarOp::{
        Add, And, Copy, Greatest, High, Least, Multiply, MultiplyAdd, Negate, Not, Or, Product, ShiftLeft,
        ShiftRight, Subtract, Word, Xor,
    };
    if !step.form.shares(set::D) {
        return None;
    }
    Some(match step.opcode {
        Opcode::Mov32 => (Copy, false),
        Opcode::Mov64 => (Copy, true),
        Opcode::Add32 => (Add, false),
        Opcode::Add64 => (Add, true),
        Opcode::Sub32 => (Subtract, false),
        Opcode::Sub64 => (Subtract, true),
        Opcode::MulLo32 => (Multiply, false),
        Opcode::MulLo64 => (Multiply, true),
        Opcode::And32 => (And, false),
        Opcode::Or32 => (Or, false),
        Opcode::Xor32 => (Xor, false),
        Opcode::Not32 => (Not, false),
        Opcode::Neg32 => (Negate, false),
        Opcode::MinS32 => (Least { signed: true }, false),
        Opcode::MinU32 => (Least { signed: false }, false),
        Opcode::MaxS32 => (Greatest { signed: true }, false),
        Opcode::MaxU32 => (Greatest { signed: false }, false),
        Opcode::Shl32 => (ShiftLeft, false),
        Opcode::Shl64 => (ShiftLeft, true),
        Opcode::ShrU32 => (ShiftRight { signed: false }, false),
        Opcode::ShrU64 => (ShiftRight { signed: false }, true),
        Opcode::ShrS32 => (ShiftRight { signed: true }, false),
        Opcode::MulHiU32 => (High { signed: false }, false),
        Opcode::MulHiS32 => (High { signed: true }, false),
        Opcode::Widen => (ScalarOp::Widen { signed: false }, true),
        Opcode::WidenSigned => (ScalarOp::Widen { signed: true }, true),
        Opcode::MulWideU32 => (Product { signed: false, adds: false }, true),
        Opcode::MulWideS32 => (Product { signed: true, adds: false }, true),
        Opcode::MadWideU32 => (Product { signed: false, adds: true }, true),
        Opcode::MadWideS32 => (Product { signed: true, adds: true }, true),
        Opcode::MadLo32 => (MultiplyAdd, false),
        Opcode::Narrow => (Word { upper: false }, false),
        Opcode::Upper32 => (Word { upper: true }, false),
        _ => return None,
    })
}

/// Emits a scalar instruction in general registers. Returns false if there is no such code for it.
pub(super) fn emit(e: &mut Cache<'_>, step: &Inst) -> Emit<bool> {
    let Some((does, wide)) = scalar_op(step) else { return Ok(false) };
    let at = |slot: Slot| rbx + slot.offset() as i32;
    let (a, b) = (dword_ptr(at(step.a)), dword_ptr(at(step.b)));
    match does {
        ScalarOp::Widen { signed: true } => e.asm.movsxd(rax, a)?,
        ScalarOp::Widen { .. } => e.asm.mov(eax, a)?,
        ScalarOp::Word { upper } => {
            e.asm.mov(eax, dword_ptr(at(step.a) + if upper { 4 } else { 0 }))?;
        }
        ScalarOp::High { signed: true } | ScalarOp::Product { signed: true, .. } => {
            e.asm.movsxd(rax, a)?;
            e.asm.movsxd(rcx, b)?;
            e.asm.imul_2(rax, rcx)?;
        }
        ScalarOp::High { .. } | ScalarOp::Product { .. } => {
            e.asm.mov(eax, a)?;
            e.asm.mov(ecx, b)?;
            e.asm.imul_2(rax, rcx)?;
        }
        _ if wide => {
            e.asm.mov(rax, qword_ptr(at(step.a)))?;
            let b = qword_ptr(at(step.b));
            match does {
                ScalarOp::Add => e.asm.add(rax, b)?,
                ScalarOp::Subtract => e.asm.sub(rax, b)?,
                ScalarOp::Multiply => e.asm.imul_2(rax, b)?,
                ScalarOp::ShiftLeft | ScalarOp::ShiftRight { .. } => shift_wide(e, step, does)?,
                _ => {}
            }
        }
        _ => {
            e.asm.mov(eax, a)?;
            match does {
                ScalarOp::Add => e.asm.add(eax, b)?,
                ScalarOp::Subtract => e.asm.sub(eax, b)?,
                ScalarOp::Multiply | ScalarOp::MultiplyAdd => e.asm.imul_2(eax, b)?,
                ScalarOp::And => e.asm.and(eax, b)?,
                ScalarOp::Or => e.asm.or(eax, b)?,
                ScalarOp::Xor => e.asm.xor(eax, b)?,
                ScalarOp::Not => e.asm.not(eax)?,
                ScalarOp::Negate => e.asm.neg(eax)?,
                ScalarOp::Least { .. } | ScalarOp::Greatest { .. } => {
                    e.asm.mov(ecx, b)?;
                    e.asm.cmp(ecx, eax)?;
                    match does {
                        ScalarOp::Least { signed: true } => e.asm.cmovl(eax, ecx)?,
                        ScalarOp::Least { .. } => e.asm.cmovb(eax, ecx)?,
                        ScalarOp::Greatest { signed: true } => e.asm.cmovg(eax, ecx)?,
                        _ => e.asm.cmova(eax, ecx)?,
                    }
                }
                ScalarOp::ShiftLeft | ScalarOp::ShiftRight { .. } => shift(e, step, does)?,
                _ => {}
            }
        }
    }
    match does {
        ScalarOp::High { .. } => e.asm.shr(rax, 32)?,
        ScalarOp::Product { adds: true, .. } => e.asm.add(rax, qword_ptr(at(step.c)))?,
        ScalarOp::MultiplyAdd => e.asm.add(eax, dword_ptr(at(step.c)))?,
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
fn shift(e: &mut Cache<'_>, step: &Inst, does: ScalarOp) -> Emit {
    e.asm.mov(ecx, dword_ptr(rbx + step.b.offset() as i32))?;
    if let ScalarOp::ShiftRight { signed: true } = does {
        e.asm.mov(edx, 31)?;
        e.asm.cmp(ecx, edx)?;
        e.asm.cmova(ecx, edx)?;
        return e.asm.sarx(eax, eax, ecx);
    }
    if let ScalarOp::ShiftLeft = does {
        e.asm.shlx(eax, eax, ecx)?;
    } else {
        e.asm.shrx(eax, eax, ecx)?;
    }
    e.asm.cmp(ecx, 32)?;
    e.asm.sbb(edx, edx)?;
    e.asm.and(eax, edx)
}

/// Shifts the 64 bits in `rax`. Counts beyond the width give zeros.
fn shift_wide(e: &mut Cache<'_>, step: &Inst, does: ScalarOp) -> Emit {
    e.asm.mov(ecx, dword_ptr(rbx + step.b.offset() as i32))?;
    if let ScalarOp::ShiftLeft = does {
        e.asm.shlx(rax, rax, rcx)?;
    } else {
        e.asm.shrx(rax, rax, rcx)?;
    }
    e.asm.cmp(ecx, 64)?;
    e.asm.sbb(rdx, rdx)?;
    e.asm.and(rax, rdx)
}
