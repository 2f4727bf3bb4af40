//! A session of the soft executor: its handles, and how its messages become work.
//!
//! Handles that the guest mints are the contract's: an unknown one is a violation. Addresses are the
//! program's: a wrong one is a CUDA error. After a sticky error nothing is carried out any more; marks are
//! still stored and questions answered with that error, so that nobody waits in vain.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vgpu_device::{Resource, Retired, Session, SessionError, SessionHost, Violation, Work};
use vgpu_wire::body::stream::STREAM_NON_BLOCKING;
use vgpu_wire::{Body, JOIN_ALL, SEGMENT_INLINE};

use crate::adversary::Adversary;
use crate::device::Device;
use crate::function::Function;
use crate::graph::Graph;
use crate::memory::Allocation;
use crate::modules::Modules;
use crate::order::Stream;
use crate::queue::{Job, Queue};
use crate::runner::Runner;
use crate::status;
use crate::task::{Freeing, Source, Task};

/// What a piece of work takes while it waits, with its place among others, its tail not counted.
const QUEUED_BYTES: u64 = 1024;

/// Where work stands among other work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// In a stream.
    In(Stream),
    /// In a stream, as an event's newest record.
    Record(Stream, u32),
    /// After a stream's work so far, or after all work so far.
    After(Option<Stream>),
    /// Before all later work; if so said, after all earlier.
    Between(bool),
}

/// What a message of a stream comes to.
pub(crate) enum Made<'a> {
    Task(Task<'a>),
    /// Only its place counts.
    Nothing,
    /// Refused with a `CUresult` before it gets to the GPU.
    Refused(u32),
}

/// One guest process.
#[derive(Debug)]
pub(crate) struct SoftSession {
    pub(crate) host: SessionHost,
    /// Before `runner`: it must be gone first.
    pub(crate) queue: Queue,
    pub(crate) runner: Arc<Runner>,
    /// Streams that were made.
    streams: HashMap<u32, Stream>,
    events: HashSet<u32>,
    /// Holds that the guest has not released.
    holds: HashSet<u32>,
    pub(crate) modules: Modules,
    pub(crate) graphs: HashMap<u32, Graph>,
    /// Frees that are queued.
    pub(crate) frees: Arc<AtomicUsize>,
}

impl SoftSession {
    pub(crate) fn new(host: SessionHost, device: Arc<Device>) -> Self {
        let adversary = device.options.adversary.map(|seed| Adversary::new(seed ^ u64::from(host.session())));
        let runner = Arc::new(Runner::new(host.clone(), device));
        Self {
            host,
            queue: Queue::new(Arc::clone(&runner), adversary),
            runner,
            streams: HashMap::new(),
            events: HashSet::new(),
            holds: HashSet::new(),
            modules: Modules::default(),
            graphs: HashMap::new(),
            frees: Arc::default(),
        }
    }

    pub(crate) fn answer(&self, work: &Work<'_>, status: u32, data: &[u8]) {
        if let Some(to) = work.reply_to() {
            self.host.reply(to, status, data);
        }
    }

    /// A message is refused that nobody waits for.
    pub(crate) fn refuse(&self, work: &Work<'_>, code: u32) {
        if self.runner.dead().is_none() {
            self.runner.fail(work.number, code, false);
        }
    }

    pub(crate) fn stream(&self, number: u32) -> Result<Stream, Violation> {
        if number == 0 {
            return Ok(Stream::DEFAULT);
        }
        self.streams.get(&number).copied().ok_or(Violation::unknown("stream", number))
    }

    /// A stream, or none for all of them.
    fn stream_or_all(&self, number: u32) -> Result<Option<Stream>, Violation> {
        if number == JOIN_ALL { Ok(None) } else { self.stream(number).map(Some) }
    }

    pub(crate) fn known_event(&self, event: u32) -> Result<(), Violation> {
        if self.events.contains(&event) { Ok(()) } else { Err(Violation::unknown("event", event)) }
    }

    pub(crate) fn report(&self) {
        let gauges = self.host.gauges();
        gauges.streams.store(self.streams.len() as u32, Ordering::Relaxed);
        gauges.events.store(self.events.len() as u32, Ordering::Relaxed);
        gauges.modules.store(self.modules.len(), Ordering::Relaxed);
        self.runner.report();
    }

    /// Whether work is done at once: in its turn, or because the session is lost and as much waits as may. Then it is only marks.
    pub(crate) fn is_direct(&self, more: usize) -> bool {
        self.queue.is_direct() || self.is_overfull(more)
    }

    fn is_overfull(&self, more: usize) -> bool {
        self.runner.dead().is_some() && !self.queue.has_room(more)
    }

    /// Where more work would wait than may, the session is lost: without it nothing later could be right.
    pub(crate) fn make_room(&self, more: usize, number: u64) {
        if !self.queue.has_room(more) && self.runner.dead().is_none() {
            self.overflow(number, &format_args!("more than {} pieces", self.host.charges().limits().queued));
        }
    }

    fn overflow(&self, number: u64, what: &dyn std::fmt::Display) {
        let session = self.host.session();
        self.host.log(0, || tracing::warn!(session, number, "too much work waits: {what}"));
        self.runner.fail(number, status::OUT_OF_MEMORY, true);
    }

