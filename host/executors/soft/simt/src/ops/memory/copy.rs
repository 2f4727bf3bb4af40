//! Instruction `cp.async` with a number of bytes that the program computes.

use super::address::{Access, Failed, Near, NearAccess, next};
use super::element::FromU8;
use super::global::Global;
use super::space::Space;
use crate::machine::{Env, Inst, Isa, Operation, Warp, Words};

/// Copies `c` bytes of global memory to shared memory, and fills the rest of `x` bytes with zeros. `a` holds
/// the addresses in global memory, with the offset `imm`, and `b` those in shared memory, with the offset in
/// the scalar `d`. `y` is the index of the window.
pub(crate) struct CopyAsync;

impl Operation for CopyAsync {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        next(copy(warp, env, inst), pc)
    }
}

fn copy(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst) -> Result<(), Failed> {
    let offset: u32 = warp.frame.get(inst.d);
    let to = warp.frame.vector::<u32>(inst.b).map(|base| base.wrapping_add(offset));
    let mask = warp.mask;
    NearAccess { addresses: &to, size: inst.x, line: inst.line }.check(Near::Shared, warp, env, mask)?;
    for (lane, to) in to.into_iter().enumerate().filter(|(lane, _)| mask >> lane & 1 != 0) {
        let base = warp.frame.vector::<u64>(inst.a)[lane];
        let size = warp.frame.vector::<u32>(inst.c)[lane];
        for at in 0..inst.x {
            let byte = if at < size {
                let access = &mut Access { warp, env, inst };
                let [byte] = Global::load_lane::<FromU8, 1>(access, base.wrapping_add(at.into()), lane)?;
                byte as u8
            } else {
                0
            };
            env.shared.write(to + at, byte);
        }
    }
    Ok(())
}
