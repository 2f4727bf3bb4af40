//! Integers that all lanes share, in the general registers.

use std::any::TypeId;

use iced_x86::code_asm::{dword_ptr, eax, qword_ptr, rax, rbx};

use super::cache::Cache;
use crate::jit::value::Emit;
use crate::machine::{Slot, Step};
use crate::ops::bits::{And32, Or32, Xor32};
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
