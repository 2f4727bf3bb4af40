//! Branches, and what lanes do together.

use iced_x86::code_asm::{
    CodeAssembler, CodeLabel, dword_ptr, eax, ecx, edx, esi, ptr, qword_ptr, r12, rax, rbx, rcx, rdi, rdx,
    rsi,
};

use super::exits::{Exits, Targets};
use super::template::{Entry, Flush, Table, Template};
use super::value::{Emit, Kind};
use crate::machine::{Context, Step};
use crate::ops::Op2;
use crate::ops::control::{Branch, Goto, Return};
use crate::ops::float::{Add, Float, Max};
use crate::ops::warps::{Butterfly, ButterflyThen};

/// Leaves unless the member lanes in `b` that have not returned are all here.
pub(super) fn check_members(asm: &mut CodeAssembler, step: &Step, exits: &mut Exits, restart: u32) -> Emit {
    let miss = exits.at(asm, restart);
    asm.mov(eax, dword_ptr(rbx + step.b.offset() as i32))?;
    asm.and(eax, dword_ptr(r12 + Context::ALIVE))?;
    asm.mov(ecx, dword_ptr(r12 + Context::MASK))?;
    asm.not(ecx)?;
    asm.test(eax, ecx)?;
    asm.jne(miss)
}

/// Goes to a block with the running lanes, which are those of `eax`, unless lanes are pending there or
/// before: then those run first, or with these.
fn go(asm: &mut CodeAssembler, targets: &Targets, (block, first): (u32, u32)) -> Emit {
    let Some(target) = targets.get(first) else {
        put(asm, block)?;
        return asm.jmp(targets.schedule);
    };
    asm.cmp(dword_ptr(r12 + Context::LOWEST), block.cast_signed())?;
    asm.ja(target)?;
    put(asm, block)?;
    asm.jmp(targets.schedule)
}

/// Makes the lanes of `eax` pending at a block.
fn put(asm: &mut CodeAssembler, block: u32) -> Emit {
    let bit = 1u64 << (block % 64);
    asm.mov(rdi, qword_ptr(r12 + Context::PENDING))?;
    asm.or(dword_ptr(rdi + 4 * block.cast_signed()), eax)?;
    asm.mov(rdi, qword_ptr(r12 + Context::OCCUPIED))?;
    asm.mov(rdx, bit)?;
    asm.or(qword_ptr(rdi + 8 * (block / 64).cast_signed()), rdx)?;
    asm.mov(edx, block)?;
    asm.cmp(edx, dword_ptr(r12 + Context::LOWEST))?;
    asm.cmova(edx, dword_ptr(r12 + Context::LOWEST))?;
    asm.mov(dword_ptr(r12 + Context::LOWEST), edx)
}

/// Makes the lanes of the lowest pending block the running ones and goes there; if no lane is pending, to `finish`.
/// `masks` emits what a translator wants to have made of the running lanes, which are in `ecx`; it changes no
/// register but `rcx`, `rdx`, `rsi` and `rdi`.
pub(super) fn schedule(
    asm: &mut CodeAssembler,
    start: CodeLabel,
    (leave, finish): (CodeLabel, CodeLabel),
    masks: fn(&mut CodeAssembler) -> Emit,
) -> Emit {
    let (mut done, mut next, mut found, mut foreign) =
        (asm.create_label(), asm.create_label(), asm.create_label(), asm.create_label());
    asm.mov(eax, dword_ptr(r12 + Context::LOWEST))?;
    asm.cmp(eax, -1)?;
    asm.je(done)?;
    asm.mov(rdi, qword_ptr(r12 + Context::PENDING))?;
    asm.mov(ecx, dword_ptr(rdi + rax * 4))?;
    asm.mov(dword_ptr(rdi + rax * 4), 0)?;
    asm.mov(dword_ptr(r12 + Context::MASK), ecx)?;
    asm.mov(rdi, qword_ptr(r12 + Context::OCCUPIED))?;
    asm.mov(edx, eax)?;
    asm.shr(edx, 6)?;
    asm.mov(rsi, qword_ptr(rdi + rdx * 8))?;
    asm.btr(rsi, rax)?;
    asm.mov(qword_ptr(rdi + rdx * 8), rsi)?;
    // The blocks below are empty.
    asm.set_label(&mut next)?;
    asm.test(rsi, rsi)?;
    asm.jne(found)?;
    asm.add(rdx, 1)?;
    asm.mov(rsi, -1i64)?;
    asm.cmp(rdx, qword_ptr(r12 + Context::WORDS))?;
    asm.jae(found)?;
    asm.mov(rsi, qword_ptr(rdi + rdx * 8))?;
    asm.jmp(next)?;
    asm.set_label(&mut found)?;
    asm.tzcnt(rsi, rsi)?;
    asm.shl(edx, 6)?;
    asm.add(edx, esi)?;
    asm.mov(esi, -1)?;
    asm.mov(rdi, qword_ptr(r12 + Context::WORDS))?;
    asm.shl(rdi, 6)?;
    asm.cmp(rdx, rdi)?;
    asm.cmovae(edx, esi)?;
    asm.mov(dword_ptr(r12 + Context::LOWEST), edx)?;
    masks(asm)?;
    asm.mov(rdi, qword_ptr(r12 + Context::TARGETS))?;
    asm.mov(ecx, dword_ptr(rdi + rax * 4))?;
    asm.test(ecx, ecx)?;
    asm.je(foreign)?;
    asm.lea(rdx, ptr(start))?;
    asm.add(rdx, rcx)?;
    asm.jmp(rdx)?;
    asm.set_label(&mut foreign)?;
    asm.mov(rdi, qword_ptr(r12 + Context::BLOCKS))?;
    asm.mov(eax, dword_ptr(rdi + rax * 4))?;
    asm.jmp(leave)?;
    asm.set_label(&mut done)?;
    asm.mov(dword_ptr(r12 + Context::MASK), 0)?;
    asm.jmp(finish)
}

