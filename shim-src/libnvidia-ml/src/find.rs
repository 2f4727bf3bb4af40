//! Handles: how many devices there are and which is which.

use std::ffi::c_uint;
use std::ptr;

use vgpu_abi::export;
use vgpu_abi::nvml::{NvmlReturn, UUID_ASCII, UUID_BINARY, Uuid};
use vgpu_abi::table::Device;
use vgpu_transport::PciAddress;

use crate::arg::{InText, Out, padded};
use crate::driver::{self, Gpu};
use crate::{Result, session, uuid};

/// `nvmlDevice_t`: the address of libcuda's record of the device. Never followed before it has been compared
/// with the addresses that libcuda gives out, so that a foreign one is an error and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Handle(*const Device);

impl Handle {
    /// The device, if the library is initialised and has given this handle out.
    pub fn gpu(self) -> Result<Gpu> {
        session::required()?;
        find(|gpu| ptr::eq(gpu.device, self.0)).map_err(|status| match status {
            NvmlReturn::NOT_FOUND => NvmlReturn::INVALID_ARGUMENT,
            other => other,
        })
    }

    fn of(gpu: Gpu) -> Self {
        Self(gpu.device)
    }
}

/// How many devices there are; none, where the library has been initialised without.
fn count() -> Result<u32> {
    match driver::count() {
        Err(NvmlReturn::DRIVER_NOT_LOADED) => Ok(0),
        count => count,
    }
}

/// The device that is wanted. One that does not answer is not it; but if none is, that may be why.
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
    device.check()?.set(Handle::of(driver::gpu(index)?))
}

fn by_uuid(wanted: [u8; 16], device: Out<Handle>) -> Result {
    device.check()?.set(Handle::of(find(|gpu| gpu.device.facts.uuid == wanted)?))
}

fn by_address(text: InText, device: Out<Handle>) -> Result {
    session::required()?;
    let text = std::str::from_utf8(text.get()?).map_err(|_| NvmlReturn::INVALID_ARGUMENT)?;
    let address: PciAddress = text.parse().map_err(|_| NvmlReturn::INVALID_ARGUMENT)?;
    let wanted = [address.domain, address.bus.into(), address.device.into(), address.function.into()];
    device.check()?.set(Handle::of(find(|gpu| gpu.device.pci == wanted)?))
}

export! {
    /// How many devices the guest has, whatever CUDA_VISIBLE_DEVICES says.
    pub fn nvmlDeviceGetCount(devices: Out<c_uint>) -> NvmlReturn {
        session::required()?;
        devices.check()?.set(count()?)
    }

    /// How many devices the guest has, whatever CUDA_VISIBLE_DEVICES says.
    pub fn nvmlDeviceGetCount_v2(devices: Out<c_uint>) -> NvmlReturn {
        session::required()?;
        devices.check()?.set(count()?)
    }

    /// The device of that index, in the order of PCI addresses.
    pub fn nvmlDeviceGetHandleByIndex(index: c_uint, device: Out<Handle>) -> NvmlReturn {
        by_index(index, device)
    }

    /// The device of that index, in the order of PCI addresses.
    pub fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: Out<Handle>) -> NvmlReturn {
        by_index(index, device)
    }

    /// The device of that UUID, as [`crate::identity::nvmlDeviceGetUUID`] writes it.
    pub fn nvmlDeviceGetHandleByUUID(uuid: InText, device: Out<Handle>) -> NvmlReturn {
        session::required()?;
        by_uuid(uuid::parse(uuid.get()?).ok_or(NvmlReturn::INVALID_ARGUMENT)?, device)
    }

    /// The device of that UUID, text or bytes.
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

    /// The device of that PCI address, `domain:bus:device.function` with four or eight digits of the domain.
    pub fn nvmlDeviceGetHandleByPciBusId(address: InText, device: Out<Handle>) -> NvmlReturn {
        by_address(address, device)
    }

    /// The device of that PCI address, `domain:bus:device.function` with four or eight digits of the domain.
    pub fn nvmlDeviceGetHandleByPciBusId_v2(address: InText, device: Out<Handle>) -> NvmlReturn {
        by_address(address, device)
    }

    /// The index by which the device can be found.
    pub fn nvmlDeviceGetIndex(device: Handle, index: Out<c_uint>) -> NvmlReturn {
        index.set(device.gpu()?.index)
    }
}
