//! Exports of the manual's chapter "Virtual Memory Management". None of them needs a current context.

use std::ffi::{c_uint, c_ulonglong};

use vgpu_abi::driver::arg::{In, Out};
use vgpu_abi::driver::{
    CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle, MEM_ALLOCATION_PINNED,
    MEM_LOCATION_DEVICE,
};

use super::device::check_device;
use crate::call::PhysicalHandle;
use crate::memory::AddressRange;
use crate::raw::DeviceAddress;
use crate::rule::{CallResult, Rule};
use crate::virtual_memory::GRANULARITY;

/// Checks that a request for physical memory names the device.
fn check_location(prop: &CUmemAllocationProp) -> CallResult {
    if prop.kind != MEM_ALLOCATION_PINNED || prop.location.kind != MEM_LOCATION_DEVICE {
        return Err(Rule::Argument.into());
    }
    check_device(prop.location.id)
}

fn range(address: DeviceAddress, bytes: usize) -> AddressRange {
    AddressRange::new(address.0, bytes as u64)
}

calls! {
    /// Implements `cuMemGetAllocationGranularity`.
    pub fn cuMemGetAllocationGranularity(
        bytes: Out<usize>, prop: In<CUmemAllocationProp>, option: c_uint,
    ) |_call| {
        check_location(&prop.get()?)?;
        if option > 1 {
            return Err(Rule::Argument.into());
        }
        Ok(bytes.set(GRANULARITY as usize)?)
    }

    /// Implements `cuMemCreate`.
    pub fn cuMemCreate(
        handle: Out<CUmemGenericAllocationHandle>, bytes: usize, prop: In<CUmemAllocationProp>,
        flags: c_ulonglong,
    ) |call| {
        let handle = handle.check()?;
        check_location(&prop.get()?)?;
        if flags != 0 {
            return Err(Rule::Argument.into());
        }
        let machine = &mut **call;
        let made = machine.space.create(&mut machine.memory, bytes as u64)? as u64;
        call.out("handle", &PhysicalHandle(made));
        Ok(handle.set(made)?)
    }

    /// Implements `cuMemRelease`.
    pub fn cuMemRelease(handle: CUmemGenericAllocationHandle) |call| {
        call.show("handle", &PhysicalHandle(handle));
        let machine = &mut **call;
        machine.space.release(&mut machine.memory, handle as usize)
    }

    /// Implements `cuMemAddressReserve`.
    pub fn cuMemAddressReserve(
        address: Out<CUdeviceptr>, bytes: usize, alignment: usize, wish: CUdeviceptr, flags: c_ulonglong,
    ) |call| {
        let address = address.check()?;
        if flags != 0 {
            return Err(Rule::Argument.into());
        }
        let machine = &mut **call;
        let (memory, answers) = (&machine.memory, &machine.options.reservations);
        let start = machine.space.reserve(memory, answers, bytes as u64, alignment as u64, wish)?;
        call.out("address", &DeviceAddress(start));
        Ok(address.set(start)?)
    }

    /// Implements `cuMemAddressFree`.
    pub fn cuMemAddressFree(address: DeviceAddress, bytes: usize) |call| {
        call.space.free_addresses(range(address, bytes))
    }

    /// Implements `cuMemMap`.
    pub fn cuMemMap(
        address: DeviceAddress, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle,
        flags: c_ulonglong,
    ) |call| {
        call.show("handle", &PhysicalHandle(handle));
        if flags != 0 {
            return Err(Rule::Argument.into());
        }
        call.space.map(range(address, bytes), offset as u64, handle as usize)
    }

    /// Implements `cuMemUnmap`.
    pub fn cuMemUnmap(address: DeviceAddress, bytes: usize) |call| {
        let range = range(address, bytes);
        if call.work.uses(range) {
            return Err(Rule::MappingInUse.into());
        }
        let machine = &mut **call;
        machine.space.unmap(&mut machine.memory, range)
    }

    /// Implements `cuMemSetAccess`.
    pub fn cuMemSetAccess(
        address: DeviceAddress, bytes: usize, rights: In<CUmemAccessDesc>, count: usize
    ) |call| {
        let rights = rights.slice(count)?;
        if rights.is_empty() {
            return Err(Rule::Argument.into());
        }
        for right in rights {
            if right.location.kind != MEM_LOCATION_DEVICE {
                return Err(Rule::Argument.into());
            }
            check_device(right.location.id)?;
            call.line.arg("access", right.flags.into());
            call.space.set_access(range(address, bytes), right.flags)?;
        }
        Ok(())
    }
}
