//! The number of devices, and the handles that identify them.

use std::ffi::c_uint;
use std::ptr;

use vgpu_abi::export;
use vgpu_abi::nvml::{NvmlReturn, UUID_ASCII, UUID_BINARY, Uuid};
use vgpu_abi::table::Device;
use vgpu_transport::PciAddress;

use crate::arg::{InText, Out, padded};
use crate::driver::{self, Gpu};
use crate::{Result, session, uuid};

/// `nvmlDevice_t`: the address of libcuda's record of the device. It is only dereferenced after it has been
/// compared with the addresses of libcuda's records, so that an invalid handle is just an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Handle(*const Device);

impl Handle {
    /// Returns the device of the handle. Fails if the library is not initialised or the handle is not valid.
    pub fn gpu(self) -> Result<Gpu> {
        session::required()?;
        find(|gpu| ptr::eq(gpu.device, self.0)).map_err(|status| match status {
            NvmlReturn::NOT_FOUND => NvmlReturn::INVALID_ARGUMENT,
            other => other,
        })
    }

    fn from_gpu(gpu: Gpu) -> Self {
        Self(gpu.device)
    }
}

/// Returns the number of devices, or 0 if the library was initialised without any.
fn count() -> Result<u32> {
    match driver::count() {
        Err(NvmlReturn::DRIVER_NOT_LOADED) => Ok(0),
        count => count,
    }
}

/// Finds the first device for which `wanted` holds. A device that does not answer is skipped, but its error
/// is returned if no device matches.
fn find(wanted: impl Fn(Gpu) -> bool) -> Result<Gpu> {
    let mut missing = NvmlReturn::NOT_FOUND;
    for index in 0..count()? {
        match driver::gpu(index) {
            Ok(gpu) if wanted(gpu) => return Ok(gpu),
            Err(status) if missing == NvmlReturn::NOT_FOUND => missing = status,
            Ok(_) | Err(_) => {}
        }
    }
    Err(missing)
}

fn by_index(index: c_uint, device: Out<Handle>) -> Result {
    session::required()?;
    if index >= count()? {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    device.check()?.set(Handle::from_gpu(driver::gpu(index)?))
}

fn by_uuid(wanted: [u8; 16], device: Out<Handle>) -> Result {
    device.check()?.set(Handle::from_gpu(find(|gpu| gpu.device.facts.uuid == wanted)?))
}

fn by_address(text: InText, device: Out<Handle>) -> Result {
    session::required()?;
    let text = std::str::from_utf8(text.get()?).map_err(|_| NvmlReturn::INVALID_ARGUMENT)?;
    let address: PciAddress = text.parse().map_err(|_| NvmlReturn::INVALID_ARGUMENT)?;
    let wanted = [address.domain, address.bus.into(), address.device.into(), address.function.into()];
    device.check()?.set(Handle::from_gpu(find(|gpu| gpu.device.pci == wanted)?))
}

export! {
    /// Stores the number of the guest's devices, independent of CUDA_VISIBLE_DEVICES.
    pub fn nvmlDeviceGetCount(devices: Out<c_uint>) -> NvmlReturn {
        session::required()?;
        devices.check()?.set(count()?)
    }

    /// Stores the number of the guest's devices, independent of CUDA_VISIBLE_DEVICES.
    pub fn nvmlDeviceGetCount_v2(devices: Out<c_uint>) -> NvmlReturn {
        session::required()?;
        devices.check()?.set(count()?)
    }

    /// Stores the handle of the device with this index in the order of PCI addresses.
    pub fn nvmlDeviceGetHandleByIndex(index: c_uint, device: Out<Handle>) -> NvmlReturn {
        by_index(index, device)
    }

    /// Stores the handle of the device with this index in the order of PCI addresses.
    pub fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: Out<Handle>) -> NvmlReturn {
        by_index(index, device)
    }

    /// Stores the handle of the device with this UUID, as [`crate::identity::nvmlDeviceGetUUID`] writes it.
    pub fn nvmlDeviceGetHandleByUUID(uuid: InText, device: Out<Handle>) -> NvmlReturn {
        session::required()?;
        by_uuid(uuid::parse(uuid.get()?).ok_or(NvmlReturn::INVALID_ARGUMENT)?, device)
    }

    /// Stores the handle of the device with this UUID, given as text or bytes.
    pub fn nvmlDeviceGetHandleByUUIDV(uuid: Out<Uuid>, device: Out<Handle>) -> NvmlReturn {
        session::required()?;
        if uuid.version().get()? != Uuid::VERSION {
            return Err(NvmlReturn::ARGUMENT_VERSION_MISMATCH);
        }
        let uuid = uuid.get()?;
        let wanted = match uuid.kind {
            UUID_ASCII => uuid::parse(padded(&uuid.value)).ok_or(NvmlReturn::INVALID_ARGUMENT)?,
            UUID_BINARY => std::array::from_fn(|at| uuid.value[at]),
            _ => return Err(NvmlReturn::INVALID_ARGUMENT),
        };
        by_uuid(wanted, device)
    }

    /// Stores the handle of the device at this PCI address, `domain:bus:device.function` with a domain of
    /// four or eight digits.
    pub fn nvmlDeviceGetHandleByPciBusId(address: InText, device: Out<Handle>) -> NvmlReturn {
        by_address(address, device)
    }

    /// Stores the handle of the device at this PCI address, `domain:bus:device.function` with a domain of
    /// four or eight digits.
    pub fn nvmlDeviceGetHandleByPciBusId_v2(address: InText, device: Out<Handle>) -> NvmlReturn {
        by_address(address, device)
    }

    /// Stores the index of the device.
    pub fn nvmlDeviceGetIndex(device: Handle, index: Out<c_uint>) -> NvmlReturn {
        index.set(device.gpu()?.index)
    }
}
