//! The instructions that load and store, for any state space.

use super::address::Failed;
use super::element::{Extend, FromU16, Same32, Truncate};
use super::global::Global;
use super::space::{FEW, FEWER, Space};
use crate::machine::{Env, Inst, Isa, LANES, Operation, SHARED_WORDS, Slot, SlotList, Warp};
use std::marker::PhantomData;
use vgpu_arena::{Halves, Neighbours, for_active};

/// Loads into registers of which each lane has its own. `x`: index of the [`SlotList`]; `y`: index of the
/// window.
pub(crate) struct Load<S, E, const SCALAR: bool, const N: usize>(PhantomData<(S, E)>);

impl<S: Space, E: Extend, const SCALAR: bool, const N: usize> Operation for Load<S, E, SCALAR, N> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let slots: [Slot; N] = if N == 1 { [inst.d; N] } else { targets(env, inst) };
        let done = match reach(warp, inst) {
            Reach::Few => false,
            Reach::Quarter => S::load_all::<I, E, SCALAR, N, { LANES / 4 }>(warp, env, inst, &slots),
            Reach::Half => S::load_all::<I, E, SCALAR, N, { LANES / 2 }>(warp, env, inst, &slots),
            Reach::All => S::load_all::<I, E, SCALAR, N, LANES>(warp, env, inst, &slots),
        };
        if done {
            return pc + 1;
        }
        match load_some::<S, E, SCALAR, N>(warp, env, inst, &slots) {
            Ok(()) => pc + 1,
            Err(failed) => failed,
        }
    }
}

/// How many of the first lanes are loaded together: enough to include all active ones.
enum Reach {
    /// No lanes: the active ones are loaded one by one.
    Few,
    Quarter,
    Half,
    All,
}

/// Chooses how many lanes are loaded together. Inactive lanes are included if nothing reads what they
/// receive. Their addresses are checked too and usually belong to elements after the last active one. Loading
/// lane by lane is slower.
#[inline(always)]
fn reach(warp: &Warp, inst: &Inst) -> Reach {
    if warp.mask == u32::MAX {
        return Reach::All;
    }
    if inst.blend || warp.mask.count_ones() < 2 {
        return Reach::Few;
    }
    match warp.mask.leading_zeros() {
        24.. => Reach::Quarter,
        16.. => Reach::Half,
        _ if warp.mask.count_ones() <= FEWER => Reach::Few,
        _ => Reach::All,
    }
}

/// Loads the active lanes, whichever they are. One function serves all instruction sets.
#[inline(never)]
fn load_some<S: Space, E: Extend, const SCALAR: bool, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    inst: &Inst,
    slots: &[Slot; N],
) -> Result<(), Failed> {
    let mask = warp.mask;
    if mask.count_ones() <= FEW {
        let mut rest = mask;
        while rest != 0 {
            let lane = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let base = S::base(&warp.frame, inst, if SCALAR { None } else { Some(lane) });
            let values = S::load_lane::<E, N>(warp, env, inst, base, lane)?;
            for (&slot, value) in slots.iter().zip(values) {
                warp.frame.vector_mut::<E::D>(slot)[lane] = value;
            }
        }
        return Ok(());
    }
    let mut out = [[E::D::default(); LANES]; N];
    S::load::<E, SCALAR, N>(warp, env, inst, mask, &mut out)?;
    for (&slot, out) in slots.iter().zip(&out) {
        let to = warp.frame.vector_mut::<E::D>(slot);
        for_active(mask, |lane| to[lane] = out[lane]);
    }
    Ok(())
}

/// Returns the slots of the registers of a vector. A vector of one element has the slot `only`.
#[inline(always)]
fn targets<const N: usize>(env: &Env<'_>, inst: &Inst) -> [Slot; N] {
    let SlotList { slots } = &env.tables.memory[inst.x as usize];
    std::array::from_fn(|element| slots[element % slots.len()])
}

/// Loads two neighbouring halves of device memory, at any even address, as the word that they make.
pub(crate) struct LoadPair;

impl Operation for LoadPair {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let done = match reach(warp, inst) {
            Reach::Few => false,
            Reach::Quarter => Self::load_all::<I, { LANES / 4 }>(warp, env, inst),
            Reach::Half => Self::load_all::<I, { LANES / 2 }>(warp, env, inst),
            Reach::All => Self::load_all::<I, LANES>(warp, env, inst),
        };
        if done {
            return pc + 1;
        }
        match load_pairs(warp, env, inst) {
            Ok(()) => pc + 1,
            Err(failed) => failed,
        }
    }
}

impl LoadPair {
    /// Loads the first `L` lanes. Returns whether it could.
    #[inline(always)]
    fn load_all<I: Isa, const L: usize>(warp: &mut Warp, env: &Env<'_>, inst: &Inst) -> bool {
        let Some((bases, out)) = warp.frame.apart::<u64, u32>(inst.a, inst.d) else { return false };
        let (Some(bases), (out, _)) = (bases.first_chunk(), out.as_chunks_mut::<8>()) else { return false };
        let window = &env.windows[inst.y as usize];
        env.view.load_eights::<Halves, 1, L>(window, bases, inst.imm, 2, |eight, _, values| {
            I::set8(values.map(|Halves(word)| word), &mut out[eight]);
        })
    }
}

