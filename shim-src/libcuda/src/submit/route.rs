//! Route of work to the device whose memory it uses: the stream's device, or another. Copies between two
//! devices go through the guest's memory.

use std::ffi::c_void;
use std::ptr;

use vgpu_wire::{JOIN_ALL, Payload};

use crate::Result;
use crate::object::gpu::Gpu;
use crate::object::stream::Stream;
use crate::submit::foreign::Foreign;
use crate::submit::mode::{self, Mode};
use crate::submit::{stream, transfer};

/// Length in bytes of the guest memory through which copies between devices go, piece by piece.
const BOUNCE: usize = 4 << 20;

/// How bytes of the guest's memory are copied to and from a device's memory in stream order.
#[derive(Clone, Copy)]
pub enum Route<'a> {
    /// The memory is on the stream's device.
    Own(&'a Stream),
    /// The memory is on another device than the stream's.
    Foreign(Foreign),
}

impl<'a> Route<'a> {
    /// Returns the route from a stream to a device.
    pub fn to(stream: &'a Stream, gpu: &'static Gpu) -> Result<Self> {
        if ptr::eq(stream.gpu(), gpu) {
            Ok(Self::Own(stream))
        } else {
            Foreign::start(stream, gpu).map(Self::Foreign)
        }
    }

    /// Uploads bytes. The program may change the source after the call.
    pub fn copy_in(&self, destination: u64, source: *const c_void, bytes: usize) -> Result {
        match self {
            Self::Own(stream) => transfer::submit_upload(stream, destination, source, bytes, Mode::Async),
            Self::Foreign(part) => part.copy_in(destination, source, bytes),
        }
    }

    /// Downloads bytes to memory that is not pinned. They have arrived when the call returns.
    pub fn copy_out(&self, destination: *mut c_void, source: u64, bytes: usize) -> Result {
        match self {
            Self::Own(stream) => transfer::submit_download(stream, destination, source, bytes, Mode::Async),
            Self::Foreign(part) => part.copy_out(destination, source, bytes),
        }
    }

    /// Ends a copy to the device: orders later work after it as far as the stream and the mode require.
    pub fn end(&self, mode: Mode) -> Result {
        match self {
            Self::Own(stream) => mode::end(stream, mode),
            Self::Foreign(part) => part.end(),
        }
    }
}

/// Submits work on a device's memory in the order of a stream, which may be another device's.
pub fn submit<P: Payload>(
    stream: &Stream,
    gpu: &'static Gpu,
    message: impl FnOnce(u32) -> P,
    mode: Mode,
) -> Result {
    if !ptr::eq(gpu, stream.gpu()) {
        let part = Foreign::start(stream, gpu)?;
        part.submit(message)?;
        return part.end();
    }
    stream::submit(stream, message, &[])?;
    mode::end(stream, mode)
}

/// Copies between devices by calling `moving` with the route to the destination and the route from the
/// source. In the legacy stream the copy is ordered after all earlier work of both devices, and all later
/// work after the copy, even in streams that do not wait for the legacy stream.
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
        stream.gpu().queue.join(JOIN_ALL);
    }
    moving(&writer, &reader)?;
    writer.end(if legacy { Mode::Sync } else { mode })
}

/// Moves bytes between devices through the guest's memory, piece by piece. One device's host writes a piece
/// while the other's reads the next.
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
