//! Accesses to device memory through the view of a launch.

use super::address::{Access, Failed, wide};
use super::element::{Elements, Extend, Truncate};
use super::space::{FEW, Space};
use crate::machine::{Isa, LANES, Slot};
use vgpu_arena::Element;

/// The global state space: device memory.
pub(crate) struct Global;

impl Space for Global {
    type Address = u64;

    #[inline(always)]
    fn load_lane<E: Extend, const N: usize>(
        Access { warp, env, inst }: &mut Access<'_, '_>,
        base: u64,
        lane: usize,
    ) -> Result<[E::D; N], Failed> {
        let window = &mut env.windows[inst.y as usize];
        match env.view.load_uniform_vec::<E::T, N>(window, base.wrapping_add(inst.imm)) {
            Ok(elements) => Ok(elements.map(E::extend)),
            Err(mut refusal) => {
                refusal.lane = lane as u32;
                Err(env.refused(warp, inst.line, &refusal))
            }
        }
    }

    #[inline(always)]
    fn load<E: Extend, const SCALAR: bool, const N: usize>(
        access: &mut Access<'_, '_>,
        mask: u32,
        out: &mut Elements<E::D, N>,
    ) -> Result<(), Failed> {
        let addresses = wide::<SCALAR>(&access.warp.frame, access.inst);
        global_load::<E, N>(access, &addresses, mask, out)
    }

    #[inline(always)]
    fn load_all<I: Isa, E: Extend, const SCALAR: bool, const N: usize, const L: usize>(
        Access { warp, env, inst }: &mut Access<'_, '_>,
        to: &[Slot; N],
    ) -> bool {
        let window = &env.windows[inst.y as usize];
        if N == 1 {
            let Some((bases, out)) = warp.frame.apart::<u64, E::D>(inst.a, to[0]) else { return false };
            let (Some(bases), (out, _)) = (bases.first_chunk(), out.as_chunks_mut::<8>()) else {
                return false;
            };
            return env.view.load_eights::<E::T, 1, L>(
                window,
                bases,
                inst.imm,
                E::T::BYTES,
                |eight, _, values| {
                    E::set::<I>(values, &mut out[eight]);
                },
            );
        }
        let Some(&bases) = warp.frame.vector::<u64>(inst.a).first_chunk() else { return false };
        env.view.load_eights::<E::T, N, L>(
            window,
            &bases,
            inst.imm,
            E::T::BYTES * N as u64,
            |eight, element, values| {
                E::set::<I>(
                    values,
                    &mut warp.frame.vector_mut::<E::D>(to[element]).as_chunks_mut::<8>().0[eight],
                );
            },
        )
    }

    #[inline(always)]
    fn store<T: Truncate, const SCALAR: bool, const N: usize>(
        access: &mut Access<'_, '_>,
        mask: u32,
        values: &[Slot; N],
    ) -> Result<(), Failed> {
        if N == 1 && mask.count_ones() <= FEW {
            return store_few::<T, SCALAR>(access, mask, values[0]);
        }
        let addresses = wide::<SCALAR>(&access.warp.frame, access.inst);
        global_store::<T, N>(access, &addresses, mask, values)
    }
}

#[inline(always)]
pub(super) fn global_load<E: Extend, const N: usize>(
    Access { warp, env, inst }: &mut Access<'_, '_>,
    addresses: &[u64; LANES],
    mask: u32,
    out: &mut Elements<E::D, N>,
) -> Result<(), Failed> {
    let window = &mut env.windows[inst.y as usize];
    let done = if N == 1 {
        env.view.load_with::<E::T>(window, addresses, mask, |lane, value| out[0][lane] = E::extend(value))
    } else {
        env.view.load_vec::<E::T>(
            window,
            addresses,
            mask,
            |lane, element, value| out[element][lane] = E::extend(value),
            N,
        )
    };
    done.map_err(|refusal| env.refused(warp, inst.line, &refusal))
}

#[inline(always)]
pub(super) fn global_store<T: Truncate, const N: usize>(
    Access { warp, env, inst }: &mut Access<'_, '_>,
    addresses: &[u64; LANES],
    mask: u32,
    values: &[Slot; N],
) -> Result<(), Failed> {
    let window = &mut env.windows[inst.y as usize];
    let values: [&[T::S; LANES]; N] = std::array::from_fn(|element| warp.frame.vector(values[element]));
    let done = env.view.store_vec::<T>(
        window,
        addresses,
        mask,
        |lane, element| T::truncate(values[element][lane]),
        N,
    );
    done.map_err(|refusal| env.refused(warp, inst.line, &refusal))
}

/// Stores lane by lane, without reading the values of inactive lanes.
#[inline(always)]
fn store_few<T: Truncate, const SCALAR: bool>(
    Access { warp, env, inst }: &mut Access<'_, '_>,
    mask: u32,
    values: Slot,
) -> Result<(), Failed> {
    let window = &mut env.windows[inst.y as usize];
    let mut rest = mask;
    while rest != 0 {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let base = <Global as Space>::base(&warp.frame, inst, if SCALAR { None } else { Some(lane) });
        let value = T::truncate(warp.frame.vector::<T::S>(values)[lane]);
        if let Err(mut refusal) = env.view.store_uniform(window, base.wrapping_add(inst.imm), value) {
            refusal.lane = lane as u32;
            return Err(env.refused(warp, inst.line, &refusal));
        }
    }
    Ok(())
}
