//! "Memory Management", copies of bytes in a row. Ordinary memory is copied once, through the ring or a staging area, and the call
//! returns when that is done; pinned memory in the window is named to the host, which reads or writes it in the order of the stream.

use std::ffi::c_void;
use std::ptr;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUcontext, CUdeviceptr, CUstream};
use vgpu_wire::body::copy::{CopyDevice, CopyIn, CopyOut};
use vgpu_wire::{JOIN_ALL, Mark, Span};

use crate::foreign::{Foreign, Route, owner};
use crate::gpu::Gpu;
use crate::memory::find_any;
use crate::stream::{DefaultStream, Stream, find};
use crate::{Result, capture, context, pinned};

/// Pinned sources up to this size are copied into the ring like any other: that takes a microsecond or two, and then no
/// synchronize has to wait for the host to have read them.
const COPY_ANYWAY: usize = 16 << 10;
/// Copies between devices go through this much of the guest's memory at a time.
const BOUNCE: usize = 4 << 20;

/// Whether the caller goes on while the copy is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Returns when host memory is no longer in use; what follows on any stream comes after.
    Sync,
    /// In the order of the stream.
    Async,
}

/// After a synchronous copy what follows on any stream comes after what the stream was given (CUDA promises that of few of
/// them, but programs rely on it), and what the host has found so far is told.
pub fn end_of(stream: &Stream, mode: Mode) -> Result {
    if mode == Mode::Async {
        return Ok(());
    }
    stream.lane.join(stream.gpu());
    stream.gpu().late()
}

/// What synchronous calls ask first.
pub fn begin_of(mode: Mode) -> Result {
    if mode == Mode::Sync { capture::forbid_unsafe() } else { Ok(()) }
}

/// Host to device.
pub fn in_to(stream: &Stream, destination: u64, source: *const c_void, bytes: usize, mode: Mode) -> Result {
    begin_of(mode)?;
    if bytes == 0 {
        return Ok(());
    }
    if source.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let gpu = owner(stream, destination, bytes as u64)?;
    if !ptr::eq(gpu, stream.gpu()) {
        let part = Foreign::start(stream, gpu)?;
        part.copy_in(destination, source, bytes)?;
        return part.end();
    }
    let window = pinned::in_window(gpu, source, bytes);
    let message = |stream, offset, read| CopyIn {
        stream,
        reserved: 0,
        destination,
        source: Span::bar(offset, bytes as u64),
        read,
    };
    if capture::any() && capture::intercept(stream)? {
        // CUDA reads the source at each launch of the graph, which only works from the window.
        return match window {
            Some(offset) => capture::record(stream, &message(0, offset, Mark::NONE), &[]),
            None => capture::fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED),
        };
    }
    gpu.late()?;
    let number = stream.lane.number();
    if let Some(offset) = window.filter(|_| bytes > COPY_ANYWAY) {
        let goal = stream.lane.mark_read(gpu, |read| gpu.send(&message(number, offset, read), &[]))?;
        match mode {
            Mode::Sync => gpu.wait(goal.0, goal.1)?,
            Mode::Async => gpu.pending.add(goal),
        }
    } else {
        // SAFETY: the export's caller promised `bytes` readable bytes at `source`.
        unsafe { gpu.session.copy_in(number, destination, source.cast(), bytes) }
            .map_err(|lost| gpu.report(&lost))?;
        stream.lane.given(gpu);
    }
    end_of(stream, mode)
}

/// Device to host.
pub fn out_of(stream: &Stream, destination: *mut c_void, source: u64, bytes: usize, mode: Mode) -> Result {
    begin_of(mode)?;
    if bytes == 0 {
        return Ok(());
    }
    if destination.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let gpu = owner(stream, source, bytes as u64)?;
    if !ptr::eq(gpu, stream.gpu()) {
        Foreign::start(stream, gpu)?.copy_out(destination, source, bytes)?;
        return gpu.late();
    }
    let window = pinned::in_window(gpu, destination, bytes);
    let message = |stream, offset, written| CopyOut {
        stream,
        reserved: 0,
        source,
        destination: Span::bar(offset, bytes as u64),
        written,
    };
    if capture::any() && capture::intercept(stream)? {
        return match window {
            Some(offset) => capture::record(stream, &message(0, offset, Mark::NONE), &[]),
            None => capture::fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED),
        };
    }
    gpu.late()?;
    let number = stream.lane.number();
    if let Some(offset) = window {
        let goal = stream.lane.mark(gpu, |written| gpu.send(&message(number, offset, written), &[]))?;
        if mode == Mode::Async {
            gpu.pending.add(goal);
            return Ok(());
        }
        gpu.wait(goal.0, goal.1)?;
    } else {
        // SAFETY: the export's caller promised `bytes` writable bytes at `destination`.
        unsafe { gpu.session.copy_out(number, source, destination.cast(), bytes) }
            .map_err(|lost| gpu.report(&lost))?;
        gpu.learned();
    }
    gpu.late()
}

/// Device to device, by addresses.
pub fn between(stream: &Stream, destination: u64, source: u64, bytes: usize, mode: Mode) -> Result {
    begin_of(mode)?;
    if bytes == 0 {
        return Ok(());
    }
    let to = owner(stream, destination, bytes as u64)?;
    let from = owner(stream, source, bytes as u64)?;
    if ptr::eq(to, from) {
        within(stream, to, destination, source, bytes as u64, mode)
    } else {
        across(stream, to, from, mode, |to, from| move_bytes(to, from, destination, source, bytes))
    }
}

