//! Loads with an address for each lane. The access pattern of the addresses is known: mostly, all lanes or
//! groups of at least four lanes read adjacent elements, or the same one.

use iced_x86::code_asm::{
    AsmMemoryOperand, AsmRegisterZmm, byte_ptr, dword_ptr, ecx, k1, k2, k3, k4, k5, qword_ptr, r12, r15, rax,
    rbp, rcx, xmmword_ptr, zmmword_ptr,
};

use super::cache::Cache;
use super::lanes::unless_all_active;
use super::memory::{LaneAccess, MIDDLE, unless_pattern};
use super::registers::{Pair, xmm, ymm};
use super::superblock::{AccessPattern, CombinedLoad};
use crate::jit::template::MemSpace;
use crate::jit::value::Emit;
use crate::machine::{Context, RangeCache, Slot};

/// Distance of prefetches from the loads in bytes. It covers several blocks of a grid that multiplies a
/// matrix row by row.
const AHEAD: i32 = 4096;

/// Emits the load of the pointer to which offsets and distances are added, to `rax`.
pub(super) fn pointer(e: &mut Cache<'_>, access: LaneAccess<'_>) -> Emit {
    match access.elements.memory {
        MemSpace::Global => e.asm.mov(rax, qword_ptr(r12 + (Context::POINTERS + 8 * access.pointer as i32))),
        MemSpace::Shared => e.asm.mov(rax, r15),
        MemSpace::Local { .. } => e.asm.mov(rax, qword_ptr(r12 + Context::LOCAL)),
    }
}

/// Emits the load of the offset of a unit-stride access's first lane to `ecx`.
pub(super) fn first_offset(e: &mut Cache<'_>, access: LaneAccess<'_>, offsets: AsmRegisterZmm) -> Emit {
    if access.elements.memory == MemSpace::Global {
        e.asm.mov(ecx, MIDDLE)
    } else {
        e.asm.vmovd(ecx, xmm(offsets))
    }
}

/// Returns a memory operand with the offset of one lane.
pub(super) fn lane_offset(root: usize, lane: usize) -> AsmMemoryOperand {
    dword_ptr(rbp + (RangeCache::OFFSETS as usize + 128 * root + 4 * lane) as i32)
}

/// Loads the words of the active lanes with the processor's gather instruction.
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

