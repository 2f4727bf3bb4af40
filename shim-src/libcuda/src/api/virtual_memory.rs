//! Virtual memory management: address ranges, physical memory, and mappings between them.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::ptr;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{
    CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation,
    MEM_ALLOCATION_PINNED, MEM_LOCATION_DEVICE,
};

use crate::arg::{In, Out};
use crate::object::context::Context;
use crate::object::physical::{self, at, gpu_of, granularity, mapped, supported, whole};
use crate::object::{capture, current, lifecycle};

exports! {
    /// Stores the granularity of physical memory in bytes. The minimum and the recommended one are the same.
    pub fn cuMemGetAllocationGranularity(
        bytes: Out<usize>, prop: In<CUmemAllocationProp>, option: c_uint,
    ) -> CUresult {
        lifecycle::devices()?;
        let out = bytes.check()?;
        if option > 1 {
            return Err(CUresult::INVALID_VALUE);
        }
        out.set(granularity(gpu_of(prop.get()?)?))
    }

    /// Allocates physical memory.
    pub fn cuMemCreate(
        handle: Out<CUmemGenericAllocationHandle>, bytes: usize, prop: In<CUmemAllocationProp>,
        flags: c_ulonglong,
    ) -> CUresult {
        lifecycle::devices()?;
        let out = handle.check()?;
        capture::forbid_unsafe()?;
        let gpu = gpu_of(prop.get()?)?;
        whole(gpu, bytes)?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        out.set(physical::create(gpu, bytes)?)
    }

    /// Releases a handle of physical memory, which is freed with its last handle and its last mapping.
    pub fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> CUresult {
        lifecycle::devices()?;
        physical::release(handle)
    }

    /// Stores the handle of the physical memory mapped at an address, which has to be released once more.
    pub fn cuMemRetainAllocationHandle(
        handle: Out<CUmemGenericAllocationHandle>, address: *mut c_void,
    ) -> CUresult {
        lifecycle::devices()?;
        let out = handle.check()?;
        out.set(physical::retain(address as u64)?)
    }

    /// Stores the properties with which physical memory was allocated.
    pub fn cuMemGetAllocationPropertiesFromHandle(
        prop: Out<CUmemAllocationProp>, handle: CUmemGenericAllocationHandle,
    ) -> CUresult {
        lifecycle::devices()?;
        let out = prop.check()?;
        let location = CUmemLocation { kind: MEM_LOCATION_DEVICE, id: physical::device_of(handle)?.ordinal() };
        out.set(CUmemAllocationProp {
            kind: MEM_ALLOCATION_PINNED,
            handle_types: 0,
            location,
            win32: ptr::null_mut(),
            flags: [0; 8],
        })
    }

    /// Reserves an address range on the current context's device, or on the first device without a current
    /// context.
    pub fn cuMemAddressReserve(
        address: Out<CUdeviceptr>, bytes: usize, alignment: usize, wish: CUdeviceptr, flags: c_ulonglong,
    ) -> CUresult {
        let devices = lifecycle::devices()?;
        let out = address.check()?;
        let context = current::context();
        let gpu = match &context {
            Ok(context) => context.gpu(),
            Err(_) => devices.first().ok_or(CUresult::NO_DEVICE)?,
        };
        let gpu = supported(gpu)?;
        whole(gpu, bytes)?;
        if flags != 0 || (alignment != 0 && !alignment.is_power_of_two()) {
            return Err(CUresult::INVALID_VALUE);
        }
        out.set(physical::reserve(gpu, context.map_or(0, Context::handle), bytes, alignment, wish)?)
    }

    /// Frees a reserved address range.
    pub fn cuMemAddressFree(address: CUdeviceptr, bytes: usize) -> CUresult { physical::unreserve(address, bytes) }

    /// Maps physical memory, from its start, in a reserved range. CUDA defines no other offset yet.
    pub fn cuMemMap(
        address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle,
        flags: c_ulonglong,
    ) -> CUresult {
        lifecycle::devices()?;
        physical::map(address, bytes, handle, flags == 0 && offset == 0)
    }

    /// Unmaps the mappings that make up a range. A range that is not made up of whole mappings is an invalid
    /// value.
    pub fn cuMemUnmap(address: CUdeviceptr, bytes: usize) -> CUresult { physical::unmap(address, bytes) }

    /// Sets the device's access rights to the mappings that make up a range. Access by other devices is not
    /// supported.
    pub fn cuMemSetAccess(
        address: CUdeviceptr, bytes: usize, rights: In<CUmemAccessDesc>, count: usize,
    ) -> CUresult {
        physical::set_access(address, bytes, rights, count)
    }

    /// Stores the access rights of a location to an address. Other devices have none.
    pub fn cuMemGetAccess(
        flags: Out<c_ulonglong>, location: In<CUmemLocation>, address: CUdeviceptr,
    ) -> CUresult {
        lifecycle::devices()?;
        let out = flags.check()?;
        let asked = at(location.get()?)?;
        let (gpu, mapping) = mapped(address)?;
        out.set(if ptr::eq(asked, gpu) { u64::from(mapping.access) } else { 0 })
    }
}
