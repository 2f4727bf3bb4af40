//! How blocks end: branches, returns, traps, and the arrival at barriers.

use crate::fault::Fault;
use crate::machine::{Env, Exit, Isa, LEAVE, Run, Step, Warp};

/// `bra`: goes to the block `x`, whose first step is the lower half of `imm`. `BACK`: the block is not behind
/// this one.
pub(crate) struct Goto<const BACK: bool>;

impl<const BACK: bool> Run for Goto<BACK> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        if BACK && !pay(warp, env, step, pc, distance(step, pc)) {
            return LEAVE;
        }
        warp.goto(env.blocks, step.x, step.imm as u32)
    }
}

/// `@p bra`: goes to `x` where the predicate `a` holds, else to `y`. Their first steps are the halves of
/// `imm`.
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

/// Sends the lanes of `bits` to the block `x` and the others to `y`. Returns the step that runs next.
#[inline(always)]
pub(crate) fn branch(warp: &mut Warp, env: &mut Env<'_>, step: &Step, bits: u32) -> u32 {
    let then = bits & warp.mask;
    if then == warp.mask {
        warp.goto(env.blocks, step.x, step.imm as u32)
    } else if then == 0 {
        warp.goto(env.blocks, step.y, (step.imm >> 32) as u32)
    } else {
        warp.part(env.blocks, (step.x, then), step.y)
    }
}

/// Number of instructions in the loop of a backward branch.
#[inline(always)]
fn distance(step: &Step, pc: u32) -> i64 {
    i64::from(pc.saturating_sub(step.imm as u32)) + 1
}

/// Counts `cost` instructions, and polls the control when the fuel is used up. Returns whether the warp goes
/// on now; if not, the step must leave, and is run again if the warp goes on at all.
#[inline(always)]
pub(crate) fn pay(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32, cost: i64) -> bool {
    warp.fuel -= cost;
    warp.fuel >= 0 || env.poll(warp, step.line, pc, cost)
}

/// Polls the control where a straight line of instructions is long: counts `imm` of them, as a backward
/// branch counts those of its loop.
pub(crate) struct Poll;

impl Run for Poll {
    const PLAIN: bool = true;

    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        if pay(warp, env, step, pc, step.imm as i64) { pc + 1 } else { LEAVE }
    }
}

/// `ret`, `exit`
pub(crate) struct Return;

impl Run for Return {
    const PLAIN: bool = true;

    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, _: &Step, _: u32) -> u32 {
        warp.alive &= !warp.mask;
        warp.next(env.blocks)
    }
}

/// The end of the prologue, which runs before blocks do.
pub(crate) struct Leave;

impl Run for Leave {
    const PLAIN: bool = true;

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
        env.fail(warp, Fault::Trap { site })
    }
}

/// A call that finds no room on the stack.
pub(crate) struct StackOverflow;

impl Run for StackOverflow {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, _: u32) -> u32 {
        let site = env.site(warp, step.line, warp.mask);
        env.fail(warp, Fault::StackOverflow { site })
    }
}

/// A call of an address at which there is no function for it.
pub(crate) struct BadCall;

impl Run for BadCall {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, _: u32) -> u32 {
        let site = env.site(warp, step.line, warp.mask);
        env.fail(warp, Fault::BadCall { site })
    }
}

/// Arrives at the barrier whose record is `y`. The block's scheduler reads the operands; the warp goes on at
/// the block `x`.
pub(crate) struct Arrive;

impl Run for Arrive {
    const PLAIN: bool = true;

    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, _: u32) -> u32 {
        env.barrier = step.y;
        env.barrier_line = step.line;
        warp.exit = Exit::Barrier { block: step.x };
        LEAVE
    }
}
