//! Device memory without content: allocations and their addresses.

use std::collections::{BTreeMap, BTreeSet};

use vgpu_abi::CUresult;

use crate::rule::{CallRefusal, CallResult, Rule};

/// First address of device memory, above a program's heap and below its mappings.
const FIRST: u64 = 0x3000_0000_0000;
/// Size of the device memory in bytes.
pub const TOTAL_BYTES: u64 = 8 << 30;
/// Alignment of allocations in bytes. The programming guide promises 256.
const ALIGNMENT: u64 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    pub start: u64,
    pub bytes: u64,
}

impl AddressRange {
    pub const fn new(start: u64, bytes: u64) -> Self {
        Self { start, bytes }
    }

    /// Returns the end of the range, exclusive. A range that would wrap ends at the last address.
    pub const fn end(self) -> u64 {
        self.start.saturating_add(self.bytes)
    }

    /// Returns whether the ranges have a byte in common.
    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end() && self.bytes > 0 && other.bytes > 0
    }

    /// Returns whether the range contains all of `other`.
    pub const fn has(self, other: Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }
}

/// Formats an address for a record: a name with an offset.
pub fn named(kind: &str, number: u64, offset: u64) -> String {
    if offset == 0 { format!("{kind}#{number}") } else { format!("{kind}#{number}+{offset:#x}") }
}

#[derive(Clone, Copy, Debug)]
pub struct MemoryAllocation {
    /// Requested range of addresses.
    pub range: AddressRange,
    number: u64,
    context: usize,
}

#[derive(Debug)]
pub struct DeviceMemory {
    /// Number of bytes of device memory in use.
    used: u64,
    next: u64,
    allocations: BTreeMap<u64, MemoryAllocation>,
    freed: BTreeSet<u64>,
    count: u64,
}

impl DeviceMemory {
    pub const fn new() -> Self {
        Self { used: 0, next: FIRST, allocations: BTreeMap::new(), freed: BTreeSet::new(), count: 0 }
    }

    /// Acquires bytes of device memory, or fails as out of memory.
    pub fn acquire(&mut self, bytes: u64) -> CallResult {
        if bytes > TOTAL_BYTES - self.used {
            return Err(CallRefusal::Expected(CUresult::OUT_OF_MEMORY));
        }
        self.used += bytes;
        Ok(())
    }

    /// Returns the number of bytes of device memory that are free.
    pub const fn available(&self) -> u64 {
        TOTAL_BYTES - self.used
    }

    /// Returns bytes of device memory to the device.
    pub const fn give_back(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// Returns addresses that were never used before.
    pub fn addresses(&mut self, bytes: u64, alignment: u64) -> u64 {
        let start = self.next.next_multiple_of(alignment.max(ALIGNMENT));
        // A gap follows each range, so that an access beyond the end reaches no other range.
        self.next = start + bytes.next_multiple_of(ALIGNMENT) + ALIGNMENT;
        start
    }

    /// Returns the range of all addresses that were ever used.
    pub const fn span(&self) -> AddressRange {
        AddressRange::new(FIRST, self.next - FIRST)
    }

    /// Carries out `cuMemAlloc`.
    pub fn allocate(&mut self, context: usize, bytes: u64) -> CallResult<u64> {
        if bytes == 0 {
            return Err(Rule::Argument.into());
        }
        self.acquire(bytes)?;
        let start = self.addresses(bytes, ALIGNMENT);
        self.count += 1;
        let range = AddressRange::new(start, bytes);
        self.allocations.insert(start, MemoryAllocation { range, number: self.count, context });
        Ok(start)
    }

    /// Returns the allocation that starts at an address, or the rule that the address breaks.
    pub fn starting(&self, address: u64) -> CallResult<MemoryAllocation> {
        let freed = if self.freed.contains(&address) { Rule::Freed } else { Rule::NoAllocation };
        Ok(self.allocations.get(&address).copied().ok_or(freed)?)
    }

    /// Carries out `cuMemFree`.
    pub fn free(&mut self, address: u64) -> CallResult {
        let allocation = self.starting(address)?;
        self.allocations.remove(&address);
        self.freed.insert(address);
        self.give_back(allocation.range.bytes);
        Ok(())
    }

    /// Returns the allocation that contains an address.
    pub fn at(&self, address: u64) -> Option<&MemoryAllocation> {
        let (_, found) = self.allocations.range(..=address).next_back()?;
        found.range.has(AddressRange::new(address, 1)).then_some(found)
    }

    /// Frees the allocations of a context.
    pub fn end_context(&mut self, context: usize) {
        let gone: Vec<u64> = self
            .allocations
            .iter()
            .filter(|(_, one)| one.context == context)
            .map(|(&start, _)| start)
            .collect();
        for start in gone {
            // The allocation was found just now, so this does not fail.
            let _ = self.free(start);
        }
    }

    /// Returns the name of an address within an allocation.
    pub fn name(&self, address: u64) -> Option<String> {
        let found = self.at(address)?;
        Some(named("memory", found.number, address - found.range.start))
    }
}
