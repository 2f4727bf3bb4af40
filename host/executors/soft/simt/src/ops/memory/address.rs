//! Addresses of lanes, and their checks in memories whose addresses start at 0.

use crate::fault::Fault;
use crate::machine::{Env, Frame, Inst, LANES, Warp};

/// What the step of an access that failed returns.
pub(super) type Failed = u32;

/// The addresses of all lanes in shared or local memory: 32 bits.
#[inline(always)]
pub(super) fn narrow<const SCALAR: bool>(frame: &Frame, inst: &Inst) -> [u32; LANES] {
    let offset = inst.imm as u32;
    if SCALAR {
        return [frame.get::<u32>(inst.a).wrapping_add(offset); LANES];
    }
    let base = frame.vector::<u32>(inst.a);
    std::array::from_fn(|lane| base[lane].wrapping_add(offset))
}

/// Returns the addresses of all lanes in device memory, or their generic addresses.
#[inline(always)]
pub(super) fn wide<const SCALAR: bool>(frame: &Frame, inst: &Inst) -> [u64; LANES] {
    if SCALAR {
        return [frame.get::<u64>(inst.a).wrapping_add(inst.imm); LANES];
    }
    let base = frame.vector::<u64>(inst.a);
    let mut addresses = [0; LANES];
    for lane in 0..LANES {
        addresses[lane] = base[lane].wrapping_add(inst.imm);
    }
    addresses
}

/// Why an address of shared, local or parameter memory is refused.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Misaligned,
    Beyond,
}

/// Finds the first lane whose address is refused.
#[cold]
#[inline(never)]
fn find_wrong(addresses: &[u32; LANES], mask: u32, size: u32, bytes: u32) -> (usize, Wrong) {
    for lane in 0..LANES {
        if mask >> lane & 1 == 0 {
            continue;
        }
        if !addresses[lane].is_multiple_of(size) {
            return (lane, Wrong::Misaligned);
        }
        if bytes < size || addresses[lane] > bytes - size {
            return (lane, Wrong::Beyond);
        }
    }
    (0, Wrong::Beyond)
}

/// A memory whose addresses start at 0.
#[derive(Clone, Copy, Debug)]
pub(super) enum Near {
    Shared,
    Local,
    Param,
}

/// Ends the launch because of the first lane whose address is wrong.
#[cold]
#[inline(never)]
pub(super) fn wrong(
    near: Near,
    warp: &mut Warp,
    env: &mut Env<'_>,
    line: u32,
    addresses: &[u32; LANES],
    mask: u32,
    size: u32,
) -> Failed {
    let bytes = match near {
        Near::Shared => env.shared.bytes,
        Near::Local => env.local[warp.index as usize].bytes,
        Near::Param => env.params.len() as u32,
    };
    let (lane, wrong) = find_wrong(addresses, mask, size, bytes);
    let address = u64::from(addresses[lane]);
    let site = env.site(warp, line, 1 << lane);
    let fault = match (wrong, near) {
        (Wrong::Misaligned, _) => Fault::Misaligned { address, site },
        (Wrong::Beyond, Near::Shared) => Fault::SharedOutOfBounds { address, site },
        (Wrong::Beyond, Near::Local) => Fault::LocalOutOfBounds { address, site },
        (Wrong::Beyond, Near::Param) => Fault::ParamOutOfBounds { address, site },
    };
    env.fail(warp, fault)
}

/// Ends the launch because of the first lane: parameters cannot be written.
#[cold]
#[inline(never)]
pub(super) fn read_only(
    warp: &mut Warp,
    env: &mut Env<'_>,
    line: u32,
    addresses: &[u32; LANES],
    mask: u32,
) -> Failed {
    let address = u64::from(addresses[mask.trailing_zeros() as usize % LANES]);
    let site = env.site(warp, line, mask);
    env.fail(warp, Fault::ParamOutOfBounds { address, site })
}

/// Returns whether a lane may access `size` bytes at `address` in a memory of `bytes`.
#[inline(always)]
pub(super) const fn within(address: u32, size: u32, bytes: u32) -> bool {
    address.is_multiple_of(size) && bytes >= size && address <= bytes - size
}

/// Returns whether all lanes of `mask` may access `size` bytes in a memory of `bytes`.
#[inline(always)]
pub(super) fn good(addresses: &[u32; LANES], mask: u32, size: u32, bytes: u32) -> bool {
    if bytes < size {
        return false;
    }
    let last = bytes - size;
    let mut wrong = 0;
    if mask == u32::MAX {
        for &address in addresses {
            wrong |= u32::from(address > last) | address & (size - 1);
        }
    } else {
        for (lane, &address) in addresses.iter().enumerate() {
            wrong |= (u32::from(address > last) | address & (size - 1)) & (mask >> lane & 1).wrapping_neg();
        }
    }
    wrong == 0
}

/// The addresses of all lanes in a memory whose addresses start at 0.
pub(crate) struct NearAccess<'a> {
    pub(crate) addresses: &'a [u32; LANES],
    pub(crate) size: u32,
    pub(crate) line: u32,
}

impl NearAccess<'_> {
    /// Checks that shared memory has what the lanes of `mask` access.
    pub(crate) fn check_shared(&self, warp: &mut Warp, env: &mut Env<'_>, mask: u32) -> Result<(), Failed> {
        if good(self.addresses, mask, self.size, env.shared.bytes) {
            return Ok(());
        }
        Err(wrong(Near::Shared, warp, env, self.line, self.addresses, mask, self.size))
    }

    /// Checks that local memory has what the lanes of `mask` access.
    pub(crate) fn check_local(&self, warp: &mut Warp, env: &mut Env<'_>, mask: u32) -> Result<(), Failed> {
        if good(self.addresses, mask, self.size, env.local[warp.index as usize].bytes) {
            return Ok(());
        }
        Err(wrong(Near::Local, warp, env, self.line, self.addresses, mask, self.size))
    }

    /// Ends the launch: parameters cannot be written.
    pub(crate) fn refuse_param(&self, warp: &mut Warp, env: &mut Env<'_>, mask: u32) -> Failed {
        read_only(warp, env, self.line, self.addresses, mask)
    }
}
