//! A session of the cuda executor: its handles, and how its messages become calls.
//!
//! Handles are minted by the guest's library, so an unknown handle is a violation of the contract. Addresses
//! come from the program, so a wrong one is a CUDA error. After a fault nothing is carried out any more;
//! marks are still stored and questions answered with the fault's code, so that nobody waits in vain.

mod graph;
mod graphs;
mod links;
mod products;
mod questions;
mod work;

use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_abi::driver::EVENT_DISABLE_TIMING;
use vgpu_device::{
    HandleTable, LateError, Link, Links, Retired, Session, SessionError, SessionHost, StreamTable, Violation,
    Work,
};
use vgpu_wire::{Body, JOIN_ALL, Mark};

use crate::driver::error::DriverError;
use crate::gpu::code::{Code, IMAGE_MOST};
use crate::gpu::fence::Fence;
use crate::gpu::health::Health;
use crate::gpu::loader::Away;
use crate::gpu::part::{Part, StartError};
use crate::shared::Shared;
use graph::Graph;

/// The session of one guest process.
#[derive(Debug)]
pub(crate) struct CudaSession {
    host: SessionHost,
    shared: Arc<Shared>,
    health: Arc<Health>,
    /// The newest record of an event is `None` if there is none, or if its work was complete.
    handles: StreamTable<Option<Arc<Fence>>>,
    code: Code,
    links: Links,
    /// Links that another thread completes.
    linking: Away<Link>,
    /// The session's context and what is in it, once it was needed.
    part: Option<Part>,
    graphs: HandleTable<Graph>,
}

/// Code and graphs go when the context's work, which uses them, is over: dropping the part waits for that.
impl Drop for CudaSession {
    fn drop(&mut self) {
        drop(self.part.take());
        self.graphs.clear();
        self.code = Code::default();
    }
}

impl CudaSession {
    /// A session without handles, memory and context.
    pub(crate) fn new(host: SessionHost, shared: Arc<Shared>) -> Self {
        let health = Arc::new(Health::new(host.clone()));
        Self {
            host,
            shared,
            health,
            handles: StreamTable::default(),
            code: Code::default(),
            links: Links::new(IMAGE_MOST),
            linking: Away::default(),
            part: None,
            graphs: HandleTable::new("graph"),
        }
    }

    /// The session's part of the GPU, made now if this is its first need. `Ok(None)`: the GPU refuses, and
    /// the session is lost with its code.
    fn start(&mut self, number: u64) -> Result<Option<&mut Part>, SessionError> {
        if self.part.is_none() && self.health.dead().is_none() {
            match Part::start(&self.shared, &self.host, &self.health) {
                Ok(mut part) => {
                    for (stream, config) in self.handles.streams.iter() {
                        part.streams.create(stream, *config);
                    }
                    self.part = Some(part);
                }
                Err(StartError::Driver(error)) => self.health.die(number, error.code.0, &error),
                Err(error @ StartError::Occupied) => {
                    self.health.die(number, CUresult::DEVICE_UNAVAILABLE.0, &error);
                }
                Err(error) => return Err(SessionError::Lost(error.to_string())),
            }
        }
        Ok(self.part.as_mut())
    }

    /// Answers a message, if the guest waits for an answer.
    fn answer(&self, work: &Work<'_>, status: u32, data: &[u8]) {
        if let Some(to) = work.reply_to() {
            self.host.reply(to, status, data);
        }
    }

    /// Answers a message that needs a context, which the session does not get: with the code and the reason.
    fn answer_without_context(&self, work: &Work<'_>) {
        if let Some(to) = work.reply_to() {
            let (code, why) = self.health.loss();
            self.host.refuse(to, code, why);
        }
    }

    /// Refuses a message that nobody waits for: the guest learns of it later.
    fn refuse(&self, work: &Work<'_>, code: CUresult) {
        if self.health.dead().is_none() {
            self.host.fail(LateError { code: code.0, sticky: false, message: work.number });
        }
    }

    /// Refuses a kind of message that this executor does not carry out.
    fn lack(&self, work: &Work<'_>, what: &'static str) {
        if self.shared.first_lack(what) {
            tracing::warn!("{what}: this executor does not support it");
        }
        match work.reply_to() {
            Some(to) => self.host.refuse(to, CUresult::NOT_SUPPORTED.0, what),
            None => self.refuse(work, CUresult::NOT_SUPPORTED),
        }
    }

