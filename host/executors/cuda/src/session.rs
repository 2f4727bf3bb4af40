//! A session of the cuda executor: its handles, and the dispatch of its messages.
//!
//! The guest's library mints handles, so an unknown handle is a violation of the contract. The program
//! chooses addresses, so a wrong one is a CUDA error. After a fault nothing is carried out; marks are stored
//! and queries answered with the fault's code, so that nobody waits forever.

mod graph;
mod graphs;
mod links;
mod products;
mod queries;
mod work;

use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_abi::driver::EVENT_DISABLE_TIMING;
use vgpu_device::{
    CodeLink, CodeLinks, HandleTable, LateError, RetiredMemory, Session, SessionError, SessionHost,
    StreamTable, Violation, Work,
};
use vgpu_wire::{Body, JOIN_ALL, Mark};

use crate::driver::error::DriverError;
use crate::gpu::code::{IMAGE_MOST, SessionCode};
use crate::gpu::fence::Fence;
use crate::gpu::gpu_session::{GpuSession, StartError};
use crate::gpu::health::Health;
use crate::gpu::loader::PendingTasks;
use crate::shared_gpu::SharedGpu;
use graph::GuestGraph;

/// The session of one guest process.
#[derive(Debug)]
pub(crate) struct CudaSession {
    host: SessionHost,
    shared: Arc<SharedGpu>,
    health: Arc<Health>,
    /// The streams, and the newest record of each event: `None` if there is no record, or if its work was
    /// complete.
    handles: StreamTable<Option<Arc<Fence>>>,
    code: SessionCode,
    links: CodeLinks,
    /// Links that the loader completes.
    linking: PendingTasks<CodeLink>,
    /// State on the GPU, created when it is first needed.
    gpu: Option<GpuSession>,
    graphs: HandleTable<GuestGraph>,
}

/// Code and graphs are dropped after the context's work, which uses them. Dropping the state on the GPU waits
/// for that work.
impl Drop for CudaSession {
    fn drop(&mut self) {
        drop(self.gpu.take());
        self.graphs.clear();
        self.code = SessionCode::default();
    }
}

impl CudaSession {
    /// Creates a session without handles, memory and context.
    pub(crate) fn new(host: SessionHost, shared: Arc<SharedGpu>) -> Self {
        let health = Arc::new(Health::new(host.clone()));
        Self {
            host,
            shared,
            health,
            handles: StreamTable::default(),
            code: SessionCode::default(),
            links: CodeLinks::new(IMAGE_MOST),
            linking: PendingTasks::default(),
            gpu: None,
            graphs: HandleTable::new("graph"),
        }
    }

    /// Returns the session's state on the GPU. Creates it on the first call. Returns `Ok(None)` if the
    /// context is lost, which it also is once the GPU has refused to make one; the guest gets the reason.
    fn start(&mut self, number: u64) -> Result<Option<&mut GpuSession>, SessionError> {
        if self.gpu.is_none() && self.health.dead().is_none() {
            match GpuSession::start(&self.shared, &self.host, &self.health) {
                Ok(mut gpu) => {
                    for (stream, config) in self.handles.streams.entries() {
                        gpu.streams.create(stream, *config);
                    }
                    self.gpu = Some(gpu);
                }
                Err(StartError::Driver(error)) => self.health.lose_context(number, error.code.0, &error),
                Err(error @ (StartError::Occupied | StartError::Addresses(_))) => {
                    self.health.lose_context(number, CUresult::DEVICE_UNAVAILABLE.0, &error);
                }
                Err(error) => return Err(SessionError::Lost(error.to_string())),
            }
        }
        Ok(self.gpu.as_mut())
    }

    /// Answers a message if the guest waits for it.
    fn answer(&self, work: &Work<'_>, status: u32, data: &[u8]) {
        if let Some(to) = work.reply_to() {
            self.host.reply(to, status, data);
        }
    }

