//! Operations that the lanes of a warp execute together: shuffles, votes, matches and reductions.
//!
//! Each operation names its member lanes and waits until all of them have arrived; see [`missing`].

use std::marker::PhantomData;

use crate::machine::{Env, Exit, Inst, Isa, LANES, LEAVE, LaneType, Operation, Slot, Warp, set};

use super::{LaneSource, Op2, put, put_predicate};

/// Returns whether member lanes that have not returned are missing. If so, the instruction must leave, and is
/// executed again once they have arrived.
#[inline(always)]
pub(crate) fn missing(warp: &mut Warp, members: Slot, pc: u32) -> bool {
    let wanted: u32 = warp.frame.get(members);
    let missing = wanted & warp.alive & !warp.mask != 0;
    if missing {
        warp.exit = Exit::Reconverge { pc, wanted };
    }
    missing
}

/// Starts an instruction whose member mask, `a`, differs between lanes: the lanes with the mask of the lowest
/// one go on, with this mask in `d`, and the others become pending at the block `x`, which this instruction
/// starts. With `JOINT`, lanes with other masks may take part: all go on at once if no member is missing.
pub(crate) struct Group<const JOINT: bool>;

impl<const JOINT: bool> Operation for Group<JOINT> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let (active, masks) = (warp.mask, warp.frame.vector::<u32>(inst.a));
        let lanes = (0..LANES).filter(|lane| active >> lane & 1 != 0);
        let members = masks[active.trailing_zeros() as usize % LANES];
        let (mut all, mut same) = (0, 0);
        for lane in lanes {
            all |= masks[lane];
            same |= u32::from(masks[lane] == members) << lane;
        }
        if JOINT && all & warp.alive & !active == 0 {
            warp.frame.set(inst.d, all);
            return pc + 1;
        }
        warp.frame.set(inst.d, members);
        if same != active {
            warp.put(inst.x, active & !same);
            warp.mask = same;
        }
        pc + 1
    }
}

/// Executes `bar.warp.sync`. `a` holds the member mask.
pub(crate) struct SyncWarp;

impl Operation for SyncWarp {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        if missing(warp, inst.a, pc) { LEAVE } else { pc + 1 }
    }
}

/// Reads the value of the lowest active lane into a scalar, as a shared register needs it.
pub(crate) struct Elect<T>(PhantomData<T>);

impl<T: LaneType> Operation for Elect<T> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let lane = warp.mask.trailing_zeros() as usize % LANES;
        let value = warp.frame.vector::<T>(inst.a)[lane];
        warp.frame.set(inst.d, value);
        pc + 1
    }
}

pub(crate) const UP: u8 = 0;
pub(crate) const DOWN: u8 = 1;
pub(crate) const BFLY: u8 = 2;
pub(crate) const IDX: u8 = 3;

/// Returns the lane from which `lane` reads, and whether that lane is in range, by the ISA's definition of
/// `shfl`. A lane out of range reads its own value.
#[inline(always)]
pub(crate) const fn source_lane<const MODE: u8>(lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (b, clamp, segments) = (b & 31, c & 31, c >> 8 & 31);
    let last = lane & segments | clamp & !segments;
    let first = lane & segments;
    let (from, valid) = match MODE {
        UP => (lane.wrapping_sub(b), lane.wrapping_sub(b).cast_signed() >= last.cast_signed()),
        DOWN => (lane + b, lane + b <= last),
        BFLY => (lane ^ b, lane ^ b <= last),
        _ => (first | b & !segments, first | b & !segments <= last),
    };
    if valid { (from & 31, true) } else { (lane, false) }
}

/// Executes `shfl` of the value `a` with the lane operand `b`, and clamp and segments in `c`. The record `x`
/// has the slot of the member mask and that of the validity predicate, which is written with `VALID`. With
/// `SCALAR`, lanes share `b` and `c`.
pub(crate) struct Shuffle<const MODE: u8, const SCALAR: bool, const VALID: bool>;

impl<const MODE: u8, const SCALAR: bool, const VALID: bool> Operation for Shuffle<MODE, SCALAR, VALID> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let slots = &env.tables.memory[inst.x as usize].slots;
        let (members, valid) = (slots[0], slots[1]);
        if missing(warp, members, pc) {
            return LEAVE;
        }
        let a = warp.frame.vector::<u32>(inst.a);
        let b = LaneSource::<SCALAR, u32>::new(&warp.frame, inst.b);
        let c = LaneSource::<SCALAR, u32>::new(&warp.frame, inst.c);
        let mut out = [0; LANES];
        let mut bits = 0;
        for lane in 0..LANES {
            let (from, good) = source_lane::<MODE>(lane as u32, b.at(lane), c.at(lane));
            out[lane] = a[from as usize];
            bits |= u32::from(good) << lane;
        }
        put::<I, _>(warp, inst, &out);
        if VALID {
            put_predicate(warp, valid, bits);
        }
        pc + 1
    }
}

/// Executes `shfl.bfly` by a constant among all lanes. `b` holds the member mask.
pub(crate) struct Butterfly<const BY: usize>;

impl<const BY: usize> Operation for Butterfly<BY> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        if missing(warp, inst.b, pc) {
            return LEAVE;
        }
        let out = I::butterfly::<BY>(warp.frame.vector(inst.a));
        put::<I, _>(warp, inst, &out);
        pc + 1
    }
}

