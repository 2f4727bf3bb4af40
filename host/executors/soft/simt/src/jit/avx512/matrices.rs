//! Translates `ldmatrix` and `movmatrix`, which move matrices of 8 by 8 elements of 16 bits from shared
//! memory or a register. The interpreter's definition describes the layout.

use iced_x86::code_asm::{
    AsmRegisterZmm, CodeAssembler, dword_ptr, ecx, k5, k6, r12, r15, rax, rcx, xmmword_ptr, zmmword_ptr,
};
use vgpu_ptx::ir::window;

use super::body::{Action, Templates};
use super::cache::Cache;
use super::lanes::all_active;
use super::registers::{Pair, xmm};
use crate::jit::value::Emit;
use crate::machine::{Context, Inst, Opcode, Slot};

/// Size of a row of a matrix in bytes.
const ROW: i32 = 16;
/// Comparison predicate "greater" of unsigned integers.
const GREATER: u32 = 6;

pub(super) fn register(table: &mut Templates) {
    table.add(Opcode::MovMatrix, Action::Transpose);
    for (opcode, generic, trans) in [
        (Opcode::LdMatrix, false, false),
        (Opcode::LdMatrixTrans, false, true),
        (Opcode::LdMatrixGeneric, true, false),
        (Opcode::LdMatrixGenericTrans, true, true),
    ] {
        table.add(opcode, Action::Matrices { generic, trans, count: 0 });
    }
}

/// Transposes the matrix that a register holds.
pub(super) fn transpose(e: &mut Cache<'_>, step: &Inst) -> Emit {
    let rows = e.read_both(step.a, false)?;
    all_active(e)?;
    for (half, to) in transposed(e, rows)?.into_iter().enumerate() {
        e.half = half;
        e.write(false, step.d, Pair::narrow(to), false, false)?;
    }
    Ok(())
}

/// Loads matrices into the registers of `slots`.
pub(super) fn load(e: &mut Cache<'_>, step: &Inst, (generic, trans): (bool, bool), slots: &[Slot]) -> Emit {
    check(e, step, generic, slots.len())?;
    e.unpin();
    for (matrix, &slot) in slots.iter().enumerate() {
        let halves: [AsmRegisterZmm; 2] = e.temporaries()?;
        for (half, to) in halves.into_iter().enumerate() {
            for row in 0..4 {
                let at = Context::ELEMENTS + 4 * (8 * matrix + 4 * half + row) as i32;
                e.asm.mov(ecx, dword_ptr(r12 + at))?;
                if row == 0 {
                    e.asm.vmovdqu32(xmm(to), xmmword_ptr(r15 + rcx))?;
                } else {
                    e.asm.vinserti32x4(to, to, xmmword_ptr(r15 + rcx), row as u32)?;
                }
            }
        }
        let results = if trans { transposed(e, halves)? } else { halves };
        for (half, to) in results.into_iter().enumerate() {
            e.half = half;
            e.write(false, slot, Pair::narrow(to), false, false)?;
        }
        e.unpin();
    }
    Ok(())
}

/// Emits the transposition of a matrix and returns the registers with the result.
fn transposed(e: &mut Cache<'_>, rows: [AsmRegisterZmm; 2]) -> Emit<[AsmRegisterZmm; 2]> {
    let columns: [AsmRegisterZmm; 2] = e.temporaries()?;
    for (half, to) in columns.into_iter().enumerate() {
        let order = e.pattern(|lane| {
            let (row, pair) = (4 * half as u32 + lane / 4, lane % 4);
            let element = |upper| 8 * (2 * pair + upper) + row;
            element(0) | element(1) << 16
        });
        e.asm.vmovdqu64(to, order)?;
        e.asm.vpermi2w(to, rows[0], rows[1])?;
    }
    Ok(columns)
}

/// Emits checks of the rows' addresses and stores their offsets to the context.
fn check(e: &mut Cache<'_>, step: &Inst, generic: bool, count: usize) -> Emit {
    all_active(e)?;
    let [low, high, t, u] = e.temporaries()?;
    let named = if count < 4 { low } else { high };
    let misaligned = ROW as u32 - 1;
    if generic {
        let distance = step.imm.wrapping_sub(window::SHARED);
        let mut quarters = Vec::new();
        for quarter in 0..if count == 4 { 4 } else { count } {
            quarters.push(e.read_quarter(step.a, quarter)?);
        }
        let even = e.order(0)?;
        e.asm.mov(rax, distance)?;
        e.asm.vpbroadcastq(u, rax)?;
        let all = [low, t, high, e.temporary()?];
        for (to, &from) in all.into_iter().zip(&quarters) {
            e.asm.vpaddq(to, from, u)?;
        }
        let used = &all[..quarters.len()];
        e.asm.vmovdqa64(u, used[0])?;
        for other in &used[1..] {
            e.asm.vporq(u, u, *other)?;
        }
        // Bits that must be clear in every address: the upper half, and those below the alignment.
        let wrong = e.wide_constant(u64::from(u32::MAX) << 32 | u64::from(misaligned));
        e.asm.vptestmq(k5, u, wrong)?;
        match *used {
            [a] => e.asm.vpermd(a, even, a)?,
            [a, b] => e.asm.vpermt2d(a, even, b)?,
            [a, b, c, d] => {
                e.asm.vpermt2d(a, even, b)?;
                e.asm.vpermt2d(c, even, d)?;
            }
            _ => {}
        }
    } else {
        let addresses = e.read_both(step.a, false)?;
        let by = e.constant(step.imm as u32);
        e.asm.vpaddd(low, addresses[0], by)?;
        if count == 4 {
            e.asm.vpaddd(high, addresses[1], by)?;
            e.asm.vpord(u, low, high)?;
        } else {
            e.asm.vmovdqa64(u, low)?;
        }
        let wrong = e.constant(misaligned);
        e.asm.vptestmd(k5, u, wrong)?;
        if count == 1 {
            // Only the lanes of the first quarter name rows.
            e.asm.kmovb(k5, k5)?;
        }
    }
    let miss = e.side_exit_here();
    e.asm.mov(ecx, dword_ptr(r12 + Context::SHARED_BYTES))?;
    e.asm.sub(ecx, ROW)?;
    e.exit_if(miss, CodeAssembler::jb)?;
    e.asm.vpbroadcastd(t, ecx)?;
    e.asm.vpmaxud(u, low, named)?;
    e.asm.vpcmpud(k6, u, t, GREATER)?;
    if count == 1 {
        e.asm.kmovb(k6, k6)?;
    }
    e.asm.kortestw(k5, k6)?;
    e.exit_if(miss, CodeAssembler::jne)?;
    e.asm.vmovdqu64(zmmword_ptr(r12 + Context::ELEMENTS), low)?;
    if count == 4 {
        e.asm.vmovdqu64(zmmword_ptr(r12 + (Context::ELEMENTS + 64)), high)?;
    }
    Ok(())
}
