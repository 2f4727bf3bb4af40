//! Memory that the guest manages by the virtual memory calls: reservations within the session's addresses,
//! physical memory under handles, and mappings.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vgpu_device::{Charge, PoolCharge, Resource};
use vgpu_wire::body::memory::{MemMap, MemReserve, MemSetAccess, MemUnmap, MemUnreserve};

use crate::driver::range::{DeviceMapping, DeviceRange, PhysicalMemory};
use crate::gpu::memory::{DeviceMemory, MemoryError};

/// Physical memory, with its charge.
#[derive(Debug)]
struct Owned {
    physical: Arc<PhysicalMemory>,
    _taken: PoolCharge,
    /// Number of the guest's uses, which are the handle and mappings. The gauges count memory without any as
    /// being freed. It changes under the lock of the session's memory.
    uses: AtomicU32,
}

/// A mapping of physical memory.
#[derive(Debug)]
struct GuestMapping {
    mapping: DeviceMapping,
    of: Arc<Owned>,
    _count: Charge,
}

/// Reservations, physical memory and mappings of a session.
#[derive(Debug, Default)]
pub(super) struct VirtualMemory {
    /// Sizes of reservations, by address.
    reservations: BTreeMap<u64, (u64, Charge)>,
    physical: HashMap<u32, (Arc<Owned>, Charge)>,
    mappings: BTreeMap<u64, GuestMapping>,
    /// Sizes of mappings that the guest has ended and that earlier work may still use, by address.
    ending: BTreeMap<u64, u64>,
}

impl VirtualMemory {
    /// Returns the number of pieces of physical memory.
    pub(super) fn count(&self) -> usize {
        self.physical.len()
    }

    /// Returns whether mappings cover a range without a gap.
    pub(super) fn is_mapped(&self, range: DeviceRange) -> bool {
        let end = range.address() + range.bytes();
        let mut next = range.address();
        let Some((&first, _)) = self.mappings.range(..=next).next_back() else { return false };
        for (&start, mapped) in self.mappings.range(first..) {
            if start > next {
                return false;
            }
            next = start + mapped.mapping.range().bytes();
            if next >= end {
                return true;
            }
        }
        false
    }

    /// Returns the addresses of the mappings that cover the `bytes` at `address` exactly, or `None` if there
    /// are no such mappings.
    fn whole(&self, address: u64, bytes: u64) -> Option<Vec<u64>> {
        let end = address.checked_add(bytes).filter(|_| bytes > 0)?;
        let mut next = address;
        let mut whole = Vec::new();
        for (&start, mapped) in self.mappings.range(address..end) {
            if start != next {
                return None;
            }
            next = start + mapped.mapping.range().bytes();
            whole.push(start);
        }
        (next == end).then_some(whole)
    }

    /// Returns whether all mappings are gone that the guest has ended.
    pub(super) fn is_settled(&self) -> bool {
        self.ending.is_empty()
    }

    fn is_ending(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        self.ending.range(..end).next_back().is_some_and(|(start, bytes)| start + bytes > address)
    }
}

/// Result of a request that needs free addresses.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MapOutcome {
    /// The request was carried out.
    Done,
    /// Earlier work may still use a former mapping at these addresses.
    Busy,
}

impl DeviceMemory {
    fn in_granules(&self, numbers: &[u64]) -> Result<(), MemoryError> {
        let whole = numbers.iter().all(|number| number.is_multiple_of(self.granule));
        if whole { Ok(()) } else { Err(MemoryError::Invalid("virtual memory is in whole granules")) }
    }

    /// Carries out `cuMemAddressReserve`.
    pub(crate) fn reserve(&self, body: &MemReserve) -> Result<u64, MemoryError> {
        self.in_granules(&[body.bytes])?;
        if body.bytes == 0 || (body.alignment != 0 && !body.alignment.is_power_of_two()) {
            return Err(MemoryError::Invalid("a reservation is not empty, at a power of two"));
        }
        let charge = self.share.charges().charge(Resource::Reservations, 1)?;
        let mut state = self.state();
        let address = state.space.reserve(body.bytes, body.alignment.max(self.granule), body.hint)?;
        state.own.reservations.insert(address, (body.bytes, charge));
        Ok(address)
    }

    /// Carries out `cuMemAddressFree`. The addresses may be reserved again when the former mappings are gone.
    pub(crate) fn unreserve(&self, body: &MemUnreserve) -> Result<MapOutcome, MemoryError> {
        let mut state = self.state();
        let own = &state.own;
        let reserved = own.reservations.get(&body.address).is_some_and(|(bytes, _)| *bytes == body.bytes);
        let mapped = own.mappings.range(body.address..body.address.saturating_add(body.bytes)).next();
        if !reserved || mapped.is_some() {
            return Err(MemoryError::Invalid("not a whole reservation without mappings"));
        }
        if own.is_ending(body.address, body.bytes) {
            return Ok(MapOutcome::Busy);
        }
        state.own.reservations.remove(&body.address);
        state.space.free(body.address, body.bytes);
        Ok(MapOutcome::Done)
    }

    /// Returns whether a handle has physical memory.
    pub(crate) fn has_handle(&self, handle: u32) -> bool {
        self.state().own.physical.contains_key(&handle)
    }

    /// Carries out `cuMemCreate`. The handle must not be in use.
    pub(crate) fn create(&self, handle: u32, bytes: u64) -> Result<(), MemoryError> {
        self.in_granules(&[bytes])?;
        if bytes == 0 {
            return Err(MemoryError::Invalid("physical memory is not empty"));
        }
        let charge = self.share.charge(Resource::Physical, 1)?;
        let taken = self.share.allocate(bytes)?;
        let physical = Arc::new(PhysicalMemory::create(&self.context, bytes)?);
        let owned = Owned { physical, _taken: taken, uses: AtomicU32::new(1) };
        let mut state = self.state();
        state.own.physical.insert(handle, (Arc::new(owned), charge));
        self.report(&state);
        Ok(())
    }