/// Executes `shfl.bfly` by a constant, followed by an operation on `c` and the value of the lane at distance
/// `BY`.
pub(crate) struct ButterflyThen<O, const BY: usize>(PhantomData<O>);

impl<O: Op2<A = f32, B = f32, R = f32>, const BY: usize> Operation for ButterflyThen<O, BY> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        if missing(warp, inst.b, pc) {
            return LEAVE;
        }
        let c = warp.frame.vector::<f32>(inst.c);
        let other = I::butterfly::<BY>(warp.frame.vector(inst.a));
        let mut out = [0.0; LANES];
        for lane in 0..LANES {
            out[lane] = O::f(c[lane], f32::from_bits(other[lane]));
        }
        put::<I, _>(warp, inst, &out);
        pc + 1
    }
}

pub(crate) const ALL: u32 = 0;
pub(crate) const ANY: u32 = 1;
pub(crate) const UNI: u32 = 2;

/// Returns the active members, and those of them whose vote is yes, by the predicate `a`.
#[inline(always)]
fn votes(warp: &Warp, inst: &Inst) -> (u32, u32) {
    let members = warp.frame.get::<u32>(inst.b) & warp.mask;
    (members, (warp.frame.get::<u32>(inst.a) ^ inst.form.inversion(set::A)) & members)
}

/// Executes the `vote` of kind `KIND`. With `SHARED`, all lanes share the destination.
pub(crate) struct Vote<const KIND: u32, const SHARED: bool>;

impl<const KIND: u32, const SHARED: bool> Operation for Vote<KIND, SHARED> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        if missing(warp, inst.b, pc) {
            return LEAVE;
        }
        let (members, votes) = votes(warp, inst);
        let holds = match KIND {
            ALL => votes == members,
            ANY => votes != 0,
            _ => votes == 0 || votes == members,
        };
        let bits = u32::from(holds).wrapping_neg();
        if SHARED {
            warp.frame.set(inst.d, bits);
        } else {
            put_predicate(warp, inst.d, bits);
        }
        pc + 1
    }
}

/// Executes `vote.ballot`. The result is a scalar.
pub(crate) struct Ballot;

impl Operation for Ballot {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        if missing(warp, inst.b, pc) {
            return LEAVE;
        }
        let (_, votes) = votes(warp, inst);
        warp.frame.set(inst.d, votes);
        pc + 1
    }
}

/// Executes `activemask`. The result is a scalar.
pub(crate) struct ActiveMask;

impl Operation for ActiveMask {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        warp.frame.set(inst.d, warp.mask);
        pc + 1
    }
}

/// Executes `match` of the values `a` among the members `b`. With `ALL` the result is a scalar, and
/// `c` is the predicate. With `WIDE`, values have 64 bits.
pub(crate) struct Match<const ALL: bool, const WIDE: bool>;

impl<const ALL: bool, const WIDE: bool> Operation for Match<ALL, WIDE> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        if missing(warp, inst.b, pc) {
            return LEAVE;
        }
        let members = warp.frame.get::<u32>(inst.b) & warp.mask;
        let value = |lane: usize| {
            if WIDE {
                warp.frame.vector::<u64>(inst.a)[lane]
            } else {
                u64::from(warp.frame.vector::<u32>(inst.a)[lane])
            }
        };
        let mut out = [0; LANES];
        for lane in 0..LANES {
            for other in 0..LANES {
                out[lane] |= u32::from(value(lane) == value(other)) << other;
            }
            out[lane] &= members;
        }
        if ALL {
            let first = members.trailing_zeros() as usize % LANES;
            let same = out[first] == members;
            let bits = u32::from(same).wrapping_neg();
            if inst.form.shares(set::C) {
                warp.frame.set(inst.c, bits);
            } else {
                put_predicate(warp, inst.c, bits);
            }
            warp.frame.set(inst.d, members & bits);
            return pc + 1;
        }
        put::<I, _>(warp, inst, &out);
        pc + 1
    }
}

/// Executes `redux` of the values `a` among the members `b` into a scalar. `OP` is an index into
/// the functions.
pub(crate) struct Redux<const OP: usize>;

impl<const OP: usize> Redux<OP> {
    const OPS: [fn(u32, u32) -> u32; 8] = [
        |a, b| a & b,
        |a, b| a | b,
        |a, b| a ^ b,
        u32::wrapping_add,
        |a, b| a.min(b),
        |a, b| a.max(b),
        |a, b| a.cast_signed().min(b.cast_signed()).cast_unsigned(),
        |a, b| a.cast_signed().max(b.cast_signed()).cast_unsigned(),
    ];
}

impl<const OP: usize> Operation for Redux<OP> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        if missing(warp, inst.b, pc) {
            return LEAVE;
        }
        let members = warp.frame.get::<u32>(inst.b) & warp.mask;
        let op = Self::OPS[OP];
        let values = warp.frame.vector::<u32>(inst.a);
        let value = (0..LANES).filter(|lane| members >> lane & 1 != 0).map(|lane| values[lane]).reduce(op);
        warp.frame.set(inst.d, value.unwrap_or(0));
        pc + 1
    }
}
