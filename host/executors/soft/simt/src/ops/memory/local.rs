//! Accesses to local memory.

use super::address::{Failed, Near, good, narrow, within, wrong};
use super::element::{Elements, Extend, Truncate};
use super::space::Space;
use crate::machine::{Env, Inst, Isa, LANES, Slot, Warp, Words};
use vgpu_arena::{Element, for_active};

/// Local memory, which belongs to the thread.
pub(crate) struct Local;

impl Space for Local {
    type Address = u32;

    #[inline(always)]
    fn load_lane<E: Extend, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        inst: &Inst,
        base: u64,
        lane: usize,
    ) -> Result<[E::D; N], Failed> {
        let address = (base as u32).wrapping_add(inst.imm as u32);
        let size = E::T::BYTES as u32;
        let bytes = size * N as u32;
        let local = &mut env.local[warp.index as usize];
        if !within(address, bytes, local.bytes) {
            return Err(wrong(Near::Local, warp, env, inst.line, &[address; LANES], 1 << lane, bytes));
        }
        let memory = local.lane(lane);
        Ok(std::array::from_fn(|element| E::extend(memory.read(address + size * element as u32))))
    }

    #[inline(always)]
    fn load<E: Extend, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        inst: &Inst,
        mask: u32,
        out: &mut Elements<E::D, N>,
    ) -> Result<(), Failed> {
        let addresses = narrow::<SCALAR>(&warp.frame, inst);
        local_load::<E, N>(warp, env, inst, &addresses, mask, out)
    }

    #[inline(always)]
    fn load_all<I: Isa, E: Extend, const SCALAR: bool, const N: usize, const L: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        inst: &Inst,
        to: &[Slot; N],
    ) -> bool {
        // All lanes access the same word, which is one row of memory.
        if !SCALAR || E::T::BYTES != 4 {
            return false;
        }
        let address = warp.frame.get::<u32>(inst.a).wrapping_add(inst.imm as u32);
        let local = &env.local[warp.index as usize];
        let bytes = 4 * N as u32;
        if !within(address, bytes, local.bytes) {
            return false;
        }
        for (element, &to) in to.iter().enumerate() {
            if let Some(row) = local.row(address + 4 * element as u32) {
                *warp.frame.vector_mut::<u32>(to) = *row;
            }
        }
        true
    }

    #[inline(always)]
    fn store<T: Truncate, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        inst: &Inst,
        mask: u32,
        values: &[Slot; N],
    ) -> Result<(), Failed> {
        let addresses = narrow::<SCALAR>(&warp.frame, inst);
        local_store::<T, N>(warp, env, inst, &addresses, mask, values)
    }
}

#[inline(always)]
pub(super) fn local_load<E: Extend, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    inst: &Inst,
    addresses: &[u32; LANES],
    mask: u32,
    out: &mut Elements<E::D, N>,
) -> Result<(), Failed> {
    let size = E::T::BYTES as u32;
    let local = &mut env.local[warp.index as usize];
    if !good(addresses, mask, size * N as u32, local.bytes) {
        return Err(wrong(Near::Local, warp, env, inst.line, addresses, mask, size * N as u32));
    }
    for_active(mask, |lane| {
        for element in 0..N {
            let value = local.lane(lane).read(addresses[lane] + size * element as u32);
            out[element][lane] = E::extend(value);
        }
    });
    Ok(())
}

#[inline(always)]
pub(super) fn local_store<T: Truncate, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    inst: &Inst,
    addresses: &[u32; LANES],
    mask: u32,
    values: &[Slot; N],
) -> Result<(), Failed> {
    let size = T::BYTES as u32;
    let local = &mut env.local[warp.index as usize];
    if !good(addresses, mask, size * N as u32, local.bytes) {
        return Err(wrong(Near::Local, warp, env, inst.line, addresses, mask, size * N as u32));
    }
    let values: [&[T::S; LANES]; N] = std::array::from_fn(|element| warp.frame.vector(values[element]));
    for_active(mask, |lane| {
        for element in 0..N {
            let value = T::truncate(values[element][lane]);
            local.lane(lane).write(addresses[lane] + size * element as u32, value);
        }
    });
    Ok(())
}
