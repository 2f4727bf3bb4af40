//! Exchanges between lanes, and the masks of the active lanes.

use iced_x86::code_asm::{
    CodeAssembler, CodeLabel, dword_ptr, eax, ecx, edx, k1, k2, k3, k4, qword_ptr, r12, rbp, rbx,
};

use super::body::{Action, Template, Templates};
use super::cache::Cache;
use super::registers::Pair;
use crate::jit::value::Emit;
use crate::machine::{Context, Inst, Opcode, Slot};
use crate::ops::warps::{BFLY, DOWN, IDX, UP, source_lane};

/// Emits loads of the masks of the active lanes, and of the pointer to the warp's address-range cache.
pub(super) fn begin(asm: &mut CodeAssembler) -> Emit {
    asm.mov(rbp, qword_ptr(r12 + Context::RANGE_CACHE))?;
    asm.mov(ecx, dword_ptr(r12 + Context::MASK))?;
    masks(asm)
}

/// Emits the computation of the mask registers from the active lanes in `ecx`. `k1` and `k2` get those of the
/// halves, and `k1`, `k3`, `k2` and `k4` those of the quarters.
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

/// Emits a comparison of the mask of the active lanes with that of all lanes.
fn compare_active(e: &mut Cache<'_>) -> Emit {
    e.asm.cmp(dword_ptr(r12 + Context::MASK), -1)
}

/// Emits a jump to `other` unless all lanes are active, because an access that spans several lanes accesses
/// all of them.
pub(super) fn unless_all_active(e: &mut Cache<'_>, other: CodeLabel) -> Emit {
    compare_active(e)?;
    e.asm.jne(other)
}

/// Emits a side exit that is taken unless all lanes are active. If some have returned, the interpreter
/// executes the instruction.
pub(super) fn all_active(e: &mut Cache<'_>) -> Emit {
    let miss = e.side_exit_here();
    compare_active(e)?;
    e.exit_if(miss, CodeAssembler::jne)
}

/// Emits a side exit that is taken unless all member lanes that have not returned are active.
fn members_here(e: &mut Cache<'_>, members: Slot) -> Emit {
    if e.met == Some(members) {
        return Ok(());
    }
    // The active lanes do not change within a superblock.
    e.met = Some(members).filter(|members| e.known(*members).is_some());
    let miss = e.side_exit_here();
    e.asm.mov(eax, dword_ptr(rbx + members.offset() as i32))?;
    e.asm.and(eax, dword_ptr(r12 + Context::ALIVE))?;
    e.asm.mov(ecx, dword_ptr(r12 + Context::MASK))?;
    e.asm.andn(eax, ecx, eax)?;
    e.exit_if(miss, CodeAssembler::jne)
}

/// Emits a shuffle whose source lanes are constants.
pub(super) fn shuffle(e: &mut Cache<'_>, step: &Inst, mode: u8, members: Slot) -> Emit {
    let by = [step.b, step.c].map(|slot| e.known(slot).unwrap_or_default() as u32);
    let source = |lane: u32| match mode {
        UP => source_lane::<UP>(lane, by[0], by[1]),
        DOWN => source_lane::<DOWN>(lane, by[0], by[1]),
        BFLY => source_lane::<BFLY>(lane, by[0], by[1]),
        _ => source_lane::<IDX>(lane, by[0], by[1]),
    };
    let from = e.read_both(step.a, false)?;
    members_here(e, members)?;
    let results: [_; 2] = e.temporaries()?;
    for (half, to) in (0..).zip(results) {
        let order = e.pattern(|lane| source(16 * half + lane).0);
        e.asm.vmovdqu64(to, order)?;
        e.asm.vpermi2d(to, from[0], from[1])?;
    }
    // A write with blending changes the register of the destination, which may be a source of both halves.
    for (half, to) in results.into_iter().enumerate() {
        e.half = half;
        e.write(false, step.d, Pair::narrow(to), step.blend, false)?;
    }
    Ok(())
}

pub(super) fn register(table: &mut Templates) {
    table.add(Opcode::ShflUp, Action::Shuffle { mode: UP });
    table.add(Opcode::ShflDown, Action::Shuffle { mode: DOWN });
    table.add(Opcode::ShflBfly, Action::Shuffle { mode: BFLY });
    table.add(Opcode::ShflIdx, Action::Shuffle { mode: IDX });
}

/// Emits the exchange of values between lanes whose indices differ in the bit `by`, and their combination
/// with `c` if there is an operation for it.
pub(super) fn butterfly(e: &mut Cache<'_>, step: &Inst, (by, then): (u32, Option<Template>)) -> Emit {
    let raw = then.is_some();
    let from = e.read_both(step.a, raw)?;
    let own = if then.is_some() { e.read_both(step.c, true)? } else { from };
    let others: [_; 2] = e.temporaries()?;
    members_here(e, step.b)?;
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
