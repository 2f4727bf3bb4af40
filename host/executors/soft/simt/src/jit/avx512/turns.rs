//! The parts of a block one after another, without a return to the caller between them. Each runs until it
//! arrives at a barrier or has no lanes; when all have been run, those that wait are run again.
//!
//! What a part has besides its frame is in the context while it runs, and in the part while others do.

use std::collections::HashMap;

use iced_x86::code_asm::{
    CodeAssembler, CodeLabel, dword_ptr, eax, ecx, qword_ptr, r12, rax, rbp, rbx, rcx, rdi,
};

use super::lanes;
use crate::jit::flow;
use crate::jit::value::Emit;
use crate::machine::{
    BARRIERS, BarrierKind, Context, DONE_STAGE, LEAVE, NOBODY, Part, Place, Slot, Step, Tables,
};

/// Whether a barrier is always the same, one that there is, and waits for all threads of the block.
pub(super) fn waits_for_all(step: &Step, tables: &Tables, constants: &HashMap<Slot, u64>) -> bool {
    tables.barriers.get(step.y as usize).is_some_and(|barrier| {
        let number = match barrier.number {
            Place::Scalar(slot) => constants.get(&slot).copied(),
            Place::Vector(_) => None,
        };
        number.is_some_and(|number| number < BARRIERS as u64)
            && barrier.threads.is_none()
            && matches!(barrier.kind, BarrierKind::Sync)
    })
}

/// Arrives at the barrier of the step `pc`, behind which the next step follows. Leaves by `exit` where parts
/// are not run in turns, or have arrived at another barrier, or where lanes of this part are pending.
pub(super) fn arrive(asm: &mut CodeAssembler, exit: CodeLabel, pc: u32, over: CodeLabel) -> Emit {
    let mut same = asm.create_label();
    asm.mov(rdi, qword_ptr(r12 + Context::PART))?;
    asm.test(rdi, rdi)?;
    asm.je(exit)?;
    asm.cmp(dword_ptr(r12 + Context::LOWEST), -1)?;
    asm.jne(exit)?;
    asm.mov(eax, dword_ptr(r12 + Context::ARRIVAL))?;
    asm.cmp(eax, pc.cast_signed())?;
    asm.je(same)?;
    asm.cmp(eax, NOBODY.cast_signed())?;
    asm.jne(exit)?;
    asm.mov(dword_ptr(r12 + Context::ARRIVAL), pc)?;
    asm.set_label(&mut same)?;
    asm.mov(dword_ptr(rdi + Part::PC), pc + 1)?;
    asm.mov(eax, dword_ptr(r12 + Context::STAGE))?;
    asm.xor(eax, 1)?;
    asm.jmp(over)
}

/// Emits what follows when a part has no lanes left, at `finish`, or has arrived at a barrier, at `over`:
/// with the part in `rdi`, and in `eax` its stage.
pub(super) fn emit(
    asm: &mut CodeAssembler,
    start: CodeLabel,
    leave: CodeLabel,
    (mut finish, mut over): (CodeLabel, CodeLabel),
) -> Emit {
    let [mut alone, mut next, mut look, mut swept, mut done, mut foreign] =
        std::array::from_fn(|_| asm.create_label());
    asm.set_label(&mut finish)?;
    asm.mov(rdi, qword_ptr(r12 + Context::PART))?;
    asm.test(rdi, rdi)?;
    asm.je(alone)?;
    asm.mov(eax, DONE_STAGE)?;
    asm.set_label(&mut over)?;
    asm.mov(dword_ptr(rdi + Part::STAGE), eax)?;
    asm.mov(rax, qword_ptr(r12 + Context::FUEL))?;
    asm.mov(qword_ptr(rdi + Part::FUEL), rax)?;
    for (field, of_part) in [(Context::MASK, Part::MASK), (Context::ALIVE, Part::ALIVE)] {
        asm.mov(eax, dword_ptr(r12 + field))?;
        asm.mov(dword_ptr(rdi + of_part), eax)?;
    }
    asm.mov(dword_ptr(rdi + Part::LOWEST), -1)?;
    asm.mov(eax, dword_ptr(r12 + Context::STAGE))?;
    // The next part of this sweep.
    asm.set_label(&mut next)?;
    asm.add(rdi, Part::SIZE)?;
    asm.cmp(rdi, qword_ptr(r12 + Context::PARTS_END))?;
    asm.jae(swept)?;
    asm.set_label(&mut look)?;
    asm.cmp(dword_ptr(rdi + Part::STAGE), eax)?;
    asm.jne(next)?;
    resume(asm)?;
    flow::enter(asm, Context::ENTRIES, start, foreign)?;
    asm.set_label(&mut swept)?;
    asm.mov(rdi, qword_ptr(r12 + Context::PARTS))?;
    asm.cmp(dword_ptr(r12 + Context::ARRIVAL), NOBODY.cast_signed())?;
    asm.je(done)?;
    // All that have lanes have arrived, and go on.
    asm.mov(dword_ptr(r12 + Context::ARRIVAL), NOBODY)?;
    asm.xor(eax, 1)?;
    asm.mov(dword_ptr(r12 + Context::STAGE), eax)?;
    asm.jmp(look)?;
    asm.set_label(&mut alone)?;
    asm.zero_bytes()?;
    asm.set_label(&mut done)?;
    asm.mov(eax, LEAVE)?;
    asm.set_label(&mut foreign)?;
    asm.jmp(leave)
}

/// Has the part in `rdi` run: the step at which it goes on is in `eax` then.
fn resume(asm: &mut CodeAssembler) -> Emit {
    asm.mov(qword_ptr(r12 + Context::PART), rdi)?;
    asm.mov(rbx, qword_ptr(rdi + Part::FRAME))?;
    asm.mov(qword_ptr(r12 + Context::FRAME), rbx)?;
    asm.mov(rbp, qword_ptr(rdi + Part::ROOTS))?;
    for (field, of_part) in [
        (Context::LOCAL, Part::LOCAL),
        (Context::PENDING, Part::PENDING),
        (Context::OCCUPIED, Part::OCCUPIED),
        (Context::FUEL, Part::FUEL),
    ] {
        asm.mov(rcx, qword_ptr(rdi + of_part))?;
        asm.mov(qword_ptr(r12 + field), rcx)?;
    }
    asm.mov(eax, dword_ptr(rdi + Part::PC))?;
    for (field, of_part) in [
        (Context::LOCAL_BYTES, Part::LOCAL_BYTES),
        (Context::ALIVE, Part::ALIVE),
        (Context::LOWEST, Part::LOWEST),
        (Context::MASK, Part::MASK),
    ] {
        asm.mov(ecx, dword_ptr(rdi + of_part))?;
        asm.mov(dword_ptr(r12 + field), ecx)?;
    }
    // The last of these was the mask.
    lanes::masks(asm)
}
