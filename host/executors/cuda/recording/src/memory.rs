//! Device memory that does not exist: allocations and their addresses.

use std::collections::{BTreeMap, BTreeSet};

use vgpu_abi::CUresult;

use crate::rule::{Answer, Refusal, Rule};

/// Where addresses begin that nobody wished for: above a program's heap, below its mappings.
const FIRST: u64 = 0x3000_0000_0000;
/// Alignment of allocations. The programming guide promises 256 bytes.
const ALIGNMENT: u64 = 512;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// Length.
    pub bytes: u64,
}

impl Range {
    /// A range; one that would wrap ends at the last address.
    pub const fn new(start: u64, bytes: u64) -> Self {
        Self { start, bytes }
    }

    /// One behind the last byte.
    pub const fn end(self) -> u64 {
        self.start.saturating_add(self.bytes)
    }

    /// Whether they have a byte in common.
    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end() && self.bytes > 0 && other.bytes > 0
    }

    /// Whether all of `other` lies within.
    pub const fn has(self, other: Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }
}

/// A name with an offset, as records have addresses.
pub fn named(kind: &str, number: u64, offset: u64) -> String {
    if offset == 0 { format!("{kind}#{number}") } else { format!("{kind}#{number}+{offset:#x}") }
}

/// An allocation.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// Its addresses, as many as were asked for.
    pub range: Range,
    /// Ordinal of its device.
    pub device: i32,
    number: u64,
    context: usize,
}

/// Device memory.
#[derive(Debug)]
pub struct Memory {
    /// Bytes of each device.
    total: u64,
    /// Bytes in use, by device.
    used: BTreeMap<i32, u64>,
    next: u64,
    allocations: BTreeMap<u64, Allocation>,
    freed: BTreeSet<u64>,
    count: u64,
}

impl Memory {
    /// Devices of `total` bytes.
    pub const fn new(total: u64) -> Self {
        Self {
            total,
            used: BTreeMap::new(),
            next: FIRST,
            allocations: BTreeMap::new(),
            freed: BTreeSet::new(),
            count: 0,
        }
    }

    /// Free and total bytes of a device.
    pub fn info(&self, device: i32) -> (u64, u64) {
        (self.total - self.used.get(&device).copied().unwrap_or(0), self.total)
    }

    /// Takes bytes of a device.
    pub fn take(&mut self, device: i32, bytes: u64) -> Answer {
        if bytes > self.info(device).0 {
            return Err(Refusal::Expected(CUresult::OUT_OF_MEMORY));
        }
        *self.used.entry(device).or_default() += bytes;
        Ok(())
    }

    /// Gives them back.
    pub fn give_back(&mut self, device: i32, bytes: u64) {
        if let Some(used) = self.used.get_mut(&device) {
            *used = used.saturating_sub(bytes);
        }
    }

    /// Addresses that nobody has had before.
    pub fn addresses(&mut self, bytes: u64, alignment: u64) -> u64 {
        let start = self.next.next_multiple_of(alignment.max(ALIGNMENT));
        // A gap behind each range, so that running over one end is running into nothing.
        self.next = start + bytes.next_multiple_of(ALIGNMENT) + ALIGNMENT;
        start
    }

    /// `cuMemAlloc`
    pub fn allocate(&mut self, device: i32, context: usize, bytes: u64) -> Answer<u64> {
        if bytes == 0 {
            return Err(Rule::Argument.into());
        }
        self.take(device, bytes)?;
        let start = self.addresses(bytes, ALIGNMENT);
        self.count += 1;
        let range = Range::new(start, bytes);
        self.allocations.insert(start, Allocation { range, device, number: self.count, context });
        Ok(start)
    }

    /// The allocation that starts at an address.
    pub fn starting(&self, address: u64) -> Answer<Allocation> {
        let freed = if self.freed.contains(&address) { Rule::Freed } else { Rule::NoAllocation };
        Ok(self.allocations.get(&address).copied().ok_or(freed)?)
    }

    /// `cuMemFree`
    pub fn free(&mut self, address: u64) -> Answer {
        let allocation = self.starting(address)?;
        self.allocations.remove(&address);
        self.freed.insert(address);
        self.give_back(allocation.device, allocation.range.bytes);
        Ok(())
    }

    /// The allocation that has an address.
    pub fn at(&self, address: u64) -> Option<&Allocation> {
        let (_, found) = self.allocations.range(..=address).next_back()?;
        found.range.has(Range::new(address, 1)).then_some(found)
    }

    /// Frees everything of a context.
    pub fn end_context(&mut self, context: usize) {
        let gone: Vec<u64> = self
            .allocations
            .iter()
            .filter(|(_, one)| one.context == context)
            .map(|(&start, _)| start)
            .collect();
        for start in gone {
            // It was found a moment ago.
            let _ = self.free(start);
        }
    }

    /// Name of an address within an allocation.
    pub fn name(&self, address: u64) -> Option<String> {
        let found = self.at(address)?;
        Some(named("memory", found.number, address - found.range.start))
    }
}
