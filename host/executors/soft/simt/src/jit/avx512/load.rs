//! Loads of lanes. How the lanes' addresses lie is looked at before: mostly, all lanes or at least four
//! neighbours read what lies side by side, or the same.

use iced_x86::code_asm::{
    AsmMemoryOperand, AsmRegisterZmm, byte_ptr, dword_ptr, ecx, k1, k2, k3, k4, k5, qword_ptr, r12, r15, rax,
    rbp, rcx, xmmword_ptr, zmmword_ptr,
};

use super::cache::Cache;
use super::lanes::unless_all_active;
use super::memory::{Access, MIDDLE, unless_in};
use super::registers::{Pair, xmm, ymm};
use super::run::{Four, Row};
use crate::jit::template::Memory;
use crate::jit::value::Emit;
use crate::machine::{Context, RangeCache, Slot};

/// How far ahead memory is fetched: some blocks of a grid that multiplies a matrix, row by row.
const AHEAD: i32 = 4096;

/// Puts the pointer to which offsets and distances are added into `rax`.
pub(super) fn pointer(e: &mut Cache<'_>, access: Access<'_>) -> Emit {
    match access.elements.memory {
        Memory::Global => e.asm.mov(rax, qword_ptr(r12 + (Context::POINTERS + 8 * access.pointer as i32))),
        Memory::Shared => e.asm.mov(rax, r15),
        Memory::Local { .. } => e.asm.mov(rax, qword_ptr(r12 + Context::LOCAL)),
    }
}

/// Loads the offset of the first of lanes that lie in a row into `ecx`.
pub(super) fn first_offset(e: &mut Cache<'_>, access: Access<'_>, offsets: AsmRegisterZmm) -> Emit {
    if access.elements.memory == Memory::Global {
        e.asm.mov(ecx, MIDDLE)
    } else {
        e.asm.vmovd(ecx, xmm(offsets))
    }
}

/// The offset of one lane, in memory.
pub(super) fn lane_offset(root: usize, lane: usize) -> AsmMemoryOperand {
    dword_ptr(rbp + (RangeCache::OFFSETS as usize + 128 * root + 4 * lane) as i32)
}

/// Loads the elements of active lanes one by one, as far as the processor does that by itself.
fn gather(e: &mut Cache<'_>, by: i32, both: [AsmRegisterZmm; 2], to: [AsmRegisterZmm; 2]) -> Emit {
    e.asm.kmovw(k5, k1)?;
    e.asm.vpxord(to[0], to[0], to[0])?;
    e.asm.vpgatherdd(to[0].k5(), zmmword_ptr(rax + both[0] + by))?;
    if e.halves == 1 {
        return Ok(());
    }
    e.asm.kmovw(k5, k2)?;
    e.asm.vpxord(to[1], to[1], to[1])?;
    e.asm.vpgatherdd(to[1].k5(), zmmword_ptr(rax + both[1] + by))
}

/// Loads a word for each lane: all in a row, the same for two neighbours, or as the processor gathers them.
fn load_words(e: &mut Cache<'_>, access: Access<'_>, whole: bool) -> Emit<[AsmRegisterZmm; 2]> {
    let Access { root, by, elements, .. } = access;
    let both = e.read_offsets(root)?;
    let [low, high, t, u] = e.temporaries()?;
    let [mut twos, mut single, mut done] = std::array::from_fn(|_| e.asm.create_label());
    pointer(e, access)?;
    if whole {
        unless_in(e, access, Row::Whole, twos)?;
        first_offset(e, access, both[0])?;
        e.asm.vmovdqu32(low.k1().z(), zmmword_ptr(rax + rcx + by))?;
        if e.halves == 2 {
            e.asm.vmovdqu32(high.k2().z(), zmmword_ptr(rax + rcx + (by + 64)))?;
        }
        if elements.memory == Memory::Global {
            e.asm.prefetcht0(byte_ptr(rax + rcx + (by + AHEAD)))?;
            e.asm.prefetcht0(byte_ptr(rax + rcx + (by + 64 + AHEAD)))?;
        }
        e.asm.jmp(done)?;
        e.asm.set_label(&mut twos)?;
        e.asm.zero_bytes()?;
    }
    if !matches!(elements.memory, Memory::Local { .. }) {
        unless_in(e, access, Row::SameTwos, single)?;
        let each = e.pattern(|lane| 2 * lane);
        e.asm.vmovdqu64(t, each)?;
        e.asm.vpermi2d(t, both[0], both[1])?;
        e.asm.kxnorw(k5, k5, k5)?;
        e.asm.vpxord(u, u, u)?;
        e.asm.vpgatherdd(u.k5(), zmmword_ptr(rax + t + by))?;
        repeat(e, u, [low, high])?;
        e.asm.jmp(done)?;
    }
    e.asm.set_label(&mut single)?;
    e.asm.zero_bytes()?;
    gather(e, by, both, [low, high])?;
    e.asm.set_label(&mut done)?;
    e.asm.zero_bytes()?;
    Ok([low, high])
}

