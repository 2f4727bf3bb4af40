//! A block of device memory that small allocations share.

use vgpu_device::{AddressSpace, Grain, Taken};

use crate::driver::range::{DeviceRange, Mapping};

/// Allocations start at multiples of this, as CUDA's do at least.
const ALIGNMENT: u64 = 512;

/// A block, of which parts are given out.
#[derive(Debug)]
pub(super) struct Block {
    space: AddressSpace,
    live: u32,
    /// The smallest size for which there was no room since something was given back.
    refused: u64,
    mapping: Mapping,
    _taken: Taken,
}

impl Block {
    /// A block of which nothing is given out.
    pub(super) const fn new(mapping: Mapping, taken: Taken) -> Self {
        let range = mapping.range();
        let grain = Grain { least: ALIGNMENT, gap: 0, large: 1 << 63 };
        let space = AddressSpace::new(range.address(), range.bytes(), grain);
        Self { space, live: 0, refused: u64::MAX, mapping, _taken: taken }
    }

    /// Where it is.
    pub(super) const fn range(&self) -> DeviceRange {
        self.mapping.range()
    }

    /// Whether nothing of it is given out.
    pub(super) const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Gives out `bytes`, if there is room.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        if bytes >= self.refused {
            return None;
        }
        let address = self.space.take(bytes);
        match address {
            Some(_) => self.live += 1,
            None => self.refused = bytes,
        }
        address
    }

    /// Takes back what was given out for as many `bytes`.
    pub(super) fn give_back(&mut self, address: u64, bytes: u64) {
        self.space.give_back(address, bytes);
        self.live -= 1;
        self.refused = u64::MAX;
    }
}
