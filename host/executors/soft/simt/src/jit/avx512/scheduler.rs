//! The warp scheduler, which runs the warps of a block one after another without returning to the caller.
//! Each warp runs until it arrives at a barrier or has no lanes left. When all have stopped, those that wait
//! at the barrier run again.
//!
//! The state of a warp besides its frame is in the context while it runs, and in the warp otherwise.

use std::collections::HashMap;

use iced_x86::code_asm::{
    CodeAssembler, CodeLabel, dword_ptr, eax, ecx, qword_ptr, r12, rax, rbp, rbx, rcx, rdi,
};

use super::lanes;
use crate::jit::flow;
use crate::jit::value::Emit;
use crate::machine::{
    BARRIERS, BarrierKind, Context, DONE_STAGE, Inst, LEAVE, NO_BARRIER, Slot, Tables, ValueLoc, WarpSplit,
};

/// Returns whether a barrier has a constant, valid number and waits for all threads of the block.
pub(super) fn waits_for_all(step: &Inst, tables: &Tables, constants: &HashMap<Slot, u64>) -> bool {
    tables.barriers.get(step.y as usize).is_some_and(|barrier| {
        let number = match barrier.number {
            ValueLoc::Scalar(slot) => constants.get(&slot).copied(),
            ValueLoc::Vector(_) => None,
        };
        number.is_some_and(|number| number < BARRIERS as u64)
            && barrier.threads.is_none()
            && matches!(barrier.kind, BarrierKind::Sync)
    })
}

/// Emits the arrival at a barrier by the instruction `pc`. It exits if warps are not scheduled here, if
/// others have arrived at another barrier, or if lanes of this warp are pending.
pub(super) fn arrive(asm: &mut CodeAssembler, exit: CodeLabel, pc: u32, over: CodeLabel) -> Emit {
    let mut same = asm.create_label();
    asm.mov(rdi, qword_ptr(r12 + Context::SPLIT))?;
    asm.test(rdi, rdi)?;
    asm.je(exit)?;
    asm.cmp(dword_ptr(r12 + Context::LOWEST), -1)?;
    asm.jne(exit)?;
    asm.mov(eax, dword_ptr(r12 + Context::ARRIVAL))?;
    asm.cmp(eax, pc.cast_signed())?;
    asm.je(same)?;
    asm.cmp(eax, NO_BARRIER.cast_signed())?;
    asm.jne(exit)?;
    asm.mov(dword_ptr(r12 + Context::ARRIVAL), pc)?;
    asm.set_label(&mut same)?;
    asm.mov(dword_ptr(rdi + WarpSplit::PC), pc + 1)?;
    asm.mov(eax, dword_ptr(r12 + Context::STAGE))?;
    asm.xor(eax, 1)?;
    asm.jmp(over)
}

/// Emits the code that selects the next warp. It is entered at `finish` if a warp has no lanes left, and at
/// `over` with the warp in `rdi` and its stage in `eax` if it has arrived at a barrier.
pub(super) fn emit(
    asm: &mut CodeAssembler,
    start: CodeLabel,
    leave: CodeLabel,
    (mut finish, mut over): (CodeLabel, CodeLabel),
) -> Emit {
    let [mut alone, mut next, mut look, mut swept, mut done, mut interpreted] =
        std::array::from_fn(|_| asm.create_label());
    asm.set_label(&mut finish)?;
    asm.mov(rdi, qword_ptr(r12 + Context::SPLIT))?;
    asm.test(rdi, rdi)?;
    asm.je(alone)?;
    asm.mov(eax, DONE_STAGE)?;
    asm.set_label(&mut over)?;
    asm.mov(dword_ptr(rdi + WarpSplit::STAGE), eax)?;
    asm.mov(rax, qword_ptr(r12 + Context::FUEL))?;
    asm.mov(qword_ptr(rdi + WarpSplit::FUEL), rax)?;
    for (field, of_part) in [(Context::MASK, WarpSplit::MASK), (Context::ALIVE, WarpSplit::ALIVE)] {
        asm.mov(eax, dword_ptr(r12 + field))?;
        asm.mov(dword_ptr(rdi + of_part), eax)?;
    }
    asm.mov(dword_ptr(rdi + WarpSplit::LOWEST), -1)?;
    asm.mov(eax, dword_ptr(r12 + Context::STAGE))?;
    // Find the next warp of this sweep.
    asm.set_label(&mut next)?;
    asm.add(rdi, WarpSplit::SIZE)?;
    asm.cmp(rdi, qword_ptr(r12 + Context::SPLITS_END))?;
    asm.jae(swept)?;
    asm.set_label(&mut look)?;
    asm.cmp(dword_ptr(rdi + WarpSplit::STAGE), eax)?;
    asm.jne(next)?;
    resume(asm)?;
    flow::enter(asm, Context::ENTRIES, start, interpreted)?;
    asm.set_label(&mut swept)?;
    asm.mov(rdi, qword_ptr(r12 + Context::SPLITS))?;
    asm.cmp(dword_ptr(r12 + Context::ARRIVAL), NO_BARRIER.cast_signed())?;
    asm.je(done)?;
    // All warps that have lanes have arrived, and continue.
    asm.mov(dword_ptr(r12 + Context::ARRIVAL), NO_BARRIER)?;
    asm.xor(eax, 1)?;
    asm.mov(dword_ptr(r12 + Context::STAGE), eax)?;
    asm.jmp(look)?;
    asm.set_label(&mut alone)?;
    asm.zero_bytes()?;
    asm.set_label(&mut done)?;
    asm.mov(eax, LEAVE)?;
    asm.set_label(&mut interpreted)?;
    asm.jmp(leave)
}

/// Emits loads of the state of the warp in `rdi`. The instruction at which it continues is then in `eax`.
fn resume(asm: &mut CodeAssembler) -> Emit {
    asm.mov(qword_ptr(r12 + Context::SPLIT), rdi)?;
    asm.mov(rbx, qword_ptr(rdi + WarpSplit::FRAME))?;
    asm.mov(qword_ptr(r12 + Context::FRAME), rbx)?;
    asm.mov(rbp, qword_ptr(rdi + WarpSplit::RANGE_CACHE))?;
    for (field, of_part) in [
        (Context::LOCAL, WarpSplit::LOCAL),
        (Context::PENDING, WarpSplit::PENDING),
        (Context::OCCUPIED, WarpSplit::OCCUPIED),
        (Context::FUEL, WarpSplit::FUEL),
    ] {
        asm.mov(rcx, qword_ptr(rdi + of_part))?;
        asm.mov(qword_ptr(r12 + field), rcx)?;
    }
    asm.mov(eax, dword_ptr(rdi + WarpSplit::PC))?;
    for (field, of_part) in [
        (Context::LOCAL_BYTES, WarpSplit::LOCAL_BYTES),
        (Context::ALIVE, WarpSplit::ALIVE),
        (Context::LOWEST, WarpSplit::LOWEST),
        (Context::MASK, WarpSplit::MASK),
    ] {
        asm.mov(ecx, dword_ptr(rdi + of_part))?;
        asm.mov(dword_ptr(r12 + field), ecx)?;
    }
    // The mask was loaded last, to `ecx`.
    lanes::masks(asm)
}