/// Emits the load of a word for each lane: with vector loads for unit stride, with one word for two lanes if
/// pairs read the same one, and otherwise with a gather.
fn load_words(e: &mut Cache<'_>, access: LaneAccess<'_>, whole: bool) -> Emit<[AsmRegisterZmm; 2]> {
    let LaneAccess { root, by, elements, .. } = access;
    let both = e.read_offsets(root)?;
    let [low, high, t, u] = e.temporaries()?;
    let [mut twos, mut single, mut done] = std::array::from_fn(|_| e.asm.create_label());
    pointer(e, access)?;
    if whole {
        unless_pattern(e, access, AccessPattern::UnitStride, twos)?;
        first_offset(e, access, both[0])?;
        e.asm.vmovdqu32(low.k1().z(), zmmword_ptr(rax + rcx + by))?;
        if e.halves == 2 {
            e.asm.vmovdqu32(high.k2().z(), zmmword_ptr(rax + rcx + (by + 64)))?;
        }
        if elements.memory == MemSpace::Global {
            e.asm.prefetcht0(byte_ptr(rax + rcx + (by + AHEAD)))?;
            e.asm.prefetcht0(byte_ptr(rax + rcx + (by + 64 + AHEAD)))?;
        }
        e.asm.jmp(done)?;
        e.asm.set_label(&mut twos)?;
        e.asm.zero_bytes()?;
    }
    if !matches!(elements.memory, MemSpace::Local { .. }) {
        unless_pattern(e, access, AccessPattern::UniformPairs, single)?;
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

/// Repeats each word for two lanes.
fn repeat(e: &mut Cache<'_>, from: AsmRegisterZmm, to: [AsmRegisterZmm; 2]) -> Emit {
    for (to, first) in to.into_iter().zip([0, 8]).take(e.halves) {
        let order = e.pattern(|lane| first + lane / 2);
        e.asm.vmovdqu64(to, order)?;
        e.asm.vpermd(to, to, from)?;
    }
    Ok(())
}

/// Emits prefetches of the addresses that some of the lanes access next if the kernel reads memory in order.
/// A prefetch of an unmapped address has no effect.
fn fetch_ahead(e: &mut Cache<'_>, access: LaneAccess<'_>) -> Emit {
    for lane in [0, 16, 31] {
        e.asm.mov(ecx, lane_offset(access.root, lane))?;
        e.asm.prefetcht0(byte_ptr(rax + rcx + (access.by + AHEAD)))?;
    }
    Ok(())
}

/// Emits the load of 64 bits for each lane: for two lanes together if they are adjacent, and otherwise with a
/// gather.
fn load_wides(e: &mut Cache<'_>, access: LaneAccess<'_>) -> Emit<[AsmRegisterZmm; 4]> {
    let LaneAccess { root, by, elements, .. } = access;
    let both = e.read_offsets(root)?;
    let quarters: [AsmRegisterZmm; 4] = e.temporaries()?;
    let t = e.temporary()?;
    let [mut single, mut done] = std::array::from_fn(|_| e.asm.create_label());
    pointer(e, access)?;
    if elements.memory == MemSpace::Global {
        if access.first {
            fetch_ahead(e, access)?;
        }
    } else {
        unless_all_active(e, single)?;
    }
    unless_pattern(e, access, AccessPattern::StridedPairs, single)?;
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

/// Emits the load of four words for each lane of a half into the first four registers. Inactive lanes load
/// from offset 0.
fn load_fours(
    e: &mut Cache<'_>,
    LaneAccess { root, by, .. }: LaneAccess<'_>,
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
    // Transposes within the quarters of the registers.
    e.asm.vpunpckldq(t, a, b)?;
    e.asm.vpunpckhdq(a, a, b)?;
    e.asm.vpunpckldq(u, c, d)?;
    e.asm.vpunpckhdq(c, c, d)?;
    e.asm.vpunpckhqdq(b, t, u)?;
    e.asm.vpunpckhqdq(d, a, c)?;
    e.asm.vpunpcklqdq(c, a, c)?;
    e.asm.vpunpcklqdq(a, t, u)
}

/// Emits the load of four words for each lane, for this load and later ones, and caches them.
fn load_for_others(e: &mut Cache<'_>, access: LaneAccess<'_>, combined: &CombinedLoad) -> Emit {
    let all: [AsmRegisterZmm; 8] = e.temporaries()?;
    let [t, u] = e.temporaries()?;
    let access = LaneAccess { by: access.by + combined.from as i32, ..access };
    let words = |half: usize| std::array::from_fn::<_, 4, _>(|word| all[4 * half + word]);
    let [mut apart, mut done] = std::array::from_fn(|_| e.asm.create_label());
    pointer(e, access)?;
    if access.elements.count == 1 {
        unless_pattern(e, access, AccessPattern::UnitStride, apart)?;
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
    for (word, &of) in combined.words.iter().enumerate() {
        e.cache_preloaded(of, [all[word], all[4 + word]]);
    }
    Ok(())
}

/// Writes the words that were loaded ahead of this instruction to its registers. Returns false if not all of
/// them are available.
fn write_preloaded(e: &mut Cache<'_>, access: LaneAccess<'_>, slots: &[Slot]) -> Emit<bool> {
    let all: Option<Vec<_>> = (0..slots.len()).map(|word| e.preloaded(word)).collect();
    let Some(all) = all else { return Ok(false) };
    for (&slot, both) in slots.iter().zip(all) {
        for (half, word) in both.into_iter().enumerate().take(e.halves) {
            e.half = half;
            e.write(false, slot, Pair::narrow(word), access.step.blend, false)?;
        }
    }
    Ok(true)
}

/// Loads elements to the registers of `slots`.
pub(super) fn load(e: &mut Cache<'_>, access: LaneAccess<'_>, slots: &[Slot]) -> Emit {
    let LaneAccess { step, elements, .. } = access;
    if let Some(combined) = access.combined {
        load_for_others(e, access, combined)?;
    }
    if write_preloaded(e, access, slots)? {
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
