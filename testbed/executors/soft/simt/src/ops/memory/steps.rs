//! The steps: loads and stores in any space.

use super::{Extend, FEW, FEWER, Failed, FromU16, Global, Space, Truncate};
use crate::env::Env;
use crate::machine::{Isa, LANES, Run, Slot, Step};
use crate::memory::SHARED_WORDS;
use crate::program::MemoryStep;
use crate::warp::Warp;
use std::marker::PhantomData;
use vgpu_arena::{Halves, for_active};

/// Loads into registers that lanes have of their own. `x`: index of the [`MemoryStep`]; `y`: window.
pub(crate) struct Load<S, E, const SCALAR: bool, const N: usize>(PhantomData<(S, E)>);

impl<S: Space, E: Extend, const SCALAR: bool, const N: usize> Run for Load<S, E, SCALAR, N> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        let slots: [Slot; N] = if N == 1 { [step.d; N] } else { targets(env, step) };
        if loads_all(warp, step) && S::load_all::<I, E, SCALAR, N>(warp, env, step, &slots) {
            return pc + 1;
        }
        match load_some::<S, E, SCALAR, N>(warp, env, step, &slots) {
            Ok(()) => pc + 1,
            Err(failed) => failed,
        }
    }
}

/// Whether to try and load all lanes: also where some are not active, if nobody reads what those get. Their addresses are
/// checked like the others', and usually those of elements behind the last that is wanted; lane by lane is slower.
#[inline(always)]
fn loads_all(warp: &Warp, step: &Step) -> bool {
    warp.mask == u32::MAX || (!step.blend && warp.mask.count_ones() > FEWER)
}

/// Loads the active lanes, whichever they are. Not for one instruction set: this is one function for all.
#[inline(never)]
fn load_some<S: Space, E: Extend, const SCALAR: bool, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    step: &Step,
    slots: &[Slot; N],
) -> Result<(), Failed> {
    let mask = warp.mask;
    if mask.count_ones() <= FEW {
        let mut rest = mask;
        while rest != 0 {
            let lane = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let base = S::base(&warp.frame, step, if SCALAR { None } else { Some(lane) });
            let values = S::load_lane::<E, N>(warp, env, step, base, lane)?;
            for (&slot, value) in slots.iter().zip(values) {
                warp.frame.vector_mut::<E::D>(slot)[lane] = value;
            }
        }
        return Ok(());
    }
    let mut out = [[E::D::default(); LANES]; N];
    S::load::<E, SCALAR, N>(warp, env, step, mask, &mut out)?;
    for (&slot, out) in slots.iter().zip(&out) {
        let to = warp.frame.vector_mut::<E::D>(slot);
        for_active(mask, |lane| to[lane] = out[lane]);
    }
    Ok(())
}

/// The registers of a vector.
#[inline(always)]
fn targets<const N: usize>(env: &Env<'_>, step: &Step) -> [Slot; N] {
    let MemoryStep { slots } = &env.tables.memory[step.x as usize];
    std::array::from_fn(|element| slots[element % slots.len()])
}

/// Two loads of 16 bits side by side and the word that they make: device memory, any even address.
pub(crate) struct LoadPair;

impl Run for LoadPair {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        if loads_all(warp, step)
            && let Some((bases, out)) = warp.frame.apart::<u64, u32>(step.a, step.d)
        {
            let window = &env.windows[step.y as usize];
            let (out, _) = out.as_chunks_mut::<4>();
            let done = env.view.load_fours::<Halves, 1>(window, bases, step.imm, 2, |four, _, values| {
                I::set4(values.map(|Halves(word)| word), &mut out[four]);
            });
            if done {
                return pc + 1;
            }
        }
        match load_pairs(warp, env, step) {
            Ok(()) => pc + 1,
            Err(failed) => failed,
        }
    }
}

/// The same lane by lane, of the active ones.
#[inline(never)]
fn load_pairs(warp: &mut Warp, env: &mut Env<'_>, step: &Step) -> Result<(), Failed> {
    let mut rest = warp.mask;
    while rest != 0 {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let base = warp.frame.vector::<u64>(step.a)[lane];
        let window = &env.windows[step.y as usize];
        if let Some(word) = env.view.load_halves(window, base.wrapping_add(step.imm)) {
            warp.frame.vector_mut::<u32>(step.d)[lane] = word;
            continue;
        }
        let mut second = step.clone();
        second.imm = step.imm.wrapping_add(2);
        let [low] = Global::load_lane::<FromU16, 1>(warp, env, step, base, lane)?;
        let [high] = Global::load_lane::<FromU16, 1>(warp, env, &second, base, lane)?;
        warp.frame.vector_mut::<u32>(step.d)[lane] = high << 16 | low;
    }
    Ok(())
}

/// Loads into registers that all lanes share, from an address that they share.
pub(crate) struct LoadScalar<S, E, const N: usize>(PhantomData<(S, E)>);

impl<S: Space, E: Extend, const N: usize> Run for LoadScalar<S, E, N> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        let lane = warp.mask.trailing_zeros() as usize % LANES;
        let base = S::base(&warp.frame, step, None);
        let values = match S::load_lane::<E, N>(warp, env, step, base, lane) {
            Ok(values) => values,
            Err(failed) => return failed,
        };
        let slots: [Slot; N] = if N == 1 { [step.d; N] } else { targets(env, step) };
        for (slot, value) in slots.into_iter().zip(values) {
            warp.frame.set(slot, value);
        }
        pc + 1
    }
}

/// Stores from registers that lanes have of their own.
pub(crate) struct Store<S, T, const SCALAR: bool, const N: usize>(PhantomData<(S, T)>);

impl<S: Space, T: Truncate, const SCALAR: bool, const N: usize> Run for Store<S, T, SCALAR, N> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        let values: [Slot; N] = if N == 1 { [step.b; N] } else { targets(env, step) };
        match S::store::<T, SCALAR, N>(warp, env, step, warp.mask, &values) {
            Ok(()) => pc + 1,
            Err(failed) => failed,
        }
    }
}

const _: () = assert!(SHARED_WORDS == 1 << 16, "what an index of 16 bits reaches");