    /// Answers a message that needs a context which the session cannot have, with the code and the reason.
    fn answer_without_context(&self, work: &Work<'_>) {
        if let Some(to) = work.reply_to() {
            let (code, why) = self.health.loss();
            self.host.refuse(to, code, why);
        }
    }

    /// Refuses a message for which nobody waits. The guest learns of it by a late error.
    fn refuse(&self, work: &Work<'_>, code: CUresult) {
        if self.health.dead().is_none() {
            self.host.fail(LateError { code: code.0, sticky: false, message: work.number });
        }
    }

    /// Refuses a kind of message that this executor does not support.
    fn refuse_unsupported(&self, work: &Work<'_>, what: &'static str) {
        if self.shared.first_lack(what) {
            tracing::warn!("{what}: this executor does not support it");
        }
        match work.reply_to() {
            Some(to) => self.host.refuse(to, CUresult::NOT_SUPPORTED.0, what),
            None => self.refuse(work, CUresult::NOT_SUPPORTED),
        }
    }

    /// Reports a failed call to the guest.
    fn report_failure(&self, number: u64, done: Result<(), DriverError>) {
        if let Err(error) = done {
            self.report_refusal(number, error.code, &error);
        }
    }

    /// Reports to the guest that a message is refused with a code, which may lose the context.
    fn report_refusal(&self, number: u64, code: CUresult, why: &dyn std::fmt::Display) {
        match &self.gpu {
            Some(gpu) => gpu.refused(number, code, why),
            None => self.health.refused(number, code, why),
        }
    }

    /// Checks that a stream exists, or that the number means all streams.
    fn stream_or_all(&self, number: u32) -> Result<u32, Violation> {
        if number == JOIN_ALL { Ok(JOIN_ALL) } else { self.handles.check_stream(number) }
    }

    /// Returns the state on the GPU, if the session has one that works.
    fn working(&mut self) -> Option<&mut GpuSession> {
        if self.health.dead().is_some() { None } else { self.gpu.as_mut() }
    }

    /// Stores a mark once all work of a stream so far is complete.
    fn mark(&mut self, stream: u32, number: u64, mark: Mark) {
        match self.working() {
            Some(gpu) => {
                let done = gpu.mark(stream, number, mark);
                self.report_failure(number, done);
            }
            None => self.host.signal(&mark),
        }
    }

    /// Creates and destroys streams and events.
    fn handles(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        let created = self.handles.apply(&work.message.body, self.host.gauges())?;
        let Some(gpu) = &mut self.gpu else { return Ok(()) };
        match (&work.message.body, created) {
            (Body::StreamCreate(body), Some(config)) => {
                gpu.streams.create(body.stream, config);
                if gpu.holds.any() {
                    let done = gpu.streams.create_all();
                    self.report_failure(work.number, done);
                }
            }
            (Body::StreamDestroy(body), _) => {
                let done = gpu.destroy_stream(body.stream, work.number);
                self.report_failure(work.number, done);
            }
            _ => {}
        }
        Ok(())
    }

    /// Carries out `EventRecord`.
    fn record(&mut self, number: u64, event: u32, stream: u32, mark: Mark) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(stream)?;
        let timed = self.handles.events.get(event)?.flags & EVENT_DISABLE_TIMING == 0;
        let Some(gpu) = self.working() else {
            self.host.signal(&mark);
            return Ok(());
        };
        let newest = if timed {
            gpu.streams.on_complete_timed(stream, number, mark).map(Some)
        } else {
            gpu.mark(stream, number, mark).and_then(|()| gpu.streams.fence(stream, number))
        };
        match newest {
            Ok(newest) => self.handles.events.get_mut(event)?.newest = newest,
            Err(error) => self.report_failure(number, Err(error)),
        }
        Ok(())
    }

    /// Carries out `StreamWait`.
    fn wait(&mut self, number: u64, stream: u32, event: u32) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(stream)?;
        let newest = self.handles.events.get(event)?.newest.clone();
        if let (Some(gpu), Some(newest)) = (self.working(), newest) {
            let done = gpu.streams.wait(stream, &newest);
            self.report_failure(number, done);
        }
        Ok(())
    }
}

