//! A session of the soft executor: its handles, and the conversion of its messages to tasks.
//!
//! The guest's library chooses handles, so an unknown handle is a violation of the contract. Programs choose
//! addresses, so a wrong one is a CUDA error. After a sticky error no work is carried out. Marks are still
//! stored, and requests are answered with that error, so that no thread waits forever.

mod graph;
mod handles;
mod overhead;
mod questions;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use vgpu_device::{
    CodeLinks, HandleTable, OutOfMemory, Resource, RetiredMemory, Session, SessionError, SessionHost,
    StreamTable, Violation, Work,
};
use vgpu_wire::{Body, JOIN_ALL, SEGMENT_INLINE};

use crate::device::SoftDevice;
use crate::function::Function;
use crate::graph::Graph;
use crate::memory::Allocation;
use crate::modules::SoftModules;
use crate::queue::order::Stream;
use crate::queue::{Adversary, Job, Queue};
use crate::runner::Runner;
use crate::status;
use crate::task::{CopySource, Freeing, Task};
use overhead::Overhead;

/// Bytes that a queued task is charged, besides its tail.
const QUEUED_BYTES: u64 = 1024;

/// The position of a task in the order of work.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The task is ordered after the stream's earlier work, and before its later work.
    In(Stream),
    /// The task is ordered in a stream, and is the newest record of an event.
    Record(Stream, u32),
    /// The task is ordered after the present work of a stream, or of all streams. No later work waits for it.
    After(Option<Stream>),
    /// The task is ordered before all later work, and if the flag is true also after all earlier work.
    Between(bool),
}

/// What a message of a stream becomes.
enum Made<'a> {
    Task(Task<'a>),
    /// The message needs no work. Only its position in the order matters.
    Nothing,
    /// The message is refused with a `CUresult` before it reaches the GPU.
    Refused(u32),
}

/// The session of one guest process.
#[derive(Debug)]
pub(crate) struct SoftSession {
    host: SessionHost,
    /// Queue of the session. It is declared before `runner`, because it must be dropped first.
    queue: Queue,
    runner: Arc<Runner>,
    handles: StreamTable<()>,
    modules: SoftModules,
    links: CodeLinks,
    graphs: HandleTable<Graph>,
    /// Number of frees that are queued, and so not yet visible in the memory figures.
    frees: Arc<AtomicUsize>,
    overhead: Overhead,
}

impl SoftSession {
    /// Makes a session without handles or memory.
    pub(crate) fn new(host: SessionHost, device: Arc<SoftDevice>) -> Self {
        let adversary = device.hooks.adversary.map(|seed| Adversary::new(seed ^ u64::from(host.session())));
        let runner = Arc::new(Runner::new(host.clone(), device));
        Self {
            host,
            queue: Queue::new(Arc::clone(&runner), adversary),
            runner,
            handles: StreamTable::default(),
            modules: SoftModules::default(),
            links: CodeLinks::new(vgpu_ptx::TEXT_MOST),
            graphs: HandleTable::new("graph"),
            frees: Arc::default(),
            overhead: Overhead::default(),
        }
    }

    /// Replies to a message, if the guest expects a reply.
    fn answer(&self, work: &Work<'_>, status: u32, data: &[u8]) {
        if let Some(to) = work.reply_to() {
            self.host.reply(to, status, data);
        }
    }

    /// Refuses a message without a reply. The guest finds the error in the return area, as a late error.
    fn refuse(&self, work: &Work<'_>, code: u32) {
        if self.runner.dead().is_none() {
            self.runner.fail(work.number, code, false);
        }
    }

    /// Returns the stream with a number. Number 0 is the legacy default stream, which always exists.
    fn stream(&self, number: u32) -> Result<Stream, Violation> {
        if number == 0 {
            return Ok(Stream::DEFAULT);
        }
        let blocking = !self.handles.streams.get(number)?.non_blocking;
        Ok(Stream { number, blocking })
    }

    /// Returns the stream with a number, or `None` for [`JOIN_ALL`].
    fn stream_or_all(&self, number: u32) -> Result<Option<Stream>, Violation> {
        if number == JOIN_ALL { Ok(None) } else { self.stream(number).map(Some) }
    }

    /// Updates the session's figures of modules and memory in the status report.
    fn report(&self) {
        self.host.gauges().modules.store(self.modules.len(), Ordering::Relaxed);
        self.runner.report();
    }

    /// Returns whether `more` tasks are carried out at once, and not queued. They are if all queued tasks
    /// have completed, unless an adversary orders the work. They also are if the session is lost and the
    /// queue has no room for them: tasks of a lost session only store marks and free memory.
    fn is_direct(&self, more: usize) -> bool {
        self.queue.is_direct() || self.is_overfull(more)
    }

    fn is_overfull(&self, more: usize) -> bool {
        self.runner.dead().is_some() && !self.queue.has_room(more)
    }

