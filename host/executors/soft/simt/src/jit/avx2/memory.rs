//! Memory accesses: the check of all addresses before a superblock runs, loads, and stores.

use iced_x86::code_asm::{
    AsmRegisterYmm, CodeAssembler, CodeLabel, byte_ptr, dword_ptr, eax, ecx, edx, esi, qword_ptr, r11, r11d,
    r12, r13, r14, r15, rax, rbx, rcx, rdx, rsi, xmm0, xmmword_ptr, ymm0, ymm1, ymm2, ymm3, ymm4, ymm13,
    ymm14, ymm15, ymmword_ptr,
};
use vgpu_arena::Window;
use vgpu_ptx::ir::window;

use super::cache::{Cache, Pair, xmm};
use crate::jit::element;
use crate::jit::pool::ConstantPool;
use crate::jit::template::{CoalescedCheck, Elements, MemSpace};
use crate::jit::value::{Emit, SlotKind};
use crate::machine::{Context, Inst, Slot};

/// Distance of prefetches from the loads in bytes. It covers several blocks of a grid that multiplies a
/// matrix row by row.
const AHEAD: i32 = 4096;

/// A memory access with an address for each lane, or with one address for the warp.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneAccess<'a> {
    pub(super) step: &'a Inst,
    pub(super) elements: Elements,
    pub(super) write: bool,
    /// Index in the context of the offsets and bounds of the access's check.
    pub(super) place: usize,
    /// Distance of the elements from the stored offsets, in bytes.
    pub(super) by: i32,
}

fn line(field: i32, place: usize) -> i32 {
    field + 32 * place as i32
}

fn offsets(place: usize) -> i32 {
    Context::OFFSETS + 128 * place as i32
}

fn field(step: &Inst, field: usize) -> i32 {
    (step.y as usize * size_of::<Window>() + field) as i32
}

/// Emits loads of a window's first address to `rax`, and of the last offset at which `need` bytes fit to
/// `rcx`.
fn bounds(asm: &mut CodeAssembler, step: &Inst, write: bool, need: i32, miss: CodeLabel) -> Emit {
    let room = if write { Window::WRITABLE } else { Window::BYTES };
    asm.mov(rax, qword_ptr(r14 + field(step, Window::START)))?;
    asm.mov(rcx, qword_ptr(r14 + field(step, room)))?;
    asm.sub(rcx, need)?;
    asm.jb(miss)
}

/// Emits the part of a coalesced check that is the same for all lanes.
pub(super) fn prepare(asm: &mut CodeAssembler, step: &Inst, group: CoalescedCheck, miss: CodeLabel) -> Emit {
    let need = (group.to - group.from) as i32;
    match group.memory {
        MemSpace::Global => {
            bounds(asm, step, group.write, need, miss)?;
            asm.test(eax, group.align.cast_signed() - 1)?;
            asm.jne(miss)?;
            asm.mov(edx, u32::MAX)?;
            asm.cmp(rcx, rdx)?;
            asm.cmova(rcx, rdx)?;
            asm.lea(rdx, qword_ptr(rax + r13))?;
            asm.mov(qword_ptr(r12 + (Context::POINTERS + 8 * group.place as i32)), rdx)?;
            asm.mov(rdx, group.from)?;
            asm.sub(rax, rdx)?;
            asm.vmovq(xmm0, rax)?;
            asm.vpbroadcastq(ymm0, xmm0)?;
            asm.vmovdqu(ymmword_ptr(r12 + line(Context::BASES, group.place)), ymm0)?;
        }
        MemSpace::Shared | MemSpace::Local { .. } => {
            let bytes =
                if group.memory == MemSpace::Shared { Context::SHARED_BYTES } else { Context::LOCAL_BYTES };
            asm.mov(ecx, dword_ptr(r12 + bytes))?;
            asm.sub(ecx, need)?;
            asm.jb(miss)?;
        }
    }
    asm.vmovd(xmm0, ecx)?;
    asm.vpbroadcastd(ymm0, xmm0)?;
    asm.vmovdqu(ymmword_ptr(r12 + line(Context::LASTS, group.place)), ymm0)
}

