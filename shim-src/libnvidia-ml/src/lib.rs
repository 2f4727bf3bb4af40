//! The shim that stands in for libnvidia-ml: what a query tool asks about the devices of this guest.
//!
//! It reaches libcuda through the private table of [`vgpu_abi::table`] alone (the object needs
//! `libcuda.so.1`): devices and their facts, how much memory is free. It holds no device, keeps no list and
//! needs no context; its only state is how often it has been initialised. A device is NVML's index in the
//! order of PCI addresses, whatever CUDA_VISIBLE_DEVICES says, and a handle is the address of libcuda's
//! record of it.
//!
//! What is not known is not made up. Sensors, utilization, power, current clocks, ECC, serial and board
//! numbers are the host's and not part of the device's facts: their names are stubs that answer
//! not-supported.

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

/// Outcome of a call, or of a part of one.
type Result<T = ()> = std::result::Result<T, vgpu_abi::nvml::NvmlReturn>;