    /// Ends the session with an error if `more` tasks exceed the limit, because no later result would be
    /// correct without them.
    fn make_room(&self, more: usize, number: u64) {
        if !self.queue.has_room(more) && self.runner.dead().is_none() {
            self.overflow(number, &format_args!("more than {} tasks", self.host.charges().limits().queued));
        }
    }

    fn overflow(&self, number: u64, what: &dyn std::fmt::Display) {
        let session = self.host.session();
        self.host.log(0, || tracing::warn!(session, number, "too much queued work: {what}"));
        self.runner.fail(number, status::OUT_OF_MEMORY, true);
    }

    /// Charges a task that has to wait. Returns `None` if that exceeds the limit. The session is then lost,
    /// and the task has been completed without being carried out.
    fn job(&self, task: Task<'_>, number: u64) -> Option<Job> {
        // The memory of these tasks is charged already, and they free it.
        if matches!(task, Task::Free(..) | Task::Retire(_)) {
            return Some(Job { task: task.into_owned(), number, _bytes: None });
        }
        match self.host.charges().charge(Resource::HostBytes, QUEUED_BYTES + task.tail_bytes()) {
            Ok(bytes) => Some(Job { task: task.into_owned(), number, _bytes: Some(bytes) }),
            Err(over) => {
                if self.runner.dead().is_none() {
                    self.overflow(number, &over);
                }
                self.runner.execute(task, number);
                None
            }
        }
    }

    /// Carries out a task at once if nothing is queued, or queues it at `place` in the order of work.
    fn give(&mut self, place: Place, task: Task<'_>, number: u64) -> Result<(), SessionError> {
        if self.is_direct(1) {
            self.runner.execute(task, number);
            return Ok(());
        }
        let noticed = task.is_noticed();
        let Some(job) = self.job(task, number) else { return Ok(()) };
        self.queue.add(|order| match place {
            Place::In(stream) => drop(order.push(stream, job, noticed)),
            Place::Record(stream, event) => order.record(stream, event, job),
            Place::After(stream) => order.after(stream, job),
            Place::Between(all) => order.between(all, job),
        })
    }

    /// Frees memory at this position in the order of work, because earlier work may use it.
    fn free(&mut self, place: Place, memory: Vec<Allocation>, number: u64) -> Result<(), SessionError> {
        let freeing = Freeing::new(&self.frees);
        self.give(place, Task::Free(memory, Some(freeing)), number)
    }

