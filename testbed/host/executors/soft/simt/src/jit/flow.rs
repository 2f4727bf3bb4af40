//! Branches, and what lanes do together.

use iced_x86::code_asm::{
    CodeAssembler, CodeLabel, dword_ptr, eax, ecx, edx, esi, ptr, qword_ptr, r12, rax, rbx, rcx, rdi, rdx,
    rsi, xmm0, ymm0, ymm1, ymmword_ptr,
};

use super::cache::Cache;
use super::exits::{Exits, Targets};
use super::template::{Entry, Flush, Table, Template};
use super::value::{Emit, Kind, Pair};
use crate::machine::{Context, LEAVE, Step};
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

/// Copies the vector that lanes exchange, for each reads what others had before the step.
pub(super) fn copy_exchanged(asm: &mut CodeAssembler, step: &Step, place: usize) -> Emit {
    for part in 0..4 {
        let by = 32 * part;
        asm.vmovdqu(ymm0, ymmword_ptr(rbx + (step.a.offset() as i32 + by)))?;
        asm.vmovdqu(ymmword_ptr(r12 + (Context::OFFSETS + 128 * place as i32 + by)), ymm0)?;
    }
    Ok(())
}

/// Reads the values of the lanes whose numbers differ in the bit `by`, and combines them with `c`.
pub(super) fn butterfly(
    e: &mut Cache<'_>,
    step: &Step,
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
    let own = e.read(Kind::Vector { wide: false }, step.c, true)?;
    let d = e.result(false)?;
    (then.body)(e, step, d, [own, value, value])?;
    e.write(false, step.d, d, step.blend, true)
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

/// Makes the lanes of the lowest pending block the running ones and goes there; leaves if no lane is pending.
pub(super) fn schedule(asm: &mut CodeAssembler, start: CodeLabel, leave: CodeLabel) -> Emit {
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
    // The masks of the lanes, and which vectors have any.
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
    asm.mov(qword_ptr(r12 + Context::END), rdx)?;
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
    asm.mov(eax, LEAVE)?;
    asm.jmp(leave)
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

/// Adds the rounds of reductions by an operation.
fn rounds<O: Op2<A = f32, B = f32, R = f32>>(table: &mut Table, then: Option<Template>) {
    let round = |by| Entry::Butterfly { by, then };
    table.add::<ButterflyThen<O, 1>>(round(1));
    table.add::<ButterflyThen<O, 2>>(round(2));
    table.add::<ButterflyThen<O, 4>>(round(4));
    table.add::<ButterflyThen<O, 8>>(round(8));
    table.add::<ButterflyThen<O, 16>>(round(16));
}

pub(super) fn register(table: &mut Table) {
    table.add::<Goto<true>>(Entry::Goto { back: true });
    table.add::<Goto<false>>(Entry::Goto { back: false });
    table.add::<Branch<false, false>>(Entry::Branch { negated: false, back: false });
    table.add::<Branch<true, false>>(Entry::Branch { negated: true, back: false });
    table.add::<Branch<false, true>>(Entry::Branch { negated: false, back: true });
    table.add::<Branch<true, true>>(Entry::Branch { negated: true, back: true });
    table.add::<Return>(Entry::Return);
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
    let (add, max) = (super::float::ADD, super::float::MAX);
    rounds::<Float<Add, true, true>>(table, template(add, Flush::Always));
    rounds::<Float<Add, false, true>>(table, template(add, Flush::Always));
    rounds::<Float<Add, false, false>>(table, template(add, Flush::Never));
    rounds::<Float<Max, true, true>>(table, template(max, Flush::Always));
    rounds::<Float<Max, false, false>>(table, template(max, Flush::Never));
}