    /// Tells the guest of a call that failed, if it did.
    fn told(&self, number: u64, done: Result<(), DriverError>) {
        if let Err(error) = done {
            match &self.part {
                Some(part) => part.failed(number, error),
                None => self.health.failed(number, error),
            }
        }
    }

    /// Checks that a stream exists, or that all of them are meant.
    fn stream_or_all(&self, number: u32) -> Result<u32, Violation> {
        if number == JOIN_ALL { Ok(JOIN_ALL) } else { self.handles.check_stream(number) }
    }

    /// The part of the GPU, if the session has one that works.
    fn working(&mut self) -> Option<&mut Part> {
        if self.health.dead().is_some() { None } else { self.part.as_mut() }
    }

    /// Stores a mark when all that a stream was given is complete.
    fn mark(&mut self, stream: u32, number: u64, mark: Mark) {
        match self.working() {
            Some(part) => {
                let done = part.mark(stream, number, mark);
                self.told(number, done);
            }
            None => self.host.signal(&mark),
        }
    }

    /// Handles of streams and events.
    fn handles(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        let created = self.handles.apply(&work.message.body, self.host.gauges())?;
        let Some(part) = &mut self.part else { return Ok(()) };
        match (&work.message.body, created) {
            (Body::StreamCreate(body), Some(config)) => part.streams.create(body.stream, config),
            (Body::StreamDestroy(body), _) => {
                let done = part.destroy_stream(body.stream, work.number);
                self.told(work.number, done);
            }
            _ => {}
        }
        Ok(())
    }

    /// `EventRecord`
    fn record(&mut self, number: u64, event: u32, stream: u32, mark: Mark) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(stream)?;
        let timed = self.handles.events.get(event)?.flags & EVENT_DISABLE_TIMING == 0;
        let Some(part) = self.working() else {
            self.host.signal(&mark);
            return Ok(());
        };
        let newest = if timed {
            part.streams.then_timed(stream, number, mark).map(Some)
        } else {
            part.mark(stream, number, mark).and_then(|()| part.streams.fence(stream, number))
        };
        match newest {
            Ok(newest) => self.handles.events.get_mut(event)?.newest = newest,
            Err(error) => self.told(number, Err(error)),
        }
        Ok(())
    }

    /// `StreamWait`
    fn wait(&mut self, number: u64, stream: u32, event: u32) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(stream)?;
        let newest = self.handles.events.get(event)?.newest.clone();
        if let (Some(part), Some(newest)) = (self.working(), newest) {
            let done = part.streams.wait(stream, &newest);
            self.told(number, done);
        }
        Ok(())
    }
}

impl CudaSession {
    /// The driver has all work of a message.
    fn given(&mut self) {
        if let Some(part) = &mut self.part {
            part.streams.given();
        }
    }

    /// Carries a message out.
    fn carry_out(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        if let Some(part) = &mut self.part
            && let Err(error) = part.enter()
        {
            self.told(work.number, Err(error));
        }
        match &work.message.body {
            Body::Launch(body) => self.launch(work, body),
            Body::CopyIn(body) => self.copy_in(work, body),
            Body::CopyOut(body) => self.copy_out(work, body),
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
            Body::Gemm(body) => self.gemm(work, body),
            Body::TriangularSolve(body) => self.solve(work, body),
            Body::VectorOp(body) => self.vector(work, body),
            Body::MatmulLt(body) => self.matmul(work, body),
            _ => self.ask(work),
        }
    }
}

impl Session for CudaSession {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        let done = self.carry_out(work);
        self.given();
        done
    }

    fn join(&mut self, stream: u32) -> Result<(), SessionError> {
        let stream = self.stream_or_all(stream)?;
        if let Some(part) = self.working() {
            let done = part.enter().and_then(|()| part.streams.join(stream, 0));
            self.told(1, done);
        }
        self.given();
        Ok(())
    }

    fn retire(&mut self, memory: Retired) {
        let addresses = memory.addresses();
        let users: Vec<_> =
            self.graphs.values_mut().filter_map(|graph| graph.take_user(&addresses)).collect();
        if let Some(part) = &mut self.part {
            let done = part.enter().and_then(|()| part.retire(memory, users));
            self.told(1, done);
        }
        self.given();
    }
}
