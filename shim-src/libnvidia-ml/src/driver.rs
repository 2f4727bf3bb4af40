//! Calls to libcuda through its private table.

use std::ffi::c_int;
use std::ptr;

use vgpu_abi::CUresult;
#[cfg(not(test))]
use vgpu_abi::link::LINKED as LIBCUDA;
use vgpu_abi::link::Link;
use vgpu_abi::nvml::NvmlReturn;
use vgpu_abi::table::{Device, Table};

use crate::Result;
#[cfg(test)]
use crate::fake::CALLS as LIBCUDA;

/// The link to libcuda's private table.
static LINK: Link = Link::new("NVML", LIBCUDA);

/// Ids of `CUdevice_attribute` that NVML's results are computed from. A value of 0 in the facts means that
/// the host does not know it.
pub mod attribute {
    use std::ffi::c_int;

    /// Highest clock of the multiprocessors in kHz.
    pub const CLOCK_RATE: c_int = 13;
    /// Number of multiprocessors.
    pub const MULTIPROCESSOR_COUNT: c_int = 16;
    /// The `CUcomputemode` of the device.
    pub const COMPUTE_MODE: c_int = 20;
    /// Highest clock of the memory in kHz.
    pub const MEMORY_CLOCK_RATE: c_int = 36;
    /// Width of the memory's bus in bits.
    pub const GLOBAL_MEMORY_BUS_WIDTH: c_int = 37;
}

/// Returns libcuda's table. Without it NVML reports that there is no driver.
fn table() -> Result<&'static Table> {
    LINK.table().ok_or(NvmlReturn::DRIVER_NOT_LOADED)
}

fn status(status: CUresult) -> Result {
    NvmlReturn::from(status).ok()
}

/// Fails if the process may not use the device: in a forked child, and after exit handlers have run.
pub fn life() -> Result {
    // SAFETY: an entry of libcuda's table, without arguments.
    status(unsafe { (table()?.life)() })
}

/// Initialises libcuda if necessary, and returns the number of its devices.
pub fn count() -> Result<u32> {
    let mut count = 0;
    // SAFETY: an entry of libcuda's table, called with a place for its answer.
    status(unsafe { (table()?.device_count)(&raw mut count) })?;
    Ok(count.try_into().unwrap_or(0))
}

/// A device of this guest: its index and libcuda's record of it.
#[derive(Clone, Copy, Debug)]
pub struct Gpu {
    /// Index of the device in NVML's order.
    pub index: u32,
    /// libcuda's record, whose address is NVML's handle.
    pub device: &'static Device,
}

/// Returns the device with this index.
pub fn gpu(index: u32) -> Result<Gpu> {
    let mut device: *const Device = ptr::null();
    let number = c_int::try_from(index).map_err(|_| NvmlReturn::INVALID_ARGUMENT)?;
    // SAFETY: an entry of libcuda's table, called with a place for its answer.
    status(unsafe { (table()?.device)(number, &raw mut device) })?;
    // SAFETY: libcuda answers null or a record that lives as long as the process.
    let device = unsafe { device.as_ref() }.ok_or(NvmlReturn::UNKNOWN)?;
    Ok(Gpu { index, device })
}

/// Returns all devices, in NVML's order.
pub fn gpus() -> Result<impl Iterator<Item = Result<Gpu>>> {
    Ok((0..count()?).map(gpu))
}

impl Gpu {
    /// Asks the host for free and total memory, in bytes.
    pub fn memory(self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        let index = c_int::try_from(self.index).map_err(|_| NvmlReturn::INVALID_ARGUMENT)?;
        // SAFETY: an entry of libcuda's table, called with places for its answers.
        status(unsafe { (table()?.memory_info)(index, &raw mut free, &raw mut total) })?;
        Ok((free, total))
    }

    /// Returns a `CUdevice_attribute`. Fails if it is 0, which means that the host does not know it.
    pub fn attribute(self, id: c_int) -> Result<u32> {
        let value = usize::try_from(id).ok().and_then(|id| self.device.facts.attributes.get(id));
        match value {
            Some(&value) if value > 0 => Ok(value.cast_unsigned()),
            _ => Err(NvmlReturn::NOT_SUPPORTED),
        }
    }
}

/// Returns the newest CUDA version that the driver supports, in CUDA's own encoding.
pub fn cuda_version() -> Result<c_int> {
    table()?;
    LINK.cuda_version().map_err(NvmlReturn::from)
}
