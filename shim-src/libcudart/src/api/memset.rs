//! Memory management: fills. The runtime fills memory with bytes only.

use core::ffi::{c_int, c_void};

use vgpu_abi::driver::STREAM_PER_THREAD;
use vgpu_abi::runtime::{CudaError, Extent, PitchedPtr, Stream};

use crate::address::address;
use crate::process;

/// Returns the byte to fill with: the low one of the value, as in C.
fn byte(value: c_int) -> u8 {
    value.to_le_bytes()[0]
}

fn fill(memory: *mut c_void, value: c_int, bytes: usize, stream: Option<Stream>) -> Result<(), CudaError> {
    process::enter()?;
    if bytes == 0 {
        return Ok(());
    }
    match stream {
        None => cu!(cuMemsetD8_v2(address(memory), byte(value), bytes)),
        Some(stream) => cu!(cuMemsetD8Async(address(memory), byte(value), bytes, stream)),
    }
}

fn fill_rows(
    memory: *mut c_void,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    stream: Option<Stream>,
) -> Result<(), CudaError> {
    process::enter()?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    match stream {
        None => cu!(cuMemsetD2D8_v2(address(memory), pitch, byte(value), width, height)),
        Some(stream) => {
            cu!(cuMemsetD2D8Async(address(memory), pitch, byte(value), width, height, stream))
        }
    }
}

fn fill_box(
    memory: PitchedPtr,
    value: c_int,
    extent: Extent,
    stream: Option<Stream>,
) -> Result<(), CudaError> {
    // Slices whose rows are all filled follow each other at the same pitch: one fill of rows.
    if memory.ysize == extent.height || extent.depth <= 1 {
        let rows = extent.height.checked_mul(extent.depth).ok_or(CudaError::INVALID_VALUE)?;
        return fill_rows(memory.ptr, memory.pitch, value, extent.width, rows, stream);
    }
    let slice = memory.pitch.checked_mul(memory.ysize).ok_or(CudaError::INVALID_VALUE)?;
    for index in 0..extent.depth {
        let start = memory.ptr.wrapping_byte_add(slice.wrapping_mul(index));
        fill_rows(start, memory.pitch, value, extent.width, extent.height, stream)?;
    }
    Ok(())
}

calls! {
    /// Fills memory in the order of the legacy default stream.
    pub fn cudaMemset(memory: *mut c_void, value: c_int, bytes: usize) {
        fill(memory, value, bytes, None)
    }

    /// Fills memory in the order of the per-thread default stream.
    pub fn cudaMemset_ptds(memory: *mut c_void, value: c_int, bytes: usize) {
        fill(memory, value, bytes, Some(STREAM_PER_THREAD))
    }

    /// Fills memory in the order of a stream.
    pub fn cudaMemsetAsync | fn cudaMemsetAsync_ptsz [stream] (
        memory: *mut c_void,
        value: c_int,
        bytes: usize,
        stream: Stream,
    ) {
        fill(memory, value, bytes, Some(stream))
    }

    /// Fills `height` rows of `width` bytes.
    pub fn cudaMemset2D(memory: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) {
        fill_rows(memory, pitch, value, width, height, None)
    }

    /// Fills `height` rows of `width` bytes in the order of the per-thread default stream.
    pub fn cudaMemset2D_ptds(memory: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) {
        fill_rows(memory, pitch, value, width, height, Some(STREAM_PER_THREAD))
    }

    /// Fills rows in the order of a stream.
    pub fn cudaMemset2DAsync | fn cudaMemset2DAsync_ptsz [stream] (
        memory: *mut c_void,
        pitch: usize,
        value: c_int,
        width: usize,
        height: usize,
        stream: Stream,
    ) {
        fill_rows(memory, pitch, value, width, height, Some(stream))
    }

    /// Fills a box of rows.
    pub fn cudaMemset3D(memory: PitchedPtr, value: c_int, extent: Extent) {
        fill_box(memory, value, extent, None)
    }

    /// Fills a box of rows in the order of the per-thread default stream.
    pub fn cudaMemset3D_ptds(memory: PitchedPtr, value: c_int, extent: Extent) {
        fill_box(memory, value, extent, Some(STREAM_PER_THREAD))
    }

    /// Fills slices of rows in the order of a stream.
    pub fn cudaMemset3DAsync | fn cudaMemset3DAsync_ptsz [stream] (
        memory: PitchedPtr,
        value: c_int,
        extent: Extent,
        stream: Stream,
    ) {
        fill_box(memory, value, extent, Some(stream))
    }
}
