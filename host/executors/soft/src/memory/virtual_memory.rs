//! Virtual memory management: reserved addresses, physical memory, and mappings of physical memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use vgpu_arena::{AccessRights, ArenaError, Physical, PhysicalPool};
use vgpu_device::{Charge, NoAddresses, OutOfMemory, OverLimit, PoolCharge, Quota, Resource};
use vgpu_wire::body::memory::{MemMap, MemReserve, MemSetAccess, MemUnmap, MemUnreserve};

use super::region::{Region, TABLE_SHARE};

/// Addresses and lengths are multiples of this number of bytes, the device's `granularity`.
const GRANULE: u64 = 2 << 20;

/// Reason for which a call of virtual memory management is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VirtualError {
    /// The host or the device has no memory: `CUDA_ERROR_OUT_OF_MEMORY`.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// There are no addresses for a reservation: `CUDA_ERROR_OUT_OF_MEMORY`.
    #[error(transparent)]
    NoAddresses(#[from] NoAddresses),
    /// The session has reached its limit of reservations: `CUDA_ERROR_OUT_OF_MEMORY`.
    #[error(transparent)]
    TooMany(#[from] OverLimit),
    /// An argument is invalid: `CUDA_ERROR_INVALID_VALUE`.
    #[error("{0}")]
    Invalid(&'static str),
    /// The arena refuses the call: `CUDA_ERROR_INVALID_VALUE`, or `CUDA_ERROR_OUT_OF_MEMORY` if the system
    /// refused.
    #[error(transparent)]
    Arena(#[from] ArenaError),
}

/// Physical memory with its charge against the device's account.
#[derive(Debug)]
struct Owned {
    physical: Physical,
    _taken: PoolCharge,
}

/// A mapping of physical memory at reserved addresses.
#[derive(Debug)]
struct VirtualMapping {
    bytes: u64,
    _of: Arc<Owned>,
    _count: Charge,
    /// The charge for the host's page tables.
    _tables: Charge,
}

/// A session's reservations, physical memory and mappings.
#[derive(Debug, Default)]
pub(crate) struct VirtualMemory {
    /// The size and the charge of each reservation, by its address.
    reservations: BTreeMap<u64, (u64, Charge)>,
    /// The pool of physical memory, once some has been created.
    pool: Option<PhysicalPool>,
    physical: HashMap<u32, (Arc<Owned>, Charge)>,
    mappings: BTreeMap<u64, VirtualMapping>,
}

impl VirtualMemory {
    /// Returns the number of objects that `cuMemCreate` made.
    pub(crate) fn count(&self) -> usize {
        self.physical.len()
    }

    /// Carries out `cuMemAddressReserve` and returns the address. An alignment of 0 stands for [`GRANULE`].
    pub(crate) fn reserve(
        &mut self,
        region: &Region,
        share: &Quota,
        body: &MemReserve,
    ) -> Result<u64, VirtualError> {
        let power = body.alignment == 0 || body.alignment.is_power_of_two();
        if body.bytes == 0 || !body.bytes.is_multiple_of(GRANULE) || !power {
            return Err(VirtualError::Invalid("a reservation is in whole granules, at a power of two"));
        }
        let charge = share.charges().charge(Resource::Reservations, 1)?;
        let address = region.reserve(body.bytes, body.alignment.max(GRANULE), body.hint)?;
        self.reservations.insert(address, (body.bytes, charge));
        Ok(address)
    }

    /// Carries out `cuMemAddressFree` for a whole reservation. Fails while anything is mapped in it.
    pub(crate) fn unreserve(&mut self, region: &Region, body: &MemUnreserve) -> Result<(), VirtualError> {
        let mapped = self.mappings.range(body.address..body.address.saturating_add(body.bytes)).next();
        let reserved = self.reservations.get(&body.address).is_some_and(|(bytes, _)| *bytes == body.bytes);
        if !reserved || mapped.is_some() {
            return Err(VirtualError::Invalid("not a whole reservation without mappings"));
        }
        self.reservations.remove(&body.address);
        region.unreserve(body.address, body.bytes);
        Ok(())
    }

    /// Carries out `cuMemCreate` for `bytes` of physical memory. Returns false if the handle is in use.
    pub(crate) fn create(&mut self, share: &Quota, handle: u32, bytes: u64) -> Result<bool, VirtualError> {
        if self.physical.contains_key(&handle) {
            return Ok(false);
        }
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) {
            return Err(VirtualError::Invalid("physical memory is in whole granules"));
        }
        let charge = share.charge(Resource::Physical, 1)?;
        let taken = share.allocate(bytes)?;
        let failed = |error: std::io::Error| {
            share.charges().log(0, || tracing::warn!("physical memory of {bytes:#x} bytes: {error}"));
            OutOfMemory
        };
        let pool = match &self.pool {
            Some(pool) => pool,
            None => self.pool.insert(PhysicalPool::new().map_err(failed)?),
        };
        let physical = pool.allocate(bytes).map_err(failed)?;
        self.physical.insert(handle, (Arc::new(Owned { physical, _taken: taken }), charge));
        Ok(true)
    }

    /// Carries out `cuMemRelease`. Mappings keep the memory and its charge alive.
    pub(crate) fn release(&mut self, handle: u32) -> Result<(), VirtualError> {
        let released = self.physical.remove(&handle).map(drop);
        released.ok_or(VirtualError::Invalid("there is no such physical memory"))
    }

    /// Carries out `cuMemMap` within one reservation. The mapping has no access rights until
    /// `cuMemSetAccess`.
    pub(crate) fn map(&mut self, region: &Region, share: &Quota, body: &MemMap) -> Result<(), VirtualError> {
        let &MemMap { handle, address, bytes, offset, .. } = body;
        let (owned, _) =
            self.physical.get(&handle).ok_or(VirtualError::Invalid("there is no such physical memory"))?;
        if bytes == 0 || [address, bytes, offset].iter().any(|number| !number.is_multiple_of(GRANULE)) {
            return Err(VirtualError::Invalid("a mapping is in whole granules"));
        }
        let reservation = self.reservations.range(..=address).next_back();
        let inside = reservation.is_some_and(|(&start, &(room, _))| {
            address.checked_add(bytes).is_some_and(|end| end <= start + room)
        });
        if !inside {
            return Err(VirtualError::Invalid("a mapping lies within a reservation"));
        }
        let count = share.charge(Resource::Mappings, 1)?;
        let tables = share.charge(Resource::HostBytes, bytes / TABLE_SHARE)?;
        region.arena.map_shared(address, bytes, &owned.physical, offset, AccessRights::None)?;
        let mapped = VirtualMapping { bytes, _of: Arc::clone(owned), _count: count, _tables: tables };
        self.mappings.insert(address, mapped);
        Ok(())
    }

    /// Carries out `cuMemUnmap` for a range of whole mappings.
    pub(crate) fn unmap(&mut self, region: &Region, body: &MemUnmap) -> Result<(), VirtualError> {
        let end = self.end_of_whole(body.address, body.bytes)?;
        region.arena.unmap(body.address, body.bytes)?;
        let after = self.mappings.split_off(&end);
        let within = self.mappings.split_off(&body.address);
        self.mappings.extend(after);
        drop(within);
        Ok(())
    }

    /// Carries out `cuMemSetAccess` for a range of whole mappings.
    pub(crate) fn set_access(&self, region: &Region, body: &MemSetAccess) -> Result<(), VirtualError> {
        let access = match body.access {
            0 => AccessRights::None,
            1 => AccessRights::Read,
            3 => AccessRights::ReadWrite,
            _ => return Err(VirtualError::Invalid("access is 0, 1 or 3")),
        };
        self.end_of_whole(body.address, body.bytes)?;
        Ok(region.arena.set_access(body.address, body.bytes, access)?)
    }

    /// Returns the end of a range that whole mappings fill without gaps, and fails for any other range.
    /// Allocations do not count, because they cannot be unmapped this way.
    fn end_of_whole(&self, address: u64, bytes: u64) -> Result<u64, VirtualError> {
        let error = VirtualError::Invalid("not whole mappings");
        let Some(end) = address.checked_add(bytes).filter(|_| bytes > 0) else { return Err(error) };
        let mut next = address;
        for (&start, &VirtualMapping { bytes, .. }) in self.mappings.range(address..end) {
            if start != next {
                return Err(error);
            }
            next = start + bytes;
        }
        if next == end { Ok(end) } else { Err(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgpu_device::MemoryPool;

    use crate::memory::Memory;
    use crate::shares::share;

    #[test]
    fn physical_memory_lives_as_long_as_a_handle_or_a_mapping() {
        let account = Arc::new(MemoryPool::new(64 << 20));
        let memory = Memory::new(share(&account), 0x7000_0000_0000);
        let reserve = MemReserve { reply: 0, reserved: 0, bytes: 4 * GRANULE, alignment: 0, hint: 0 };
        let all: Result<u64, VirtualError> = memory.with_virtual(|virtual_memory, region, share| {
            let address = virtual_memory.reserve(region, share, &reserve)?;
            assert!(virtual_memory.create(share, 1, GRANULE)?);
            assert!(!virtual_memory.create(share, 1, GRANULE)?);
            let map = |at: u64| MemMap { handle: 1, reserved: 0, address: at, bytes: GRANULE, offset: 0 };
            virtual_memory.map(region, share, &map(address))?;
            virtual_memory.map(region, share, &map(address + GRANULE))?;
            for bad in [address, address + 1, address + 4 * GRANULE, address - GRANULE] {
                assert!(virtual_memory.map(region, share, &map(bad)).is_err(), "{bad:#x}");
            }
            virtual_memory.release(1)?;
            assert!(virtual_memory.release(1).is_err());
            Ok(address)
        });
        let address = all.unwrap();
        assert_eq!(account.used(), GRANULE);
        assert!(memory.view().unwrap().readable(address, 1).is_err(), "no rights yet");
        let access = MemSetAccess { address, bytes: 2 * GRANULE, access: 3, reserved: 0 };
        let rest: Result<(), VirtualError> = memory.with_virtual(|virtual_memory, region, _| {
            assert!(virtual_memory.set_access(region, &MemSetAccess { access: 2, ..access }).is_err());
            assert!(
                virtual_memory.set_access(region, &MemSetAccess { bytes: GRANULE / 2, ..access }).is_err()
            );
            virtual_memory.set_access(region, &access)
        });
        rest.unwrap();
        // One physical memory is mapped at two addresses.
        let view = memory.view().unwrap();
        view.writable(address, 2 * GRANULE).unwrap().subslice(0, 4).unwrap().copy_from(&[1u8, 2, 3, 4]);
        let mut bytes = [0u8; 4];
        view.readable(address + GRANULE, 4).unwrap().copy_to(&mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4]);
        drop(view);
        let end: Result<(), VirtualError> = memory.with_virtual(|virtual_memory, region, _| {
            let whole = MemUnreserve { address, bytes: 4 * GRANULE };
            assert!(virtual_memory.unreserve(region, &whole).is_err(), "mapped");
            assert!(virtual_memory.unmap(region, &MemUnmap { address, bytes: 3 * GRANULE }).is_err());
            virtual_memory.unmap(region, &MemUnmap { address: address + GRANULE, bytes: GRANULE })?;
            virtual_memory.unmap(region, &MemUnmap { address, bytes: GRANULE })?;
            virtual_memory.unreserve(region, &whole)
        });
        end.unwrap();
        assert_eq!((account.used(), memory.count()), (0, 0));
    }
}