/// `ret`, `exit`
pub(super) fn end(asm: &mut CodeAssembler, targets: &Targets) -> Emit {
    asm.mov(eax, dword_ptr(r12 + Context::MASK))?;
    asm.not(eax)?;
    asm.and(dword_ptr(r12 + Context::ALIVE), eax)?;
    asm.jmp(targets.schedule)
}

/// Counts the instructions of a loop. The interpreter polls the control when enough are counted.
fn pay(asm: &mut CodeAssembler, step: &Step, exits: &mut Exits, pc: u32, back: bool) -> Emit {
    if !back {
        return Ok(());
    }
    let cost = pc.saturating_sub(step.imm as u32).cast_signed() + 1;
    let spent = exits.behind(asm, (pc, cost));
    asm.sub(qword_ptr(r12 + Context::FUEL), cost)?;
    asm.js(spent)
}

/// `bra`
pub(super) fn goto(
    asm: &mut CodeAssembler,
    step: &Step,
    targets: &Targets,
    exits: &mut Exits,
    pc: u32,
    back: bool,
) -> Emit {
    pay(asm, step, exits, pc, back)?;
    asm.mov(eax, dword_ptr(r12 + Context::MASK))?;
    go(asm, targets, (step.x, step.imm as u32))
}

/// `@p bra`
pub(super) fn branch(
    asm: &mut CodeAssembler,
    step: &Step,
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
    put(asm, step.x)?;
    asm.mov(eax, ecx)?;
    put(asm, step.y)?;
    asm.jmp(targets.schedule)?;
    asm.set_label(&mut then)?;
    go(asm, targets, (step.x, step.imm as u32))
}

/// Adds what blocks end with.
pub(super) fn register<B: Copy>(table: &mut Table<B>) {
    table.add::<Goto<true>>(Entry::Goto { back: true });
    table.add::<Goto<false>>(Entry::Goto { back: false });
    table.add::<Branch<false, false>>(Entry::Branch { negated: false, back: false });
    table.add::<Branch<true, false>>(Entry::Branch { negated: true, back: false });
    table.add::<Branch<false, true>>(Entry::Branch { negated: false, back: true });
    table.add::<Branch<true, true>>(Entry::Branch { negated: true, back: true });
    table.add::<Return>(Entry::Return);
}

/// Adds the rounds of reductions by an operation.
fn rounds<B: Copy, O: Op2<A = f32, B = f32, R = f32>>(table: &mut Table<B>, then: Option<Template<B>>) {
    let round = |by| Entry::Butterfly { by, then };
    table.add::<ButterflyThen<O, 1>>(round(1));
    table.add::<ButterflyThen<O, 2>>(round(2));
    table.add::<ButterflyThen<O, 4>>(round(4));
    table.add::<ButterflyThen<O, 8>>(round(8));
    table.add::<ButterflyThen<O, 16>>(round(16));
}

/// Adds the exchanges of lanes, alone and followed by an addition or the greater of two.
pub(super) fn register_butterflies<B: Copy>(table: &mut Table<B>, add: B, max: B) {
    let round = |by| Entry::Butterfly { by, then: None };
    table.add::<Butterfly<1>>(round(1));
    table.add::<Butterfly<2>>(round(2));
    table.add::<Butterfly<4>>(round(4));
    table.add::<Butterfly<8>>(round(8));
    table.add::<Butterfly<16>>(round(16));
    let kind = Kind::Vector { wide: false };
    let template = |body, flush| {
        Some(Template { sources: [kind, kind, Kind::None], dst: kind, body, flush, float: true, test: false })
    };
    rounds::<B, Float<Add, true, true>>(table, template(add, Flush::Always));
    rounds::<B, Float<Add, false, true>>(table, template(add, Flush::Always));
    rounds::<B, Float<Add, false, false>>(table, template(add, Flush::Never));
    rounds::<B, Float<Max, true, true>>(table, template(max, Flush::Always));
    rounds::<B, Float<Max, false, false>>(table, template(max, Flush::Never));
}
