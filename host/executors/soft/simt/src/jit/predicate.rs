//! Emits logic of predicates and selections of scalars in general registers. Both kinds of values are always
//! in the frame.

use iced_x86::code_asm::{CodeAssembler, dword_ptr, eax, ecx, edx, qword_ptr, r12, rax, rbx};

use super::value::Emit;
use crate::machine::{Context, Inst, Opcode, Slot, set};

/// Writes the bits in `eax` to the active lanes of a predicate. Overwrites `eax`.
pub(super) fn merge(asm: &mut CodeAssembler, slot: Slot) -> Emit {
    let to = dword_ptr(rbx + slot.offset() as i32);
    asm.xor(eax, to)?;
    asm.and(eax, dword_ptr(r12 + Context::MASK))?;
    asm.xor(to, eax)
}

/// Emits the logic of two predicates. With `shared`, all lanes are written.
pub(super) fn logic(asm: &mut CodeAssembler, step: &Inst, shared: bool) -> Emit {
    let place = |slot: Slot| dword_ptr(rbx + slot.offset() as i32);
    asm.mov(eax, place(step.a))?;
    if step.form.inversion(set::A) != 0 {
        asm.not(eax)?;
    }
    asm.mov(ecx, place(step.b))?;
    if step.form.inversion(set::B) != 0 {
        asm.not(ecx)?;
    }
    match step.opcode {
        Opcode::AndPred => asm.and(eax, ecx)?,
        Opcode::OrPred => asm.or(eax, ecx)?,
        _ => asm.xor(eax, ecx)?,
    }
    if shared {
        asm.mov(place(step.d), eax)?;
    } else {
        merge(asm, step.d)?;
    }
    Ok(())
}

/// Emits the selection of one of two scalars by a predicate.
pub(super) fn select(asm: &mut CodeAssembler, step: &Inst, wide: bool) -> Emit {
    let at = |slot: Slot| rbx + slot.offset() as i32;
    asm.mov(edx, dword_ptr(at(step.c)))?;
    if step.form.inversion(set::C) != 0 {
        asm.not(edx)?;
    }
    asm.test(dword_ptr(r12 + Context::MASK), edx)?;
    if wide {
        asm.mov(rax, qword_ptr(at(step.b)))?;
        asm.cmovne(rax, qword_ptr(at(step.a)))?;
        asm.mov(qword_ptr(at(step.d)), rax)?;
    } else {
        asm.mov(eax, dword_ptr(at(step.b)))?;
        asm.cmovne(eax, dword_ptr(at(step.a)))?;
        asm.mov(dword_ptr(at(step.d)), eax)?;
    }
    Ok(())
}
