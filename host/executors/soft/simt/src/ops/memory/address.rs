//! Computes the addresses of lanes, and checks those in memories whose addresses start at 0.

use crate::fault::Fault;
use crate::machine::{Env, Frame, Inst, LANES, Warp};

/// Next instruction after a failed access: the value that the access's instruction returns.
pub(crate) type Failed = u32;

/// A load or store that is being executed, with its warp and environment.
pub(crate) struct Access<'a, 'e> {
    pub(crate) warp: &'a mut Warp,
    pub(crate) env: &'a mut Env<'e>,
    pub(crate) inst: &'a Inst,
}

/// Returns the index of the instruction after `pc`, or the return value of a failed instruction.
#[inline(always)]
pub(crate) fn next(done: Result<(), Failed>, pc: u32) -> u32 {
    match done {
        Ok(()) => pc + 1,
        Err(failed) => failed,
    }
}

/// Returns the 32-bit addresses of all lanes in shared or local memory: base and offset. With `SCALAR`, lanes
/// share the base.
#[inline(always)]
pub(super) fn narrow<const SCALAR: bool>(frame: &Frame, inst: &Inst) -> [u32; LANES] {
    let offset = inst.imm as u32;
    if SCALAR {
        return [frame.get::<u32>(inst.a).wrapping_add(offset); LANES];
    }
    let base = frame.vector::<u32>(inst.a);
    std::array::from_fn(|lane| base[lane].wrapping_add(offset))
}

/// Returns the 64-bit addresses of all lanes, in device memory or generic: base and offset. With `SCALAR`,
/// lanes share the base.
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

/// Reason why an address of shared, local or parameter memory is refused.
#[derive(Clone, Copy, Debug)]
enum AddressError {
    Misaligned,
    OutOfBounds,
}

/// Finds the lowest lane of `mask` whose address is refused, and why.
#[cold]
#[inline(never)]
fn find_wrong(addresses: &[u32; LANES], mask: u32, size: u32, bytes: u32) -> (usize, AddressError) {
    for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
        if !addresses[lane].is_multiple_of(size) {
            return (lane, AddressError::Misaligned);
        }
        if bytes < size || addresses[lane] > bytes - size {
            return (lane, AddressError::OutOfBounds);
        }
    }
    (0, AddressError::OutOfBounds)
}

/// A state space whose addresses start at 0.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Near {
    Shared,
    Local,
    Param,
}

impl Near {
    /// Returns the size of the memory in bytes. For local memory it is the size for one thread.
    #[inline(always)]
    pub(super) fn bytes(self, warp: &Warp, env: &Env<'_>) -> u32 {
        match self {
            Self::Shared => env.shared.bytes,
            Self::Local => env.local[warp.index as usize].bytes,
            Self::Param => env.params.len() as u32,
        }
    }
}

/// Returns whether a lane may access `size` bytes at `address`, which must be aligned to `size`, in a memory
/// of `bytes` bytes.
#[inline(always)]
pub(super) const fn within(address: u32, size: u32, bytes: u32) -> bool {
    address.is_multiple_of(size) && bytes >= size && address <= bytes - size
}

/// Returns whether each lane of `mask` may access `size` bytes at its address, aligned to `size`, in a memory
/// of `bytes` bytes.
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

/// The addresses of all lanes in a state space whose addresses start at 0.
pub(crate) struct NearAccess<'a> {
    pub(crate) addresses: &'a [u32; LANES],
    /// Number of bytes that each lane accesses, which is also the alignment.
    pub(crate) size: u32,
    pub(crate) line: u32,
}

impl NearAccess<'_> {
    /// Checks the addresses of the lanes of `mask`. A refused address ends the launch with a fault of the
    /// lowest such lane.
    #[inline(always)]
    pub(crate) fn check(
        &self,
        near: Near,
        warp: &mut Warp,
        env: &mut Env<'_>,
        mask: u32,
    ) -> Result<(), Failed> {
        if good(self.addresses, mask, self.size, near.bytes(warp, env)) {
            return Ok(());
        }
        Err(self.wrong(near, warp, env, mask))
    }

    /// Ends the launch with the fault of the lowest lane whose address is refused.
    #[cold]
    #[inline(never)]
    pub(super) fn wrong(&self, near: Near, warp: &mut Warp, env: &mut Env<'_>, mask: u32) -> Failed {
        let (lane, error) = find_wrong(self.addresses, mask, self.size, near.bytes(warp, env));
        let address = u64::from(self.addresses[lane]);
        let site = env.site(warp, self.line, 1 << lane);
        let fault = match (error, near) {
            (AddressError::Misaligned, _) => Fault::Misaligned { address, site },
            (AddressError::OutOfBounds, Near::Shared) => Fault::SharedOutOfBounds { address, site },
            (AddressError::OutOfBounds, Near::Local) => Fault::LocalOutOfBounds { address, site },
            (AddressError::OutOfBounds, Near::Param) => Fault::ParamOutOfBounds { address, site },
        };
        env.fail(warp, fault)
    }

    /// Ends the launch with [`Fault::ParamOutOfBounds`], because parameters cannot be written.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse_param(&self, warp: &mut Warp, env: &mut Env<'_>, mask: u32) -> Failed {
        let address = u64::from(self.addresses[mask.trailing_zeros() as usize % LANES]);
        let site = env.site(warp, self.line, mask);
        env.fail(warp, Fault::ParamOutOfBounds { address, site })
    }
}