/// Emits the check of the addresses of eight lanes and stores their offsets. Violations set bits of `ymm15`.
/// `ymm14` must hold the mask of the active lanes, and `ymm13` the same mask in the order that shuffles
/// produce.
pub(super) fn check(
    asm: &mut CodeAssembler,
    pool: &mut ConstantPool,
    step: &Inst,
    group: CoalescedCheck,
) -> Emit {
    let at = step.a.offset() as i32;
    match group.memory {
        MemSpace::Global => {
            let base = ymmword_ptr(r12 + line(Context::BASES, group.place));
            asm.vmovdqu(ymm0, ymmword_ptr(rbx + rsi * 2 + at))?;
            asm.vmovdqu(ymm1, ymmword_ptr(rbx + rsi * 2 + (at + 32)))?;
            asm.vpsubq(ymm0, ymm0, base)?;
            asm.vpsubq(ymm1, ymm1, base)?;
            asm.vshufps(ymm2, ymm0, ymm1, 0b10_00_10_00)?;
            asm.vshufps(ymm3, ymm0, ymm1, 0b11_01_11_01)?;
            asm.vpermq(ymm2, ymm2, 0b11_01_10_00)?;
            asm.vpand(ymm3, ymm3, ymm13)?;
            asm.vpor(ymm15, ymm15, ymm3)?;
        }
        MemSpace::Local { generic: true } => {
            // The addresses of all active lanes must be in local memory.
            let upper = ymmword_ptr(pool.label(asm, &[(window::LOCAL >> 32) as u32; 8]));
            let (low, high) = (group.from as u32, (group.from >> 32) as u32);
            let from = ymmword_ptr(pool.label(asm, &[low, high, low, high, low, high, low, high]));
            asm.vmovdqu(ymm0, from)?;
            asm.vpaddq(ymm1, ymm0, ymmword_ptr(rbx + rsi * 2 + (at + 32)))?;
            asm.vpaddq(ymm0, ymm0, ymmword_ptr(rbx + rsi * 2 + at))?;
            asm.vshufps(ymm2, ymm0, ymm1, 0b10_00_10_00)?;
            asm.vshufps(ymm3, ymm0, ymm1, 0b11_01_11_01)?;
            asm.vpermq(ymm2, ymm2, 0b11_01_10_00)?;
            asm.vpxor(ymm3, ymm3, upper)?;
            asm.vpand(ymm3, ymm3, ymm13)?;
            asm.vpor(ymm15, ymm15, ymm3)?;
        }
        MemSpace::Shared | MemSpace::Local { generic: false } => {
            let offset = ymmword_ptr(pool.label(asm, &[group.from as u32; 8]));
            asm.vmovdqu(ymm2, ymmword_ptr(rbx + rsi + at))?;
            asm.vpaddd(ymm2, ymm2, offset)?;
        }
    }
    asm.vpand(ymm2, ymm2, ymm14)?;
    asm.vmovdqu(ymm3, ymmword_ptr(r12 + line(Context::LASTS, group.place)))?;
    asm.vpmaxud(ymm4, ymm2, ymm3)?;
    asm.vpxor(ymm4, ymm4, ymm3)?;
    asm.vpor(ymm15, ymm15, ymm4)?;
    if group.align > 1 {
        let ones = ymmword_ptr(pool.label(asm, &[group.align - 1; 8]));
        asm.vpand(ymm4, ymm2, ones)?;
        asm.vpor(ymm15, ymm15, ymm4)?;
    }
    if let MemSpace::Local { .. } = group.memory {
        // Each word of local memory has a row of 128 bytes, one word per lane.
        asm.vpslld(ymm2, ymm2, 5)?;
        asm.vpaddd(ymm2, ymm2, ymmword_ptr(r12 + rsi + Context::COLUMNS))?;
    }
    asm.vmovdqu(ymmword_ptr(r12 + rsi + offsets(group.place)), ymm2)
}

/// Emits the load of the pointer to which offsets and distances are added, to `rax`.
fn pointer(e: &mut Cache<'_>, access: LaneAccess<'_>) -> Emit {
    match access.elements.memory {
        MemSpace::Global => e.asm.mov(rax, qword_ptr(r12 + (Context::POINTERS + 8 * access.place as i32))),
        MemSpace::Shared => e.asm.mov(rax, r15),
        MemSpace::Local { .. } => e.asm.mov(rax, qword_ptr(r12 + Context::LOCAL)),
    }
}

