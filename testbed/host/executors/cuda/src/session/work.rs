//! Messages that are work of a stream, and those that change what work may use.

use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::{SessionError, Violation, Work};
use vgpu_wire::body::copy::{CopyDevice, CopyIn, CopyOut, CopyRows, Fill};
use vgpu_wire::body::launch::{LAUNCH_COOPERATIVE, LAUNCH_PROGRAMMATIC, Launch};
use vgpu_wire::body::stream::StreamHold;
use vgpu_wire::{Body, SEGMENT_INLINE};

use super::CudaSession;
use crate::driver::error::DriverError;
use crate::driver::range::DeviceRange;
use crate::driver::stream::{Rows, Shape};
use crate::gpu::completion::Then;
use crate::gpu::copy::At;
use crate::gpu::memory::{MapOutcome, MemoryError};
use crate::gpu::part::Part;

/// Slices that a copy of rows may be cut into, where the driver cannot take all of them at once.
const SLICES_MOST: u64 = 4096;

/// What a copy or fill answers if an address is not the session's: CUDA finds that when it is called.
const WRONG_ADDRESS: DriverError = DriverError { call: "look up an address", code: CUresult::INVALID_VALUE };

/// A range of the session's memory.
fn find(part: &Part, address: u64, bytes: u64) -> Result<DeviceRange, DriverError> {
    part.memory.find(address, bytes).ok_or(WRONG_ADDRESS)
}

/// Bytes from the first row's start to the last row's end. `None`: more than there are addresses.
fn extent(pitch: u64, slice: u64, width: u64, height: u64, depth: u64) -> Option<u64> {
    let rows = pitch.checked_mul(height.checked_sub(1)?)?;
    let slices = slice.checked_mul(depth.checked_sub(1)?)?;
    rows.checked_add(slices)?.checked_add(width)
}

impl CudaSession {
    /// Has the part of the GPU do something, if there is one that works, and tells the guest what failed.
    /// Without one there is no memory either.
    fn with_part(&mut self, number: u64, act: impl FnOnce(&mut Part) -> Result<(), DriverError>) {
        if self.health.dead().is_some() {
            return;
        }
        let done = match &mut self.part {
            Some(part) => act(part),
            None => Err(WRONG_ADDRESS),
        };
        self.told(number, done);
    }

    pub(super) fn launch(&mut self, work: &Work<'_>, body: &Launch) -> Result<(), SessionError> {
        let stream = self.known_stream(body.stream)?;
        let kernel = Arc::clone(self.code.kernel(body.function)?);
        let params = work.payload;
        if kernel.param_bytes.is_some_and(|bytes| params.len() < bytes as usize) {
            self.refuse(work, CUresult::INVALID_VALUE);
            return Ok(());
        }
        let shape = Shape {
            grid: body.grid,
            block: body.block,
            cluster: (body.cluster != [0; 3]).then_some(body.cluster),
            shared_bytes: body.shared_bytes,
            cooperative: body.flags & LAUNCH_COOPERATIVE != 0,
            programmatic: body.flags & LAUNCH_PROGRAMMATIC != 0,
            priority: (body.priority != 0).then_some(body.priority),
        };
        self.with_part(work.number, |part| {
            part.streams.work(stream)?.launch(&kernel.function, &shape, params)
        });
        Ok(())
    }

    pub(super) fn copy_in(&mut self, work: &Work<'_>, body: &CopyIn) -> Result<(), SessionError> {
        let stream = self.known_stream(body.stream)?;
        let at = At { stream, message: work.number };
        if body.source.segment == SEGMENT_INLINE {
            let data = work.payload;
            self.with_part(work.number, |part| {
                let destination = find(part, body.destination, data.len() as u64)?;
                part.copies.inline(&mut part.streams, at, destination, data)
            });
        } else {
            let source = self.host.piece(&body.source)?;
            self.with_part(work.number, |part| {
                let destination = find(part, body.destination, source.bytes())?;
                part.copies.upload(&mut part.streams, at, destination, &source)
            });
        }
        self.mark(stream, work.number, body.read);
        Ok(())
    }

