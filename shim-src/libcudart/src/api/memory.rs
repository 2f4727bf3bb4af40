//! Memory management: device memory.

use core::ffi::{c_uint, c_void};

use vgpu_abi::runtime::{CudaError, Extent, PitchedPtr, Stream};

use crate::address::{address, pointer};
use crate::process;

/// Element size in bytes to which rows are aligned: the largest that the driver knows, because the runtime
/// promises alignment for any element.
const PITCH_ELEMENT: c_uint = 16;

fn pitched(width: usize, height: usize) -> Result<(*mut c_void, usize), CudaError> {
    let (mut start, mut pitch) = (0, 0);
    if width == 0 || height == 0 {
        return Ok((pointer(0), 0));
    }
    cu!(cuMemAllocPitch_v2(&raw mut start, &raw mut pitch, width, height, PITCH_ELEMENT))?;
    Ok((pointer(start), pitch))
}

calls! {
    /// Allocates device memory. For 0 bytes it stores null.
    pub fn cudaMalloc(place: *mut *mut c_void, bytes: usize) {
        process::enter()?;
        if place.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let mut start = 0;
        if bytes != 0 {
            cu!(cuMemAlloc_v2(&raw mut start, bytes))?;
        }
        store!(place, pointer(start))
    }

    /// Allocates memory that host and device both access, which this project's driver does not support.
    pub fn cudaMallocManaged(place: *mut *mut c_void, bytes: usize, flags: c_uint) {
        process::enter()?;
        if place.is_null() || bytes == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let mut start = 0;
        cu!(cuMemAllocManaged(&raw mut start, bytes, flags))?;
        store!(place, pointer(start))
    }

    /// Allocates device memory for rows, at a pitch that suits the device.
    pub fn cudaMallocPitch(place: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) {
        process::enter()?;
        if place.is_null() || pitch.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let (start, bytes) = pitched(width, height)?;
        store!(place, start)?;
        store!(pitch, bytes)
    }

    /// Allocates device memory for slices of rows, at a pitch that suits the device.
    pub fn cudaMalloc3D(place: *mut PitchedPtr, extent: Extent) {
        process::enter()?;
        if place.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let rows = extent.height.checked_mul(extent.depth).ok_or(CudaError::MEMORY_ALLOCATION)?;
        let (ptr, pitch) = pitched(extent.width, rows)?;
        store!(place, PitchedPtr { ptr, pitch, xsize: extent.width, ysize: extent.height })
    }

    /// Frees device memory, ordered after all earlier work. Null is accepted, and initialises the runtime.
    pub fn cudaFree(memory: *mut c_void) {
        process::enter()?;
        if memory.is_null() { Ok(()) } else { cu!(cuMemFree_v2(address(memory))) }
    }

    /// Stores free and total memory of the thread's device in bytes.
    pub fn cudaMemGetInfo(free: *mut usize, total: *mut usize) {
        process::enter()?;
        let (mut free_bytes, mut total_bytes) = (0, 0);
        cu!(cuMemGetInfo_v2(&raw mut free_bytes, &raw mut total_bytes))?;
        store!(free, free_bytes)?;
        store!(total, total_bytes)
    }

    /// Allocates device memory in the order of a stream.
    pub fn cudaMallocAsync | fn cudaMallocAsync_ptsz [stream] (
        place: *mut *mut c_void, bytes: usize, stream: Stream
    ) {
        process::enter()?;
        if place.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let mut start = 0;
        if bytes != 0 {
            cu!(cuMemAllocAsync(&raw mut start, bytes, stream))?;
        }
        store!(place, pointer(start))
    }

    /// Frees device memory in the order of a stream.
    pub fn cudaFreeAsync | fn cudaFreeAsync_ptsz [stream] (memory: *mut c_void, stream: Stream) {
        process::enter()?;
        if memory.is_null() { Ok(()) } else { cu!(cuMemFreeAsync(address(memory), stream)) }
    }
}
