//! Messages that enqueue work, and those that change what work may use.

use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::{SessionError, Work};
use vgpu_wire::body::copy::{CopyIn, CopyOut};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::stream::StreamHold;
use vgpu_wire::{Body, SEGMENT_INLINE, area};

use super::CudaSession;
use crate::driver::error::DriverError;
use crate::gpu::completion::OnComplete;
use crate::gpu::copy::WorkOrigin;
use crate::gpu::gpu_session::GpuSession;
use crate::gpu::launch;
use crate::gpu::memory::{MapOutcome, MemoryError};
use crate::gpu::transfer::{Transfer, WRONG_ADDRESS, find};

impl CudaSession {
    /// Calls `act` if the session's GPU works, and reports a failure to the guest. A session without a GPU
    /// has no memory, so that any address is wrong.
    fn with_gpu(&mut self, number: u64, act: impl FnOnce(&mut GpuSession) -> Result<(), DriverError>) {
        if self.health.dead().is_some() {
            return;
        }
        let done = match &mut self.gpu {
            Some(gpu) => act(gpu),
            None => Err(WRONG_ADDRESS),
        };
        self.report_failure(number, done);
    }

    pub(super) fn launch_kernel(&mut self, work: &Work<'_>, body: &Launch) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(body.stream)?;
        let kernel = Arc::clone(self.code.kernel(body.function)?);
        let params = work.payload;
        if launch::check(&kernel, params).is_err() {
            self.refuse(work, CUresult::INVALID_VALUE);
            return Ok(());
        }
        let shape = launch::shape(body);
        self.with_gpu(work.number, |gpu| {
            gpu.local.grow(kernel.local_bytes)?;
            gpu.streams.begin_work(stream)?.enqueue_kernel(&kernel.function, &shape, params)
        });
        Ok(())
    }

    pub(super) fn copy_to_device(&mut self, work: &Work<'_>, body: &CopyIn) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(body.stream)?;
        let at = WorkOrigin { stream, message: work.number };
        if body.source.segment == SEGMENT_INLINE {
            let data = work.payload;
            self.with_gpu(work.number, |gpu| {
                let destination = find(&gpu.memory, body.destination, data.len() as u64)?;
                gpu.copies.inline(&mut gpu.streams, at, destination, data)
            });
        } else {
            let source = self.host.piece(&body.source)?;
            self.with_gpu(work.number, |gpu| {
                let destination = find(&gpu.memory, body.destination, source.bytes())?;
                gpu.copies.upload(&mut gpu.streams, at, destination, &source)
            });
        }
        self.mark(stream, work.number, body.read);
        Ok(())
    }

    pub(super) fn copy_from_device(&mut self, work: &Work<'_>, body: &CopyOut) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(body.stream)?;
        let at = WorkOrigin { stream, message: work.number };
        let destination = self.host.piece(&body.destination)?;
        self.with_gpu(work.number, |gpu| {
            let source = find(&gpu.memory, body.source, destination.bytes())?;
            gpu.copies.download(&mut gpu.streams, at, &destination, source)
        });
        self.mark(stream, work.number, body.written);
        Ok(())
    }

    /// Carries out `CopyDevice`, `CopyRows` and `Fill`.
    pub(super) fn transfer(&mut self, work: &Work<'_>, stream: u32) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(stream)?;
        self.with_gpu(work.number, |gpu| {
            let Some(found) = Transfer::find(&gpu.memory, &work.message.body) else { return Ok(()) };
            let transfer = found?;
            if transfer.is_nothing() { Ok(()) } else { transfer.issue(gpu.streams.begin_work(stream)?) }
        });
        Ok(())
    }

    /// Carries out `StreamHold`.
    pub(super) fn hold(&mut self, work: &Work<'_>, body: &StreamHold) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(body.stream)?;
        self.handles.holds.insert(body.hold, ())?;
        if body.hold > area::HOLD_MAX {
            self.refuse(work, CUresult::INVALID_VALUE);
            self.host.signal(&body.mark);
            return Ok(());
        }
        self.start(work.number)?;
        self.mark(stream, work.number, body.mark);
        let number = work.number;
        self.with_gpu(number, |gpu| {
            gpu.create_streams()?;
            let before = gpu.streams.before_hold(stream, number)?;
            if let Some(fence) = gpu.holds.before() {
                gpu.streams.wait(stream, &fence)?;
            }
            let to = gpu.streams.begin_work(stream)?;
            // Before it is held, so that no buffer is freed meanwhile.
            gpu.staging.set_held(true);
            let held = gpu.holds.hold(&gpu.context, gpu.copies.memory(), to, body.hold);
            gpu.staging.set_held(gpu.holds.any());
            let waiting = held?;
            gpu.streams.hold(stream, body.hold, before);
            if let Some(fence) = gpu.streams.fence(stream, number)? {
                gpu.holds.follow(fence);
            }
            gpu.streams.on_complete(stream, number, OnComplete::Drop(waiting))
        });
        Ok(())
    }

