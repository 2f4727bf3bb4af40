//! Host memory that the device reaches: registered and pinned.

use std::collections::BTreeMap;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{HOST_REGISTER_DEVICE_MAP, HOST_REGISTER_PORTABLE, HOST_REGISTER_READ_ONLY};

use crate::memory::{Memory, Range, named};
use crate::raw::Pages;
use crate::rule::{Answer, Refusal, Rule};

/// Pages are what is pinned.
const PAGE: u64 = 4096;
/// Flags of `cuMemHostAlloc`: portable, mapped, write-combined.
const ALLOC_FLAGS: u32 = 7;
/// Flags of `cuMemHostRegister` that make sense here: memory of devices cannot be had.
const REGISTER_FLAGS: u32 = HOST_REGISTER_PORTABLE | HOST_REGISTER_DEVICE_MAP | HOST_REGISTER_READ_ONLY;

/// A piece of host memory.
#[derive(Debug)]
pub struct Block {
    /// Its addresses in the program.
    pub range: Range,
    /// Address by which the device reaches its first byte.
    pub device: u64,
    number: u64,
    /// Its memory, where the library made it.
    pages: Option<Pages>,
}

/// Registered and pinned memory.
#[derive(Debug, Default)]
pub struct HostMemory {
    blocks: BTreeMap<u64, Block>,
    registered: u64,
    allocated: u64,
}

impl HostMemory {
    /// `cuMemHostRegister`. With `own_addresses` the device has its own addresses for the range.
    pub fn register(&mut self, memory: &mut Memory, range: Range, flags: u32, own_addresses: bool) -> Answer {
        if range.start == 0 || range.bytes == 0 || flags & !REGISTER_FLAGS != 0 {
            return Err(Rule::Argument.into());
        }
        let pages = |range: Range| {
            let start = range.start - range.start % PAGE;
            Range::new(start, range.end().next_multiple_of(PAGE) - start)
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
        self.blocks.insert(range.start, Block { range, device, number: self.registered, pages: None });
        Ok(())
    }

    /// The registration that starts at an address.
    pub fn registration(&self, address: u64) -> Answer<Range> {
        let block = self.blocks.get(&address).filter(|block| block.pages.is_none());
        Ok(block.ok_or(Rule::NotRegistered)?.range)
    }

    /// The pinned allocation that starts at an address.
    pub fn allocation(&self, address: u64) -> Answer<Range> {
        let block = self.blocks.get(&address).filter(|block| block.pages.is_some());
        Ok(block.ok_or(Rule::NoHostAllocation)?.range)
    }

    /// Takes back a registration or an allocation.
    pub fn remove(&mut self, address: u64) {
        self.blocks.remove(&address);
    }

    /// `cuMemHostAlloc`
    pub fn allocate(&mut self, bytes: u64, flags: u32) -> Answer<u64> {
        if bytes == 0 || flags & !ALLOC_FLAGS != 0 {
            return Err(Rule::Argument.into());
        }
        let pages = usize::try_from(bytes).ok().and_then(Pages::new);
        let pages = pages.ok_or(Refusal::Expected(CUresult::OUT_OF_MEMORY))?;
        let start = pages.start() as u64;
        self.allocated += 1;
        let range = Range::new(start, bytes);
        self.blocks.insert(start, Block { range, device: start, number: self.allocated, pages: Some(pages) });
        Ok(start)
    }

    /// The block that has a whole range of the program's addresses.
    pub fn find(&self, range: Range) -> Option<&Block> {
        let (_, block) = self.blocks.range(..=range.start).next_back()?;
        block.range.has(range).then_some(block)
    }

    /// The program's addresses of a range that is the device's, if all of it is host memory.
    pub fn of_device(&self, range: Range) -> Option<Range> {
        let block =
            self.blocks.values().find(|block| Range::new(block.device, block.range.bytes).has(range))?;
        Some(Range::new(block.range.start + (range.start - block.device), range.bytes))
    }

    /// Name of an address of the program, or of the device.
    pub fn name(&self, address: u64) -> Option<String> {
        let byte = Range::new(address, 1);
        let found = self.find(byte).map(|block| (block, address - block.range.start)).or_else(|| {
            let block = self.blocks.values().find(|one| Range::new(one.device, one.range.bytes).has(byte))?;
            Some((block, address - block.device))
        });
        let (block, offset) = found?;
        let kind = if block.pages.is_some() { "pinned" } else { "registered" };
        Some(named(kind, block.number, offset))
    }
}
