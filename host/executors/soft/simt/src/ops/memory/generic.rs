//! Accesses through generic addresses, which select the state space, and accesses to parameters.

use super::address::{Access, Failed, Near, NearAccess, wide};
use super::element::{Elements, Extend, Truncate};
use super::global::{Global, global_load, global_store};
use super::local::Local;
use super::near::{near_load, near_store};
use super::shared::Shared;
use super::space::Space;
use crate::machine::{LANES, Slot};
use vgpu_arena::for_active;
use vgpu_ptx::ir::window;

/// Masks of the lanes whose generic addresses select each state space. All other lanes access device memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowLanes {
    pub(crate) shared: u32,
    pub(crate) local: u32,
    pub(crate) param: u32,
}

impl WindowLanes {
    /// Determines the state space that the address of each lane of `mask` selects.
    #[inline(always)]
    pub(crate) fn by_window(addresses: &[u64; LANES], mask: u32) -> Self {
        let mut windows = Self::default();
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
                    window::SHARED => windows.shared |= lane,
                    window::LOCAL => windows.local |= lane,
                    window::PARAM => windows.param |= lane,
                    _ => {}
                }
            }
        }
        windows
    }

    /// Returns whether all lanes of `mask` access the same memory. Otherwise the lanes are executed one by
    /// one, so that the lowest refused lane determines the fault.
    pub(crate) const fn agrees(&self, mask: u32) -> bool {
        let device = mask & !(self.shared | self.local | self.param);
        device == mask || self.shared == mask || self.local == mask || self.param == mask
    }
}

/// Iterates over the lanes of a mask in order, each as a mask of its own.
pub(crate) fn single_lanes(mask: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(mask), |rest| Some(rest & rest.wrapping_sub(1)))
        .take_while(|rest| *rest != 0)
        .map(|rest| rest & rest.wrapping_neg())
}

/// The generic state space: device, shared, local and parameter memory.
pub(crate) struct Generic;

impl Space for Generic {
    type Address = u64;

    fn load_lane<E: Extend, const N: usize>(
        access: &mut Access<'_, '_>,
        base: u64,
        lane: usize,
    ) -> Result<[E::D; N], Failed> {
        match base.wrapping_add(access.inst.imm) & !(window::BYTES - 1) {
            window::SHARED => Shared::load_lane::<E, N>(access, base, lane),
            window::LOCAL => Local::load_lane::<E, N>(access, base, lane),
            window::PARAM => {
                let address = (base as u32).wrapping_add(access.inst.imm as u32);
                let mut out = [[E::D::default(); LANES]; N];
                param_load::<E, N>(access, &[address; LANES], 1 << lane, &mut out)?;
                Ok(out.map(|lanes| lanes[lane]))
            }
            _ => Global::load_lane::<E, N>(access, base, lane),
        }
    }

    #[inline(always)]
    fn load<E: Extend, const SCALAR: bool, const N: usize>(
        access: &mut Access<'_, '_>,
        mask: u32,
        out: &mut Elements<E::D, N>,
    ) -> Result<(), Failed> {
        let addresses = wide::<SCALAR>(&access.warp.frame, access.inst);
        let windows = WindowLanes::by_window(&addresses, mask);
        if windows.agrees(mask) {
            return load_from::<E, N>(access, (&addresses, mask), &windows, out);
        }
        single_lanes(mask).try_for_each(|lane| load_from::<E, N>(access, (&addresses, lane), &windows, out))
    }

    #[inline(always)]
    fn store<T: Truncate, const SCALAR: bool, const N: usize>(
        access: &mut Access<'_, '_>,
        mask: u32,
        values: &[Slot; N],
    ) -> Result<(), Failed> {
        let addresses = wide::<SCALAR>(&access.warp.frame, access.inst);
        let windows = WindowLanes::by_window(&addresses, mask);
        if windows.agrees(mask) {
            return store_to::<T, N>(access, (&addresses, mask), &windows, values);
        }
        single_lanes(mask).try_for_each(|lane| store_to::<T, N>(access, (&addresses, lane), &windows, values))
    }
}

/// Loads lanes whose addresses are in the same state space, and converts generic addresses to its own.
fn load_from<E: Extend, const N: usize>(
    access: &mut Access<'_, '_>,
    (addresses, mask): (&[u64; LANES], u32),
    windows: &WindowLanes,
    out: &mut Elements<E::D, N>,
) -> Result<(), Failed> {
    let near = || addresses.map(|address| address as u32);
    if windows.shared & mask != 0 {
        near_load::<Shared, E, N>(access, &near(), mask, out)
    } else if windows.local & mask != 0 {
        near_load::<Local, E, N>(access, &near(), mask, out)
    } else if windows.param & mask != 0 {
        param_load::<E, N>(access, &near(), mask, out)
    } else {
        global_load::<E, N>(access, addresses, mask, out)
    }
}

/// Stores lanes whose addresses are in the same state space, and converts generic addresses to its own.
fn store_to<T: Truncate, const N: usize>(
    access: &mut Access<'_, '_>,
    (addresses, mask): (&[u64; LANES], u32),
    windows: &WindowLanes,
    values: &[Slot; N],
) -> Result<(), Failed> {
    let near = || addresses.map(|address| address as u32);
    if windows.shared & mask != 0 {
        near_store::<Shared, T, N>(access, &near(), mask, values)
    } else if windows.local & mask != 0 {
        near_store::<Local, T, N>(access, &near(), mask, values)
    } else if windows.param & mask != 0 {
        let lanes = NearAccess { addresses: &near(), size: 0, line: access.inst.line };
        Err(lanes.refuse_param(access.warp, access.env, mask))
    } else {
        global_store::<T, N>(access, addresses, mask, values)
    }
}

/// Loads lanes from the kernel's parameters, after checking the addresses.
fn param_load<E: Extend, const N: usize>(
    Access { warp, env, inst }: &mut Access<'_, '_>,
    addresses: &[u32; LANES],
    mask: u32,
    out: &mut Elements<E::D, N>,
) -> Result<(), Failed> {
    let size = size_of::<E::T>();
    NearAccess { addresses, size: (size * N) as u32, line: inst.line }.check(Near::Param, warp, env, mask)?;
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