    /// Carries out `StreamRelease`.
    pub(super) fn release_hold(&mut self, hold: u32) -> Result<(), SessionError> {
        self.handles.holds.remove(hold)?;
        if let Some(gpu) = &mut self.gpu {
            if gpu.holds.release(hold) {
                gpu.streams.release(hold);
            }
            gpu.staging.set_held(gpu.holds.any());
        }
        Ok(())
    }

    /// Frees the allocation at an address, after the work of one stream or of all streams.
    pub(super) fn free(&mut self, work: &Work<'_>, address: u64, stream: Option<u32>) {
        let Some(gpu) = &mut self.gpu else {
            if address != 0 {
                self.refuse(work, CUresult::INVALID_VALUE);
            }
            return;
        };
        let Some(freed) = gpu.memory.remove_allocation(address) else {
            if address != 0 {
                self.refuse(work, CUresult::INVALID_VALUE);
            }
            return;
        };
        let freed = gpu.unmap_aside(freed);
        let done = match stream {
            Some(stream) => gpu.streams.on_complete(stream, work.number, OnComplete::Drop(Arc::new(freed))),
            None => gpu.drop_after_all(work.number, freed),
        };
        self.report_failure(work.number, done);
    }

    /// Handles messages about memory that the guest manages itself and that are not answered.
    pub(super) fn virtual_memory(&mut self, work: &Work<'_>) {
        let number = work.number;
        let Some(gpu) = self.gpu.as_mut().filter(|_| self.health.dead().is_none()) else {
            self.refuse(work, CUresult::INVALID_VALUE);
            return;
        };
        let outcome = match &work.message.body {
            Body::MemMap(body) => gpu.when_unmapped(|memory| memory.map(body)),
            Body::MemUnreserve(body) => gpu.when_unmapped(|memory| memory.unreserve(body)),
            Body::MemUnmap(body) => gpu.memory.unmap(body).and_then(|unmapped| {
                let unmapped = gpu.unmap_aside(unmapped);
                Ok(gpu.drop_after_all(number, unmapped)?)
            }),
            Body::MemSetAccess(body) => gpu.memory.set_access(body),
            Body::MemRelease(body) => gpu.memory.release(body.handle),
            _ => Ok(()),
        };
        match outcome {
            Ok(()) => {}
            Err(MemoryError::Driver(error)) => self.report_failure(number, Err(error)),
            Err(error) => {
                let session = self.host.session();
                self.host.log(0, || tracing::warn!(session, number, "{error}"));
                self.refuse(work, CUresult(error.code()));
            }
        }
    }

    /// Carries out `ModuleUnload`.
    pub(super) fn unload(&mut self, work: &Work<'_>, module: u32) -> Result<(), SessionError> {
        self.collect_loaded(module)?;
        let unloaded = self.code.unload(module)?;
        self.report_modules();
        if let Some(gpu) = &mut self.gpu {
            gpu.memory.forget_globals(module);
            let unloaded = gpu.drop_aside(unloaded);
            let done = gpu.drop_after_all(work.number, unloaded);
            self.report_failure(work.number, done);
        }
        Ok(())
    }
}

impl GpuSession {
    /// Repeats a request until earlier work no longer uses former mappings. It waits only for the session's
    /// own work. While the guest holds a stream it fails, because the release may depend on work of other
    /// streams, which the waiting thread would have to read.
    fn when_unmapped(
        &self,
        mut act: impl FnMut(&crate::gpu::memory::DeviceMemory) -> Result<MapOutcome, MemoryError>,
    ) -> Result<(), MemoryError> {
        loop {
            if act(&self.memory)? == MapOutcome::Done {
                return Ok(());
            }
            if self.holds.any() || !self.is_running() {
                return Err(MemoryError::Invalid("the addresses are still in use by work that is held"));
            }
            self.memory.wait_for_unmapped();
        }
    }
}
