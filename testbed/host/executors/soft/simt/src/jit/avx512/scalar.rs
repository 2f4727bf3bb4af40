//! Scalars and predicates, in the general registers.

use std::any::TypeId;

use iced_x86::code_asm::{CodeAssembler, dword_ptr, eax, ecx, edx, qword_ptr, r12, rax, rbx};

use super::cache::Cache;
use crate::jit::value::Emit;
use crate::machine::{Context, Slot, Step};
use crate::ops::bits::{And32, Or32, Xor32};
use crate::ops::compare::{AND, OR};
use crate::ops::integer::{Add32, Add64, Mov32, Mov64, MulLo32, MulLo64, Sub32, Sub64};
use crate::ops::{Scalar1, Scalar2};

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
}

/// What a step of scalars does, and whether these have 64 bits.
fn does(step: &Step) -> Option<(Does, bool)> {
    let is = |id: TypeId| step.does == id;
    Some(match () {
        () if is(TypeId::of::<Scalar1<Mov32>>()) => (Does::Copy, false),
        () if is(TypeId::of::<Scalar1<Mov64>>()) => (Does::Copy, true),
        () if is(TypeId::of::<Scalar2<Add32>>()) => (Does::Add, false),
        () if is(TypeId::of::<Scalar2<Add64>>()) => (Does::Add, true),
        () if is(TypeId::of::<Scalar2<Sub32>>()) => (Does::Subtract, false),
        () if is(TypeId::of::<Scalar2<Sub64>>()) => (Does::Subtract, true),
        () if is(TypeId::of::<Scalar2<MulLo32>>()) => (Does::Multiply, false),
        () if is(TypeId::of::<Scalar2<MulLo64>>()) => (Does::Multiply, true),
        () if is(TypeId::of::<Scalar2<And32>>()) => (Does::And, false),
        () if is(TypeId::of::<Scalar2<Or32>>()) => (Does::Or, false),
        () if is(TypeId::of::<Scalar2<Xor32>>()) => (Does::Xor, false),
        () => return None,
    })
}

/// Emits a step of scalars that general registers do better. Returns false if it is none of these.
pub(super) fn emit(e: &mut Cache<'_>, step: &Step) -> Emit<bool> {
    let Some((does, wide)) = does(step) else { return Ok(false) };
    let at = |slot: Slot| rbx + slot.offset() as i32;
    macro_rules! with {
        ($register:ident, $pointer:ident) => {{
            let b = $pointer(at(step.b));
            e.asm.mov($register, $pointer(at(step.a)))?;
            match does {
                Does::Copy => {}
                Does::Add => e.asm.add($register, b)?,
                Does::Subtract => e.asm.sub($register, b)?,
                Does::Multiply => e.asm.imul_2($register, b)?,
                Does::And => e.asm.and($register, b)?,
                Does::Or => e.asm.or($register, b)?,
                Does::Xor => e.asm.xor($register, b)?,
            }
            e.asm.mov($pointer(at(step.d)), $register)?;
        }};
    }
    if wide {
        with!(rax, qword_ptr);
    } else {
        with!(eax, dword_ptr);
    }
    e.forget(step.d);
    Ok(true)
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
