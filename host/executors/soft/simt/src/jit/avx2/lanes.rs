//! Exchanges between lanes, and the masks of the active lanes.

use iced_x86::code_asm::{
    CodeAssembler, eax, ecx, edx, qword_ptr, r12, rax, rbx, rdx, rsi, xmm0, ymm0, ymm1, ymmword_ptr,
};

use super::body::Template;
use super::cache::{Cache, Pair};
use crate::jit::value::{Emit, SlotKind};
use crate::machine::{Context, Inst};

/// Emits a copy of the vector that lanes exchange, because each lane reads values from before the
/// instruction.
pub(super) fn copy_exchanged(asm: &mut CodeAssembler, step: &Inst, place: usize) -> Emit {
    for part in 0..4 {
        let by = 32 * part;
        asm.vmovdqu(ymm0, ymmword_ptr(rbx + (step.a.offset() as i32 + by)))?;
        asm.vmovdqu(ymmword_ptr(r12 + (Context::OFFSETS + 128 * place as i32 + by)), ymm0)?;
    }
    Ok(())
}

/// Emits the exchange of values between lanes whose indices differ in the bit `by`, and their combination
/// with `c` if there is an operation for it.
pub(super) fn butterfly(
    e: &mut Cache<'_>,
    step: &Inst,
    (by, then): (u32, Option<Template>),
    place: usize,
) -> Emit {
    let at = Context::OFFSETS + 128 * place as i32;
    let other = e.temporary()?;
    if by >= 8 {
        e.asm.mov(rax, rsi)?;
        e.asm.xor(eax, (by * 4).cast_signed())?;
        e.asm.vmovdqu(other, ymmword_ptr(r12 + rax + at))?;
    } else {
        e.asm.vmovdqu(other, ymmword_ptr(r12 + rsi + at))?;
        match by {
            1 => e.asm.vpshufd(other, other, 0b10_11_00_01)?,
            2 => e.asm.vpshufd(other, other, 0b01_00_11_10)?,
            _ => e.asm.vperm2i128(other, other, other, 1)?,
        }
    }
    let value = Pair { low: other, high: other };
    let Some(then) = then else { return e.write(false, step.d, value, step.blend, false) };
    let own = e.read(SlotKind::Vector { wide: false }, step.c, true)?;
    let d = e.result(false)?;
    (then.body)(e, step, d, [own, value, value])?;
    e.write(false, step.d, d, step.blend, true)
}

/// Emits stores of the masks of the active lanes, which are in `ecx`, and of the range of vectors that have
/// any.
pub(super) fn masks(asm: &mut CodeAssembler) -> Emit {
    asm.vmovd(xmm0, ecx)?;
    asm.vpbroadcastd(ymm0, xmm0)?;
    for part in 0..4 {
        let bits = ymmword_ptr(r12 + (Context::BITS + 32 * part));
        asm.vpand(ymm1, ymm0, bits)?;
        asm.vpcmpeqd(ymm1, ymm1, bits)?;
        asm.vmovdqu(ymmword_ptr(r12 + (Context::MASKS + 32 * part)), ymm1)?;
    }
    asm.tzcnt(edx, ecx)?;
    asm.shr(edx, 3)?;
    asm.shl(edx, 5)?;
    asm.mov(qword_ptr(r12 + Context::FIRST), rdx)?;
    asm.lzcnt(ecx, ecx)?;
    asm.mov(edx, 39)?;
    asm.sub(edx, ecx)?;
    asm.shr(edx, 3)?;
    asm.shl(edx, 5)?;
    asm.mov(qword_ptr(r12 + Context::END), rdx)
}