impl CudaSession {
    /// Records that the driver has all work of the message.
    fn end_submit(&mut self) {
        if let Some(gpu) = &mut self.gpu {
            gpu.streams.end_submit();
        }
    }

    /// Carries out a message of the guest.
    fn carry_out(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        if let Some(gpu) = &mut self.gpu
            && let Err(error) = gpu.enter()
        {
            self.report_failure(work.number, Err(error));
        }
        match &work.message.body {
            Body::Launch(body) => self.launch_kernel(work, body),
            Body::CopyIn(body) => self.copy_to_device(work, body),
            Body::CopyOut(body) => self.copy_from_device(work, body),
            Body::CopyDevice(body) => self.transfer(work, body.stream),
            Body::CopyRows(body) => self.transfer(work, body.stream),
            Body::Fill(body) => self.transfer(work, body.stream),
            Body::Signal(body) => {
                let stream = self.stream_or_all(body.stream)?;
                self.mark(stream, work.number, body.mark);
                Ok(())
            }
            Body::EventRecord(body) => self.record(work.number, body.event, body.stream, body.mark),
            Body::StreamWait(body) => self.wait(work.number, body.stream, body.event),
            Body::StreamHold(body) => self.hold(work, body),
            Body::StreamRelease(body) => self.release_hold(body.hold),
            Body::StreamCreate(_) | Body::StreamDestroy(_) | Body::EventCreate(_) | Body::EventDestroy(_) => {
                self.handles(work)
            }
            Body::MemFree(body) => {
                self.free(work, body.address, None);
                Ok(())
            }
            Body::MemFreeAsync(body) => {
                let stream = self.handles.check_stream(body.stream)?;
                self.free(work, body.address, Some(stream));
                Ok(())
            }
            Body::MemMap(_)
            | Body::MemUnmap(_)
            | Body::MemSetAccess(_)
            | Body::MemUnreserve(_)
            | Body::MemRelease(_) => {
                self.virtual_memory(work);
                Ok(())
            }
            Body::ModuleUnload(body) => self.unload(work, body.module),
            Body::GraphDefine(body) => self.define_graph(work, body),
            Body::GraphUpdate(body) => self.update_graph(work, body.graph),
            Body::GraphLaunch(body) => self.launch_graph(work, *body),
            Body::GraphDestroy(body) => self.destroy_graph(work.number, body.graph),
            Body::Gemm(body) => self.product(work, body.stream),
            Body::TriangularSolve(body) => self.product(work, body.stream),
            Body::VectorOp(body) => self.product(work, body.stream),
            Body::MatmulLt(body) => self.product(work, body.stream),
            _ => self.answer_query(work),
        }
    }
}

impl Session for CudaSession {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        let done = self.carry_out(work);
        self.end_submit();
        done
    }

    fn join(&mut self, stream: u32) -> Result<(), SessionError> {
        let stream = self.stream_or_all(stream)?;
        if let Some(gpu) = self.working() {
            let done = gpu.enter().and_then(|()| gpu.streams.join(stream, 0));
            self.report_failure(1, done);
        }
        self.end_submit();
        Ok(())
    }

    fn settle(&mut self, number: u64) -> Result<bool, SessionError> {
        let Some(gpu) = self.working() else { return Ok(true) };
        let done = gpu.enter().and_then(|()| gpu.settle(number));
        self.report_failure(number, done);
        self.end_submit();
        Ok(false)
    }

    fn retire(&mut self, memory: RetiredMemory) {
        let addresses = memory.addresses();
        let users: Vec<_> =
            self.graphs.values_mut().filter_map(|graph| graph.take_user(&addresses)).collect();
        if let Some(gpu) = &mut self.gpu {
            let done = gpu.enter().and_then(|()| gpu.retire(memory, users));
            self.report_failure(1, done);
        }
        self.end_submit();
    }
}
