//! The shim that stands in for libnvidia-ml, which answers the queries of monitoring tools about the devices
//! of this guest.
//!
//! It asks libcuda for devices, their facts and free memory, only through the private table of
//! [`vgpu_abi::table`] (the object needs `libcuda.so.1`). It opens no device, keeps no list and needs no
//! context; its only state is the number of initialisations. A device is identified by its index in the order
//! of PCI addresses, independent of CUDA_VISIBLE_DEVICES, and a handle is the address of libcuda's record of
//! it.
//!
//! Values that are not known are not invented. Sensors, utilization, power, current clocks, ECC, serial and
//! board numbers are known only to the host and are not part of the device's facts: their functions are stubs
//! that return not-supported.

mod arg;
mod clocks;
mod compute;
mod driver;
mod find;
mod identity;
mod init;
mod memory;
mod pci;
mod processes;
mod session;
mod system;
mod uuid;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

/// Result of a call, or of a part of one.
type Result<T = ()> = std::result::Result<T, vgpu_abi::nvml::NvmlReturn>;
