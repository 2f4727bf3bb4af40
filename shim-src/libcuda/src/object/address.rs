//! Finds the device that an address or a location belongs to.

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUmemLocation, MEM_LOCATION_DEVICE};

use crate::Result;
use crate::object::gpu::Gpu;
use crate::object::lifecycle;
use crate::object::memory::Range;
use crate::object::stream::Stream;

/// Returns device and range of an address, or `None` if it belongs to no device.
pub fn find(address: u64) -> Result<Option<(&'static Gpu, Range)>> {
    let devices = lifecycle::devices()?;
    Ok(devices.iter().find_map(|gpu| Some((*gpu, gpu.memory.find(address)?))))
}

/// Returns the device with memory at all of the `bytes` bytes from `address`, preferring the stream's own
/// device. Fails with `INVALID_VALUE` if there is none.
#[inline]
pub fn owner(stream: &Stream, address: u64, bytes: u64) -> Result<&'static Gpu> {
    let own = stream.gpu();
    if own.memory.has(address, bytes) { Ok(own) } else { other_owner(address, bytes) }
}

#[cold]
fn other_owner(address: u64, bytes: u64) -> Result<&'static Gpu> {
    let devices = lifecycle::devices()?;
    devices.iter().copied().find(|gpu| gpu.memory.has(address, bytes)).ok_or(CUresult::INVALID_VALUE)
}

/// Returns the device of a location.
pub fn at(location: CUmemLocation) -> Result<&'static Gpu> {
    if location.kind != MEM_LOCATION_DEVICE {
        return Err(CUresult::NOT_SUPPORTED);
    }
    lifecycle::device(location.id)
}
