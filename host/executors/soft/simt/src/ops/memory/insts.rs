//! Load and store instructions for any state space.

use super::address::{Access, Failed, next};
use super::element::{Extend, FromU16, Same32, Truncate};
use super::global::Global;
use super::space::{FEW, FEWER, Space};
use crate::machine::{Env, Inst, Isa, LANES, Operation, SHARED_WORDS, Slot, SlotList, Warp};
use std::marker::PhantomData;
use vgpu_arena::{Halves, Neighbours, for_active};

/// A load into registers in which each lane has its own value.
trait VectorLoad: 'static {
    /// Loads the first `L` lanes together. Returns false, without having loaded anything, if that is not
    /// possible.
    fn load_first<I: Isa, const L: usize>(access: &mut Access<'_, '_>) -> bool;

    /// Loads the active lanes, for any mask.
    fn load_active(access: &mut Access<'_, '_>) -> Result<(), Failed>;
}

/// Loads as many lanes together as [`coverage`] chooses, or otherwise the active lanes.
impl<L: VectorLoad> Operation for L {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let coverage = coverage(warp, inst);
        let access = &mut Access { warp, env, inst };
        let done = match coverage {
            Coverage::Few => false,
            Coverage::Quarter => L::load_first::<I, { LANES / 4 }>(access),
            Coverage::Half => L::load_first::<I, { LANES / 2 }>(access),
            Coverage::All => L::load_first::<I, LANES>(access),
        };
        if done { pc + 1 } else { next(L::load_active(access), pc) }
    }
}

/// Number of lanes, counted from lane 0, that are loaded together. They include all active ones.
enum Coverage {
    /// The active lanes are loaded one by one.
    Few,
    Quarter,
    Half,
    All,
}

/// Chooses how many lanes are loaded together. Inactive lanes are included if nothing reads the values that
/// they receive. Their addresses are checked too and usually belong to elements after the last active one.
/// Loading lane by lane is slower.
#[inline(always)]
fn coverage(warp: &Warp, inst: &Inst) -> Coverage {
    if warp.mask == u32::MAX {
        return Coverage::All;
    }
    if inst.blend || warp.mask.count_ones() < 2 {
        return Coverage::Few;
    }
    match warp.mask.leading_zeros() {
        24.. => Coverage::Quarter,
        16.. => Coverage::Half,
        _ if warp.mask.count_ones() <= FEWER => Coverage::Few,
        _ => Coverage::All,
    }
}

/// Loads into registers in which each lane has its own value. `x` is the index of the [`SlotList`], `y` that
/// of the window.
pub(crate) struct Load<S, E, const SCALAR: bool, const N: usize>(PhantomData<(S, E)>);

impl<S: Space, E: Extend, const SCALAR: bool, const N: usize> VectorLoad for Load<S, E, SCALAR, N> {
    #[inline(always)]
    fn load_first<I: Isa, const L: usize>(access: &mut Access<'_, '_>) -> bool {
        let slots = targets(access.env, access.inst, access.inst.d);
        S::load_all::<I, E, SCALAR, N, L>(access, &slots)
    }

    #[inline(always)]
    fn load_active(access: &mut Access<'_, '_>) -> Result<(), Failed> {
        let slots = targets(access.env, access.inst, access.inst.d);
        load_some::<S, E, SCALAR, N>(access, &slots)
    }
}

/// Loads the active lanes, for any mask. One function serves all instruction sets.
#[inline(never)]
fn load_some<S: Space, E: Extend, const SCALAR: bool, const N: usize>(
    access: &mut Access<'_, '_>,
    slots: &[Slot; N],
) -> Result<(), Failed> {
    let mask = access.warp.mask;
    if mask.count_ones() <= FEW {
        let mut rest = mask;
        while rest != 0 {
            let lane = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let base = S::base(&access.warp.frame, access.inst, if SCALAR { None } else { Some(lane) });
            let values = S::load_lane::<E, N>(access, base, lane)?;
            for (&slot, value) in slots.iter().zip(values) {
                access.warp.frame.vector_mut::<E::D>(slot)[lane] = value;
            }
        }
        return Ok(());
    }
    let mut out = [[E::D::default(); LANES]; N];
    S::load::<E, SCALAR, N>(access, mask, &mut out)?;
    for (&slot, out) in slots.iter().zip(&out) {
        let to = access.warp.frame.vector_mut::<E::D>(slot);
        for_active(mask, |lane| to[lane] = out[lane]);
    }
    Ok(())
}

