//! The PCI address of a device in the guest, the same as in sysfs and in CUDA.

use std::ffi::c_char;

use vgpu_abi::export;
use vgpu_abi::nvml::{NvmlReturn, PciInfo, PciInfoExt, PciInfoV1, PciInfoV2};
use vgpu_abi::table::Device;
use vgpu_wire::pci::{CLASS, DEVICE, VENDOR};

use crate::arg::Out;
use crate::find::Handle;

/// Device id in the high half, vendor id in the low half.
const ID: u32 = (DEVICE as u32) << 16 | VENDOR as u32;

/// Writes a text to a field and pads it with zeros.
fn field<const N: usize>(text: &str) -> [c_char; N] {
    let bytes = text.as_bytes();
    // The last byte is always a zero.
    std::array::from_fn(|at| if at + 1 < N { bytes.get(at).map_or(0, |byte| byte.cast_signed()) } else { 0 })
}

fn bus_id<const N: usize>(device: &Device, domain_digits: usize) -> [c_char; N] {
    let [domain, bus, slot, function] = device.pci;
    field(&format!("{domain:0domain_digits$X}:{bus:02X}:{slot:02X}.{function:X}"))
}

fn first(device: &Device) -> PciInfoV1 {
    let [domain, bus, slot, _] = device.pci;
    PciInfoV1 { bus_id_legacy: bus_id(device, 4), domain, bus, device: slot, id: ID }
}

fn second(device: &Device) -> PciInfoV2 {
    PciInfoV2 { first: first(device), subsystem: device.subsystem }
}

export! {
    /// Stores the address in version 1 of the structure, which ends with the device id.
    pub fn nvmlDeviceGetPciInfo(device: Handle, pci: Out<PciInfoV1>) -> NvmlReturn {
        pci.set(first(device.gpu()?.device))
    }

    /// Stores the address in version 2 of the structure, which has the subsystem id.
    pub fn nvmlDeviceGetPciInfo_v2(device: Handle, pci: Out<PciInfoV2>) -> NvmlReturn {
        pci.set(second(device.gpu()?.device))
    }

    /// Stores the address in version 3 of the structure, which has the address as text with the whole domain.
    pub fn nvmlDeviceGetPciInfo_v3(device: Handle, pci: Out<PciInfo>) -> NvmlReturn {
        let device = device.gpu()?.device;
        pci.set(PciInfo { second: second(device), bus_id: bus_id(device, 8) })
    }

    /// Stores the address and the PCI class.
    pub fn nvmlDeviceGetPciInfoExt(device: Handle, pci: Out<PciInfoExt>) -> NvmlReturn {
        let device = device.gpu()?.device;
        if pci.version().get()? != PciInfoExt::VERSION {
            return Err(NvmlReturn::ARGUMENT_VERSION_MISMATCH);
        }
        let [domain, bus, slot, _] = device.pci;
        pci.set(PciInfoExt {
            version: PciInfoExt::VERSION,
            domain,
            bus,
            device: slot,
            id: ID,
            subsystem: device.subsystem,
            base_class: CLASS >> 16,
            sub_class: CLASS >> 8 & 0xff,
            bus_id: bus_id(device, 8),
        })
    }
}
