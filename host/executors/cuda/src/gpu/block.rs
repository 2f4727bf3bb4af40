//! A block of device memory that small allocations share.

use vgpu_device::{AddressSpace, Granularity, PoolCharge};

use crate::driver::range::{DeviceMapping, DeviceRange};

/// Alignment of small allocations in bytes, which is at least CUDA's.
const ALIGNMENT: u64 = 512;

/// A block of device memory that is divided among small allocations.
#[derive(Debug)]
pub(super) struct SharedBlock {
    space: AddressSpace,
    live: u32,
    /// Smallest size that did not fit since memory was last returned, in bytes.
    refused: u64,
    mapping: DeviceMapping,
    _taken: PoolCharge,
}

impl SharedBlock {
    /// Creates a block without allocations.
    pub(super) const fn new(mapping: DeviceMapping, taken: PoolCharge) -> Self {
        let range = mapping.range();
        let grain = Granularity { least: ALIGNMENT, gap: 0, large: 1 << 63 };
        let space = AddressSpace::new(range.address(), range.bytes(), grain);
        Self { space, live: 0, refused: u64::MAX, mapping, _taken: taken }
    }

    /// Returns the address range of the block.
    pub(super) const fn range(&self) -> DeviceRange {
        self.mapping.range()
    }

    /// Returns whether the whole block is free.
    pub(super) const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Allocates `bytes` in the block, if they fit.
    pub(super) fn carve(&mut self, bytes: u64) -> Option<u64> {
        if bytes >= self.refused {
            return None;
        }
        let address = self.space.allocate(bytes);
        match address {
            Some(_) => self.live += 1,
            None => self.refused = bytes,
        }
        address
    }

    /// Frees an allocation of `bytes` at `address`.
    pub(super) fn give_back(&mut self, address: u64, bytes: u64) {
        self.space.free(address, bytes);
        self.live -= 1;
        self.refused = u64::MAX;
    }
}