/// Emits a test that sets the zero flag if the offsets are those of adjacent words, and loads the first
/// offset to `r11`. No register is allocated, because the code may be skipped.
fn compare_neighbours(e: &mut Cache<'_>, [t, u]: [AsmRegisterYmm; 2], place: usize) -> Emit {
    let at = offsets(place);
    let row = e.pattern(std::array::from_fn(|lane| lane as u32 * 4));
    e.asm.mov(r11d, dword_ptr(r12 + rsi + at))?;
    e.asm.vpbroadcastd(t, dword_ptr(r12 + rsi + at))?;
    e.asm.vpaddd(t, t, row)?;
    e.asm.vmovdqu(u, ymmword_ptr(r12 + rsi + at))?;
    e.asm.vpxor(t, t, u)?;
    e.asm.vptest(t, t)
}

/// Emits the load of the offset of one of eight lanes to `rcx`. For the first and the last lane, also
/// prefetches the addresses that a kernel accesses next if it reads memory in order. A prefetch of an
/// unmapped address has no effect.
fn offset(e: &mut Cache<'_>, access: LaneAccess<'_>, lane: i32) -> Emit {
    e.asm.mov(ecx, dword_ptr(r12 + rsi + (offsets(access.place) + 4 * lane)))?;
    if matches!(lane, 0 | 7) && access.elements.memory == MemSpace::Global {
        e.asm.prefetcht0(byte_ptr(rax + rcx + (access.by + AHEAD)))?;
    }
    Ok(())
}

/// Emits loads of words lane by lane, which is faster than the processor's gather instruction.
fn gather(e: &mut Cache<'_>, access: LaneAccess<'_>, d: AsmRegisterYmm, t: AsmRegisterYmm) -> Emit {
    for (half, to) in [(0, d), (4, t)] {
        for lane in 0..4u32 {
            offset(e, access, half + lane.cast_signed())?;
            let from = dword_ptr(rax + rcx + access.by);
            if lane == 0 {
                e.asm.vmovd(xmm(to), from)?;
            } else {
                e.asm.vpinsrd(xmm(to), xmm(to), from, lane)?;
            }
        }
    }
    e.asm.vinserti128(d, d, xmm(t), 1)
}

/// Emits loads of 64 bits for each of eight lanes, two lanes at a time. `lanes` gives the first lane of each
/// pair, in the order of the halves of `d.low` and `d.high`.
fn gather_wide(
    e: &mut Cache<'_>,
    access: LaneAccess<'_>,
    d: Pair,
    t: AsmRegisterYmm,
    lanes: [i32; 4],
) -> Emit {
    let [first, second, third, fourth] = lanes;
    for (to, below, above) in [(d.low, first, second), (d.high, third, fourth)] {
        for (into, lane) in [(to, below), (t, above)] {
            offset(e, access, lane)?;
            e.asm.vmovq(xmm(into), qword_ptr(rax + rcx + access.by))?;
            offset(e, access, lane + 1)?;
            e.asm.vpinsrq(xmm(into), xmm(into), qword_ptr(rax + rcx + access.by), 1)?;
        }
        e.asm.vinserti128(to, to, xmm(t), 1)?;
    }
    Ok(())
}

/// Loads four words for each of eight lanes.
fn gather_four(e: &mut Cache<'_>, access: LaneAccess<'_>, [a, b, c, d]: [AsmRegisterYmm; 4]) -> Emit {
    for (lane, to) in [a, b, c, d].into_iter().enumerate() {
        let lane = lane as i32;
        offset(e, access, lane)?;
        e.asm.vmovdqu(xmm(to), xmmword_ptr(rax + rcx + access.by))?;
        offset(e, access, lane + 4)?;
        e.asm.vinserti128(to, to, xmmword_ptr(rax + rcx + access.by), 1)?;
    }
    let (t, u) = (e.temporary()?, e.temporary()?);
    // Transposes within the halves of the registers.
    e.asm.vpunpckldq(t, a, b)?;
    e.asm.vpunpckhdq(a, a, b)?;
    e.asm.vpunpckldq(u, c, d)?;
    e.asm.vpunpckhdq(c, c, d)?;
    e.asm.vpunpckhqdq(b, t, u)?;
    e.asm.vpunpckhqdq(d, a, c)?;
    e.asm.vpunpcklqdq(c, a, c)?;
    e.asm.vpunpcklqdq(a, t, u)
}

