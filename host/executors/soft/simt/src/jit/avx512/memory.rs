//! Checks of addresses before an access, and loads of scalars.
//!
//! The offsets of an address vector are stored for its accesses. They are below 2^31, and an inactive lane
//! gets the offset of an active one, so that its access stays within the checked range.

use iced_x86::code_asm::{
    AsmRegisterZmm, CodeAssembler, CodeLabel, byte_ptr, dword_ptr, eax, ecx, edx, k2, k4, k5, k6, ptr,
    qword_ptr, r11, r11d, r12, r13, r14, r15, rax, rbp, rbx, rcx, rdx,
};
use vgpu_arena::Window;

use super::cache::Cache;
use super::exit_site::Miss;
use super::registers::{xmm, ymm};
use super::superblock::{AccessPattern, CoalescedCheck, CombinedLoad, RootVector, Sum};
use super::value::offsets;
use crate::jit::element;
use crate::jit::template::{Elements, MemSpace};
use crate::jit::value::Emit;
use crate::machine::{Context, Inst, RANGE_WORDS, RangeCache, Slot};

/// Limit below which all offsets are, in bytes.
const END: u32 = 1 << 31;
/// Offset of the reference lane of an address vector in device memory, in bytes.
pub(super) const MIDDLE: u32 = 1 << 30;
/// Mask with a bit for each [`AccessPattern`].
const ALL_PATTERNS: u8 = 0b111;
/// Comparison predicate "not equal" of integers.
const UNEQUAL: u32 = 4;

/// A memory access with an address for each lane, or with one address for the warp.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneAccess<'a> {
    pub(super) step: &'a Inst,
    pub(super) elements: Elements,
    /// Index of the address vector in the address-range cache.
    pub(super) root: usize,
    pub(super) pointer: usize,
    /// Distance of the elements from the stored offsets, in bytes.
    pub(super) by: i32,
    /// Whether this is the first access of its coalesced check.
    pub(super) first: bool,
    /// Words that the access also loads for later instructions, if any.
    pub(super) combined: Option<&'a CombinedLoad>,
}

/// Offset in bytes of the first field of an entry in the address-range cache; the next constants are those of
/// other fields.
const REFERENCE: i32 = 0;
const SPAN: i32 = 8;
const PATTERNS: i32 = 16;
const DEPTH: i32 = 24;
const KNOWN: i32 = 32;

/// Returns the offset of a field in the cache entry of an address vector.
fn root_field(root: usize, field: i32) -> i32 {
    RangeCache::RANGES + 8 * (RANGE_WORDS * root) as i32 + field
}

/// Returns the offset in the context at which a sum of scalars is stored.
fn sum_at(sum: usize) -> i32 {
    Context::SUMS + 8 * sum as i32
}

fn field(step: &Inst, field: usize) -> i32 {
    (step.y as usize * size_of::<Window>() + field) as i32
}

/// Emits the addition of scalars that an address contains.
pub(super) fn add_up(e: &mut Cache<'_>, sum: Sum) -> Emit {
    e.asm.mov(rax, qword_ptr(rbx + sum.scalar.offset() as i32))?;
    if let Some(other) = sum.other {
        e.asm.add(rax, qword_ptr(r12 + sum_at(other)))?;
    }
    e.asm.mov(qword_ptr(r12 + sum_at(sum.place)), rax)
}

/// Emits loads of a window's first address to `rax`, and of the last offset at which `need` bytes fit to
/// `rcx`.
fn bounds(e: &mut Cache<'_>, step: &Inst, write: bool, need: i32, miss: Miss) -> Emit {
    let room = if write { Window::WRITABLE } else { Window::BYTES };
    e.asm.mov(rax, qword_ptr(r14 + field(step, Window::START)))?;
    e.asm.mov(rcx, qword_ptr(r14 + field(step, room)))?;
    e.asm.sub(rcx, need)?;
    e.exit_if(miss, CodeAssembler::jb)
}

