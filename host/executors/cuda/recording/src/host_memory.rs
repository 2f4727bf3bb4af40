//! Host memory that the device can access: registered and pinned memory.

use std::collections::BTreeMap;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{HOST_REGISTER_DEVICE_MAP, HOST_REGISTER_PORTABLE, HOST_REGISTER_READ_ONLY};

use crate::memory::{AddressRange, DeviceMemory, named};
use crate::raw::Pages;
use crate::rule::{CallRefusal, CallResult, Rule};

/// Size of a page. Memory is pinned in whole pages.
const PAGE: u64 = 4096;
/// Valid flags of `cuMemHostAlloc`: portable, mapped, write-combined.
const ALLOC_FLAGS: u32 = 7;
/// Valid flags of `cuMemHostRegister`. Memory of devices cannot be registered.
const REGISTER_FLAGS: u32 = HOST_REGISTER_PORTABLE | HOST_REGISTER_DEVICE_MAP | HOST_REGISTER_READ_ONLY;

#[derive(Debug)]
pub struct HostBlock {
    /// Address range of the block in the program.
    pub range: AddressRange,
    /// Address of the first byte for the device.
    pub device: u64,
    number: u64,
    /// Pages of a pinned allocation. `None` for registered memory.
    pages: Option<Pages>,
}

#[derive(Debug, Default)]
pub struct HostMemory {
    blocks: BTreeMap<u64, HostBlock>,
    registered: u64,
    allocated: u64,
}

impl HostMemory {
    /// Carries out `cuMemHostRegister`. With `own_addresses` the device uses other addresses for the range
    /// than the program.
    pub fn register(
        &mut self,
        memory: &mut DeviceMemory,
        range: AddressRange,
        flags: u32,
        own_addresses: bool,
    ) -> CallResult {
        if range.start == 0 || range.bytes == 0 || flags & !REGISTER_FLAGS != 0 {
            return Err(Rule::Argument.into());
        }
        let pages = |range: AddressRange| {
            let start = range.start - range.start % PAGE;
            AddressRange::new(start, range.end().next_multiple_of(PAGE) - start)
        };
        if self.blocks.values().any(|block| pages(block.range).overlaps(pages(range))) {
            return Err(Rule::RegisteredTwice.into());
        }
        let device = if own_addresses {
            memory.addresses(range.bytes + PAGE, PAGE) + range.start % PAGE
        } else {
            range.start
        };
        self.registered += 1;
        self.blocks.insert(range.start, HostBlock { range, device, number: self.registered, pages: None });
        Ok(())
    }

    /// Returns the registration that starts at an address.
    pub fn registration(&self, address: u64) -> CallResult<AddressRange> {
        let block = self.blocks.get(&address).filter(|block| block.pages.is_none());
        Ok(block.ok_or(Rule::NotRegistered)?.range)
    }

    /// Returns the pinned allocation that starts at an address.
    pub fn allocation(&self, address: u64) -> CallResult<AddressRange> {
        let block = self.blocks.get(&address).filter(|block| block.pages.is_some());
        Ok(block.ok_or(Rule::NoHostAllocation)?.range)
    }

    /// Removes a registration or an allocation.
    pub fn remove(&mut self, address: u64) {
        self.blocks.remove(&address);
    }

    /// Carries out `cuMemHostAlloc`.
    pub fn allocate(&mut self, bytes: u64, flags: u32) -> CallResult<u64> {
        if bytes == 0 || flags & !ALLOC_FLAGS != 0 {
            return Err(Rule::Argument.into());
        }
        let pages = usize::try_from(bytes).ok().and_then(Pages::new);
        let pages = pages.ok_or(CallRefusal::Expected(CUresult::OUT_OF_MEMORY))?;
        let start = pages.start() as u64;
        self.allocated += 1;
        let range = AddressRange::new(start, bytes);
        self.blocks
            .insert(start, HostBlock { range, device: start, number: self.allocated, pages: Some(pages) });
        Ok(start)
    }

    /// Returns the block that contains a range of the program's addresses.
    pub fn find(&self, range: AddressRange) -> Option<&HostBlock> {
        let (_, block) = self.blocks.range(..=range.start).next_back()?;
        block.range.has(range).then_some(block)
    }

    /// Converts device addresses to the program's, if all of the range is host memory.
    pub fn of_device(&self, range: AddressRange) -> Option<AddressRange> {
        let block = self
            .blocks
            .values()
            .find(|block| AddressRange::new(block.device, block.range.bytes).has(range))?;
        Some(AddressRange::new(block.range.start + (range.start - block.device), range.bytes))
    }

    /// Returns the name of an address in a record. The address may be the program's or the device's.
    pub fn name(&self, address: u64) -> Option<String> {
        let byte = AddressRange::new(address, 1);
        let found = self.find(byte).map(|block| (block, address - block.range.start)).or_else(|| {
            let block =
                self.blocks.values().find(|one| AddressRange::new(one.device, one.range.bytes).has(byte))?;
            Some((block, address - block.device))
        });
        let (block, offset) = found?;
        let kind = if block.pages.is_some() { "pinned" } else { "registered" };
        Some(named(kind, block.number, offset))
    }
}