/// Within a device that has both ranges.
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
    if !ptr::eq(gpu, stream.gpu()) {
        let part = Foreign::start(stream, gpu)?;
        part.submit(message)?;
        return part.end();
    }
    stream.submit(message, &[])?;
    end_of(stream, mode)
}

/// Copies between devices: `moving` is given the way to the one and from the other. In the legacy stream such a copy is ordered after
/// everything that both devices were given, and everything later after it, also in streams that do not wait for the legacy one.
pub fn across(
    stream: &Stream,
    to: &'static Gpu,
    from: &'static Gpu,
    mode: Mode,
    moving: impl FnOnce(&Route<'_>, &Route<'_>) -> Result,
) -> Result {
    let (writer, reader) = (Route::to(stream, to)?, Route::to(stream, from)?);
    let legacy = stream.is_legacy();
    if legacy {
        stream.gpu().join(JOIN_ALL);
    }
    moving(&writer, &reader)?;
    writer.end(if legacy { Mode::Sync } else { mode })
}

/// Moves bytes between devices through the guest's memory, piece by piece: the host of one writes a piece while the other's reads the
/// next.
pub fn move_bytes(
    writer: &Route<'_>,
    reader: &Route<'_>,
    destination: u64,
    source: u64,
    bytes: usize,
) -> Result {
    let mut buffer = vec![0_u8; bytes.min(BOUNCE)];
    for offset in (0..bytes).step_by(BOUNCE) {
        let piece = (bytes - offset).min(BOUNCE);
        let offset = offset as u64;
        reader.copy_out(buffer.as_mut_ptr().cast(), source + offset, piece)?;
        writer.copy_in(destination + offset, buffer.as_ptr().cast(), piece)?;
    }
    Ok(())
}

/// Host to host, in the order of the stream.
pub fn host(stream: &Stream, destination: *mut c_void, source: *const c_void, bytes: usize) -> Result {
    if capture::any() && capture::intercept(stream)? {
        return capture::fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED);
    }
    stream.drain()?;
    // SAFETY: the export's caller promised `bytes` at both places; they may overlap.
    unsafe { ptr::copy(source.cast::<u8>(), destination.cast::<u8>(), bytes) };
    Ok(())
}

/// By addresses alone: what is in no device's list is the host's.
pub fn by_address(stream: &Stream, destination: u64, source: u64, bytes: usize, mode: Mode) -> Result {
    if bytes == 0 {
        return Ok(());
    }
    if destination == 0 || source == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    match (find_any(destination)?.is_some(), find_any(source)?.is_some()) {
        (true, true) => between(stream, destination, source, bytes, mode),
        (true, false) => in_to(stream, destination, source as *const c_void, bytes, mode),
        (false, true) => out_of(stream, destination as *mut c_void, source, bytes, mode),
        (false, false) => {
            begin_of(mode)?;
            host(stream, destination as *mut c_void, source as *const c_void, bytes)
        }
    }
}

/// `cuMemcpyPeer`, `cuMemcpyPeerAsync`: contexts say where.
fn peer(
    stream: &Stream,
    destination: (u64, CUcontext),
    source: (u64, CUcontext),
    bytes: usize,
    mode: Mode,
) -> Result {
    begin_of(mode)?;
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

/// The stream of calls that name none.
pub fn default_stream(default: DefaultStream) -> Result<&'static Stream> {
    find(CUstream::NULL, default)
}

export_both! {
    /// `cuMemcpy`
    pub fn cuMemcpy, cuMemcpy_ptds(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) |default| {
        by_address(default_stream(default)?, to, from, bytes, Mode::Sync)
    }

    /// `cuMemcpyAsync`
    pub fn cuMemcpyAsync, cuMemcpyAsync_ptsz(
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream
    ) |default| {
        by_address(find(stream, default)?, to, from, bytes, Mode::Async)
    }

    /// `cuMemcpyHtoD_v2`
    pub fn cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds(to: CUdeviceptr, from: *const c_void, bytes: usize) |default| {
        in_to(default_stream(default)?, to, from, bytes, Mode::Sync)
    }

    /// `cuMemcpyHtoDAsync_v2`
    pub fn cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz(
        to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream
    ) |default| {
        in_to(find(stream, default)?, to, from, bytes, Mode::Async)
    }

    /// `cuMemcpyDtoH_v2`
    pub fn cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: CUdeviceptr, bytes: usize) |default| {
        out_of(default_stream(default)?, to, from, bytes, Mode::Sync)
    }

    /// `cuMemcpyDtoHAsync_v2`
    pub fn cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz(
        to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream
    ) |default| {
        out_of(find(stream, default)?, to, from, bytes, Mode::Async)
    }

    /// `cuMemcpyDtoD_v2`
    pub fn cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) |default| {
        between(default_stream(default)?, to, from, bytes, Mode::Sync)
    }

    /// `cuMemcpyDtoDAsync_v2`
    pub fn cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz(
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream
    ) |default| {
        between(find(stream, default)?, to, from, bytes, Mode::Async)
    }

    /// `cuMemcpyPeer`
    pub fn cuMemcpyPeer, cuMemcpyPeer_ptds(
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize
    ) |default| {
        peer(default_stream(default)?, (to, to_context), (from, from_context), bytes, Mode::Sync)
    }

    /// `cuMemcpyPeerAsync`: between two devices it is over when the call returns.
    pub fn cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz(
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize,
        stream: CUstream
    ) |default| {
        peer(find(stream, default)?, (to, to_context), (from, from_context), bytes, Mode::Async)
    }
}
