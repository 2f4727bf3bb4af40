//! Copies of contiguous bytes: within a device, between devices, and between addresses whose owner is looked
//! up.

use std::ffi::c_void;
use std::ptr;

use vgpu_abi::CUresult;
use vgpu_abi::driver::CUcontext;
use vgpu_wire::body::copy::CopyDevice;

use crate::Result;
use crate::object::gpu::Gpu;
use crate::object::stream::Stream;
use crate::object::{address, context};
use crate::submit::mode::{self, Mode};
use crate::submit::route::{self, across, move_bytes};
use crate::submit::transfer;

/// Copies from device memory to device memory, of one device or of two.
pub fn between(stream: &Stream, destination: u64, source: u64, bytes: usize, mode: Mode) -> Result {
    mode::begin(mode)?;
    if bytes == 0 {
        return Ok(());
    }
    let to = address::owner(stream, destination, bytes as u64)?;
    let from = address::owner(stream, source, bytes as u64)?;
    if ptr::eq(to, from) {
        within(stream, to, destination, source, bytes as u64, mode)
    } else {
        across(stream, to, from, mode, |to, from| move_bytes(to, from, destination, source, bytes))
    }
}

/// Copies within a device that owns both ranges.
fn within(
    stream: &Stream,
    gpu: &'static Gpu,
    destination: u64,
    source: u64,
    bytes: u64,
    mode: Mode,
) -> Result {
    if destination.abs_diff(source) < bytes {
        // The host takes only ranges that do not overlap; CUDA leaves others undefined.
        return if destination == source { Ok(()) } else { Err(CUresult::INVALID_VALUE) };
    }
    let message = |stream| CopyDevice { stream, reserved: 0, destination, source, bytes };
    route::submit(stream, gpu, message, mode)
}

/// Copies between two addresses. An address that belongs to no device is host memory.
pub fn by_address(stream: &Stream, destination: u64, source: u64, bytes: usize, mode: Mode) -> Result {
    if bytes == 0 {
        return Ok(());
    }
    if destination == 0 || source == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    match (address::find(destination)?.is_some(), address::find(source)?.is_some()) {
        (true, true) => between(stream, destination, source, bytes, mode),
        (true, false) => transfer::submit_upload(stream, destination, source as *const c_void, bytes, mode),
        (false, true) => transfer::submit_download(stream, destination as *mut c_void, source, bytes, mode),
        (false, false) => {
            mode::begin(mode)?;
            transfer::host(stream, destination as *mut c_void, source as *const c_void, bytes)
        }
    }
}

/// Copies between the devices of two contexts, as `cuMemcpyPeer` and `cuMemcpyPeerAsync` do.
pub fn peer(
    stream: &Stream,
    destination: (u64, CUcontext),
    source: (u64, CUcontext),
    bytes: usize,
    mode: Mode,
) -> Result {
    mode::begin(mode)?;
    let to = context::get(destination.1)?.gpu();
    let from = context::get(source.1)?.gpu();
    if bytes == 0 {
        return Ok(());
    }
    let has = |gpu: &Gpu, address| gpu.memory.has(address, bytes as u64);
    if !has(to, destination.0) || !has(from, source.0) {
        return Err(CUresult::INVALID_VALUE);
    }
    if ptr::eq(to, from) {
        within(stream, to, destination.0, source.0, bytes as u64, mode)
    } else {
        across(stream, to, from, mode, |to, from| move_bytes(to, from, destination.0, source.0, bytes))
    }
}
