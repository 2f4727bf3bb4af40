//! Copies of contiguous bytes between host and device. Ordinary memory is copied once, through the ring or a
//! staging buffer, and the call returns when that is done. Pinned memory lies in the window, where the host
//! reads or writes it in stream order.

use std::ffi::c_void;
use std::ptr;

use vgpu_abi::CUresult;
use vgpu_wire::body::copy::{CopyIn, CopyOut};
use vgpu_wire::{Mark, Payload, Span};

use crate::Result;
use crate::object::gpu::Gpu;
use crate::object::stream::Stream;
use crate::object::{address, capture, pinned};
use crate::submit::foreign::Foreign;
use crate::submit::mode::{self, Mode};

/// Maximum length in bytes of a pinned source that is copied into the ring like ordinary memory. That takes a
/// microsecond or two, and then no synchronize has to wait until the host has read it. It is not done while
/// other work that uses pinned memory is pending, because that may write the source.
const COPY_ANYWAY: usize = 16 << 10;

/// Checks a copy of `bytes` between host and device before it starts. Returns the device that owns `device`,
/// or `None` if there is nothing to copy.
fn begin(
    stream: &Stream,
    device: u64,
    host: *const c_void,
    bytes: usize,
    mode: Mode,
) -> Result<Option<&'static Gpu>> {
    mode::begin(mode)?;
    if bytes == 0 {
        return Ok(None);
    }
    if host.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    address::owner(stream, device, bytes as u64).map(Some)
}

/// Records the copy in the stream's capture, if it is being captured. CUDA reads the source, or writes the
/// destination, at each launch of the graph, which is possible only where host memory lies in the window:
/// `message` is the copy with its offset there.
fn recorded<P: Payload>(
    stream: &Stream,
    window: Option<u64>,
    message: impl FnOnce(u64) -> P,
) -> Result<bool> {
    if !capture::intercept(stream)? {
        return Ok(false);
    }
    match window {
        Some(offset) => capture::record(stream, &message(offset), &[])?,
        None => capture::fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED)?,
    }
    Ok(true)
}

/// Copies host memory to the device.
pub fn submit_upload(
    stream: &Stream,
    destination: u64,
    source: *const c_void,
    bytes: usize,
    mode: Mode,
) -> Result {
    let Some(gpu) = begin(stream, destination, source, bytes, mode)? else { return Ok(()) };
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
    if recorded(stream, window, |offset| message(0, offset, Mark::NONE))? {
        return Ok(());
    }
    gpu.queue.async_error()?;
    stream.timeline.wait_for_room(&gpu.queue);
    let number = stream.timeline.number();
    // An earlier copy or a function of the program may still be writing the source.
    let settled = bytes <= COPY_ANYWAY && gpu.queue.pending.forget_done(&gpu.queue.session);
    if let Some(offset) = window.filter(|_| !settled) {
        let fence = stream
            .timeline
            .mark_read(&gpu.queue, |read| gpu.queue.send(&message(number, offset, read), &[]))?;
        match mode {
            Mode::Sync => gpu.queue.wait(fence.0, fence.1)?,
            Mode::Async => gpu.queue.pending.add(fence),
        }
    } else {
        // SAFETY: the export's caller promised `bytes` readable bytes at `source`.
        unsafe { gpu.queue.session.copy_in(number, destination, source.cast(), bytes) }
            .map_err(|lost| gpu.queue.report(&lost))?;
        stream.timeline.submitted(&gpu.queue);
    }
    mode::end(stream, mode)
}

/// Copies device memory to the host.
pub fn submit_download(
    stream: &Stream,
    destination: *mut c_void,
    source: u64,
    bytes: usize,
    mode: Mode,
) -> Result {
    let Some(gpu) = begin(stream, source, destination, bytes, mode)? else { return Ok(()) };
    if !ptr::eq(gpu, stream.gpu()) {
        Foreign::start(stream, gpu)?.copy_out(destination, source, bytes)?;
        return gpu.queue.async_error();
    }
    let window = pinned::in_window(gpu, destination, bytes);
    let message = |stream, offset, written| CopyOut {
        stream,
        reserved: 0,
        source,
        destination: Span::bar(offset, bytes as u64),
        written,
    };
    if recorded(stream, window, |offset| message(0, offset, Mark::NONE))? {
        return Ok(());
    }
    gpu.queue.async_error()?;
    stream.timeline.wait_for_room(&gpu.queue);
    let number = stream.timeline.number();
    if let Some(offset) = window {
        let fence = stream
            .timeline
            .mark(&gpu.queue, |written| gpu.queue.send(&message(number, offset, written), &[]))?;
        if mode == Mode::Async {
            gpu.queue.pending.add(fence);
            return Ok(());
        }
        gpu.queue.wait(fence.0, fence.1)?;
    } else {
        // SAFETY: the export's caller promised `bytes` writable bytes at `destination`.
        unsafe { gpu.queue.session.copy_out(number, source, destination.cast(), bytes) }
            .map_err(|lost| gpu.queue.report(&lost))?;
        gpu.queue.observe_completion();
    }
    gpu.queue.async_error()
}

/// Copies host memory to host memory in stream order.
pub fn host(stream: &Stream, destination: *mut c_void, source: *const c_void, bytes: usize) -> Result {
    if capture::intercept(stream)? {
        return capture::fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED);
    }
    stream.drain()?;
    // SAFETY: the export's caller promised `bytes` at both places; they may overlap.
    unsafe { ptr::copy(source.cast::<u8>(), destination.cast::<u8>(), bytes) };
    Ok(())
}