/// Emits the check of a group of accesses to device memory by the cached span of its address vector, and
/// stores the pointer to which offsets and distances are added.
pub(super) fn check_group(
    e: &mut Cache<'_>,
    step: &Inst,
    (number, group): (usize, &CoalescedCheck),
    root: usize,
) -> Emit {
    let miss = e.side_exit_here();
    let room = if group.write { Window::WRITABLE } else { Window::BYTES };
    e.asm.mov(rcx, qword_ptr(r14 + field(step, room)))?;
    e.asm.sub(rcx, qword_ptr(rbp + root_field(root, SPAN)))?;
    e.exit_if(miss, CodeAssembler::jb)?;
    e.asm.sub(rcx, (group.to - group.from) as i32)?;
    e.exit_if(miss, CodeAssembler::jb)?;
    e.asm.mov(rax, qword_ptr(rbp + root_field(root, REFERENCE)))?;
    if let Some(sum) = group.sum {
        e.asm.add(rax, qword_ptr(r12 + sum_at(sum)))?;
    }
    // `rdx` becomes the lowest address.
    e.asm.mov(edx, dword_ptr(rbp + root_field(root, DEPTH)))?;
    e.asm.lea(rdx, ptr(rax + rdx + group.from as i32))?;
    if group.align > 1 {
        e.asm.test(edx, group.align.cast_signed() - 1)?;
        e.exit_if(miss, CodeAssembler::jne)?;
    }
    e.asm.sub(rdx, qword_ptr(r14 + field(step, Window::START)))?;
    e.asm.cmp(rdx, rcx)?;
    e.exit_if(miss, CodeAssembler::ja)?;
    e.asm.add(rax, r13)?;
    e.asm.mov(qword_ptr(r12 + (Context::POINTERS + 8 * number as i32)), rax)
}

/// Emits the computation of the span and the access patterns of an address vector in device memory, and
/// stores its offsets. They are mostly the same as before, in a loop or in another warp; then the cached
/// results are used.
pub(super) fn summarize(e: &mut Cache<'_>, root: &RootVector) -> Emit {
    let number = root.place;
    let mut vector = [None; 4];
    for (quarter, part) in vector.iter_mut().enumerate().take(2 * e.halves) {
        *part = Some(e.read_quarter(root.slot, quarter)?);
    }
    let [Some(v0), Some(v1), v2, v3] = vector else { return Ok(()) };
    let [x0, x1, x2, x3, base, t] = e.temporaries()?;
    let even = e.order(0)?;
    let miss = e.side_exit_here();
    // The reference is the address of the first active lane.
    let (mut first, mut go) = (e.asm.create_label(), e.asm.create_label());
    e.asm.test(byte_ptr(r12 + Context::MASK), 1)?;
    e.asm.jne(first)?;
    for (quarter, part) in vector.into_iter().flatten().enumerate() {
        let to = iced_x86::code_asm::zmmword_ptr(r12 + (Context::ELEMENTS + 64 * quarter as i32));
        e.asm.vmovdqu64(to, part)?;
    }
    e.asm.tzcnt(ecx, dword_ptr(r12 + Context::MASK))?;
    e.asm.mov(rax, qword_ptr(r12 + rcx * 8 + Context::ELEMENTS))?;
    e.asm.jmp(go)?;
    e.asm.set_label(&mut first)?;
    e.asm.vmovq(rax, xmm(v0))?;
    e.asm.set_label(&mut go)?;
    e.asm.mov(edx, MIDDLE)?;
    e.asm.sub(rax, rdx)?;
    e.asm.mov(qword_ptr(rbp + root_field(number, REFERENCE)), rax)?;
    e.asm.vpbroadcastq(base, rax)?;
    e.asm.vpbroadcastq(x0, rdx)?;
    e.asm.vmovdqa64(x1, x0)?;
    e.asm.vpsubq(x0.k1(), v0, base)?;
    e.asm.vpsubq(x1.k3(), v1, base)?;
    if let (Some(v2), Some(v3)) = (v2, v3) {
        for (x, active, v) in [(x2, k2, v2), (x3, k4, v3)] {
            e.asm.vpbroadcastq(x, rdx)?;
            let x = if active == k2 { x.k2() } else { x.k4() };
            e.asm.vpsubq(x, v, base)?;
        }
    } else {
        // All lanes of the upper half are inactive.
        e.asm.vpbroadcastd(x2, edx)?;
    }
    // Bits that must be clear in every offset: the upper ones, and those below the alignment.
    let wrong = e.wide_constant(!u64::from(END - 1) | u64::from(root.align - 1));
    e.asm.vporq(t, x0, x1)?;
    if e.halves == 2 {
        e.asm.vpternlogq(t, x2, x3, 0xfe)?;
    }
    e.asm.vptestmq(k5, t, wrong)?;
    e.asm.kortestw(k5, k5)?;
    e.exit_if(miss, CodeAssembler::jne)?;
    e.asm.vpermt2d(x0, even, x1)?;
    if e.halves == 2 {
        e.asm.vpermt2d(x2, even, x3)?;
    }
    let [mut fresh, mut known] = std::array::from_fn(|_| e.asm.create_label());
    e.asm.mov(eax, dword_ptr(r12 + Context::MASK))?;
    e.asm.cmp(eax, dword_ptr(rbp + root_field(number, KNOWN)))?;
    e.asm.jne(fresh)?;
    e.asm.vpcmpd(k5, x0, offsets(number, 0), UNEQUAL)?;
    e.asm.vpcmpd(k6, x2, offsets(number, 1), UNEQUAL)?;
    e.asm.kortestw(k5, k6)?;
    e.asm.je(known)?;
    e.asm.set_label(&mut fresh)?;
    e.asm.mov(dword_ptr(rbp + root_field(number, KNOWN)), eax)?;
    extent(e, number, [x0, x2], [x1, x3, t])?;
    find_patterns(e, ALL_PATTERNS, number, [x0, x2], [x1, x3, t])?;
    e.store_offsets(number, [x0, x2])?;
    e.asm.set_label(&mut known)?;
    e.asm.zero_bytes()?;
    e.cache_offsets(number, [x0, x2]);
    Ok(())
}