    /// Makes a task from a message of a stream or a node of a graph, for which `function` is the kernel. The
    /// task holds its spans of window memory until it is completed. Checks a launch as CUDA does before it
    /// reaches the GPU.
    fn make<'a>(
        &self,
        body: &Body,
        tail: &'a [u8],
        function: Option<&Arc<Function>>,
    ) -> Result<Made<'a>, Violation> {
        Ok(Made::Task(match body {
            Body::CopyIn(body) => {
                let source = if body.source.segment == SEGMENT_INLINE {
                    CopySource::Inline(Cow::Borrowed(tail))
                } else {
                    CopySource::Window(self.host.piece(&body.source)?)
                };
                Task::CopyIn { destination: body.destination, source, read: body.read }
            }
            Body::CopyOut(body) => {
                let destination = self.host.piece(&body.destination)?;
                Task::CopyOut { source: body.source, destination, written: body.written }
            }
            Body::CopyDevice(body) => Task::CopyDevice(*body),
            Body::CopyRows(body) => Task::CopyRows(*body),
            Body::Fill(body) => Task::Fill(*body),
            Body::Gemm(body) => Task::Multiply(*body),
            Body::TriangularSolve(body) => Task::Solve(*body),
            Body::MatmulLt(body) => Task::Matmul(Box::new(*body)),
            Body::VectorOp(body) => Task::Vector(*body),
            Body::Signal(body) => Task::Mark(body.mark),
            Body::EventRecord(body) => Task::Mark(body.mark),
            Body::Launch(body) => {
                let function = match function {
                    Some(function) => function,
                    None => self.modules.function(body.function)?,
                };
                if let Err(code) = function.check(body, tail.len(), &self.runner.device.limits) {
                    self.host.log(0, || {
                        tracing::warn!(
                            session = self.host.session(), code, grid = ?body.grid, block = ?body.block,
                            shared = body.shared_bytes, params = tail.len(),
                            "kernel {}: the launch is refused", function.kernel.name
                        );
                    });
                    return Ok(Made::Refused(code));
                }
                Task::Launch(Arc::clone(function), *body, Cow::Borrowed(tail))
            }
            _ => return Ok(Made::Nothing),
        }))
    }

    /// Handles a message that is work of a stream.
    fn stream_work(&mut self, work: &Work<'_>, place: Place) -> Result<(), SessionError> {
        match self.make(&work.message.body, work.payload, None)? {
            Made::Task(task) => self.give(place, task, work.number),
            Made::Refused(code) => {
                self.refuse(work, code);
                Ok(())
            }
            Made::Nothing => Ok(()),
        }
    }

    /// Frees the allocation that starts at an address.
    fn free_address(&mut self, work: &Work<'_>, address: u64, place: Place) -> Result<(), SessionError> {
        if let Some(allocation) = self.runner.memory.remove(address) {
            return self.free(place, vec![allocation], work.number);
        }
        if address != 0 {
            self.refuse(work, status::INVALID_VALUE);
        }
        Ok(())
    }

    /// Carries out a message, or queues it. An error ends the session.
    fn carry_out(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        // The message needs one, and so does the join in its header.
        self.make_room(2, work.number);
        match &work.message.body {
            Body::CopyIn(body) => self.stream_work(work, Place::In(self.stream(body.stream)?)),
            Body::CopyOut(body) => self.stream_work(work, Place::In(self.stream(body.stream)?)),
            Body::CopyDevice(body) => self.stream_work(work, Place::In(self.stream(body.stream)?)),
            Body::CopyRows(body) => self.stream_work(work, Place::In(self.stream(body.stream)?)),
            Body::Fill(body) => self.stream_work(work, Place::In(self.stream(body.stream)?)),
            Body::Launch(body) => self.stream_work(work, Place::In(self.stream(body.stream)?)),
            Body::Gemm(body) => self.stream_work(work, Place::In(self.stream(body.stream)?)),
            Body::TriangularSolve(body) => self.stream_work(work, Place::In(self.stream(body.stream)?)),
            Body::MatmulLt(body) => self.stream_work(work, Place::In(self.stream(body.stream)?)),
            Body::VectorOp(body) => self.stream_work(work, Place::In(self.stream(body.stream)?)),
            Body::Signal(body) => self.stream_work(work, Place::After(self.stream_or_all(body.stream)?)),
            Body::EventRecord(body) => {
                self.handles.events.get(body.event)?;
                self.stream_work(work, Place::Record(self.stream(body.stream)?, body.event))
            }
            Body::StreamWait(body) => {
                let stream = self.stream(body.stream)?;
                self.handles.events.get(body.event)?;
                if self.queue.is_busy() && !self.is_overfull(1) {
                    self.queue.add(|order| order.wait(stream, body.event))?;
                }
                Ok(())
            }
            Body::StreamHold(_) | Body::StreamRelease(_) => self.hold(work),
            Body::GraphDefine(_) | Body::GraphUpdate(_) | Body::GraphLaunch(_) | Body::GraphDestroy(_) => {
                self.graph(work)
            }
            Body::StreamCreate(_)
            | Body::StreamDestroy(_)
            | Body::EventCreate(_)
            | Body::EventDestroy(_)
            | Body::ModuleUnload(_) => self.handles(work),
            Body::MemFree(body) => self.free_address(work, body.address, Place::Between(true)),
            Body::MemFreeAsync(body) => {
                let place = Place::In(self.stream(body.stream)?);
                self.free_address(work, body.address, place)
            }
            Body::MemMap(body) => self.give(Place::Between(false), Task::Map(*body), work.number),
            Body::MemUnmap(body) => self.give(Place::Between(true), Task::Unmap(*body), work.number),
            Body::MemSetAccess(body) => self.give(Place::Between(false), Task::SetAccess(*body), work.number),
            Body::MemUnreserve(body) => self.give(Place::Between(false), Task::Unreserve(*body), work.number),
            Body::MemRelease(body) => {
                self.give(Place::Between(false), Task::Release(body.handle), work.number)
            }
            _ => Ok(self.ask(work)?),
        }
    }
}

impl Session for SoftSession {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        let start = Instant::now();
        let overhead = self.runner.device.hooks.context_bytes;
        if overhead != 0 && self.runner.dead().is_none() {
            match self.overhead.charge(&self.runner.memory, overhead, &work.message.body) {
                Ok(changed) if changed => self.report(),
                Ok(_) => {}
                // The context cannot be made, or cannot grow, which a driver reports as the loss of the
                // context.
                Err(OutOfMemory) => self.runner.fail(work.number, status::OUT_OF_MEMORY, true),
            }
        }
        let done = self.carry_out(work);
        self.runner.recorder.handled(start.elapsed());
        done
    }

    fn join(&mut self, stream: u32) -> Result<(), SessionError> {
        let stream = self.stream_or_all(stream)?;
        if self.queue.is_busy() && !self.is_overfull(1) {
            self.queue.add(|order| order.join(stream))?;
        }
        Ok(())
    }

    fn settle(&mut self, number: u64) -> Result<bool, SessionError> {
        Ok(self.queue.settle(number))
    }

    fn retire(&mut self, memory: RetiredMemory) {
        if self.queue.is_busy() {
            let job = Job { task: Task::Retire(memory), number: 0, _bytes: None };
            // This does not fail, because a queue that has work has its thread.
            let _ = self.queue.add(|order| order.after(None, job));
        }
    }
}

impl Drop for SoftSession {
    fn drop(&mut self) {
        // No work of the session may run when its handles are dropped.
        self.runner.stop();
    }
}
