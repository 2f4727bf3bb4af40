//! Stores with an address for each lane.

use iced_x86::code_asm::{
    AsmRegisterZmm, dword_ptr, ecx, edx, qword_ptr, r11, r11d, r12, rax, rbp, rcx, xmmword_ptr, zmmword_ptr,
};

use super::cache::Cache;
use super::lanes::unless_all_active;
use super::load::{first_offset, lane_offset, pointer};
use super::memory::{LaneAccess, unless_pattern};
use super::registers::xmm;
use super::superblock::AccessPattern;
use crate::jit::element;
use crate::jit::value::{Emit, SlotKind};
use crate::machine::{Context, RangeCache, Slot};

/// Emits stores of 8 bytes from each lane, for two lanes together if they are adjacent. All lanes must be
/// active. The values are ordered by halves; each has two registers, of 64-bit lanes or of the two words of a
/// lane.
fn eights(
    e: &mut Cache<'_>,
    access: LaneAccess<'_>,
    wide: bool,
    values: &[AsmRegisterZmm],
    [a, b, t]: [AsmRegisterZmm; 3],
) -> Emit {
    let mut apart = e.asm.create_label();
    let mut done = e.asm.create_label();
    unless_pattern(e, access, AccessPattern::StridedPairs, apart)?;
    for together in [true, false] {
        for half in 0..2 {
            let &[first, second] = &values[2 * half..2 * half + 2] else { return Ok(()) };
            let pieces: Vec<_> = if wide {
                (0..8).map(|at| if at < 4 { (first, at) } else { (second, at - 4) }).collect()
            } else {
                e.asm.vpunpckldq(a, first, second)?;
                e.asm.vpunpckhdq(b, first, second)?;
                (0..8).map(|at| (if at % 2 == 0 { a } else { b }, at / 2)).collect()
            };
            // In the order of the lanes, because the last lane wins if several store to one address.
            for (two, (from, quarter)) in pieces.into_iter().enumerate() {
                let lane = 16 * half + 2 * two;
                e.asm.mov(ecx, lane_offset(access.root, lane))?;
                let to = rax + rcx + access.by;
                if together {
                    e.asm.vextracti32x4(xmmword_ptr(to), from, quarter)?;
                    continue;
                }
                e.asm.vextracti32x4(xmm(t), from, quarter)?;
                e.asm.vmovq(qword_ptr(to), xmm(t))?;
                e.asm.mov(ecx, lane_offset(access.root, lane + 1))?;
                e.asm.vmovhps(qword_ptr(to), xmm(t))?;
            }
        }
        if together {
            e.asm.jmp(done)?;
            e.asm.set_label(&mut apart)?;
            e.asm.zero_bytes()?;
        }
    }
    e.asm.set_label(&mut done)?;
    e.asm.zero_bytes()
}

/// Emits stores of 16 bytes from each lane. All lanes must be active. The values are ordered by words, then
/// by halves.
fn sixteens(
    e: &mut Cache<'_>,
    access: LaneAccess<'_>,
    values: &[AsmRegisterZmm],
    [ab, upper_ab, cd, upper_cd]: [AsmRegisterZmm; 4],
    lanes: [AsmRegisterZmm; 4],
) -> Emit {
    for half in 0..2 {
        let &[a, b, c, d] = &[0, 1, 2, 3].map(|word| values[4 * half + word]);
        e.asm.vpunpckldq(ab, a, b)?;
        e.asm.vpunpckhdq(upper_ab, a, b)?;
        e.asm.vpunpckldq(cd, c, d)?;
        e.asm.vpunpckhdq(upper_cd, c, d)?;
        e.asm.vpunpcklqdq(lanes[0], ab, cd)?;
        e.asm.vpunpckhqdq(lanes[1], ab, cd)?;
        e.asm.vpunpcklqdq(lanes[2], upper_ab, upper_cd)?;
        e.asm.vpunpckhqdq(lanes[3], upper_ab, upper_cd)?;
        for quarter in 0..4 {
            for (lane, from) in lanes.into_iter().enumerate() {
                e.asm.mov(ecx, lane_offset(access.root, 16 * half + 4 * quarter + lane))?;
                e.asm.vextracti32x4(xmmword_ptr(rax + rcx + access.by), from, quarter as u32)?;
            }
        }
    }
    Ok(())
}