/// Loads pairs of halves lane by lane, for the active lanes. They are two loads, of which the first ends the
/// launch if any of its lanes is refused.
#[inline(never)]
fn load_pairs(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst) -> Result<(), Failed> {
    let bases = *warp.frame.vector::<u64>(inst.a);
    let mut apart = 0;
    for_active(warp.mask, |lane| {
        let window = &env.windows[inst.y as usize];
        match env.view.load_halves(window, bases[lane].wrapping_add(inst.imm)) {
            Some(word) => warp.frame.vector_mut::<u32>(inst.d)[lane] = word,
            None => apart |= 1 << lane,
        }
    });
    let mut second = inst.clone();
    second.imm = inst.imm.wrapping_add(2);
    let mut low = [0; LANES];
    for lane in (0..LANES).filter(|lane| apart >> lane & 1 != 0) {
        [low[lane]] = Global::load_lane::<FromU16, 1>(warp, env, inst, bases[lane], lane)?;
    }
    for lane in (0..LANES).filter(|lane| apart >> lane & 1 != 0) {
        let [high] = Global::load_lane::<FromU16, 1>(warp, env, &second, bases[lane], lane)?;
        warp.frame.vector_mut::<u32>(inst.d)[lane] = high << 16 | low[lane];
    }
    Ok(())
}

/// Loads two neighbouring words of device memory into `d` and `c`. With `HALVES` they are four accesses, at any
/// even address. `x` is the line of the second load.
pub(crate) struct LoadTwo<const HALVES: bool>;

impl<const HALVES: bool> Operation for LoadTwo<HALVES> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let done = match reach(warp, inst) {
            Reach::Few => false,
            Reach::Quarter => Self::load_all::<I, { LANES / 4 }>(warp, env, inst),
            Reach::Half => Self::load_all::<I, { LANES / 2 }>(warp, env, inst),
            Reach::All => Self::load_all::<I, LANES>(warp, env, inst),
        };
        if done {
            return pc + 1;
        }
        match load_each::<HALVES>(warp, env, inst) {
            Ok(()) => pc + 1,
            Err(failed) => failed,
        }
    }
}

impl<const HALVES: bool> LoadTwo<HALVES> {
    /// Loads the first `L` lanes. Returns whether it could.
    #[inline(always)]
    fn load_all<I: Isa, const L: usize>(warp: &mut Warp, env: &Env<'_>, inst: &Inst) -> bool {
        let Some(&bases) = warp.frame.vector::<u64>(inst.a).first_chunk() else { return false };
        let window = &env.windows[inst.y as usize];
        let align = if HALVES { 2 } else { 4 };
        env.view.load_eights::<Neighbours, 1, L>(window, &bases, inst.imm, align, |eight, _, values| {
            let halves = I::split8(values.map(|Neighbours(words)| words));
            for (to, words) in [inst.d, inst.c].into_iter().zip(halves) {
                warp.frame.vector_mut::<u32>(to).as_chunks_mut::<8>().0[eight] = words;
            }
        })
    }
}

/// Loads the two words one after the other.
#[inline(never)]
fn load_each<const HALVES: bool>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst) -> Result<(), Failed> {
    let mut second = inst.clone();
    (second.d, second.imm, second.line) = (inst.c, inst.imm.wrapping_add(4), inst.x);
    for inst in [inst, &second] {
        if HALVES {
            load_pairs(warp, env, inst)?;
        } else {
            load_some::<Global, Same32, false, 1>(warp, env, inst, &[inst.d])?;
        }
    }
    Ok(())
}

/// Loads into registers that all lanes share, from an address that they share.
pub(crate) struct LoadScalar<S, E, const N: usize>(PhantomData<(S, E)>);

impl<S: Space, E: Extend, const N: usize> Operation for LoadScalar<S, E, N> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let lane = warp.mask.trailing_zeros() as usize % LANES;
        let base = S::base(&warp.frame, inst, None);
        let values = match S::load_lane::<E, N>(warp, env, inst, base, lane) {
            Ok(values) => values,
            Err(failed) => return failed,
        };
        let slots: [Slot; N] = if N == 1 { [inst.d; N] } else { targets(env, inst) };
        for (slot, value) in slots.into_iter().zip(values) {
            warp.frame.set(slot, value);
        }
        pc + 1
    }
}

/// Stores from registers of which each lane has its own.
pub(crate) struct Store<S, T, const SCALAR: bool, const N: usize>(PhantomData<(S, T)>);

impl<S: Space, T: Truncate, const SCALAR: bool, const N: usize> Operation for Store<S, T, SCALAR, N> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let values: [Slot; N] = if N == 1 { [inst.b; N] } else { targets(env, inst) };
        match S::store::<T, SCALAR, N>(warp, env, inst, warp.mask, &values) {
            Ok(()) => pc + 1,
            Err(failed) => failed,
        }
    }
}

const _: () = assert!(SHARED_WORDS == 1 << 16, "what an index of 16 bits reaches");
