//! The instructions `malloc` and `free`, which process lanes in their order.

use crate::fault::Fault;
use crate::machine::{Env, Inst, Isa, LANES, LEAVE, Operation, Warp};

use super::control::spend_fuel;

/// Iterates over the indices of the lanes in a mask.
fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 != 0)
}

/// Allocates `a` bytes for each lane, and writes the generic addresses to `d`, or 0 where the heap has no
/// room. The search costs fuel, because a heap may be fragmented.
pub(crate) struct Malloc;

impl Operation for Malloc {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        if !spend_fuel(warp, env, inst, pc, i64::from(warp.mask.count_ones())) {
            return LEAVE;
        }
        let sizes = *warp.frame.vector::<u64>(inst.a);
        for lane in lanes(warp.mask) {
            let (address, looks) = env.heap.map_or((0, 0), |heap| heap.allocate(sizes[lane]));
            warp.frame.vector_mut::<u64>(inst.d)[lane] = address;
            warp.fuel -= looks.cast_signed();
        }
        pc + 1
    }
}

/// Frees the allocation of each lane at the address `a`. An address of 0 is ignored, and any other that
/// `malloc` did not return is a fault.
pub(crate) struct Free;

impl Operation for Free {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let addresses = *warp.frame.vector::<u64>(inst.a);
        for lane in lanes(warp.mask) {
            let address = addresses[lane];
            if address != 0 && !env.heap.is_some_and(|heap| heap.free(address)) {
                let site = env.site(warp, inst.line, 1 << lane);
                return env.fail(warp, Fault::BadFree { address, site });
            }
        }
        pc + 1
    }
}