    /// Carries out `cuMemRelease`. Mappings keep the memory alive.
    pub(crate) fn release(&self, handle: u32) -> Result<(), MemoryError> {
        let mut state = self.state();
        let released = state.own.physical.remove(&handle);
        let (owned, _charge) = released.ok_or(MemoryError::Invalid("there is no such physical memory"))?;
        self.end_use(&owned);
        drop(state);
        self.free_physical([owned]);
        Ok(())
    }

    /// Ends one of the guest's uses of physical memory, with the lock of the session's memory. After the last
    /// one, the gauges count the memory as being freed.
    fn end_use(&self, owned: &Owned) {
        if owned.uses.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.host.gauges().freeing.fetch_add(owned.physical.bytes(), Ordering::Relaxed);
        }
    }

    /// Frees the physical memory that nothing else holds, and reports it. What is left is reported as being
    /// freed.
    fn free_physical(&self, memory: impl IntoIterator<Item = Arc<Owned>>) {
        let mut counted = 0;
        for owned in memory.into_iter().filter_map(Arc::into_inner) {
            // A session that ends drops uses without ending them.
            if owned.uses.load(Ordering::Relaxed) == 0 {
                counted += owned.physical.bytes();
            }
        }
        self.report(&self.state());
        self.host.gauges().freeing.fetch_sub(counted, Ordering::Relaxed);
        self.host_changed();
    }

    /// Carries out `cuMemMap`. Only the session's own thread maps.
    pub(crate) fn map(&self, body: &MemMap) -> Result<MapOutcome, MemoryError> {
        let &MemMap { handle, address, bytes, offset, .. } = body;
        self.in_granules(&[address, bytes, offset])?;
        let state = self.state();
        let own = &state.own;
        let Some((owned, _)) = own.physical.get(&handle) else {
            return Err(MemoryError::Invalid("there is no such physical memory"));
        };
        let owned = Arc::clone(owned);
        let reservation = own.reservations.range(..=address).next_back();
        let inside = reservation.is_some_and(|(&start, &(room, _))| {
            bytes > 0 && address.checked_add(bytes).is_some_and(|end| end <= start + room)
        });
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= owned.physical.bytes());
        let range = self.reserved.range().part(address, bytes).filter(|_| inside && fits);
        let Some(range) = range else {
            return Err(MemoryError::Invalid("a mapping lies within a reservation, of memory that there is"));
        };
        let before = own.mappings.range(..address + bytes).next_back();
        if before.is_some_and(|(&start, mapped)| start + mapped.mapping.range().bytes() > address) {
            return Err(MemoryError::Invalid("there is a mapping already"));
        }
        if own.is_ending(address, bytes) {
            return Ok(MapOutcome::Busy);
        }
        let count = self.share.charge(Resource::Mappings, 1)?;
        // No other thread maps or reserves, so the addresses stay free without the lock.
        drop(state);
        let mapping = DeviceMapping::map(&self.reserved, range, &owned.physical, offset)?;
        let mut state = self.state();
        owned.uses.fetch_add(1, Ordering::Relaxed);
        state.own.mappings.insert(address, GuestMapping { mapping, of: owned, _count: count });
        Ok(MapOutcome::Done)
    }

    /// Carries out `cuMemUnmap`. No copy may name the addresses any more; dropping the result unmaps them.
    pub(crate) fn unmap(self: &Arc<Self>, body: &MemUnmap) -> Result<Unmapped, MemoryError> {
        let mut state = self.state();
        let invalid = MemoryError::Invalid("not whole mappings");
        let whole = state.own.whole(body.address, body.bytes).ok_or(invalid)?;
        let mappings: Vec<GuestMapping> =
            whole.iter().filter_map(|start| state.own.mappings.remove(start)).collect();
        for mapping in &mappings {
            self.end_use(&mapping.of);
        }
        state.own.ending.insert(body.address, body.bytes);
        drop(state);
        self.note_change();
        self.host_changed();
        Ok(Unmapped { memory: Arc::clone(self), address: body.address, mappings })
    }

    /// Carries out `cuMemSetAccess`.
    pub(crate) fn set_access(&self, body: &MemSetAccess) -> Result<(), MemoryError> {
        let state = self.state();
        if !matches!(body.access, 0 | 1 | 3) || state.own.whole(body.address, body.bytes).is_none() {
            return Err(MemoryError::Invalid("access is 0, 1 or 3, and of whole mappings"));
        }
        let Some(range) = self.reserved.range().part(body.address, body.bytes) else {
            return Err(MemoryError::Invalid("not the session's addresses"));
        };
        drop(state);
        Ok(self.reserved.set_access(range, body.access)?)
    }
}

/// Mappings that the guest has ended. Dropping this unmaps them; no work may use them by then.
#[derive(Debug)]
pub(crate) struct Unmapped {
    memory: Arc<DeviceMemory>,
    address: u64,
    mappings: Vec<GuestMapping>,
}

impl Drop for Unmapped {
    fn drop(&mut self) {
        // Unmapped before the memory is freed and before the addresses can be reused.
        let unmap = |GuestMapping { mapping, of, .. }| {
            drop(mapping);
            of
        };
        let memory: Vec<Arc<Owned>> = self.mappings.drain(..).map(unmap).collect();
        self.memory.free_physical(memory);
        self.memory.state().own.ending.remove(&self.address);
        self.memory.unmapped.notify_all();
    }
}
