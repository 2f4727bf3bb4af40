//! `cp.async` whose number of bytes the program computes.

use super::element::FromU8;
use super::global::Global;
use super::space::Space;
use crate::machine::{Env, Isa, Run, Step, Warp, Words};
use crate::ops::memory::Access;

/// Copies the first bytes of global memory, as many as `c` says, and zeros behind them, to shared memory: `x`
/// bytes in all. `a`: the addresses in global memory, with the offset `imm`; `b`: those in shared memory, with the
/// offset that the scalar `d` holds; `y`: index of the window.
pub(crate) struct CopyAsync;

impl Run for CopyAsync {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        match copy(warp, env, step) {
            Ok(()) => pc + 1,
            Err(failed) => failed,
        }
    }
}

fn copy(warp: &mut Warp, env: &mut Env<'_>, step: &Step) -> Result<(), u32> {
    let offset: u32 = warp.frame.get(step.d);
    let to = warp.frame.vector::<u32>(step.b).map(|base| base.wrapping_add(offset));
    let mask = warp.mask;
    Access { addresses: &to, size: step.x, line: step.line }.check_shared(warp, env, mask)?;
    for (lane, to) in to.into_iter().enumerate().filter(|(lane, _)| mask >> lane & 1 != 0) {
        let base = warp.frame.vector::<u64>(step.a)[lane];
        let size = warp.frame.vector::<u32>(step.c)[lane];
        for at in 0..step.x {
            let byte = if at < size {
                let [byte] =
                    Global::load_lane::<FromU8, 1>(warp, env, step, base.wrapping_add(at.into()), lane)?;
                byte as u8
            } else {
                0
            };
            env.shared.write(to + at, byte);
        }
    }
    Ok(())
}
