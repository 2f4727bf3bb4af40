//! Device memory of a session: the address and the length of each allocation.

use vgpu_wire::body::memory::{Address, MEM_MANAGED, MemInfoReply};
use vgpu_wire::v1::call::{ALLOCATIONS_MAX, Op};
use vgpu_wire::v1::split;

use super::numbered::Numbered;
use crate::call::{Call, CallError};
use crate::host_session::HostSession;
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};

/// The allocations of a session.
#[derive(Debug)]
pub(crate) struct Allocations {
    /// Length in bytes of each allocation, by its address.
    lengths: Numbered<u64, u64>,
}

impl Allocations {
    pub(super) const fn new() -> Self {
        Self { lengths: Numbered::new() }
    }

    pub(super) fn allocate(
        &mut self,
        host: HostSession<'_>,
        flags: u32,
        bytes: u64,
    ) -> Result<Address, CallError> {
        if flags & MEM_MANAGED != 0 {
            return Err(CallError::Status(NOT_SUPPORTED));
        }
        // One more would succeed, but the host would neither track it nor free it when this process dies
        // (Q21).
        if self.lengths.len() >= ALLOCATIONS_MAX {
            return Err(CallError::Status(OUT_OF_MEMORY));
        }
        let [low, high] = split(bytes);
        let [address, ..] = host.call_plain(&Call::new(Op::MemAlloc, &[low, high, 0, 0]).with_results(1))?;
        self.lengths.insert(address, bytes);
        Ok(Address { address })
    }

    pub(super) fn free(&mut self, host: HostSession<'_>, address: u64) -> Result<(), CallError> {
        if self.lengths.remove(address).is_none() {
            return Err(CallError::Status(INVALID_VALUE));
        }
        host.call_plain(&Call::new(Op::MemFree, &split(address))).map(|_| ())
    }

    /// Returns start and end of the allocation that contains a range, or `None` if no single allocation does.
    pub(super) fn containing(&self, address: u64, bytes: u64) -> Option<(u64, u64)> {
        let &(start, length) = self.lengths.below(address)?;
        let end = start.checked_add(length)?;
        (address.checked_add(bytes)? <= end).then_some((start, end))
    }
}

/// Returns free and total memory of the device.
pub(super) fn memory_info(host: HostSession<'_>) -> Result<MemInfoReply, CallError> {
    let [free, total, ..] = host.call_plain(&Call::new(Op::MemGetInfo, &[]).with_results(2))?;
    Ok(MemInfoReply { free, total })
}
