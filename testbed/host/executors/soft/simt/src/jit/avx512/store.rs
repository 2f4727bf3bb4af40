//! Stores of lanes.

use iced_x86::code_asm::{
    byte_ptr, di, dil, dword_ptr, ecx, edi, edx, qword_ptr, r11, r11d, r12, rax, rcx, rdi, word_ptr,
    zmmword_ptr,
};

use super::cache::Cache;
use super::load::{first_offset, pointer};
use super::memory::{Access, unless_in};
use super::run::Row;
use crate::jit::value::{Emit, Kind};
use crate::machine::{Context, Slot};

/// Stores the active lanes from the registers of `slots`.
pub(super) fn store(e: &mut Cache<'_>, access: Access<'_>, slots: &[Slot]) -> Emit {
    let Access { elements, root, by, .. } = access;
    let (mut each, mut lane, mut done) = (e.asm.create_label(), e.asm.create_label(), e.asm.create_label());
    let both = e.read_offsets(root)?;
    let wide = elements.bytes == 8;
    // Rows of the elements of sixteen lanes, by element or by half of a lane.
    let mut rows = Vec::new();
    for half in 0..2 {
        e.half = half;
        for (element, &slot) in slots.iter().enumerate() {
            let value = e.read(Kind::Vector { wide }, slot, false)?;
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
        // Two halves are a word.
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
        unless_in(e, access, Row::Whole, each)?;
        first_offset(e, access, both[0])?;
        e.asm.vmovdqu32(zmmword_ptr(rax + rcx + by).k1(), rows[0].1)?;
        e.asm.vmovdqu32(zmmword_ptr(rax + rcx + (by + 64)).k2(), rows[1].1)?;
        e.asm.jmp(done)?;
    }
    e.asm.set_label(&mut each)?;
    e.asm.zero_bytes()?;
    for &(row, value) in &rows {
        e.asm.vmovdqu64(zmmword_ptr(r12 + (Context::ELEMENTS as usize + 64 * row) as i32), value)?;
    }
    e.asm.mov(edx, dword_ptr(r12 + Context::MASK))?;
    e.asm.set_label(&mut lane)?;
    e.asm.tzcnt(ecx, edx)?;
    e.asm.mov(r11d, dword_ptr(r12 + rcx * 4 + (Context::OFFSETS as usize + 128 * root) as i32))?;
    e.asm.add(r11, rax)?;
    for element in 0..count {
        let from = Context::ELEMENTS + 128 * element as i32;
        let to = r11 + (by + (bytes as usize * element) as i32);
        match bytes {
            1 => {
                e.asm.mov(edi, dword_ptr(r12 + rcx * 4 + from))?;
                e.asm.mov(byte_ptr(to), dil)?;
            }
            2 => {
                e.asm.mov(edi, dword_ptr(r12 + rcx * 4 + from))?;
                e.asm.mov(word_ptr(to), di)?;
            }
            4 => {
                e.asm.mov(edi, dword_ptr(r12 + rcx * 4 + from))?;
                e.asm.mov(dword_ptr(to), edi)?;
            }
            _ => {
                e.asm.mov(rdi, qword_ptr(r12 + rcx * 8 + from))?;
                e.asm.mov(qword_ptr(to), rdi)?;
            }
        }
    }
    e.asm.blsr(edx, edx)?;
    e.asm.jne(lane)?;
    e.asm.set_label(&mut done)?;
    e.asm.zero_bytes()
}