/// Loads words, with a single vector load if they are adjacent.
fn load_words(e: &mut Cache<'_>, access: LaneAccess<'_>, d: AsmRegisterYmm) -> Emit {
    let (mut slow, mut done) = (e.asm.create_label(), e.asm.create_label());
    let t = e.temporary()?;
    compare_neighbours(e, [d, t], access.place)?;
    e.asm.jne(slow)?;
    e.asm.vmovdqu(d, ymmword_ptr(rax + r11 + access.by))?;
    e.asm.jmp(done)?;
    e.asm.set_label(&mut slow)?;
    gather(e, access, d, t)?;
    e.asm.set_label(&mut done)?;
    e.asm.zero_bytes()
}

/// Loads elements for eight lanes to the registers of `slots`.
pub(super) fn load(e: &mut Cache<'_>, access: LaneAccess<'_>, slots: &[Slot]) -> Emit {
    let LaneAccess { step, elements, .. } = access;
    pointer(e, access)?;
    match (elements.bytes, slots) {
        (8, &[slot]) => {
            let (d, t) = (e.result(true)?, e.temporary()?);
            gather_wide(e, access, d, t, [0, 2, 4, 6])?;
            e.write(true, slot, d, step.blend, false)
        }
        (4, &[slot]) => {
            let d = e.result(false)?;
            if elements.align == 4 {
                load_words(e, access, d.low)?;
            } else {
                let t = e.temporary()?;
                gather(e, access, d.low, t)?;
            }
            e.write(false, slot, d, step.blend, false)
        }
        (bytes, &[slot]) => {
            let (d, t) = (e.result(false)?, e.temporary()?);
            let mask = e.constant(if bytes == 1 { 0xff } else { 0xffff });
            gather(e, access, d.low, t)?;
            e.asm.vpand(d.low, d.low, mask)?;
            e.write(false, slot, d, step.blend, false)
        }
        (_, &[first, second]) => {
            // With this order of lanes, a shuffle within halves of registers separates the words.
            let (both, d) = (e.result(true)?, e.result(true)?);
            gather_wide(e, access, both, d.low, [0, 4, 2, 6])?;
            e.asm.vshufps(d.low, both.low, both.high, 0b10_00_10_00)?;
            e.asm.vshufps(d.high, both.low, both.high, 0b11_01_11_01)?;
            for (slot, value) in [(first, d.low), (second, d.high)] {
                e.write(false, slot, Pair { low: value, high: value }, step.blend, false)?;
            }
            Ok(())
        }
        (_, slots) => {
            let (low, high) = (e.result(true)?, e.result(true)?);
            let all = [low.low, low.high, high.low, high.high];
            gather_four(e, access, all)?;
            for (&slot, value) in slots.iter().zip(all) {
                e.write(false, slot, Pair { low: value, high: value }, step.blend, false)?;
            }
            Ok(())
        }
    }
}