    pub(super) fn copy_out(&mut self, work: &Work<'_>, body: &CopyOut) -> Result<(), SessionError> {
        let stream = self.known_stream(body.stream)?;
        let at = At { stream, message: work.number };
        let destination = self.host.piece(&body.destination)?;
        self.with_part(work.number, |part| {
            let source = find(part, body.source, destination.bytes())?;
            part.copies.download(&mut part.streams, at, &destination, source)
        });
        self.mark(stream, work.number, body.written);
        Ok(())
    }

    pub(super) fn copy_device(&mut self, work: &Work<'_>, body: &CopyDevice) -> Result<(), SessionError> {
        let stream = self.known_stream(body.stream)?;
        self.with_part(work.number, |part| {
            let destination = find(part, body.destination, body.bytes)?;
            let source = find(part, body.source, body.bytes)?;
            part.streams.work(stream)?.copy(destination, source)
        });
        Ok(())
    }

    pub(super) fn copy_rows(&mut self, work: &Work<'_>, body: &CopyRows) -> Result<(), SessionError> {
        let stream = self.known_stream(body.stream)?;
        let &CopyRows { width, height, depth, .. } = body;
        if width == 0 || height == 0 || depth == 0 {
            return Ok(());
        }
        self.with_part(work.number, |part| {
            let side = |address, pitch, slice| {
                let bytes = extent(pitch, slice, width, height, depth).ok_or(WRONG_ADDRESS)?;
                find(part, address, bytes)
            };
            let to = side(body.destination, body.destination_pitch, body.destination_slice)?;
            let from = side(body.source, body.source_pitch, body.source_slice)?;
            let (to_slice, from_slice) = (body.destination_slice, body.source_slice);
            let rows = |range, pitch, stride| Rows { range, pitch, stride };
            // The driver counts rows from slice to slice.
            let whole = |slice: u64, pitch: u64| pitch != 0 && slice.is_multiple_of(pitch);
            let (to_pitch, from_pitch) = (body.destination_pitch, body.source_pitch);
            let stream = part.streams.work(stream)?;
            if depth == 1 || (whole(to_slice, to_pitch) && whole(from_slice, from_pitch)) {
                let count = |slice: u64, pitch: u64| slice.checked_div(pitch).unwrap_or(0).max(height);
                return stream.copy_rows(
                    rows(to, to_pitch, count(to_slice, to_pitch)),
                    rows(from, from_pitch, count(from_slice, from_pitch)),
                    [width, height, depth],
                );
            }
            if depth > SLICES_MOST {
                let code = CUresult::NOT_SUPPORTED;
                return Err(DriverError { call: "copy slices that are no whole rows apart", code });
            }
            let bytes = extent(to_pitch, 0, width, height, 1).ok_or(WRONG_ADDRESS)?;
            let from_bytes = extent(from_pitch, 0, width, height, 1).ok_or(WRONG_ADDRESS)?;
            for index in 0..depth {
                let to = to.part(to.address() + index * to_slice, bytes).ok_or(WRONG_ADDRESS)?;
                let from = from.part(from.address() + index * from_slice, from_bytes).ok_or(WRONG_ADDRESS)?;
                stream.copy_rows(
                    rows(to, to_pitch, height),
                    rows(from, from_pitch, height),
                    [width, height, 1],
                )?;
            }
            Ok(())
        });
        Ok(())
    }

    pub(super) fn fill(&mut self, work: &Work<'_>, body: &Fill) -> Result<(), SessionError> {
        let stream = self.known_stream(body.stream)?;
        let &Fill { element, value, pitch, width, height, .. } = body;
        if width == 0 || height == 0 {
            return Ok(());
        }
        self.with_part(work.number, |part| {
            let row = width.checked_mul(u64::from(element)).ok_or(WRONG_ADDRESS)?;
            let bytes = extent(pitch, 0, row, height, 1).ok_or(WRONG_ADDRESS)?;
            let range = find(part, body.destination, bytes)?;
            let stream = part.streams.work(stream)?;
            if height == 1 || pitch == row {
                return stream.fill(range, element, value);
            }
            stream.fill_rows(Rows { range, pitch, stride: height }, element, value, width, height)
        });
        Ok(())
    }

