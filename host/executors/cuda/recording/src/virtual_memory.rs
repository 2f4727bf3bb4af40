//! Reserved addresses, physical memory, mappings and their access, from the manual's chapter "Virtual Memory
//! Management".

use std::collections::BTreeMap;

use vgpu_abi::CUresult;

use crate::handle::{HandleKind, Handles};
use crate::memory::{AddressRange, DeviceMemory, named};
use crate::options::ReservationAnswer;
use crate::rule::{CallRefusal, CallResult, Rule};

/// Minimum and recommended granularity of physical memory and mappings, in bytes.
pub const GRANULARITY: u64 = 2 << 20;
/// Size in bytes of a host's page. Reservations are made of whole pages.
const PAGE: u64 = 4096;
/// First address that driver 580.159.04 gives to reservations.
const FIRST: u64 = 0x3_0200_0000;
/// End of the addresses that it gives.
const ADDRESSES: u64 = 1 << 47;
/// Addresses that it keeps to itself.
const OF_DRIVER: AddressRange = AddressRange::new(0x100_0000_0000, 64 << 20);
/// Valid access rights: none, `CU_MEM_ACCESS_FLAGS_PROT_READ` and `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const ACCESS: [u32; 3] = [0, 1, 3];

/// A piece of physical memory.
#[derive(Debug)]
struct PhysicalMemory {
    bytes: u64,
    /// Number of mappings of the memory.
    maps: u32,
    /// Whether the handle has been released. The memory lives as long as its mappings.
    released: bool,
}

/// A mapping of physical memory.
#[derive(Clone, Copy, Debug)]
struct MappedRange {
    range: AddressRange,
    handle: usize,
    /// Access rights as `CUmemAccess_flags`, which are none at first.
    access: u32,
}

/// Reservations, physical memory and mappings of the process.
#[derive(Debug)]
pub struct VirtualMemory {
    /// Reserved ranges with their numbers, by address.
    reservations: BTreeMap<u64, (AddressRange, u64)>,
    mappings: BTreeMap<u64, MappedRange>,
    physical: Handles<PhysicalMemory>,
    count: u64,
}

impl VirtualMemory {
    /// Creates the state without reservations and mappings.
    pub const fn new() -> Self {
        Self {
            reservations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            physical: Handles::answering(HandleKind::Physical, Rule::NoPhysical, Rule::NoPhysical),
            count: 0,
        }
    }

