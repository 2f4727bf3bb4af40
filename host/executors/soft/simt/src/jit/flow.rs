//! Emits branches and the choice of the next basic block.

use iced_x86::code_asm::{
    CodeAssembler, CodeLabel, dword_ptr, eax, ecx, edx, esi, ptr, qword_ptr, r12, rax, rbx, rcx, rdi, rdx,
    rsi,
};

use super::exits::{Exits, Targets};
use super::template::{Action, Templates};
use super::value::Emit;
use crate::machine::{Context, Inst, Opcode};

/// Emits an exit that is taken unless all member lanes in `b` that have not returned are active.
pub(super) fn check_members(asm: &mut CodeAssembler, step: &Inst, exits: &mut Exits, restart: u32) -> Emit {
    let miss = exits.at(asm, restart);
    asm.mov(eax, dword_ptr(rbx + step.b.offset() as i32))?;
    asm.and(eax, dword_ptr(r12 + Context::ALIVE))?;
    asm.mov(ecx, dword_ptr(r12 + Context::MASK))?;
    asm.not(ecx)?;
    asm.test(eax, ecx)?;
    asm.jne(miss)
}

/// Emits a jump to a basic block with the lanes in `eax`. If lanes are pending at that block or at a lower
/// one, the scheduler runs first.
fn go(asm: &mut CodeAssembler, targets: &Targets, (block, first): (u32, u32)) -> Emit {
    let Some(target) = targets.get(first) else {
        put(asm, block)?;
        return asm.jmp(targets.schedule);
    };
    asm.cmp(dword_ptr(r12 + Context::LOWEST), block.cast_signed())?;
    asm.ja(target)?;
    put_behind(asm, block)?;
    asm.jmp(targets.schedule)
}

/// Makes the lanes in `eax` pending at a block that is not below the lowest pending one.
fn put_behind(asm: &mut CodeAssembler, block: u32) -> Emit {
    let bit = 1u32 << (block % 32);
    asm.mov(rdi, qword_ptr(r12 + Context::PENDING))?;
    asm.or(dword_ptr(rdi + 4 * block.cast_signed()), eax)?;
    asm.mov(rdi, qword_ptr(r12 + Context::OCCUPIED))?;
    // A word of 64 bits is two of 32 bits, the lower one first.
    asm.or(dword_ptr(rdi + 4 * (block / 32).cast_signed()), bit.cast_signed())
}

/// Makes the lanes in `eax` pending at a block.
fn put(asm: &mut CodeAssembler, block: u32) -> Emit {
    put_behind(asm, block)?;
    asm.mov(edx, block)?;
    asm.cmp(edx, dword_ptr(r12 + Context::LOWEST))?;
    asm.cmova(edx, dword_ptr(r12 + Context::LOWEST))?;
    asm.mov(dword_ptr(r12 + Context::LOWEST), edx)
}

/// Emits a jump to the code whose index in a table of the context is in `eax`, or to `interpreted` if there
/// is none. Overwrites `rcx`, `rdx` and `rdi`.
pub(super) fn enter(asm: &mut CodeAssembler, table: i32, start: CodeLabel, interpreted: CodeLabel) -> Emit {
    asm.mov(rdi, qword_ptr(r12 + table))?;
    asm.mov(ecx, dword_ptr(rdi + rax * 4))?;
    asm.test(ecx, ecx)?;
    asm.je(interpreted)?;
    asm.lea(rdx, ptr(start))?;
    asm.add(rdx, rcx)?;
    asm.jmp(rdx)
}

/// Emits the code that activates the lanes of the lowest pending block and jumps to it. If no lane is
/// pending, it jumps to `finish`.
pub(super) fn schedule(
    asm: &mut CodeAssembler,
    targets: &Targets,
    start: CodeLabel,
    (leave, finish): (CodeLabel, CodeLabel),
) -> Emit {
    let [mut done, mut further, mut found, mut known, mut interpreted] =
        std::array::from_fn(|_| asm.create_label());
    asm.mov(eax, dword_ptr(r12 + Context::LOWEST))?;
    asm.cmp(eax, -1)?;
    asm.je(done)?;
    asm.mov(rdi, qword_ptr(r12 + Context::PENDING))?;
    asm.mov(ecx, dword_ptr(rdi + rax * 4))?;
    asm.mov(dword_ptr(rdi + rax * 4), 0)?;
    asm.mov(dword_ptr(r12 + Context::MASK), ecx)?;
    asm.or(dword_ptr(rdi + 4 * targets.blocks as i32), ecx)?;
    asm.mov(rdi, qword_ptr(r12 + Context::OCCUPIED))?;
    asm.mov(edx, eax)?;
    asm.shr(edx, 6)?;
    asm.mov(rsi, qword_ptr(rdi + rdx * 8))?;
    asm.btr(rsi, rax)?;
    asm.mov(qword_ptr(rdi + rdx * 8), rsi)?;
    // No lower block is pending.
    asm.test(rsi, rsi)?;
    asm.je(further)?;
    asm.set_label(&mut found)?;
    asm.tzcnt(rsi, rsi)?;
    asm.shl(edx, 6)?;
    asm.add(edx, esi)?;
    asm.set_label(&mut known)?;
    asm.mov(dword_ptr(r12 + Context::LOWEST), edx)?;
    (targets.masks)(asm)?;
    enter(asm, Context::TARGETS, start, interpreted)?;
    asm.set_label(&mut further)?;
    asm.add(edx, 1)?;
    asm.mov(rsi, -1i64)?;
    asm.cmp(rdx, qword_ptr(r12 + Context::WORDS))?;
    asm.cmovae(edx, esi)?;
    asm.jae(known)?;
    asm.mov(rsi, qword_ptr(rdi + rdx * 8))?;
    asm.test(rsi, rsi)?;
    asm.je(further)?;
    asm.jmp(found)?;
    asm.set_label(&mut interpreted)?;
    asm.mov(rdi, qword_ptr(r12 + Context::BLOCKS))?;
    asm.mov(eax, dword_ptr(rdi + rax * 4))?;
    asm.jmp(leave)?;
    asm.set_label(&mut done)?;
    asm.mov(dword_ptr(r12 + Context::MASK), 0)?;
    asm.jmp(finish)
}