/// Emits stores of elements of the active lanes from the registers of `slots`.
pub(super) fn store(e: &mut Cache<'_>, access: LaneAccess<'_>, slots: &[Slot]) -> Emit {
    let LaneAccess { elements, root, by, .. } = access;
    let (mut each, mut lane, mut done) = (e.asm.create_label(), e.asm.create_label(), e.asm.create_label());
    let both = e.read_offsets(root)?;
    let wide = elements.bytes == 8;
    // The registers, each with its row in the context: by element, or by half of a lane.
    let mut rows = Vec::new();
    for half in 0..2 {
        e.half = half;
        for (element, &slot) in slots.iter().enumerate() {
            let value = e.read(SlotKind::Vector { wide }, slot, false)?;
            if wide {
                rows.extend([(2 * half, value.low), (2 * half + 1, value.high)]);
            } else {
                rows.push((2 * element + half, value.low));
            }
        }
    }
    let (mut bytes, mut count) = (elements.bytes, elements.count);
    if (bytes, count) == (2, 2)
        && let &[(_, a), (_, b), (_, c), (_, d)] = &rows[..]
    {
        // Two elements of 16 bits are combined to a word.
        let [low, high] = e.temporaries()?;
        let mask = e.constant(0xffff);
        for (to, first, second) in [(low, a, b), (high, c, d)] {
            e.asm.vpslld(to, second, 16)?;
            e.asm.vpternlogd(to, first, mask, 0xf8)?;
        }
        (bytes, count, rows) = (4, 1, vec![(0, low), (1, high)]);
    }
    pointer(e, access)?;
    if (bytes, count) == (4, 1) {
        unless_pattern(e, access, AccessPattern::UnitStride, each)?;
        first_offset(e, access, both[0])?;
        e.asm.vmovdqu32(zmmword_ptr(rax + rcx + by).k1(), rows[0].1)?;
        e.asm.vmovdqu32(zmmword_ptr(rax + rcx + (by + 64)).k2(), rows[1].1)?;
        e.asm.jmp(done)?;
    }
    let values: Vec<_> = rows.iter().map(|&(_, value)| value).collect();
    // Registers are allocated before the jump, so that evicted values are stored on both paths.
    match (bytes, count) {
        (8, 1) | (4, 2) => {
            let spare = e.temporaries()?;
            unless_all_active(e, each)?;
            eights(e, access, wide, &values, spare)?;
            e.asm.jmp(done)?;
        }
        (4, 4) => {
            let (spare, lanes) = (e.temporaries()?, e.temporaries()?);
            unless_all_active(e, each)?;
            sixteens(e, access, &values, spare, lanes)?;
            e.asm.jmp(done)?;
        }
        _ => {}
    }
    e.asm.set_label(&mut each)?;
    e.asm.zero_bytes()?;
    for &(row, value) in &rows {
        e.asm.vmovdqu64(zmmword_ptr(r12 + (Context::ELEMENTS as usize + 64 * row) as i32), value)?;
    }
    e.asm.mov(edx, dword_ptr(r12 + Context::MASK))?;
    e.asm.set_label(&mut lane)?;
    e.asm.tzcnt(ecx, edx)?;
    e.asm.mov(r11d, dword_ptr(rbp + rcx * 4 + (RangeCache::OFFSETS as usize + 128 * root) as i32))?;
    e.asm.add(r11, rax)?;
    for number in 0..count {
        let from = r12 + rcx * if bytes == 8 { 8 } else { 4 } + (Context::ELEMENTS + 128 * number as i32);
        let to = r11 + (by + (bytes as usize * number) as i32);
        element::store(e.asm, bytes, from, to)?;
    }
    e.asm.blsr(edx, edx)?;
    e.asm.jne(lane)?;
    e.asm.set_label(&mut done)?;
    e.asm.zero_bytes()
}