    /// A task that waits, charged; nothing where that is too much: then it has come to its end, as of a lost session.
    pub(crate) fn job(&self, task: Task<'_>, number: u64) -> Option<Job> {
        // What these hold is charged already, and is to be returned.
        if matches!(task, Task::Free(..) | Task::Retire(_)) {
            return Some(Job { task: task.into_owned(), number, _bytes: None });
        }
        match self.host.charges().take(Resource::HostBytes, QUEUED_BYTES + task.tail_bytes()) {
            Ok(bytes) => Some(Job { task: task.into_owned(), number, _bytes: Some(bytes) }),
            Err(over) => {
                if self.runner.dead().is_none() {
                    self.overflow(number, &over);
                }
                self.runner.run(task, number);
                None
            }
        }
    }

    /// Does a task now, if that is its turn, or queues it.
    pub(crate) fn give(&mut self, place: Place, task: Task<'_>, number: u64) -> Result<(), SessionError> {
        if self.is_direct(1) {
            self.runner.run(task, number);
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

    /// Frees memory when that is its turn.
    pub(crate) fn free(
        &mut self,
        place: Place,
        memory: Vec<Allocation>,
        number: u64,
    ) -> Result<(), SessionError> {
        let freeing = Freeing::new(&self.frees);
        self.give(place, Task::Free(memory, Some(freeing)), number)
    }

    /// Makes a task of a message that is a stream's work. Spans are the session's from here until the task is done.
    pub(crate) fn make<'a>(
        &self,
        body: &Body,
        tail: &'a [u8],
        function: Option<&Arc<Function>>,
    ) -> Result<Made<'a>, Violation> {
        Ok(Made::Task(match body {
            Body::CopyIn(body) => {
                let source = if body.source.segment == SEGMENT_INLINE {
                    Source::Inline(Cow::Borrowed(tail))
                } else {
                    Source::Window(self.host.piece(&body.source)?)
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
            Body::Signal(body) => Task::Mark(body.mark),
            Body::EventRecord(body) => Task::Mark(body.mark),
            Body::Launch(body) => {
                let function = match function {
                    Some(function) => function,
                    None => self.modules.get(body.function)?,
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

    /// A message that is a stream's work.
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

    fn handles(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        match &work.message.body {
            Body::StreamCreate(body) => {
                let blocking = body.flags & STREAM_NON_BLOCKING == 0;
                let stream = Stream { number: body.stream, blocking };
                if self.streams.insert(body.stream, stream).is_some() {
                    return Err(Violation::in_use("stream", body.stream).into());
                }
            }
            Body::StreamDestroy(body) => {
                self.streams.remove(&body.stream).ok_or(Violation::unknown("stream", body.stream))?;
            }
            Body::EventCreate(body) if !self.events.insert(body.event) => {
                return Err(Violation::in_use("event", body.event).into());
            }
            Body::EventDestroy(body) => {
                if !self.events.remove(&body.event) {
                    return Err(Violation::unknown("event", body.event).into());
                }
                if self.queue.is_busy() {
                    self.queue.add(|order| order.forget(body.event))?;
                }
            }
            Body::ModuleUnload(body) => {
                let memory = self.modules.unload(body.module)?;
                self.free(Place::Between(true), memory, work.number)?;
            }
            _ => {}
        }
        self.report();
        Ok(())
    }

    fn hold(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        match &work.message.body {
            Body::StreamHold(body) => {
                let stream = self.stream(body.stream)?;
                if !self.holds.insert(body.hold) {
                    return Err(Violation::in_use("hold", body.hold).into());
                }
                let task = Task::Hold(body.hold, body.mark);
                if self.is_overfull(1) {
                    self.runner.run(task, work.number);
                } else if let Some(job) = self.job(task, work.number) {
                    self.queue.add(|order| order.push(stream, job, true))?;
                }
            }
            Body::StreamRelease(body) => {
                if !self.holds.remove(&body.hold) {
                    return Err(Violation::unknown("hold", body.hold).into());
                }
                if !self.is_overfull(1) {
                    self.queue.release(body.hold);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn free_address(&mut self, work: &Work<'_>, address: u64, place: Place) -> Result<(), SessionError> {
        if let Some(allocation) = self.runner.memory.take(address) {
            return self.free(place, vec![allocation], work.number);
        }
        if address != 0 {
            self.refuse(work, status::INVALID_VALUE);
        }
        Ok(())
    }
}

impl Session for SoftSession {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        // Itself, and the join that came with it.
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
            Body::Signal(body) => self.stream_work(work, Place::After(self.stream_or_all(body.stream)?)),
            Body::EventRecord(body) => {
                self.known_event(body.event)?;
                self.stream_work(work, Place::Record(self.stream(body.stream)?, body.event))
            }
            Body::StreamWait(body) => {
                let stream = self.stream(body.stream)?;
                self.known_event(body.event)?;
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

    fn join(&mut self, stream: u32) -> Result<(), SessionError> {
        let stream = self.stream_or_all(stream)?;
        if self.queue.is_busy() && !self.is_overfull(1) {
            self.queue.add(|order| order.join(stream))?;
        }
        Ok(())
    }

    fn retire(&mut self, memory: Retired) {
        if self.queue.is_busy() {
            let job = Job { task: Task::Retire(memory), number: 0, _bytes: None };
            // A queue that has work has its thread, so this does not fail.
            let _ = self.queue.add(|order| order.after(None, job));
        }
    }
}

impl Drop for SoftSession {
    fn drop(&mut self) {
        // Nothing of the session runs any more when its handles go.
        self.runner.stop();
    }
}
