//! Executes `wmma.mma` of halves. Element `e` of a matrix, counted along the rows, is element `e / 32` of
//! lane `e % 32`.

use crate::machine::{Env, Frame, Inst, Isa, LANES, LEAVE, Operation, Slot, Warp, WmmaOperands};
use crate::ops::float::canonical;
use crate::ops::half::to_half;
use crate::ops::warps::missing;

/// Number of elements along `k`. The next constant is the number of elements of C and D.
const DEPTH: usize = 16;
const ELEMENTS: usize = 256;
/// Maximum number of elements of A or B.
const MOST: usize = 512;

/// Reads elements in order, until `to` is full.
#[inline(always)]
fn read<I: Isa>(frame: &Frame, slots: &[Slot], halves: bool, to: &mut [f32]) {
    let mut lanes = to.as_chunks_mut::<LANES>().0.iter_mut();
    for &slot in slots {
        if !halves {
            let Some(to) = lanes.next() else { return };
            to.copy_from_slice(frame.vector::<f32>(slot));
            continue;
        }
        let words = frame.vector::<u32>(slot);
        let (Some(low), Some(high)) = (lanes.next(), lanes.next()) else { return };
        *low = I::from_halves::<false>(words);
        *high = I::from_halves::<true>(words);
    }
}

/// Executes `wmma.mma`. `x` is the index of the [`WmmaOperands`].
pub(crate) struct MultiplyWmma;

impl Operation for MultiplyWmma {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let tables = env.tables;
        let whole = &tables.wholes[inst.x as usize];
        if missing(warp, env, whole.members, pc) {
            return LEAVE;
        }
        let columns = whole.columns;
        let (mut a, mut b, mut c) = ([0.0; MOST], [0.0; MOST], [0.0; ELEMENTS]);
        read::<I>(&warp.frame, &whole.a, true, &mut a[..ELEMENTS / columns * DEPTH]);
        read::<I>(&warp.frame, &whole.b, true, &mut b[..DEPTH * columns]);
        read::<I>(&warp.frame, &whole.c, whole.c_halves, &mut c);
        for (a, c) in a.as_chunks::<DEPTH>().0.iter().zip(c.chunks_mut(columns)) {
            let mut sums = [0.0; 32];
            for (&a, b) in a.iter().zip(b.chunks(columns)) {
                for (sum, &b) in sums.iter_mut().zip(b) {
                    *sum += a * b;
                }
            }
            for (c, sum) in c.iter_mut().zip(sums) {
                *c = canonical(*c + sum);
            }
        }
        write(warp, whole, &c);
        pc + 1
    }
}

/// Writes the elements of D to the active lanes.
#[inline(always)]
fn write(warp: &mut Warp, whole: &WmmaOperands, d: &[f32; ELEMENTS]) {
    let mask = warp.mask;
    for (index, &slot) in whole.d.iter().enumerate() {
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
            warp.frame.vector_mut::<u32>(slot)[lane] = if whole.d_halves {
                let pair = [0, 1].map(|upper| to_half(d[LANES * (2 * index + upper) + lane]));
                pair[0] | pair[1] << 16
            } else {
                d[LANES * index + lane].to_bits()
            };
        }
    }
}