/// Emits stores of the lowest offset, and of the highest one's distance from it.
fn extent(
    e: &mut Cache<'_>,
    number: usize,
    [low, high]: [AsmRegisterZmm; 2],
    [least, most, t]: [AsmRegisterZmm; 3],
) -> Emit {
    e.asm.vpminud(least, low, high)?;
    e.asm.vpmaxud(most, low, high)?;
    for (x, is_least) in [(least, true), (most, false)] {
        e.asm.vextracti64x4(ymm(t), x, 1)?;
        if is_least {
            e.asm.vpminud(ymm(x), ymm(x), ymm(t))?;
        } else {
            e.asm.vpmaxud(ymm(x), ymm(x), ymm(t))?;
        }
        e.asm.vextracti32x4(xmm(t), ymm(x), 1)?;
        for shuffle in [None, Some(0b01_00_11_10), Some(0b10_11_00_01)] {
            if let Some(order) = shuffle {
                e.asm.vpshufd(xmm(t), xmm(x), order)?;
            }
            if is_least {
                e.asm.vpminud(xmm(x), xmm(x), xmm(t))?;
            } else {
                e.asm.vpmaxud(xmm(x), xmm(x), xmm(t))?;
            }
        }
    }
    e.asm.vmovd(eax, xmm(least))?;
    e.asm.vmovd(ecx, xmm(most))?;
    e.asm.sub(ecx, eax)?;
    e.asm.mov(qword_ptr(rbp + root_field(number, DEPTH)), rax)?;
    e.asm.mov(qword_ptr(rbp + root_field(number, SPAN)), rcx)
}

/// Emits the determination of the offsets' access patterns. If they have unit stride, the others are not
/// tested.
fn find_patterns(
    e: &mut Cache<'_>,
    wanted: u8,
    number: usize,
    both: [AsmRegisterZmm; 2],
    [t, first, second]: [AsmRegisterZmm; 3],
) -> Emit {
    let wants = |pattern: AccessPattern| wanted >> pattern as u8 & 1 != 0;
    let note = |e: &mut Cache<'_>, pattern: AccessPattern, [low, high]: [AsmRegisterZmm; 2]| {
        let apart = move |lane: u32| match pattern {
            AccessPattern::UnitStride => 4 * lane,
            AccessPattern::UniformPairs => 0,
            AccessPattern::StridedPairs => 8 * (lane % 2),
        };
        let rest = if pattern == AccessPattern::UnitStride { 64 } else { 0 };
        let (near, far) = (e.pattern(apart), e.pattern(|lane| apart(lane) + rest));
        e.asm.vpaddd(t, low, near)?;
        e.asm.vpcmpd(k5.k1(), both[0], t, UNEQUAL)?;
        e.asm.vpaddd(t, high, far)?;
        e.asm.vpcmpd(k6.k2(), both[1], t, UNEQUAL)?;
        e.asm.kortestw(k5, k6)?;
        e.asm.sete(byte_ptr(rbp + (root_field(number, PATTERNS) + pattern as i32)))
    };
    let mut done = e.asm.create_label();
    e.asm.mov(dword_ptr(rbp + root_field(number, PATTERNS)), 0)?;
    if wants(AccessPattern::UnitStride) {
        e.asm.vpbroadcastd(first, xmm(both[0]))?;
        note(e, AccessPattern::UnitStride, [first, first])?;
        e.asm.je(done)?;
    }
    if wants(AccessPattern::UniformPairs) || wants(AccessPattern::StridedPairs) {
        e.asm.vpshufd(first, both[0], 0b10_10_00_00)?;
        e.asm.vpshufd(second, both[1], 0b10_10_00_00)?;
        for pattern in [AccessPattern::UniformPairs, AccessPattern::StridedPairs] {
            if wants(pattern) {
                note(e, pattern, [first, second])?;
            }
        }
    }
    e.asm.set_label(&mut done)?;
    e.asm.zero_bytes()
}

/// Emits a jump to `other` unless the offsets of an access have this pattern.
pub(super) fn unless_pattern(
    e: &mut Cache<'_>,
    access: LaneAccess<'_>,
    pattern: AccessPattern,
    other: CodeLabel,
) -> Emit {
    e.asm.cmp(byte_ptr(rbp + (root_field(access.root, PATTERNS) + pattern as i32)), 0)?;
    e.asm.je(other)
}

