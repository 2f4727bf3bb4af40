//! `mma.sync.m8n8k4` of halves: four products of 8x4 by 4x8 matrices, each by the eight lanes of two quads.
//!
//! Products of halves are exact. They are added to the accumulator one after another in 32 bits, and rounded
//! to halves at the end if the result has halves. The ISA leaves the order and the roundings open.

use crate::machine::{Env, Inst, Isa, LANES, LEAVE, Operation, QuadsOperands, Slot, Warp, from_half};

use crate::ops::half::to_half;
use crate::ops::warps::missing;

/// Returns the quad pair of a lane, and the lane's index in it: 0 to 3 in the lower quad, 4 to 7 in the upper
/// one.
pub(crate) const fn place(lane: usize) -> (usize, usize) {
    (lane % 16 / 4, lane % 4 + lane / 16 * 4)
}

/// Returns row and column of element `index` in a lane's fragment of A.
pub(crate) const fn a_element(place: usize, index: usize, by_columns: bool) -> (usize, usize) {
    if by_columns { (index + place / 4 * 4, place % 4) } else { (place, index) }
}

/// Returns row and column of element `index` in a lane's fragment of B.
pub(crate) const fn b_element(place: usize, index: usize, by_columns: bool) -> (usize, usize) {
    if by_columns { (index, place) } else { (place % 4, index + place / 4 * 4) }
}

/// Returns row and column of element `index` in a lane's fragment of C or D.
pub(crate) const fn c_element(place: usize, index: usize, halves: bool) -> (usize, usize) {
    if halves {
        return (place, index);
    }
    let lane = place % 4;
    ((lane & 1) + (index & 2) + place / 4 * 4, (index & 4) + (lane & 2) + (index & 1))
}

/// Returns the value of element `index` of a fragment.
fn element(warp: &Warp, slots: &[Slot], halves: bool, lane: usize, index: usize) -> f32 {
    if halves {
        from_half(warp.frame.vector::<u32>(slots[index / 2])[lane] >> (16 * (index % 2)))
    } else {
        warp.frame.vector::<f32>(slots[index])[lane]
    }
}

/// Executes `mma.sync.m8n8k4` of halves. `x` is the index of the [`QuadsOperands`].
pub(crate) struct MultiplyQuads;

impl Operation for MultiplyQuads {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let tables = env.tables;
        let matrix = &tables.quads[inst.x as usize];
        if missing(warp, matrix.members, pc) {
            return LEAVE;
        }
        multiply(warp, matrix);
        pc + 1
    }
}

#[inline(always)]
fn multiply(warp: &mut Warp, inst: &QuadsOperands) {
    let mut a = [[[0.0f32; 4]; 8]; 4];
    let mut b = [[[0.0f32; 8]; 4]; 4];
    let mut c = [[[0.0f32; 8]; 8]; 4];
    for lane in 0..LANES {
        let (pair, place) = place(lane);
        for index in 0..4 {
            let (row, column) = a_element(place, index, inst.columns[0]);
            a[pair][row][column] = element(warp, &inst.a, true, lane, index);
            let (row, column) = b_element(place, index, inst.columns[1]);
            b[pair][row][column] = element(warp, &inst.b, true, lane, index);
        }
        for index in 0..8 {
            let (row, column) = c_element(place, index, inst.c_halves);
            c[pair][row][column] = element(warp, &inst.c, inst.c_halves, lane, index);
        }
    }
    for pair in 0..4 {
        for row in 0..8 {
            for k in 0..4 {
                for column in 0..8 {
                    c[pair][row][column] += a[pair][row][k] * b[pair][k][column];
                }
            }
        }
    }
    for lane in (0..LANES).filter(|lane| warp.mask >> lane & 1 != 0) {
        let (pair, place) = place(lane);
        let value = |index: usize| {
            let (row, column) = c_element(place, index, inst.d_halves);
            crate::ops::float::canonical(c[pair][row][column])
        };
        if inst.d_halves {
            for (index, &slot) in inst.d.iter().enumerate() {
                let bits = to_half(value(2 * index)) | to_half(value(2 * index + 1)) << 16;
                warp.frame.vector_mut::<u32>(slot)[lane] = bits;
            }
        } else {
            for (index, &slot) in inst.d.iter().enumerate() {
                warp.frame.vector_mut::<f32>(slot)[lane] = value(index);
            }
        }
    }
}
