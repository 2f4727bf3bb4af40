//! Work on the memory of a device other than the stream's. The hosts of two devices know nothing of each
//! other, so the guest keeps the order: it waits for the stream's earlier work, does the foreign part on the
//! peer-copy stream of the other device, and orders all later work of that device after it.
//!
//! The legacy stream is ordered with all work of both devices, as CUDA defines it for copies between devices;
//! every other stream only with itself. When the call returns, the data that the foreign part reads has
//! arrived, and the data that it writes has left the program's memory, so a later synchronize has nothing to
//! wait for on the other device.

use std::ffi::c_void;

use vgpu_abi::CUresult;
use vgpu_wire::{JOIN_ALL, Payload};

use crate::Result;
use crate::object::capture;
use crate::object::gpu::Gpu;
use crate::object::stream::Stream;
use crate::queue::timeline::Timeline;

/// The part of a copy or fill that accesses the memory of another device than the stream's.
#[derive(Clone, Copy, Debug)]
pub struct Foreign {
    gpu: &'static Gpu,
    timeline: &'static Timeline,
}

impl Foreign {
    /// Waits until the stream's earlier work has completed, so that the foreign part can start. Fails during
    /// a capture, because a graph belongs to one device.
    pub fn start(stream: &Stream, gpu: &'static Gpu) -> Result<Self> {
        if capture::intercept(stream)? {
            capture::fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED)?;
        }
        gpu.queue.async_error()?;
        stream.drain()?;
        if stream.is_legacy() {
            gpu.queue.join(JOIN_ALL);
        }
        Ok(Self { gpu, timeline: gpu.peer_copy_timeline()? })
    }

    /// Submits work that is one message. `make` receives the number of the stream.
    pub fn submit<P: Payload>(&self, make: impl FnOnce(u32) -> P) -> Result {
        self.gpu.queue.send(&make(self.timeline.number()), &[])?;
        self.timeline.submitted(&self.gpu.queue);
        Ok(())
    }

    /// Uploads bytes. The program may change the source after the call.
    pub fn copy_in(&self, destination: u64, source: *const c_void, bytes: usize) -> Result {
        // SAFETY: the export's caller promised `bytes` readable bytes at `source`, or the buffer of a copy
        // between devices has them.
        unsafe { self.gpu.queue.session.copy_in(self.timeline.number(), destination, source.cast(), bytes) }
            .map_err(|lost| self.gpu.queue.report(&lost))?;
        self.timeline.submitted(&self.gpu.queue);
        Ok(())
    }

    /// Downloads bytes, which have arrived when the call returns.
    pub fn copy_out(&self, destination: *mut c_void, source: u64, bytes: usize) -> Result {
        // SAFETY: as in `copy_in`, for writing.
        unsafe { self.gpu.queue.session.copy_out(self.timeline.number(), source, destination.cast(), bytes) }
            .map_err(|lost| self.gpu.queue.report(&lost))?;
        self.gpu.queue.observe_completion();
        Ok(())
    }

    /// Orders all later work of the device after the foreign part, and returns the error that the host has
    /// reported so far.
    pub fn end(&self) -> Result {
        self.timeline.join(&self.gpu.queue);
        self.gpu.queue.async_error()
    }
}
