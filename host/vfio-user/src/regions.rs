//! The function's regions as a VMM sees them: the configuration space, and the BARs, some of which are memory
//! that the guest maps.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use vfio_bindings::bindings::vfio::{
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_REGION_INFO_CAP_SPARSE_MMAP, VFIO_REGION_INFO_FLAG_CAPS,
    VFIO_REGION_INFO_FLAG_MMAP, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
};
use zerocopy::{Immutable, IntoBytes};

use crate::config::{self, Config};
use crate::frame::{Access, RegionInfo};
use crate::function::{Bar, Function};

/// Capability of a region that is mapped: one area, which is the whole region. In the layout of
/// `vfio_region_info_cap_sparse_mmap`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct MappedArea {
    id: u16,
    version: u16,
    next: u32,
    areas: u32,
    reserved: u32,
    offset: u64,
    size: u64,
}

/// The regions of a function.
pub(crate) struct Regions {
    function: Arc<dyn Function>,
    bars: [Option<Bar>; 6],
    memory: [Option<OwnedFd>; 6],
}

impl Regions {
    pub(crate) fn new(function: Arc<dyn Function>) -> Self {
        let bars = function.bars();
        let memory = std::array::from_fn(|bar| bars[bar].and_then(|_| function.memory(bar)));
        Self { function, bars, memory }
    }

    /// Makes the configuration space as after power-on.
    pub(crate) fn config(&self) -> Config {
        Config::new(&self.function.identity(), &self.bars, self.function.pages_key())
    }

    /// Resets the function.
    pub(crate) fn reset(&self) {
        self.function.reset();
    }

    /// Returns the memory of a BAR that the guest maps.
    pub(crate) fn memory(&self, bar: usize) -> Option<BorrowedFd<'_>> {
        self.memory.get(bar)?.as_ref().map(AsFd::as_fd)
    }

    /// Returns the BAR that a region is. The other regions are the configuration space and some that do not
    /// exist.
    fn bar(&self, region: u32) -> Option<(usize, Bar)> {
        let index = region as usize;
        Some((index, self.bars.get(index).copied().flatten()?))
    }

    /// Describes a region in `into`, with room for `argsz` bytes. Returns the BAR whose memory is to be passed
    /// along. `passes` is whether the VMM takes descriptors.
    pub(crate) fn describe(&self, index: u32, argsz: u32, passes: bool, into: &mut Vec<u8>) -> Option<usize> {
        let (flags, size) = match self.bar(index) {
            Some((_, bar)) => (VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE, bar.bytes),
            None if index == VFIO_PCI_CONFIG_REGION_INDEX => {
                (VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE, config::BYTES as u64)
            }
            None => (0, 0),
        };
        let plain = size_of::<RegionInfo>() as u32;
        let mut info = RegionInfo { argsz: plain, flags, index, cap_offset: 0, size, offset: 0 };
        if !passes || self.memory(index as usize).is_none() {
            into.extend(info.as_bytes());
            return None;
        }
        info.argsz += size_of::<MappedArea>() as u32;
        info.flags |= VFIO_REGION_INFO_FLAG_MMAP | VFIO_REGION_INFO_FLAG_CAPS;
        info.cap_offset = plain;
        into.extend(info.as_bytes());
        // A VMM asks for the size first, and again with the room that it has read there.
        if argsz < info.argsz {
            return None;
        }
        let id = VFIO_REGION_INFO_CAP_SPARSE_MMAP as u16;
        let area = MappedArea { id, version: 1, next: 0, areas: 1, reserved: 0, offset: 0, size };
        into.extend(area.as_bytes());
        Some(index as usize)
    }

    /// Reads from a region. What lies in none reads all ones, as from a bus on which no device answers.
    pub(crate) fn read(&self, config: &Config, access: Access, data: &mut [u8]) {
        match self.bar(access.region) {
            Some((bar, Bar { bytes, .. })) if lies_within(access, bytes) => {
                self.function.read(bar, access.offset, data);
            }
            None if access.region == VFIO_PCI_CONFIG_REGION_INDEX => config.read(access.offset, data),
            _ => data.fill(0xff),
        }
    }

    /// Writes to a region. What lies in none is ignored.
    pub(crate) fn write(&self, config: &mut Config, access: Access, data: &[u8]) {
        match self.bar(access.region) {
            Some((bar, Bar { bytes, .. })) if lies_within(access, bytes) => {
                self.function.write(bar, access.offset, data);
            }
            None if access.region == VFIO_PCI_CONFIG_REGION_INDEX => config.write(access.offset, data),
            _ => {}
        }
    }
}

/// Returns whether an access lies within a region of `bytes`. Its end does not wrap around, which the decoder
/// has checked.
fn lies_within(access: Access, bytes: u64) -> bool {
    access.offset + u64::from(access.count) <= bytes
}
