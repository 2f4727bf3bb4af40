//! Accesses through generic addresses, whose value says which memory they name, and to parameters.

use super::address::{Failed, Near, good, read_only, wide, wrong};
use super::element::{Elements, Extend, Truncate};
use super::global::Global;
use super::global::{global_load, global_store};
use super::local::Local;
use super::local::{local_load, local_store};
use super::shared::Shared;
use super::shared::{shared_load, shared_store};
use super::space::Space;
use crate::machine::{Env, Inst, LANES, Slot, Warp};
use vgpu_arena::for_active;
use vgpu_ptx::ir::window;

/// Masks of the lanes whose generic addresses name each memory. The other lanes access device memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Split {
    pub(crate) shared: u32,
    pub(crate) local: u32,
    pub(crate) param: u32,
}

impl Split {
    /// Finds the memory that each active lane names.
    #[inline(always)]
    pub(crate) fn by_window(addresses: &[u64; LANES], mask: u32) -> Self {
        let mut split = Self::default();
        // All three windows lie below 2^42, device memory above or below, and most accesses are to that.
        let mut near = false;
        for &address in addresses {
            near |= address >> 32 == window::SHARED >> 32
                || address >> 32 == window::LOCAL >> 32
                || address >> 32 == window::PARAM >> 32;
        }
        if near {
            for (lane, &address) in addresses.iter().enumerate() {
                let lane = mask & 1 << lane;
                match address & !(window::BYTES - 1) {
                    window::SHARED => split.shared |= lane,
                    window::LOCAL => split.local |= lane,
                    window::PARAM => split.param |= lane,
                    _ => {}
                }
            }
        }
        split
    }

    /// Returns whether all lanes of `mask` name one memory. Otherwise the lanes are executed one by one, so
    /// that the lowest refused lane decides the fault.
    pub(crate) const fn agrees(&self, mask: u32) -> bool {
        let device = mask & !(self.shared | self.local | self.param);
        device == mask || self.shared == mask || self.local == mask || self.param == mask
    }
}

/// The lanes of a mask, each as a mask of its own, in order.
pub(crate) fn each(mask: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(mask), |rest| Some(rest & rest.wrapping_sub(1)))
        .take_while(|rest| *rest != 0)
        .map(|rest| rest & rest.wrapping_neg())
}

/// The generic state space: device, shared, local and parameter memory.
pub(crate) struct Generic;

impl Space for Generic {
    type Address = u64;

    fn load_lane<E: Extend, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        inst: &Inst,
        base: u64,
        lane: usize,
    ) -> Result<[E::D; N], Failed> {
        match base.wrapping_add(inst.imm) & !(window::BYTES - 1) {
            window::SHARED => Shared::load_lane::<E, N>(warp, env, inst, base, lane),
            window::LOCAL => Local::load_lane::<E, N>(warp, env, inst, base, lane),
            window::PARAM => {
                let address = (base as u32).wrapping_add(inst.imm as u32);
                let mut out = [[E::D::default(); LANES]; N];
                param_load::<E, N>(warp, env, inst, &[address; LANES], 1 << lane, &mut out)?;
                Ok(out.map(|lanes| lanes[lane]))
            }
            _ => Global::load_lane::<E, N>(warp, env, inst, base, lane),
        }
    }

    #[inline(always)]
    fn load<E: Extend, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        inst: &Inst,
        mask: u32,
        out: &mut Elements<E::D, N>,
    ) -> Result<(), Failed> {
        let addresses = wide::<SCALAR>(&warp.frame, inst);
        let split = Split::by_window(&addresses, mask);
        if split.agrees(mask) {
            return load_from::<E, N>(warp, env, inst, (&addresses, mask), &split, out);
        }
        each(mask).try_for_each(|lane| load_from::<E, N>(warp, env, inst, (&addresses, lane), &split, out))
    }

    #[inline(always)]
    fn store<T: Truncate, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        inst: &Inst,
        mask: u32,
        values: &[Slot; N],
    ) -> Result<(), Failed> {
        let addresses = wide::<SCALAR>(&warp.frame, inst);
        let split = Split::by_window(&addresses, mask);
        if split.agrees(mask) {
            return store_to::<T, N>(warp, env, inst, (&addresses, mask), &split, values);
        }
        each(mask).try_for_each(|lane| store_to::<T, N>(warp, env, inst, (&addresses, lane), &split, values))
    }
}

/// Loads lanes that name one memory.
fn load_from<E: Extend, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    inst: &Inst,
    (addresses, mask): (&[u64; LANES], u32),
    split: &Split,
    out: &mut Elements<E::D, N>,
) -> Result<(), Failed> {
    let near = || addresses.map(|address| address as u32);
    if split.shared & mask != 0 {
        shared_load::<E, N>(warp, env, inst, &near(), mask, out)
    } else if split.local & mask != 0 {
        local_load::<E, N>(warp, env, inst, &near(), mask, out)
    } else if split.param & mask != 0 {
        param_load::<E, N>(warp, env, inst, &near(), mask, out)
    } else {
        global_load::<E, N>(warp, env, inst, addresses, mask, out)
    }
}

/// Stores lanes that name one memory.
fn store_to<T: Truncate, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    inst: &Inst,
    (addresses, mask): (&[u64; LANES], u32),
    split: &Split,
    values: &[Slot; N],
) -> Result<(), Failed> {
    let near = || addresses.map(|address| address as u32);
    if split.shared & mask != 0 {
        shared_store::<T, N>(warp, env, inst, &near(), mask, values)
    } else if split.local & mask != 0 {
        local_store::<T, N>(warp, env, inst, &near(), mask, values)
    } else if split.param & mask != 0 {
        Err(read_only(warp, env, inst.line, &near(), mask))
    } else {
        global_store::<T, N>(warp, env, inst, addresses, mask, values)
    }
}

/// Loads lanes from the parameters.
fn param_load<E: Extend, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    inst: &Inst,
    addresses: &[u32; LANES],
    mask: u32,
    out: &mut Elements<E::D, N>,
) -> Result<(), Failed> {
    let size = size_of::<E::T>();
    if !good(addresses, mask, (size * N) as u32, env.params.len() as u32) {
        return Err(wrong(Near::Param, warp, env, inst.line, addresses, mask, (size * N) as u32));
    }
    for_active(mask, |lane| {
        for (element, out) in out.iter_mut().enumerate() {
            let from = addresses[lane] as usize + size * element;
            let mut value = E::T::default();
            if let Some(bytes) = env.params.get(from..from + size) {
                zerocopy::IntoBytes::as_mut_bytes(&mut value).copy_from_slice(bytes);
            }
            out[lane] = E::extend(value);
        }
    });
    Ok(())
}
