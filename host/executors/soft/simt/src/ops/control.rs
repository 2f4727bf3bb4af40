//! Instructions that end blocks: branches, returns, traps, and the arrival at barriers (PTX ISA, section
//! "Control Flow Instructions").

use crate::fault::Fault;
use crate::machine::{Env, Exit, Inst, Isa, LEAVE, Operation, Warp, set};

/// Executes `bra`: continues at the block `x`, whose first instruction is the lower half of `imm`. `BACK`
/// tells that the block is not after this one.
pub(crate) struct Goto<const BACK: bool>;

impl<const BACK: bool> Operation for Goto<BACK> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        if BACK && !spend_fuel(warp, env, inst, pc, distance(inst, pc)) {
            return LEAVE;
        }
        warp.goto(env.blocks, inst.x, inst.imm as u32)
    }
}

/// Executes `@p bra`: continues at the block `x` where the predicate `a` holds, and at `y` elsewhere. Their
/// first instructions are the halves of `imm`.
pub(crate) struct Branch<const BACK: bool>;

impl<const BACK: bool> Operation for Branch<BACK> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        if BACK && !spend_fuel(warp, env, inst, pc, distance(inst, pc)) {
            return LEAVE;
        }
        let bits = warp.frame.get::<u32>(inst.a) ^ inst.form.inversion(set::A);
        branch(warp, env, inst, bits)
    }
}

/// Sends the lanes of `bits` to the block `x` and the others to `y`. Diverges only if there are both. Returns
/// the instruction that runs next.
#[inline(always)]
pub(crate) fn branch(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, bits: u32) -> u32 {
    let then = bits & warp.mask;
    if then == warp.mask {
        warp.goto(env.blocks, inst.x, inst.imm as u32)
    } else if then == 0 {
        warp.goto(env.blocks, inst.y, (inst.imm >> 32) as u32)
    } else {
        warp.diverge(env.blocks, (inst.x, then), inst.y)
    }
}

/// Returns the number of instructions in the loop of a backward branch, which is its cost in fuel.
#[inline(always)]
fn distance(inst: &Inst, pc: u32) -> i64 {
    i64::from(pc.saturating_sub(inst.imm as u32)) + 1
}

/// Subtracts `cost` from the warp's fuel, and polls the control when it is used up. Returns whether the warp
/// continues. If not, the instruction must leave, and is executed again if the warp continues at all.
#[inline(always)]
pub(crate) fn spend_fuel(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32, cost: i64) -> bool {
    warp.fuel -= cost;
    warp.fuel >= 0 || env.poll(warp, inst.line, pc, cost)
}

/// Polls the control in a long straight line. It costs `imm` instructions of fuel, as a backward branch costs
/// those of its loop.
pub(crate) struct Poll;

impl Operation for Poll {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        if spend_fuel(warp, env, inst, pc, inst.imm as i64) { pc + 1 } else { LEAVE }
    }
}

/// Ends an iteration of a loop that reads memory in a way that can observe what other lanes do, before the
/// branch back. After some of them the turn of the running lanes is over, if there are others.
pub(crate) struct Turn;

impl Operation for Turn {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        if warp.iterate(env.turn()) {
            env.end_turn(warp, inst.line, pc + 1);
            return LEAVE;
        }
        pc + 1
    }
}

/// Executes `ret` and `exit`: the active lanes end, and pending lanes run next.
pub(crate) struct Return;

impl Operation for Return {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, _: &Inst, _: u32) -> u32 {
        warp.alive &= !warp.mask;
        warp.next(env.blocks)
    }
}

/// Ends the prologue, which runs before any block, and leaves.
pub(crate) struct Leave;

impl Operation for Leave {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, _: &Inst, _: u32) -> u32 {
        warp.exit = Exit::Done;
        LEAVE
    }
}

/// Defines operations that end the launch with a fault of the active lanes.
macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        pub(crate) struct $name;
        impl Operation for $name {
            #[inline(always)]
            fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, _: u32) -> u32 {
                let site = env.site(warp, inst.line, warp.mask);
                env.fail(warp, Fault::$name { site })
            }
        }
    )* };
}

faults! {
    /// Executes `trap`, which ends the launch with [`Fault::Trap`].
    Trap;
    /// Fails a call for which the stack has no room.
    StackOverflow;
    /// Fails a call of an address at which there is no function with these parameters.
    BadCall;
}

/// Executes the arrival at the barrier whose record is `y`. The scheduler of the block reads the operands.
/// The warp continues at the block `x`.
pub(crate) struct Arrive;

impl Operation for Arrive {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, _: u32) -> u32 {
        env.barrier = inst.y;
        env.barrier_line = inst.line;
        warp.exit = Exit::Barrier { block: inst.x };
        LEAVE
    }
}
