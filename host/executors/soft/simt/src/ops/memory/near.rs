//! Loads and stores of memories whose addresses start at 0, which are the block's shared memory and the
//! thread's local memory.

use super::address::{Access, Failed, Near, NearAccess, narrow, within};
use super::element::{Elements, Extend, Truncate};
use super::space::Space;
use crate::machine::{Env, Isa, LANES, LocalMemory, SharedMemory, Slot, Words};
use vgpu_arena::{Element, for_active};

/// A memory in which each lane has its own words, or all lanes share the same words.
pub(crate) trait LaneWords {
    /// Returns the words that a lane accesses.
    fn lane_words(&mut self, lane: usize) -> impl Words;
}

impl LaneWords for SharedMemory {
    #[inline(always)]
    fn lane_words(&mut self, _: usize) -> impl Words {
        self
    }
}

impl LaneWords for LocalMemory {
    #[inline(always)]
    fn lane_words(&mut self, lane: usize) -> impl Words {
        self.lane(lane)
    }
}

/// A state space whose addresses have 32 bits and start at 0.
pub(crate) trait NearSpace: 'static {
    const NEAR: Near;
    type Memory: LaneWords;

    /// Returns the memory of the warp with the index `warp` in its block.
    fn memory<'m>(env: &'m mut Env<'_>, warp: u32) -> &'m mut Self::Memory;

    /// Loads the first `L` lanes, under the conditions of [`Space::load_all`].
    fn load_first<I: Isa, E: Extend, const SCALAR: bool, const N: usize, const L: usize>(
        access: &mut Access<'_, '_>,
        to: &[Slot; N],
    ) -> bool;

    /// Stores the lanes of `mask` together. Returns false, without having stored anything, if that is not
    /// possible.
    #[inline(always)]
    fn store_together<T: Truncate, const SCALAR: bool, const N: usize>(
        _: &mut Access<'_, '_>,
        _mask: u32,
        _: &[Slot; N],
    ) -> bool {
        false
    }
}

impl<S: NearSpace> Space for S {
    type Address = u32;

    #[inline(always)]
    fn load_lane<E: Extend, const N: usize>(
        access: &mut Access<'_, '_>,
        base: u64,
        lane: usize,
    ) -> Result<[E::D; N], Failed> {
        let address = (base as u32).wrapping_add(access.inst.imm as u32);
        let size = E::T::BYTES as u32;
        let lanes =
            NearAccess { addresses: &[address; LANES], size: size * N as u32, line: access.inst.line };
        if !within(address, lanes.size, S::NEAR.bytes(access.warp, access.env)) {
            return Err(lanes.wrong(S::NEAR, access.warp, access.env, 1 << lane));
        }
        let memory = S::memory(access.env, access.warp.index).lane_words(lane);
        Ok(std::array::from_fn(|element| E::extend(memory.read(address + size * element as u32))))
    }

    #[inline(always)]
    fn load<E: Extend, const SCALAR: bool, const N: usize>(
        access: &mut Access<'_, '_>,
        mask: u32,
        out: &mut Elements<E::D, N>,
    ) -> Result<(), Failed> {
        let addresses = narrow::<SCALAR>(&access.warp.frame, access.inst);
        near_load::<S, E, N>(access, &addresses, mask, out)
    }

    #[inline(always)]
    fn load_all<I: Isa, E: Extend, const SCALAR: bool, const N: usize, const L: usize>(
        access: &mut Access<'_, '_>,
        to: &[Slot; N],
    ) -> bool {
        S::load_first::<I, E, SCALAR, N, L>(access, to)
    }

    #[inline(always)]
    fn store<T: Truncate, const SCALAR: bool, const N: usize>(
        access: &mut Access<'_, '_>,
        mask: u32,
        values: &[Slot; N],
    ) -> Result<(), Failed> {
        if S::store_together::<T, SCALAR, N>(access, mask, values) {
            return Ok(());
        }
        let addresses = narrow::<SCALAR>(&access.warp.frame, access.inst);
        near_store::<S, T, N>(access, &addresses, mask, values)
    }
}

/// Loads the lanes of `mask` from `addresses`, after checking them.
#[inline(always)]
pub(super) fn near_load<S: NearSpace, E: Extend, const N: usize>(
    Access { warp, env, inst }: &mut Access<'_, '_>,
    addresses: &[u32; LANES],
    mask: u32,
    out: &mut Elements<E::D, N>,
) -> Result<(), Failed> {
    let size = E::T::BYTES as u32;
    NearAccess { addresses, size: size * N as u32, line: inst.line }.check(S::NEAR, warp, env, mask)?;
    let memory = S::memory(env, warp.index);
    for_active(mask, |lane| {
        for element in 0..N {
            let value = memory.lane_words(lane).read(addresses[lane] + size * element as u32);
            out[element][lane] = E::extend(value);
        }
    });
    Ok(())
}

/// Stores the lanes of `mask` to `addresses`, after checking them.
#[inline(always)]
pub(super) fn near_store<S: NearSpace, T: Truncate, const N: usize>(
    Access { warp, env, inst }: &mut Access<'_, '_>,
    addresses: &[u32; LANES],
    mask: u32,
    values: &[Slot; N],
) -> Result<(), Failed> {
    let size = T::BYTES as u32;
    NearAccess { addresses, size: size * N as u32, line: inst.line }.check(S::NEAR, warp, env, mask)?;
    let memory = S::memory(env, warp.index);
    let values: [&[T::S; LANES]; N] = std::array::from_fn(|element| warp.frame.vector(values[element]));
    for_active(mask, |lane| {
        for element in 0..N {
            let value = T::truncate(values[element][lane]);
            memory.lane_words(lane).write(addresses[lane] + size * element as u32, value);
        }
    });
    Ok(())
}
