//! Messages that are work of a stream, and those that change what work may use.

use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::{SessionError, Work};
use vgpu_wire::body::copy::{CopyIn, CopyOut};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::stream::StreamHold;
use vgpu_wire::{Body, SEGMENT_INLINE};

use super::CudaSession;
use crate::driver::error::DriverError;
use crate::gpu::completion::Then;
use crate::gpu::copy::At;
use crate::gpu::launch;
use crate::gpu::memory::{MapOutcome, MemoryError};
use crate::gpu::part::Part;
use crate::gpu::transfer::{Transfer, WRONG_ADDRESS, find};

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
        let stream = self.handles.check_stream(body.stream)?;
        let kernel = Arc::clone(self.code.kernel(body.function)?);
        let params = work.payload;
        if launch::check(&kernel, params).is_err() {
            self.refuse(work, CUresult::INVALID_VALUE);
            return Ok(());
        }
        let shape = launch::shape(body);
        self.with_part(work.number, |part| {
            part.streams.work(stream)?.launch(&kernel.function, &shape, params)
        });
        Ok(())
    }

    pub(super) fn copy_in(&mut self, work: &Work<'_>, body: &CopyIn) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(body.stream)?;
        let at = At { stream, message: work.number };
        if body.source.segment == SEGMENT_INLINE {
            let data = work.payload;
            self.with_part(work.number, |part| {
                let destination = find(&part.memory, body.destination, data.len() as u64)?;
                part.copies.inline(&mut part.streams, at, destination, data)
            });
        } else {
            let source = self.host.piece(&body.source)?;
            self.with_part(work.number, |part| {
                let destination = find(&part.memory, body.destination, source.bytes())?;
                part.copies.upload(&mut part.streams, at, destination, &source)
            });
        }
        self.mark(stream, work.number, body.read);
        Ok(())
    }

    pub(super) fn copy_out(&mut self, work: &Work<'_>, body: &CopyOut) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(body.stream)?;
        let at = At { stream, message: work.number };
        let destination = self.host.piece(&body.destination)?;
        self.with_part(work.number, |part| {
            let source = find(&part.memory, body.source, destination.bytes())?;
            part.copies.download(&mut part.streams, at, &destination, source)
        });
        self.mark(stream, work.number, body.written);
        Ok(())
    }

    /// `CopyDevice`, `CopyRows`, `Fill`
    pub(super) fn transfer(&mut self, work: &Work<'_>, stream: u32) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(stream)?;
        self.with_part(work.number, |part| {
            let Some(found) = Transfer::find(&part.memory, &work.message.body) else { return Ok(()) };
            let transfer = found?;
            if transfer.is_nothing() { Ok(()) } else { transfer.issue(part.streams.work(stream)?) }
        });
        Ok(())
    }

    /// `StreamHold`
    pub(super) fn hold(&mut self, work: &Work<'_>, body: &StreamHold) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(body.stream)?;
        self.handles.holds.insert(body.hold, ())?;
        if !self.shared.stream_operations {
            self.lack(work, "streams that wait for the guest");
            self.host.signal(&body.mark);
            return Ok(());
        }
        self.start(work.number)?;
        self.mark(stream, work.number, body.mark);
        let number = work.number;
        self.with_part(number, |part| {
            let word = part.holds.hold(&part.context, part.streams.work(stream)?, body.hold)?;
            part.staging.set_held(true);
            part.streams.hold(stream, body.hold);
            part.streams.then(stream, number, Then::Drop(word))
        });
        Ok(())
    }

    /// `StreamRelease`
    pub(super) fn release_hold(&mut self, hold: u32) -> Result<(), SessionError> {
        self.handles.holds.remove(hold)?;
        if let Some(part) = &mut self.part {
            part.holds.release(hold);
            part.streams.release(hold);
            part.staging.set_held(part.holds.any());
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
        self.collect_loaded(module)?;
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
