//! Name, UUID, brand, architecture and display state of a device.

use std::ffi::c_uint;

use vgpu_abi::export;
use vgpu_abi::nvml::{BRAND_UNKNOWN, FEATURE_DISABLED, NvmlReturn, architecture};

use crate::arg::{Out, Text, padded};
use crate::find::Handle;
use crate::uuid;

export! {
    /// Stores the product name, the same as CUDA's.
    pub fn nvmlDeviceGetName(device: Handle, name: Text, length: c_uint) -> NvmlReturn {
        name.set(padded(&device.gpu()?.device.facts.name), length)
    }

    /// Stores the UUID as text, the same as CUDA's.
    pub fn nvmlDeviceGetUUID(device: Handle, uuid: Text, length: c_uint) -> NvmlReturn {
        uuid.set(uuid::text(&device.gpu()?.device.facts.uuid).as_bytes(), length)
    }

    /// Stores the brand, which is always NVML's value for an unknown brand, because the device's facts do not
    /// contain it.
    pub fn nvmlDeviceGetBrand(device: Handle, brand: Out<c_uint>) -> NvmlReturn {
        device.gpu()?;
        brand.set(BRAND_UNKNOWN)
    }

    /// Stores the architecture that the compute capability belongs to.
    pub fn nvmlDeviceGetArchitecture(device: Handle, answer: Out<c_uint>) -> NvmlReturn {
        let facts = &device.gpu()?.device.facts;
        answer.set(architecture(facts.cc_major, facts.cc_minor))
    }

    /// Stores whether a display is initialised on the device. VGPU-STUB is a 3D controller, which has none.
    pub fn nvmlDeviceGetDisplayActive(device: Handle, active: Out<c_uint>) -> NvmlReturn {
        device.gpu()?;
        active.set(FEATURE_DISABLED)
    }

    /// Stores whether a display is connected. A 3D controller has no connector.
    pub fn nvmlDeviceGetDisplayMode(device: Handle, mode: Out<c_uint>) -> NvmlReturn {
        device.gpu()?;
        mode.set(FEATURE_DISABLED)
    }

    /// Stores whether the handle is that of a MIG device, which no handle of this library is.
    pub fn nvmlDeviceIsMigDeviceHandle(device: Handle, answer: Out<c_uint>) -> NvmlReturn {
        device.gpu()?;
        answer.set(0)
    }

    /// Stores the maximum number of MIG devices, which is 0.
    pub fn nvmlDeviceGetMaxMigDeviceCount(device: Handle, count: Out<c_uint>) -> NvmlReturn {
        device.gpu()?;
        count.set(0)
    }
}
