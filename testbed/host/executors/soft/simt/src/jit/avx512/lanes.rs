//! What lanes do together, and which lanes run.

use iced_x86::code_asm::{CodeAssembler, dword_ptr, eax, ecx, edx, k1, k2, k3, k4, r12, rbx};

use super::body::Template;
use super::cache::Cache;
use super::registers::Pair;
use crate::jit::value::Emit;
use crate::machine::{Context, Step};

/// Loads the masks of the running lanes.
pub(super) fn load_masks(asm: &mut CodeAssembler) -> Emit {
    asm.mov(ecx, dword_ptr(r12 + Context::MASK))?;
    masks(asm)
}

/// Makes the masks of the running lanes, which are in `ecx`: by halves, and by quarters, of which the first
/// of each half has the half's.
pub(super) fn masks(asm: &mut CodeAssembler) -> Emit {
    asm.kmovw(k1, ecx)?;
    asm.mov(edx, ecx)?;
    asm.shr(edx, 8)?;
    asm.kmovb(k3, edx)?;
    asm.shr(ecx, 16)?;
    asm.kmovw(k2, ecx)?;
    asm.shr(ecx, 8)?;
    asm.kmovb(k4, ecx)
}

/// Reads the values of the lanes whose numbers differ in the bit `by`, and combines them with `c`.
pub(super) fn butterfly(e: &mut Cache<'_>, step: &Step, (by, then): (u32, Option<Template>)) -> Emit {
    let raw = then.is_some();
    let from = e.read_both(step.a, raw)?;
    let own = if then.is_some() { e.read_both(step.c, true)? } else { from };
    let others: [_; 2] = e.temporaries()?;
    // All member lanes in `b` that have not returned must be here.
    let miss = e.departure_here();
    e.asm.mov(eax, dword_ptr(rbx + step.b.offset() as i32))?;
    e.asm.and(eax, dword_ptr(r12 + Context::ALIVE))?;
    e.asm.mov(ecx, dword_ptr(r12 + Context::MASK))?;
    e.asm.andn(eax, ecx, eax)?;
    e.asm.jne(miss)?;
    for half in 0..2 {
        let (to, own, other) = (others[half], from[half], from[1 - half]);
        match by {
            1 => e.asm.vpshufd(to, own, 0b10_11_00_01)?,
            2 => e.asm.vpshufd(to, own, 0b01_00_11_10)?,
            4 => e.asm.vshufi64x2(to, own, own, 0b10_11_00_01)?,
            8 => e.asm.vshufi64x2(to, own, own, 0b01_00_11_10)?,
            _ => e.asm.vmovdqa64(to, other)?,
        }
    }
    let mut results = others;
    if let Some(then) = then {
        for half in 0..2 {
            results[half] = e.temporary()?;
            let other = Pair::narrow(others[half]);
            (then.body)(e, step, Pair::narrow(results[half]), [Pair::narrow(own[half]), other, other])?;
        }
    }
    for (half, result) in results.into_iter().enumerate() {
        e.half = half;
        e.write(false, step.d, Pair::narrow(result), step.blend, raw)?;
    }
    Ok(())
}
