//! Special registers whose value differs each time, fences, and the addresses of state spaces.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use vgpu_ptx::ir::window;

use crate::machine::{Env, Inst, Isa, LEAVE, Operation, Warp};

use super::control::spend_fuel;
use super::ops;

/// Nanoseconds since the first use: a counter that grows, like `%clock`.
fn ticks() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// `%clock64`, whose lower half is `%clock`. The result is a scalar.
pub(crate) struct Clock;

impl Operation for Clock {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        warp.frame.set(inst.d, ticks());
        pc + 1
    }
}

/// `%globaltimer`: nanoseconds of the system's clock. The result is a scalar.
pub(crate) struct GlobalTimer;

impl Operation for GlobalTimer {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        warp.frame.set(inst.d, now.as_nanos() as u64);
        pc + 1
    }
}

/// Number of instructions that a yield counts for: it takes as long as some hundred of them.
const YIELD_COST: i64 = 256;

/// `nanosleep`: lets other threads of this machine run, and other warps when the control is polled.
pub(crate) struct Yield;

impl Operation for Yield {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        if !spend_fuel(warp, env, inst, pc, YIELD_COST) {
            return LEAVE;
        }
        std::thread::yield_now();
        pc + 1
    }
}

/// `membar`, `fence`: orders this thread's accesses to device memory, which are relaxed atomics.
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
