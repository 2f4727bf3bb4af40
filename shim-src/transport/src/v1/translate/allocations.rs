//! Device memory of a session: which addresses it has, and how much of each.

use vgpu_wire::body::memory::{Address, MEM_MANAGED, MemInfoReply};
use vgpu_wire::v1::call::{ALLOCATIONS_MAX, Op};
use vgpu_wire::v1::split;

use super::numbered::Numbered;
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};
use crate::v1::call::{Call, Failure};
use crate::v1::host::Host;

/// The allocations of a session.
#[derive(Debug)]
pub(in crate::v1) struct Allocations {
    /// Length in bytes by address.
    lengths: Numbered<u64, u64>,
}

impl Allocations {
    pub(super) const fn new() -> Self {
        Self { lengths: Numbered::new() }
    }

    pub(super) fn allocate(&mut self, host: Host<'_>, flags: u32, bytes: u64) -> Result<Address, Failure> {
        if flags & MEM_MANAGED != 0 {
            return Err(Failure::Status(NOT_SUPPORTED));
        }
        // One more would work, but the host would neither know it nor free it when this process dies (Q21).
        if self.lengths.len() >= ALLOCATIONS_MAX {
            return Err(Failure::Status(OUT_OF_MEMORY));
        }
        let [low, high] = split(bytes);
        let [address, ..] = host.plain(&Call::new(Op::MemAlloc, &[low, high, 0, 0]).results(1))?;
        self.lengths.insert(address, bytes);
        Ok(Address { address })
    }

    pub(super) fn free(&mut self, host: Host<'_>, address: u64) -> Result<(), Failure> {
        if self.lengths.remove(address).is_none() {
            return Err(Failure::Status(INVALID_VALUE));
        }
        host.plain(&Call::new(Op::MemFree, &split(address))).map(|_| ())
    }

    /// Start and end of the allocation that contains a range.
    pub(super) fn around(&self, address: u64, bytes: u64) -> Option<(u64, u64)> {
        let &(start, length) = self.lengths.below(address)?;
        let end = start.checked_add(length)?;
        (address.checked_add(bytes)? <= end).then_some((start, end))
    }
}

/// How much memory the device has, and how much of it is free.
pub(super) fn info(host: Host<'_>) -> Result<MemInfoReply, Failure> {
    let [free, total, ..] = host.plain(&Call::new(Op::MemGetInfo, &[]).results(2))?;
    Ok(MemInfoReply { free, total })
}