    /// Carries out `cuMemCreate`.
    pub fn create(&mut self, memory: &mut DeviceMemory, bytes: u64) -> CallResult<usize> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(Rule::Granularity.into());
        }
        memory.acquire(bytes)?;
        Ok(self.physical.add(PhysicalMemory { bytes, maps: 0, released: false }))
    }

    /// Carries out `cuMemRelease`.
    pub fn release(&mut self, memory: &mut DeviceMemory, handle: usize) -> CallResult {
        let physical = self.physical.get_mut(handle)?;
        if physical.released {
            return Err(Rule::NoPhysical.into());
        }
        physical.released = true;
        self.drop_unused(memory, handle)
    }

    fn drop_unused(&mut self, memory: &mut DeviceMemory, handle: usize) -> CallResult {
        let physical = self.physical.get(handle)?;
        if physical.released && physical.maps == 0 {
            memory.give_back(physical.bytes);
            self.physical.remove(handle)?;
        }
        Ok(())
    }

    /// Carries out `cuMemAddressReserve`. The requested address is only a hint. Like driver 580.159.04, it
    /// looks for free addresses from the hint on (`testbed/bench/drivers`). `answers` override that.
    pub fn reserve(
        &mut self,
        memory: &DeviceMemory,
        answers: &[ReservationAnswer],
        bytes: u64,
        alignment: u64,
        wish: u64,
    ) -> CallResult<u64> {
        let aligned = alignment == 0 || alignment.is_power_of_two();
        if bytes == 0 || !bytes.is_multiple_of(PAGE) || !wish.is_multiple_of(PAGE) || !aligned {
            return Err(Rule::Reservation.into());
        }
        let applies = |answer: &&ReservationAnswer| {
            bytes >= answer.least_bytes && answer.wish.is_none_or(|wished| wished == wish)
        };
        let from = match answers.iter().find(applies) {
            Some(answer) if answer.status != 0 => {
                return Err(CallRefusal::Expected(CUresult(answer.status)));
            }
            Some(answer) => answer.from,
            None => wish,
        };
        let alignment = alignment.max(GRANULARITY);
        let mut range = AddressRange::new(from.max(FIRST).next_multiple_of(alignment), bytes);
        while let Some(taken) = self.taken(memory, range) {
            range.start = taken.end().next_multiple_of(alignment);
        }
        if range.end() > ADDRESSES {
            return Err(CallRefusal::Expected(CUresult::OUT_OF_MEMORY));
        }
        self.count += 1;
        self.reservations.insert(range.start, (range, self.count));
        Ok(range.start)
    }

    /// Returns a range that is in use and overlaps `range`.
    fn taken(&self, memory: &DeviceMemory, range: AddressRange) -> Option<AddressRange> {
        let reserved = self.reservations.values().map(|(reserved, _)| *reserved);
        reserved.chain([OF_DRIVER, memory.span()]).find(|taken| taken.overlaps(range))
    }

    /// Carries out `cuMemAddressFree`.
    pub fn free_addresses(&mut self, range: AddressRange) -> CallResult {
        if self.reservations.get(&range.start).is_none_or(|(reserved, _)| *reserved != range) {
            return Err(Rule::NoReservation.into());
        }
        if self.mappings.values().any(|mapping| mapping.range.overlaps(range)) {
            return Err(Rule::StillMapped.into());
        }
        self.reservations.remove(&range.start);
        Ok(())
    }

    /// Carries out `cuMemMap`.
    pub fn map(&mut self, range: AddressRange, offset: u64, handle: usize) -> CallResult {
        if range.bytes == 0 || !(range.start | range.bytes | offset).is_multiple_of(GRANULARITY) {
            return Err(Rule::Granularity.into());
        }
        if offset != 0 {
            return Err(Rule::MapOffset.into());
        }
        let physical = self.physical.get_mut(handle)?;
        if physical.released {
            return Err(Rule::NoPhysical.into());
        }
        if range.bytes > physical.bytes {
            return Err(Rule::BeyondPhysical.into());
        }
        if !self.reservations.values().any(|(reserved, _)| reserved.has(range)) {
            return Err(Rule::NotReserved.into());
        }
        if self.mappings.values().any(|mapping| mapping.range.overlaps(range)) {
            return Err(Rule::MappedTwice.into());
        }
        physical.maps += 1;
        self.mappings.insert(range.start, MappedRange { range, handle, access: 0 });
        Ok(())
    }

    /// Returns the addresses of the whole mappings that fill a range without a gap.
    fn whole(&self, range: AddressRange) -> CallResult<Vec<u64>> {
        let (mut at, mut found) = (range.start, Vec::new());
        while at < range.end() {
            let mapping = self.mappings.get(&at).ok_or(Rule::PartOfMapping)?;
            found.push(at);
            at = mapping.range.end();
        }
        if at == range.end() && !found.is_empty() { Ok(found) } else { Err(Rule::PartOfMapping.into()) }
    }

    /// Carries out `cuMemUnmap`.
    pub fn unmap(&mut self, memory: &mut DeviceMemory, range: AddressRange) -> CallResult {
        for start in self.whole(range)? {
            let Some(mapping) = self.mappings.remove(&start) else { continue };
            self.physical.get_mut(mapping.handle)?.maps -= 1;
            self.drop_unused(memory, mapping.handle)?;
        }
        Ok(())
    }

    /// Carries out `cuMemSetAccess`.
    pub fn set_access(&mut self, range: AddressRange, access: u32) -> CallResult {
        if !ACCESS.contains(&access) {
            return Err(Rule::Argument.into());
        }
        for start in self.whole(range)? {
            if let Some(mapping) = self.mappings.get_mut(&start) {
                mapping.access = access;
            }
        }
        Ok(())
    }

    /// Returns whether a device may read a whole range, and write it if `write` is set.
    pub fn accessible(&self, range: AddressRange, write: bool) -> bool {
        let mut at = range.start;
        while at < range.end() {
            let found = self.mappings.range(..=at).next_back().map(|(_, mapping)| mapping);
            let Some(mapping) = found.filter(|one| one.range.has(AddressRange::new(at, 1))) else {
                return false;
            };
            if mapping.access == 0 || (write && mapping.access != 3) {
                return false;
            }
            at = mapping.range.end();
        }
        true
    }

    /// Returns the name of an address within a reservation.
    pub fn name(&self, address: u64) -> Option<String> {
        let (_, (range, number)) = self.reservations.range(..=address).next_back()?;
        range.has(AddressRange::new(address, 1)).then(|| named("reserved", *number, address - range.start))
    }
}