/// Returns the slots of the registers of a vector. A vector of one element has the slot `only`.
#[inline(always)]
fn targets<const N: usize>(env: &Env<'_>, inst: &Inst, only: Slot) -> [Slot; N] {
    if N == 1 {
        return [only; N];
    }
    let SlotList { slots } = &env.tables.memory[inst.x as usize];
    std::array::from_fn(|element| slots[element % slots.len()])
}

/// Loads two adjacent halves of device memory, at any even address, as one word.
pub(crate) struct LoadPair;

impl VectorLoad for LoadPair {
    #[inline(always)]
    fn load_first<I: Isa, const L: usize>(Access { warp, env, inst }: &mut Access<'_, '_>) -> bool {
        let Some((bases, out)) = warp.frame.apart::<u64, u32>(inst.a, inst.d) else { return false };
        let (Some(bases), (out, _)) = (bases.first_chunk(), out.as_chunks_mut::<8>()) else { return false };
        let window = &env.windows[inst.y as usize];
        env.view.load_eights::<Halves, 1, L>(window, bases, inst.imm, 2, |eight, _, values| {
            I::set8(values.map(|Halves(word)| word), &mut out[eight]);
        })
    }

    #[inline(always)]
    fn load_active(access: &mut Access<'_, '_>) -> Result<(), Failed> {
        load_pairs(access)
    }
}

/// Loads pairs of halves lane by lane, for the active lanes. Each pair is two loads, and the first ends the
/// launch if any of its lanes is refused.
#[inline(never)]
fn load_pairs(Access { warp, env, inst }: &mut Access<'_, '_>) -> Result<(), Failed> {
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
    let mut half = |inst: &Inst, lane: usize| {
        Global::load_lane::<FromU16, 1>(&mut Access { warp, env, inst }, bases[lane], lane).map(|[half]| half)
    };
    let lanes = || (0..LANES).filter(move |lane| apart >> lane & 1 != 0);
    for lane in lanes() {
        low[lane] = half(inst, lane)?;
    }
    for lane in lanes() {
        low[lane] |= half(&second, lane)? << 16;
    }
    for lane in lanes() {
        warp.frame.vector_mut::<u32>(inst.d)[lane] = low[lane];
    }
    Ok(())
}

/// Loads two adjacent words of device memory into `d` and `c`. With `HALVES` they are four accesses, at any
/// even address. `x` is the line of the second load.
pub(crate) struct LoadTwo<const HALVES: bool>;

impl<const HALVES: bool> VectorLoad for LoadTwo<HALVES> {
    #[inline(always)]
    fn load_first<I: Isa, const L: usize>(Access { warp, env, inst }: &mut Access<'_, '_>) -> bool {
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

    #[inline(always)]
    fn load_active(access: &mut Access<'_, '_>) -> Result<(), Failed> {
        load_each::<HALVES>(access)
    }
}

/// Loads the two words one after the other, for any mask.
#[inline(never)]
fn load_each<const HALVES: bool>(Access { warp, env, inst }: &mut Access<'_, '_>) -> Result<(), Failed> {
    let mut second = inst.clone();
    (second.d, second.imm, second.line) = (inst.c, inst.imm.wrapping_add(4), inst.x);
    for inst in [*inst, &second] {
        let access = &mut Access { warp, env, inst };
        if HALVES {
            load_pairs(access)?;
        } else {
            load_some::<Global, Same32, false, 1>(access, &[inst.d])?;
        }
    }
    Ok(())
}

/// Loads into registers that all lanes share, from a shared address.
pub(crate) struct LoadScalar<S, E, const N: usize>(PhantomData<(S, E)>);

impl<S: Space, E: Extend, const N: usize> Operation for LoadScalar<S, E, N> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let lane = warp.mask.trailing_zeros() as usize % LANES;
        let base = S::base(&warp.frame, inst, None);
        let values = match S::load_lane::<E, N>(&mut Access { warp, env, inst }, base, lane) {
            Ok(values) => values,
            Err(failed) => return failed,
        };
        for (slot, value) in targets::<N>(env, inst, inst.d).into_iter().zip(values) {
            warp.frame.set(slot, value);
        }
        pc + 1
    }
}

/// Stores from registers in which each lane has its own value.
pub(crate) struct Store<S, T, const SCALAR: bool, const N: usize>(PhantomData<(S, T)>);

impl<S: Space, T: Truncate, const SCALAR: bool, const N: usize> Operation for Store<S, T, SCALAR, N> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let (mask, values) = (warp.mask, targets(env, inst, inst.b));
        next(S::store::<T, SCALAR, N>(&mut Access { warp, env, inst }, mask, &values), pc)
    }
}

const _: () = assert!(SHARED_WORDS == 1 << 16, "an index of 16 bits reaches every word");
