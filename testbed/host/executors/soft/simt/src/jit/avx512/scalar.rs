//! Scalars and predicates, in the general registers.

use iced_x86::code_asm::{CodeAssembler, dword_ptr, eax, ecx, edx, qword_ptr, r12, rax, rbx};

use super::cache::Cache;
use crate::jit::value::Emit;
use crate::machine::{Context, Slot, Step};
use crate::ops::compare::{AND, OR};

/// Emits a step of scalars that general registers do better. Returns false if there is none of that kind.
pub(super) fn emit(e: &mut Cache<'_>, step: &Step) -> Emit<bool> {
    let _ = (e, step);
    Ok(false)
}

/// Writes the active lanes of a predicate, whose bits are in `eax`. Changes `eax`.
pub(super) fn merge_predicate(asm: &mut CodeAssembler, slot: Slot) -> Emit {
    let to = dword_ptr(rbx + slot.offset() as i32);
    asm.xor(eax, to)?;
    asm.and(eax, dword_ptr(r12 + Context::MASK))?;
    asm.xor(to, eax)
}

/// Arithmetic of whole predicates.
pub(super) fn logic(e: &mut Cache<'_>, step: &Step, shared: bool) -> Emit {
    let place = |slot: Slot| dword_ptr(rbx + slot.offset() as i32);
    e.asm.mov(eax, place(step.a))?;
    if step.imm as u32 != 0 {
        e.asm.not(eax)?;
    }
    e.asm.mov(ecx, place(step.b))?;
    if step.y != 0 {
        e.asm.not(ecx)?;
    }
    match step.x {
        AND => e.asm.and(eax, ecx)?,
        OR => e.asm.or(eax, ecx)?,
        _ => e.asm.xor(eax, ecx)?,
    }
    if shared {
        e.asm.mov(place(step.d), eax)?;
    } else {
        merge_predicate(e.asm, step.d)?;
    }
    e.forget(step.d);
    Ok(())
}

/// Selects one of two scalars.
pub(super) fn select(e: &mut Cache<'_>, step: &Step, wide: bool) -> Emit {
    let at = |slot: Slot| rbx + slot.offset() as i32;
    e.asm.mov(edx, dword_ptr(at(step.c)))?;
    if step.x != 0 {
        e.asm.not(edx)?;
    }
    e.asm.test(dword_ptr(r12 + Context::MASK), edx)?;
    if wide {
        e.asm.mov(rax, qword_ptr(at(step.b)))?;
        e.asm.cmovne(rax, qword_ptr(at(step.a)))?;
        e.asm.mov(qword_ptr(at(step.d)), rax)?;
    } else {
        e.asm.mov(eax, dword_ptr(at(step.b)))?;
        e.asm.cmovne(eax, dword_ptr(at(step.a)))?;
        e.asm.mov(dword_ptr(at(step.d)), eax)?;
    }
    e.forget(step.d);
    Ok(())
}