/// Emits the check of a group of accesses to shared or local memory, and stores the offsets.
pub(super) fn check_inner(e: &mut Cache<'_>, step: &Inst, root: &RootVector, group: &CoalescedCheck) -> Emit {
    let both = check_narrow(e, step, group)?;
    if let MemSpace::Local { .. } = group.memory {
        // Each word of local memory has a row of 128 bytes, one word per lane.
        for (register, first) in both.into_iter().zip([0, 16]) {
            let columns = e.pattern(|lane| 4 * (first + lane));
            e.asm.vpslld(register, register, 5)?;
            e.asm.vpaddd(register, register, columns)?;
        }
    }
    let spare = e.temporaries()?;
    find_patterns(e, root.patterns, root.place, both, spare)?;
    e.asm.mov(dword_ptr(rbp + root_field(root.place, KNOWN)), 0)?;
    e.store_offsets(root.place, both)?;
    e.cache_offsets(root.place, both);
    Ok(())
}

/// Emits a side exit that is taken if an offset exceeds the one in `ecx`, or if `k5` has any bit set.
fn compare(e: &mut Cache<'_>, [low, high, t, last]: [AsmRegisterZmm; 4], miss: Miss) -> Emit {
    e.asm.vpbroadcastd(last, ecx)?;
    e.asm.vpmaxud(t, low, high)?;
    e.asm.vpcmpud(k6, t, last, 6)?;
    e.asm.kortestw(k5, k6)?;
    e.exit_if(miss, CodeAssembler::jne)
}

/// Emits the check of 32-bit addresses and returns registers with the offsets.
fn check_narrow(e: &mut Cache<'_>, step: &Inst, group: &CoalescedCheck) -> Emit<[AsmRegisterZmm; 2]> {
    let addresses = e.read_both(step.a, false)?;
    let [low, high, t, last] = e.temporaries()?;
    let miss = e.side_exit_here();
    let bytes = if group.memory == MemSpace::Shared { Context::SHARED_BYTES } else { Context::LOCAL_BYTES };
    e.asm.mov(ecx, dword_ptr(r12 + bytes))?;
    e.asm.sub(ecx, (group.to - group.from) as i32)?;
    e.exit_if(miss, CodeAssembler::jb)?;
    let from = e.constant(group.from as u32);
    e.asm.vpaddd(low.k1().z(), addresses[0], from)?;
    e.asm.vpaddd(high.k2().z(), addresses[1], from)?;
    if group.align > 1 {
        let wrong = e.constant(group.align - 1);
        e.asm.vpord(t, low, high)?;
        e.asm.vptestmd(k5, t, wrong)?;
    } else {
        e.asm.kxorw(k5, k5, k5)?;
    }
    compare(e, [low, high, t, last], miss)?;
    e.release(t);
    e.release(last);
    Ok([low, high])
}

/// Emits the check of the address of scalars, and their loads.
pub(super) fn load_scalar(e: &mut Cache<'_>, access: LaneAccess<'_>, slots: &[Slot]) -> Emit {
    let LaneAccess { step, elements, .. } = access;
    let at = step.a.offset() as i32;
    let miss = e.side_exit_here();
    let reach = elements.reach(false);
    match elements.memory {
        MemSpace::Global => {
            bounds(e, step, false, reach, miss)?;
            e.asm.mov(rdx, step.imm)?;
            e.asm.add(rdx, qword_ptr(rbx + at))?;
            e.asm.mov(r11, rdx)?;
            e.asm.sub(rdx, rax)?;
            e.asm.cmp(rdx, rcx)?;
            e.exit_if(miss, CodeAssembler::ja)?;
        }
        MemSpace::Shared | MemSpace::Local { .. } => {
            e.asm.mov(ecx, dword_ptr(r12 + Context::SHARED_BYTES))?;
            e.asm.sub(ecx, reach)?;
            e.exit_if(miss, CodeAssembler::jb)?;
            e.asm.mov(r11d, dword_ptr(rbx + at))?;
            e.asm.add(r11d, (step.imm as u32).cast_signed())?;
            e.asm.cmp(r11d, ecx)?;
            e.exit_if(miss, CodeAssembler::ja)?;
        }
    }
    if elements.align > 1 {
        e.asm.test(r11d, elements.align.cast_signed() - 1)?;
        e.exit_if(miss, CodeAssembler::jne)?;
    }
    e.asm.add(r11, if elements.memory == MemSpace::Global { r13 } else { r15 })?;
    for (number, &slot) in slots.iter().enumerate() {
        let from = r11 + number as i32 * elements.bytes.cast_signed();
        let to = rbx + slot.offset() as i32;
        element::load(e.asm, elements.bytes, from, to)?;
        e.forget(slot);
    }
    Ok(())
}