    /// `StreamHold`
    pub(super) fn hold(&mut self, work: &Work<'_>, body: &StreamHold) -> Result<(), SessionError> {
        let stream = self.known_stream(body.stream)?;
        if !self.shared.stream_operations {
            self.lack(work, "streams that wait for the guest");
            self.host.signal(&body.mark);
            return Ok(());
        }
        if self.part.as_ref().is_some_and(|part| part.holds.knows(body.hold)) {
            return Err(Violation::in_use("hold", body.hold).into());
        }
        self.start(work.number)?;
        self.mark(stream, work.number, body.mark);
        let number = work.number;
        self.with_part(number, |part| {
            let to = part.streams.work(stream)?;
            let word = part.holds.hold(&part.context, to, body.hold)?;
            part.streams.then(stream, number, Then::Drop(word))
        });
        Ok(())
    }

    /// `StreamRelease`
    pub(super) fn release_hold(&mut self, hold: u32) -> Result<(), SessionError> {
        let released = self.part.as_mut().is_some_and(|part| part.holds.release(hold));
        // Of a session that is lost, or an executor that holds nothing, no hold was made.
        if !released && self.shared.stream_operations && self.health.dead().is_none() {
            return Err(Violation::unknown("hold", hold).into());
        }
        Ok(())
    }

    /// Frees the allocation that starts at an address: after the work of a stream, or of all.
    pub(super) fn free(&mut self, work: &Work<'_>, address: u64, stream: Option<u32>) {
        let Some(part) = &mut self.part else {
            if address != 0 {
                self.refuse(work, CUresult::INVALID_VALUE);
            }
            return;
        };
        let Some(freed) = part.memory.take(address) else {
            if address != 0 {
                self.refuse(work, CUresult::INVALID_VALUE);
            }
            return;
        };
        let done = match stream {
            Some(stream) => part.streams.then(stream, work.number, Then::Drop(Arc::new(freed))),
            None => part.after_all(work.number, freed),
        };
        self.told(work.number, done);
    }

    /// Messages about memory that the guest manages itself and that nobody answers.
    pub(super) fn virtual_memory(&mut self, work: &Work<'_>) {
        let number = work.number;
        let Some(part) = self.part.as_mut().filter(|_| self.health.dead().is_none()) else {
            self.refuse(work, CUresult::INVALID_VALUE);
            return;
        };
        let outcome = match &work.message.body {
            Body::MemMap(body) => part.when_unmapped(|memory| memory.map(body)),
            Body::MemUnreserve(body) => part.when_unmapped(|memory| memory.unreserve(body)),
            Body::MemUnmap(body) => {
                part.memory.unmap(body).and_then(|unmapped| Ok(part.after_all(number, unmapped)?))
            }
            Body::MemSetAccess(body) => part.memory.set_access(body),
            Body::MemRelease(body) => part.memory.release(body.handle),
            _ => Ok(()),
        };
        match outcome {
            Ok(()) => {}
            Err(MemoryError::Driver(error)) => self.told(number, Err(error)),
            Err(error) => {
                let session = self.host.session();
                self.host.log(0, || tracing::warn!(session, number, "{error}"));
                self.refuse(work, CUresult(error.code()));
            }
        }
    }

    /// `ModuleUnload`
    pub(super) fn unload(&mut self, work: &Work<'_>, module: u32) -> Result<(), SessionError> {
        let unloaded = self.code.unload(module)?;
        self.report_modules();
        if let Some(part) = &mut self.part {
            part.memory.forget_globals(module);
            let done = part.after_all(work.number, unloaded);
            self.told(work.number, done);
        }
        Ok(())
    }
}

impl Part {
    /// Does what has to wait for mappings that the guest has ended and that earlier work may use. The
    /// session's own work is all that it waits for; with streams that wait for the guest it refuses, because
    /// what ends that wait comes later.
    fn when_unmapped(
        &self,
        mut act: impl FnMut(&crate::gpu::memory::Memory) -> Result<MapOutcome, MemoryError>,
    ) -> Result<(), MemoryError> {
        loop {
            if act(&self.memory)? == MapOutcome::Done {
                return Ok(());
            }
            if self.holds.any() || !self.goes_on() {
                return Err(MemoryError::Invalid("the addresses are still in use by work that is held"));
            }
            self.memory.wait_for_unmapped();
        }
    }
}
