//! How blocks end, barriers, and the meeting of lanes.

use crate::env::Env;
use crate::fault::Fault;
use crate::machine::{Isa, LEAVE, Run, Step};
use crate::warp::{Exit, Warp};

/// `bra`: to the block `x`, whose first step is the lower half of `imm`. `BACK`: it is not behind this one.
pub(crate) struct Goto<const BACK: bool>;

impl<const BACK: bool> Run for Goto<BACK> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        if BACK && !pay(warp, env, step, pc, distance(step, pc)) {
            return LEAVE;
        }
        warp.goto(env, step.x, step.imm as u32)
    }
}

/// `@p bra`: to `x` where the predicate `a` holds, else to `y`; their first steps are the halves of `imm`.
pub(crate) struct Branch<const NEGATED: bool, const BACK: bool>;

impl<const NEGATED: bool, const BACK: bool> Run for Branch<NEGATED, BACK> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        if BACK && !pay(warp, env, step, pc, distance(step, pc)) {
            return LEAVE;
        }
        let bits: u32 = warp.frame.get(step.a);
        branch(warp, env, step, if NEGATED { !bits } else { bits })
    }
}

/// The lanes of `bits` go to `x`, the others to `y`.
#[inline(always)]
pub(crate) fn branch(warp: &mut Warp, env: &mut Env<'_>, step: &Step, bits: u32) -> u32 {
    let then = bits & warp.mask;
    if then == warp.mask {
        warp.goto(env, step.x, step.imm as u32)
    } else if then == 0 {
        warp.goto(env, step.y, (step.imm >> 32) as u32)
    } else {
        warp.part(env, (step.x, then), step.y)
    }
}

/// The instructions from where a backward branch goes to the branch.
#[inline(always)]
fn distance(step: &Step, pc: u32) -> i64 {
    i64::from(pc.saturating_sub(step.imm as u32)) + 1
}

/// Counts `cost` instructions, and looks at the control when it is time. Whether the warp goes on now: else it leaves, and runs
/// the step again if it goes on at all.
#[inline(always)]
pub(crate) fn pay(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32, cost: i64) -> bool {
    warp.fuel -= cost;
    warp.fuel >= 0 || env.poll(warp, step.line, pc, cost)
}

/// Where a straight line of instructions is long: counts `imm` of them, as a backward branch counts those of its loop.
pub(crate) struct Look;

impl Run for Look {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        if pay(warp, env, step, pc, step.imm as i64) { pc + 1 } else { LEAVE }
    }
}

/// `ret`, `exit`
pub(crate) struct Return;

impl Run for Return {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, _: &Step, _: u32) -> u32 {
        warp.alive &= !warp.mask;
        warp.next(env)
    }
}

/// The end of what runs before blocks do.
pub(crate) struct Leave;

impl Run for Leave {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, _: &Step, _: u32) -> u32 {
        warp.exit = Exit::Done;
        LEAVE
    }
}

/// `trap`
pub(crate) struct Trap;

impl Run for Trap {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, _: u32) -> u32 {
        let site = env.site(warp, step.line, warp.mask);
        warp.fail(env, Fault::Trap { site })
    }
}

/// Arrival at a barrier: the block's scheduler reads the operands and goes on at the block `x`.
pub(crate) struct Arrive;

impl Run for Arrive {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, _: u32) -> u32 {
        env.barrier = step.y;
        env.barrier_line = step.line;
        warp.exit = Exit::Barrier { block: step.x };
        LEAVE
    }
}
