//! Device memory: a reserved address range, physical memory, and mappings of physical memory in the range.

use std::sync::Arc;

use vgpu_abi::driver::{
    CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, MEM_ALLOCATION_PINNED,
    MEM_LOCATION_DEVICE,
};

use super::context::DriverContext;
use super::device::DriverDevice;
use super::error::{DriverError, check, log_failure};

/// The flag `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;

/// A range of device addresses, the operand of copies and fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceRange {
    address: u64,
    bytes: u64,
}

impl DeviceRange {
    /// Wraps a range that the driver returned.
    pub(super) const fn named(address: u64, bytes: u64) -> Self {
        Self { address, bytes }
    }

    /// Returns the first address of the range.
    pub(crate) const fn address(self) -> u64 {
        self.address
    }

    /// Returns the length in bytes.
    pub(crate) const fn bytes(self) -> u64 {
        self.bytes
    }

    /// Returns the range of `bytes` at `address`, if this range contains all of it.
    pub(crate) fn part(self, address: u64, bytes: u64) -> Option<Self> {
        let offset = address.checked_sub(self.address)?;
        (offset.checked_add(bytes)? <= self.bytes).then_some(Self { address, bytes })
    }
}

fn location(device: &DriverDevice) -> CUmemLocation {
    CUmemLocation { kind: MEM_LOCATION_DEVICE, id: device.ordinal() }
}

fn properties(device: &DriverDevice) -> CUmemAllocationProp {
    CUmemAllocationProp {
        kind: MEM_ALLOCATION_PINNED,
        handle_types: 0,
        location: location(device),
        win32: std::ptr::null_mut(),
        flags: [0; 8],
    }
}

/// Returns the unit in which a device's memory is allocated and mapped, in bytes. It needs no context.
pub(crate) fn granularity(device: &DriverDevice) -> Result<u64, DriverError> {
    let properties = properties(device);
    let mut bytes = 0;
    let get = device.driver().table.cuMemGetAllocationGranularity;
    // SAFETY: a live place for the answer, and live properties. 0: the least that works.
    check("cuMemGetAllocationGranularity", unsafe { get(&raw mut bytes, &raw const properties, 0) })?;
    Ok(bytes as u64)
}

/// Reason for which the driver does not reserve a range.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddressError {
    /// The driver reserves no such range.
    #[error("the driver does not reserve {} GiB of device addresses at {base:#x}: {error}", bytes >> 30)]
    Refused {
        /// First address.
        base: u64,
        /// Length in bytes.
        bytes: u64,
        /// The driver's error.
        error: DriverError,
    },
    /// The driver reserves a range elsewhere, as if something else of the process were there.
    #[error("the driver reserves device addresses at {given:#x} instead of {base:#x}")]
    Elsewhere {
        /// First address.
        base: u64,
        /// First address of the driver's choice.
        given: u64,
    },
}

/// A reserved range of device addresses.
#[derive(Debug)]
pub(crate) struct Reserved {
    context: Arc<DriverContext>,
    base: u64,
    bytes: u64,
}

impl Reserved {
    /// Calls `cuMemAddressReserve` for the address `base`. The driver may choose another one, which is not
    /// taken. Driver 580.159.04 reserves 1 TiB and more at all of the device's ranges
    /// (`testbed/bench/drivers`).
    pub(crate) fn reserve(context: &Arc<DriverContext>, base: u64, bytes: u64) -> Result<Self, AddressError> {
        let mut address = 0;
        let reserve = context.table().cuMemAddressReserve;
        // SAFETY: the argument is a live variable for the address. The driver does not return addresses that
        // are in use.
        let code = unsafe { reserve(&raw mut address, bytes as usize, 0, base, 0) };
        check("cuMemAddressReserve", code).map_err(|error| AddressError::Refused { base, bytes, error })?;
        let given = Self { context: Arc::clone(context), base: address, bytes };
        if address == base { Ok(given) } else { Err(AddressError::Elsewhere { base, given: address }) }
    }

