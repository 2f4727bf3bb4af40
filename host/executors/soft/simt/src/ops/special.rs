//! Special registers whose value differs between reads, fences, and conversions of addresses.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use vgpu_ptx::ir::window;

use crate::machine::{Env, Inst, Isa, LEAVE, Operation, Warp};

use super::ops;

/// Returns the nanoseconds since the first call in this process, as the counter of `%clock`.
fn ticks() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Reads `%clock64`, whose lower half is `%clock`. The result is a scalar.
pub(crate) struct Clock;

impl Operation for Clock {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        warp.frame.set(inst.d, ticks());
        pc + 1
    }
}

/// Reads `%globaltimer`: nanoseconds of the system's clock since 1970. The result is a scalar.
pub(crate) struct GlobalTimer;

impl Operation for GlobalTimer {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        warp.frame.set(inst.d, now.as_nanos() as u64);
        pc + 1
    }
}

/// Fuel in instructions that a yield costs. A yield takes as long as a few hundred instructions.
const YIELD_COST: i64 = 256;

/// Executes `nanosleep`: ends the turn of the warp, whatever the time, so that other warps and other lanes of
/// this one run. The caller yields the processor to other threads once all have had their turn.
pub(crate) struct Yield;

impl Operation for Yield {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        warp.fuel -= YIELD_COST;
        env.slept = true;
        env.end_turn(warp, inst.line, pc + 1);
        LEAVE
    }
}

/// Executes `membar` and `fence`: orders the accesses of this thread to device memory, which are relaxed
/// atomics.
pub(crate) struct Fence;

impl Operation for Fence {
    #[inline(always)]
    fn execute<I: Isa>(_: &mut Warp, _: &mut Env<'_>, _: &Inst, pc: u32) -> u32 {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        pc + 1
    }
}

ops! {
    SharedToGeneric: u64 => u64 = |a| a.wrapping_add(window::SHARED);
    LocalToGeneric: u64 => u64 = |a| a.wrapping_add(window::LOCAL);
    ParamToGeneric: u64 => u64 = |a| a.wrapping_add(window::PARAM);
    GenericToShared: u64 => u64 = |a| a.wrapping_sub(window::SHARED);
    GenericToLocal: u64 => u64 = |a| a.wrapping_sub(window::LOCAL);
    GenericToParam: u64 => u64 = |a| a.wrapping_sub(window::PARAM);
}