/// Repeats each word.
fn repeat(e: &mut Cache<'_>, from: AsmRegisterZmm, to: [AsmRegisterZmm; 2]) -> Emit {
    for (to, first) in to.into_iter().zip([0, 8]).take(e.halves) {
        let order = e.pattern(|lane| first + lane / 2);
        e.asm.vmovdqu64(to, order)?;
        e.asm.vpermd(to, to, from)?;
    }
    Ok(())
}

/// Fetches what lanes will want if memory is read in order: from some of them on, some way ahead. Their
/// offsets are in memory. A fetch of what is not mapped does nothing.
fn fetch_ahead(e: &mut Cache<'_>, access: Access<'_>) -> Emit {
    for lane in [0, 16, 31] {
        e.asm.mov(ecx, lane_offset(access.root, lane))?;
        e.asm.prefetcht0(byte_ptr(rax + rcx + (access.by + AHEAD)))?;
    }
    Ok(())
}

/// Loads 64 bits for each lane: for two neighbours together, or as the processor gathers them.
fn load_wides(e: &mut Cache<'_>, access: Access<'_>) -> Emit<[AsmRegisterZmm; 4]> {
    let Access { root, by, elements, .. } = access;
    let both = e.read_offsets(root)?;
    let quarters: [AsmRegisterZmm; 4] = e.temporaries()?;
    let t = e.temporary()?;
    let [mut single, mut done] = std::array::from_fn(|_| e.asm.create_label());
    pointer(e, access)?;
    if elements.memory == Memory::Global {
        if access.first {
            fetch_ahead(e, access)?;
        }
    } else {
        unless_all_active(e, single)?;
    }
    unless_in(e, access, Row::WideTwos, single)?;
    for (quarter, to) in quarters.into_iter().enumerate().take(2 * e.halves) {
        for two in 0..4 {
            let from = xmmword_ptr(rax + rcx + by);
            e.asm.mov(ecx, lane_offset(root, 8 * quarter + 2 * two))?;
            if two == 0 {
                e.asm.vmovdqu64(xmm(to), from)?;
            } else {
                e.asm.vinserti64x2(to, to, from, two as u32)?;
            }
        }
    }
    e.asm.jmp(done)?;
    e.asm.set_label(&mut single)?;
    for (quarter, (to, active)) in quarters.into_iter().zip([k1, k3, k2, k4]).enumerate().take(2 * e.halves) {
        let from = both[quarter / 2];
        e.asm.kmovb(k5, active)?;
        e.asm.vpxord(to, to, to)?;
        if quarter % 2 == 0 {
            e.asm.vpgatherdq(to.k5(), zmmword_ptr(rax + ymm(from) + by))?;
        } else {
            e.asm.vextracti64x4(ymm(t), from, 1)?;
            e.asm.vpgatherdq(to.k5(), zmmword_ptr(rax + ymm(t) + by))?;
        }
    }
    e.asm.set_label(&mut done)?;
    e.asm.zero_bytes()?;
    Ok(quarters)
}

/// Loads four words for each lane of a half into the first four registers. Inactive lanes read what lies at
/// the offset 0.
fn load_fours(
    e: &mut Cache<'_>,
    Access { root, by, .. }: Access<'_>,
    half: usize,
    [a, b, c, d, t, u]: [AsmRegisterZmm; 6],
) -> Emit {
    for (lane, to) in [a, b, c, d].into_iter().enumerate() {
        for four in 0..4 {
            let from = xmmword_ptr(rax + rcx + by);
            e.asm.mov(ecx, lane_offset(root, 16 * half + 4 * four + lane))?;
            if four == 0 {
                e.asm.vmovdqu32(xmm(to), from)?;
            } else {
                e.asm.vinserti32x4(to, to, from, four as u32)?;
            }
        }
    }
    // Rows become columns within quarters of registers.
    e.asm.vpunpckldq(t, a, b)?;
    e.asm.vpunpckhdq(a, a, b)?;
    e.asm.vpunpckldq(u, c, d)?;
    e.asm.vpunpckhdq(c, c, d)?;
    e.asm.vpunpckhqdq(b, t, u)?;
    e.asm.vpunpckhqdq(d, a, c)?;
    e.asm.vpunpcklqdq(c, a, c)?;
    e.asm.vpunpcklqdq(a, t, u)
}