/// Emits stores of elements of the active lanes, among eight, from the registers of `slots`.
pub(super) fn store(e: &mut Cache<'_>, access: LaneAccess<'_>, slots: &[Slot]) -> Emit {
    let LaneAccess { elements, place, .. } = access;
    let (mut each, mut lane, mut done) = (e.asm.create_label(), e.asm.create_label(), e.asm.create_label());
    let wide = elements.bytes == 8;
    let mut values = Vec::with_capacity(slots.len());
    for &slot in slots {
        values.push(e.read(SlotKind::Vector { wide }, slot, false)?);
    }
    let spare = [e.temporary()?, e.temporary()?];
    let (mut bytes, mut count) = (elements.bytes, elements.count);
    if (bytes, count) == (2, 2)
        && let &[low, high] = &values[..]
    {
        // Two elements of 16 bits are combined to a word.
        let d = e.result(false)?;
        e.asm.vpslld(d.low, high.low, 16)?;
        e.asm.vpblendw(d.low, d.low, low.low, 0b0101_0101)?;
        (bytes, count, values) = (4, 1, vec![d]);
    }
    let Some(&first) = values.first() else { return Ok(()) };
    pointer(e, access)?;
    e.asm.mov(ecx, esi)?;
    e.asm.shr(ecx, 2)?;
    e.asm.mov(edx, dword_ptr(r12 + Context::MASK))?;
    e.asm.shrx(edx, edx, ecx)?;
    e.asm.and(edx, 0xff)?;
    e.asm.je(done)?;
    if (bytes, count) == (4, 1) {
        e.asm.cmp(edx, 0xff)?;
        e.asm.jne(each)?;
        compare_neighbours(e, spare, place)?;
        e.asm.jne(each)?;
        e.asm.vmovdqu(ymmword_ptr(rax + r11 + access.by), first.low)?;
        e.asm.jmp(done)?;
    }
    e.asm.set_label(&mut each)?;
    if wide {
        e.asm.vmovdqu(ymmword_ptr(r12 + Context::ELEMENTS), first.low)?;
        e.asm.vmovdqu(ymmword_ptr(r12 + (Context::ELEMENTS + 32)), first.high)?;
    } else {
        for (element, value) in values.iter().enumerate() {
            e.asm.vmovdqu(ymmword_ptr(r12 + line(Context::ELEMENTS, element)), value.low)?;
        }
    }
    e.asm.set_label(&mut lane)?;
    e.asm.tzcnt(ecx, edx)?;
    e.asm.lea(r11, qword_ptr(rsi + rcx * 4))?;
    e.asm.mov(r11d, dword_ptr(r12 + r11 + offsets(place)))?;
    e.asm.add(r11, rax)?;
    for number in 0..count {
        let from = r12 + rcx * if bytes == 8 { 8 } else { 4 } + line(Context::ELEMENTS, number);
        let to = r11 + (access.by + 4 * number as i32);
        element::store(e.asm, bytes, from, to)?;
    }
    e.asm.blsr(edx, edx)?;
    e.asm.jne(lane)?;
    e.asm.set_label(&mut done)?;
    e.asm.zero_bytes()
}

/// Emits the check of an access with one address for the warp.
pub(super) fn check_scalar(asm: &mut CodeAssembler, access: LaneAccess<'_>, miss: CodeLabel) -> Emit {
    let LaneAccess { step, elements, write, .. } = access;
    let at = step.a.offset() as i32;
    match elements.memory {
        MemSpace::Global => {
            bounds(asm, step, write, elements.reach(write), miss)?;
            asm.mov(rdx, step.imm)?;
            asm.add(rdx, qword_ptr(rbx + at))?;
            asm.mov(r11, rdx)?;
            asm.sub(rdx, rax)?;
            asm.cmp(rdx, rcx)?;
            asm.ja(miss)?;
        }
        MemSpace::Shared | MemSpace::Local { .. } => {
            asm.mov(ecx, dword_ptr(r12 + Context::SHARED_BYTES))?;
            asm.sub(ecx, elements.reach(write))?;
            asm.jb(miss)?;
            asm.mov(r11d, dword_ptr(rbx + at))?;
            asm.add(r11d, (step.imm as u32).cast_signed())?;
            asm.cmp(r11d, ecx)?;
            asm.ja(miss)?;
        }
    }
    if elements.align > 1 {
        asm.test(r11d, elements.align.cast_signed() - 1)?;
        asm.jne(miss)?;
    }
    Ok(())
}

/// Loads scalars from one address for the warp.
pub(super) fn load_scalar(e: &mut Cache<'_>, access: LaneAccess<'_>, slots: &[Slot]) -> Emit {
    let LaneAccess { step, elements, .. } = access;
    let at = step.a.offset() as i32;
    match elements.memory {
        MemSpace::Global => {
            e.asm.mov(rdx, step.imm)?;
            e.asm.add(rdx, qword_ptr(rbx + at))?;
            e.asm.add(rdx, r13)?;
        }
        MemSpace::Shared | MemSpace::Local { .. } => {
            e.asm.mov(edx, dword_ptr(rbx + at))?;
            e.asm.add(edx, (step.imm as u32).cast_signed())?;
            e.asm.add(rdx, r15)?;
        }
    }
    // The address is computed first, because a loaded element may replace its register.
    for (number, &slot) in slots.iter().enumerate() {
        let from = rdx + number as i32 * elements.bytes.cast_signed();
        let to = rbx + slot.offset() as i32;
        element::load(e.asm, elements.bytes, from, to)?;
        e.forget(slot);
    }
    Ok(())
}
