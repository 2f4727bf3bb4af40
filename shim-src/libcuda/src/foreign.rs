//! Work on the memory of a device other than the stream's. The hosts of two devices know nothing of each other, so the guest keeps the
//! order: it waits for the stream's earlier work, does the foreign part in a stream that each device has for this purpose alone, and
//! orders all later work of that device after it.
//!
//! The legacy stream is ordered with all work of both devices, as CUDA has it for copies between devices in it; every other stream only
//! with itself. What a foreign part reads is here when the call returns, and what it writes has left the program's memory, so that a
//! later synchronize has nothing to wait for on the other device.

use std::ffi::c_void;
use std::ptr;

use vgpu_abi::CUresult;
use vgpu_wire::{JOIN_ALL, Payload};

use crate::copy::{self, Mode};
use crate::gpu::Gpu;
use crate::lane::Lane;
use crate::stream::Stream;
use crate::{Result, capture, life};

/// The device with memory for all of the `bytes` from `address`. The stream's own is asked first. `INVALID_VALUE`: there is none.
#[inline]
pub fn owner(stream: &Stream, address: u64, bytes: u64) -> Result<&'static Gpu> {
    let own = stream.gpu();
    if own.memory.has(address, bytes) { Ok(own) } else { other_owner(address, bytes) }
}

#[cold]
fn other_owner(address: u64, bytes: u64) -> Result<&'static Gpu> {
    let devices = life::devices()?;
    devices.iter().copied().find(|gpu| gpu.memory.has(address, bytes)).ok_or(CUresult::INVALID_VALUE)
}

/// The foreign part of a copy or fill.
#[derive(Clone, Copy, Debug)]
pub struct Foreign {
    gpu: &'static Gpu,
    lane: &'static Lane,
}

impl Foreign {
    /// Waits until the part can start: the stream's earlier work is done. A graph is one device's, so a capture fails.
    pub fn start(stream: &Stream, gpu: &'static Gpu) -> Result<Self> {
        if capture::any() && capture::intercept(stream)? {
            capture::fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED)?;
        }
        gpu.late()?;
        stream.drain()?;
        if stream.is_legacy() {
            gpu.join(JOIN_ALL);
        }
        Ok(Self { gpu, lane: gpu.courier()? })
    }

    /// Does work that is one message, which `make` is told the stream of.
    pub fn submit<P: Payload>(&self, make: impl FnOnce(u32) -> P) -> Result {
        self.gpu.send(&make(self.lane.number()), &[])?;
        self.lane.given(self.gpu);
        Ok(())
    }

    /// Copies to the device. The source may be changed when this returns.
    pub fn copy_in(&self, destination: u64, source: *const c_void, bytes: usize) -> Result {
        // SAFETY: the export's caller promised `bytes` readable bytes at `source`, or the buffer of a copy between devices has them.
        unsafe { self.gpu.session.copy_in(self.lane.number(), destination, source.cast(), bytes) }
            .map_err(|lost| self.gpu.report(&lost))?;
        self.lane.given(self.gpu);
        Ok(())
    }

    /// Copies from the device. The bytes are there when this returns.
    pub fn copy_out(&self, destination: *mut c_void, source: u64, bytes: usize) -> Result {
        // SAFETY: as in `copy_in`, for writing.
        unsafe { self.gpu.session.copy_out(self.lane.number(), source, destination.cast(), bytes) }
            .map_err(|lost| self.gpu.report(&lost))?;
        self.gpu.learned();
        Ok(())
    }

    /// Orders all later work of the device after the part, and reports what the host has found so far.
    pub fn end(&self) -> Result {
        self.lane.join(self.gpu);
        self.gpu.late()
    }
}

/// How bytes of the guest's memory get to a device's memory and back, in the order of a stream.
#[derive(Clone, Copy)]
pub enum Route<'a> {
    /// The memory is of the stream's device.
    Own(&'a Stream),
    /// It is another's.
    Foreign(Foreign),
}

impl<'a> Route<'a> {
    /// The route to a device.
    pub fn to(stream: &'a Stream, gpu: &'static Gpu) -> Result<Self> {
        if ptr::eq(stream.gpu(), gpu) {
            Ok(Self::Own(stream))
        } else {
            Foreign::start(stream, gpu).map(Self::Foreign)
        }
    }

    /// Copies to the device. The source may be changed when this returns.
    pub fn copy_in(&self, destination: u64, source: *const c_void, bytes: usize) -> Result {
        match self {
            Self::Own(stream) => copy::in_to(stream, destination, source, bytes, Mode::Async),
            Self::Foreign(part) => part.copy_in(destination, source, bytes),
        }
    }

    /// Copies from the device to memory that is not pinned. The bytes are there when this returns.
    pub fn copy_out(&self, destination: *mut c_void, source: u64, bytes: usize) -> Result {
        match self {
            Self::Own(stream) => copy::out_of(stream, destination, source, bytes, Mode::Async),
            Self::Foreign(part) => part.copy_out(destination, source, bytes),
        }
    }

    /// Ends what was written by this route: orders later work after it as far as the stream and the mode ask for.
    pub fn end(&self, mode: Mode) -> Result {
        match self {
            Self::Own(stream) => copy::end_of(stream, mode),
            Self::Foreign(part) => part.end(),
        }
    }
}