    /// Returns the whole range. An access to an unmapped part of it is a fault of the context.
    pub(crate) const fn range(&self) -> DeviceRange {
        DeviceRange { address: self.base, bytes: self.bytes }
    }

    /// Sets the device's access to the mappings in a part of the range: 0 for none, 1 for reads, 3 for reads
    /// and writes.
    pub(crate) fn set_access(&self, part: DeviceRange, access: u32) -> Result<(), DriverError> {
        let description = CUmemAccessDesc { location: location(self.context.device()), flags: access };
        let set = self.context.table().cuMemSetAccess;
        // SAFETY: one live description. The driver checks that the part is mapped.
        let code = unsafe { set(part.address, part.bytes as usize, &raw const description, 1) };
        check("cuMemSetAccess", code)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let free = self.context.table().cuMemAddressFree;
        // SAFETY: nothing is mapped in the range, because every mapping keeps this value alive.
        log_failure(check("cuMemAddressFree", unsafe { free(self.base, self.bytes as usize) }));
    }
}

/// Physical device memory, released when it is dropped.
#[derive(Debug)]
pub(crate) struct PhysicalMemory {
    context: Arc<DriverContext>,
    handle: CUmemGenericAllocationHandle,
    bytes: u64,
}

impl PhysicalMemory {
    /// Calls `cuMemCreate`. `bytes` must be a multiple of the granularity.
    pub(crate) fn create(context: &Arc<DriverContext>, bytes: u64) -> Result<Self, DriverError> {
        let properties = properties(context.device());
        let mut handle = 0;
        let create = context.table().cuMemCreate;
        // SAFETY: a live place for the answer, and live properties.
        let code = unsafe { create(&raw mut handle, bytes as usize, &raw const properties, 0) };
        check("cuMemCreate", code)?;
        Ok(Self { context: Arc::clone(context), handle, bytes })
    }

    /// Returns the size of the memory in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for PhysicalMemory {
    fn drop(&mut self) {
        // SAFETY: the last use of the handle.
        log_failure(check("cuMemRelease", unsafe { (self.context.table().cuMemRelease)(self.handle) }));
    }
}

/// Physical memory mapped at an address. Dropping it unmaps the memory; no work may use it by then.
#[derive(Debug)]
pub(crate) struct DeviceMapping {
    reserved: Arc<Reserved>,
    _physical: Arc<PhysicalMemory>,
    range: DeviceRange,
}

impl DeviceMapping {
    /// Calls `cuMemMap` for the `range.bytes()` at `offset` of physical memory. The device has no access yet.
    pub(crate) fn map(
        reserved: &Arc<Reserved>,
        range: DeviceRange,
        physical: &Arc<PhysicalMemory>,
        offset: u64,
    ) -> Result<Self, DriverError> {
        let map = reserved.context.table().cuMemMap;
        let (bytes, offset) = (range.bytes as usize, offset as usize);
        // SAFETY: the handle lives. The driver checks that the addresses are reserved and free.
        check("cuMemMap", unsafe { map(range.address, bytes, offset, physical.handle, 0) })?;
        Ok(Self { reserved: Arc::clone(reserved), _physical: Arc::clone(physical), range })
    }

    /// Maps all of the physical memory, with full access.
    pub(crate) fn map_whole(
        reserved: &Arc<Reserved>,
        address: u64,
        physical: &Arc<PhysicalMemory>,
    ) -> Result<Self, DriverError> {
        let range = DeviceRange { address, bytes: physical.bytes };
        let mapping = Self::map(reserved, range, physical, 0)?;
        reserved.set_access(range, READ_WRITE)?;
        Ok(mapping)
    }

    /// Returns the address range of the mapping.
    pub(crate) const fn range(&self) -> DeviceRange {
        self.range
    }
}

impl Drop for DeviceMapping {
    fn drop(&mut self) {
        let unmap = self.reserved.context.table().cuMemUnmap;
        // SAFETY: the memory was mapped there once. Work that still used it would fault on the GPU, not on
        // the host.
        log_failure(check("cuMemUnmap", unsafe { unmap(self.range.address, self.range.bytes as usize) }));
    }
}