/// Loads four words for each lane, which this load and others want, and keeps them.
fn load_for_others(e: &mut Cache<'_>, access: Access<'_>, four: &Four) -> Emit {
    let all: [AsmRegisterZmm; 8] = e.temporaries()?;
    let [t, u] = e.temporaries()?;
    let access = Access { by: access.by + four.from as i32, ..access };
    let words = |half: usize| std::array::from_fn::<_, 4, _>(|word| all[4 * half + word]);
    let [mut apart, mut done] = std::array::from_fn(|_| e.asm.create_label());
    pointer(e, access)?;
    if access.elements.count == 1 {
        unless_in(e, access, Row::Whole, apart)?;
        e.asm.mov(ecx, lane_offset(access.root, 0))?;
        for (half, active) in [k1, k2].into_iter().enumerate().take(e.halves) {
            for (word, to) in words(half).into_iter().enumerate() {
                let from = zmmword_ptr(rax + rcx + (access.by + (64 * half + 4 * word) as i32));
                let to = if active == k1 { to.k1() } else { to.k2() };
                e.asm.vmovdqu32(to.z(), from)?;
            }
        }
        e.asm.jmp(done)?;
        e.asm.set_label(&mut apart)?;
        e.asm.zero_bytes()?;
    }
    for half in 0..e.halves {
        let [a, b, c, d] = words(half);
        load_fours(e, access, half, [a, b, c, d, t, u])?;
    }
    e.asm.set_label(&mut done)?;
    e.asm.zero_bytes()?;
    e.release(t);
    e.release(u);
    for (word, &of) in four.words.iter().enumerate() {
        e.keep_ahead(of, [all[word], all[4 + word]]);
    }
    Ok(())
}

/// Writes what was loaded for a step ahead of it. Returns whether all of it is there.
fn write_ahead(e: &mut Cache<'_>, access: Access<'_>, slots: &[Slot]) -> Emit<bool> {
    let all: Option<Vec<_>> = (0..slots.len()).map(|word| e.ahead(word)).collect();
    let Some(all) = all else { return Ok(false) };
    for (&slot, both) in slots.iter().zip(all) {
        for (half, word) in both.into_iter().enumerate().take(e.halves) {
            e.half = half;
            e.write(false, slot, Pair::narrow(word), access.step.blend, false)?;
        }
    }
    Ok(true)
}

/// Loads lanes into the registers of `slots`.
pub(super) fn load(e: &mut Cache<'_>, access: Access<'_>, slots: &[Slot]) -> Emit {
    let Access { step, elements, .. } = access;
    if let Some(four) = access.four {
        load_for_others(e, access, four)?;
    }
    if write_ahead(e, access, slots)? {
        return Ok(());
    }
    match (elements.bytes, slots) {
        (8, &[slot]) => {
            let [a, b, c, d] = load_wides(e, access)?;
            for (half, (low, high)) in [(a, b), (c, d)].into_iter().enumerate().take(e.halves) {
                e.half = half;
                e.write(true, slot, Pair { low, high }, step.blend, false)?;
            }
        }
        (bytes, &[slot]) => {
            let words = load_words(e, access, bytes == 4)?;
            for (half, word) in words.into_iter().enumerate().take(e.halves) {
                if bytes < 4 {
                    let mask = e.constant(if bytes == 1 { 0xff } else { 0xffff });
                    e.asm.vpandd(word, word, mask)?;
                }
                e.half = half;
                e.write(false, slot, Pair::narrow(word), step.blend, false)?;
            }
        }
        (_, &[first, second]) => {
            let [a, b, c, d] = load_wides(e, access)?;
            for (half, (low, high)) in [(a, b), (c, d)].into_iter().enumerate().take(e.halves) {
                e.half = half;
                let orders = [e.order(0)?, e.order(1)?];
                let word = e.temporary()?;
                e.asm.vmovdqa64(word, orders[0])?;
                e.asm.vpermi2d(word, low, high)?;
                e.asm.vpermt2d(low, orders[1], high)?;
                e.release(high);
                e.write(false, first, Pair::narrow(word), step.blend, false)?;
                e.write(false, second, Pair::narrow(low), step.blend, false)?;
            }
        }
        (_, slots) => {
            pointer(e, access)?;
            for half in 0..e.halves {
                e.half = half;
                let all: [AsmRegisterZmm; 6] = e.temporaries()?;
                load_fours(e, access, half, all)?;
                for register in &all[4..] {
                    e.release(*register);
                }
                for (&slot, &word) in slots.iter().zip(&all) {
                    e.write(false, slot, Pair::narrow(word), step.blend, false)?;
                }
            }
        }
    }
    Ok(())
}