/// Emits `ret` or `exit`.
pub(super) fn end(asm: &mut CodeAssembler, targets: &Targets) -> Emit {
    asm.mov(eax, dword_ptr(r12 + Context::MASK))?;
    asm.not(eax)?;
    asm.and(dword_ptr(r12 + Context::ALIVE), eax)?;
    asm.jmp(targets.schedule)
}

/// Emits the charge of fuel for an iteration of a loop. When the fuel is used up, the interpreter polls the
/// launch's control.
fn pay(asm: &mut CodeAssembler, step: &Inst, exits: &mut Exits, pc: u32, back: bool) -> Emit {
    if !back {
        return Ok(());
    }
    let cost = pc.saturating_sub(step.imm as u32).cast_signed() + 1;
    let spent = exits.behind(asm, (pc, cost));
    asm.sub(qword_ptr(r12 + Context::FUEL), cost)?;
    asm.js(spent)
}

/// Emits an unconditional `bra`.
pub(super) fn goto(
    asm: &mut CodeAssembler,
    step: &Inst,
    targets: &Targets,
    exits: &mut Exits,
    pc: u32,
    back: bool,
) -> Emit {
    pay(asm, step, exits, pc, back)?;
    asm.mov(eax, dword_ptr(r12 + Context::MASK))?;
    go(asm, targets, (step.x, step.imm as u32))
}

/// Emits a conditional branch, `@p bra`.
pub(super) fn branch(
    asm: &mut CodeAssembler,
    step: &Inst,
    targets: &Targets,
    exits: &mut Exits,
    pc: u32,
    (negated, back): (bool, bool),
) -> Emit {
    pay(asm, step, exits, pc, back)?;
    let (mut then, mut part) = (asm.create_label(), asm.create_label());
    asm.mov(eax, dword_ptr(rbx + step.a.offset() as i32))?;
    if negated {
        asm.not(eax)?;
    }
    asm.mov(ecx, dword_ptr(r12 + Context::MASK))?;
    asm.and(eax, ecx)?;
    asm.jne(part)?;
    asm.mov(eax, ecx)?;
    go(asm, targets, (step.y, (step.imm >> 32) as u32))?;
    asm.set_label(&mut part)?;
    asm.cmp(eax, ecx)?;
    asm.je(then)?;
    asm.xor(ecx, eax)?;
    divide(asm, step, targets)?;
    asm.set_label(&mut then)?;
    go(asm, targets, (step.x, step.imm as u32))
}

/// Emits a split of the active lanes: those in `eax` continue at the block `x` and those in `ecx` at `y`. The
/// lower block runs at once, unless lanes are pending before it.
fn divide(asm: &mut CodeAssembler, step: &Inst, targets: &Targets) -> Emit {
    let (mut low, mut high) = ((step.y, (step.imm >> 32) as u32), (step.x, step.imm as u32));
    if low.0 > high.0 {
        std::mem::swap(&mut low, &mut high);
        asm.xchg(eax, ecx)?;
    }
    let mut others = asm.create_label();
    if let Some(target) = targets.get(low.1).filter(|_| low.0 != high.0) {
        asm.cmp(dword_ptr(r12 + Context::LOWEST), low.0.cast_signed())?;
        asm.jbe(others)?;
        put(asm, high.0)?;
        asm.mov(dword_ptr(r12 + Context::MASK), ecx)?;
        (targets.masks)(asm)?;
        asm.jmp(target)?;
    }
    asm.set_label(&mut others)?;
    put(asm, high.0)?;
    asm.mov(eax, ecx)?;
    put(asm, low.0)?;
    asm.jmp(targets.schedule)
}

/// Registers the instructions that end basic blocks.
pub(super) fn register<B: Copy>(table: &mut Templates<B>) {
    table.add(Opcode::Goto, Action::Goto { back: false });
    table.add(Opcode::GotoBack, Action::Goto { back: true });
    table.add(Opcode::Branch, Action::Branch { negated: false, back: false });
    table.add(Opcode::BranchBack, Action::Branch { negated: false, back: true });
    table.add(Opcode::Return, Action::Return);
}
