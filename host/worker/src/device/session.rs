//! The device's half of a session whose messages a worker process carries out.

mod saved;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::fstat;
use serde_json::Value;
use vgpu_device::threads;
use vgpu_device::{
    Awake, Charge, KeptDescriptors, NotSaved, OUT_OF_MEMORY, Progress, Resource, RetiredMemory, Session,
    SessionError, SessionHost, SharedRange, Violation, Window, Work, WorkerLink as _,
};
use vgpu_wire::body::memory::{MEM_MANAGED, MemInfoReply};
use vgpu_wire::{Body, JOIN_ALL, SEGMENT_INLINE};
use zerocopy::IntoBytes;

use crate::device::context::ExecutorContext;
use crate::device::memory_pool::{Patience, SessionUsage};
use crate::device::process::{Waited, WorkerProcess};
use crate::device::ring_writer::RingWriter;
use crate::device::{spawn, supervisor};
use crate::shared::frame::{
    FileRun, FrameKind, GrantRecord, PIECE_MAX, REASON_MAX, RING_BYTES, RefusalRecord,
};
use crate::shared::packet::{FILES_MAX, WorkerOrder};
use crate::shared::status_page::{STATUS_PAGE_BYTES, StatusPage};

/// Time within which a worker must end after it was told to. Then it is killed. A driver may need seconds to
/// free tens of GiB. The session's memory stays charged until the worker is reaped.
const ENDING_MOST: Duration = Duration::from_secs(5);
/// Number of messages between two reports of progress. A message takes a fraction of the time of a report.
const BATCH: u32 = 32;

pub(crate) use saved::abandon;

/// A session, with its worker once it has one.
#[derive(Debug)]
pub(crate) struct WorkerSession {
    context: Arc<ExecutorContext>,
    host: SessionHost,
    worker: Option<SessionWorker>,
}

/// The worker of a session, with its ring and its supervisor.
#[derive(Debug)]
struct SessionWorker {
    link: Arc<WorkerProcess>,
    ring: RingWriter,
    usage: Arc<SessionUsage>,
    supervisor: Option<JoinHandle<()>>,
    /// Number up to which the worker knows that messages have been forwarded.
    known: u64,
    /// Number of retired pieces of memory and of files that were sent. The next ones are numbered after them.
    retirements: u64,
    files: u64,
    /// Charge for the ring and the status page.
    _charge: Charge,
}

/// Returns the number of bytes of device memory that a message requests. A module takes the size of its
/// image.
const fn requested_memory(body: &Body) -> Option<u64> {
    match body {
        Body::ModuleOpen(body) => Some(body.bytes),
        // No executor supports managed memory.
        Body::MemAlloc(body) if body.flags & MEM_MANAGED == 0 => Some(body.bytes),
        Body::MemAllocAsync(body) => Some(body.bytes),
        Body::MemCreate(body) => Some(body.bytes),
        _ => None,
    }
}

/// Returns whether a message never makes a session's context: it only changes the worker's own state, or
/// names objects that exist in a context alone. A message that is not listed may make one.
const fn needs_no_context(body: &Body) -> bool {
    matches!(
        body,
        Body::StreamCreate(_)
            | Body::StreamDestroy(_)
            | Body::StreamWait(_)
            | Body::StreamRelease(_)
            | Body::EventCreate(_)
            | Body::EventDestroy(_)
            | Body::EventRecord(_)
            | Body::Signal(_)
            | Body::MemFree(_)
            | Body::MemFreeAsync(_)
            | Body::ModuleOpen(_)
            | Body::ModuleData(_)
            | Body::ModuleUnload(_)
            | Body::GraphDestroy(_)
    )
}

/// Starts the thread that supervises a worker.
fn supervise(
    context: &ExecutorContext,
    link: &Arc<WorkerProcess>,
    usage: &Arc<SessionUsage>,
) -> io::Result<JoinHandle<()>> {
    let (link, pool, usage) = (Arc::clone(link), Arc::clone(&context.pool), Arc::clone(usage));
    let name = format!("worker-{}", link.host.session());
    threads::spawn(name, move || supervisor::supervise(&link, &pool, &usage))
}

/// Ends a worker that nobody supervises.
fn end_unwatched(context: &ExecutorContext, link: &WorkerProcess, usage: &SessionUsage) {
    link.kill();
    // The process is this process's child and was killed, so the call cannot fail.
    let _ = link.reap();
    context.pool.close(usage);
}

impl SessionWorker {
    fn start(context: &Arc<ExecutorContext>, host: &SessionHost) -> Result<Self, SessionError> {
        let charge = host.charges().charge(Resource::HostBytes, RING_BYTES + STATUS_PAGE_BYTES)?;
        let lost = |what: &str, error: &dyn std::fmt::Display| SessionError::Lost(format!("{what}: {error}"));
        let memory = |bytes| Window::anonymous(bytes).map_err(|error| lost("make a worker's memory", &error));
        let (page, ring) = (memory(STATUS_PAGE_BYTES)?, memory(RING_BYTES)?);
        let started = spawn::spawn(&context.program, host, &page, &ring);
        let spawn::SpawnedWorker { pid, socket, pidfd, watched } =
            started.map_err(|error| lost("start a worker process", &error))?;
        let page = Arc::new(StatusPage::new(page));
        let usage = context.pool.open(&page);
        let link = WorkerProcess::new(host.clone(), Arc::clone(&page), socket, pidfd, pid).watched(watched);
        let link = Arc::new(link);
        let supervisor = supervise(context, &link, &usage).map_err(|error| {
            end_unwatched(context, &link, &usage);
            lost("watch a worker process", &error)
        })?;
        host.set_worker(Some(Arc::clone(&link) as _));
        tracing::debug!(session = host.session(), pid = link.pid, "worker started");
        Ok(Self {
            ring: RingWriter::new(ring, page),
            link,
            usage,
            supervisor: Some(supervisor),
            known: 0,
            retirements: 0,
            files: 0,
            _charge: charge,
        })
    }

    fn write_frame(&mut self, kind: FrameKind, number: u64, parts: &[&[u8]]) -> Result<(), SessionError> {
        self.ring.write_frame(&self.link, kind, number, parts)
    }

    /// Forwards a message to the worker.
    fn forward(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        self.link.set_newest(work.number);
        let records = match &work.message.body {
            Body::GraphDefine(body) => Some(body.records.segment),
            Body::GraphUpdate(body) => Some(body.records.segment),
            _ => None,
        };
        // Records outside of the message were copied and checked. The copy is forwarded.
        if records.is_some_and(|segment| segment != SEGMENT_INLINE) {
            for piece in work.payload.chunks(PIECE_MAX) {
                self.write_frame(FrameKind::Payload, work.number, &[piece])?;
            }
        }
        self.write_frame(FrameKind::Message, work.number, &[work.bytes])?;
        self.known = work.number;
        Ok(())
    }

    /// Forwards a message that is refused, so that the worker answers it in the order of the ring.
    fn forward_refusal(&mut self, work: &Work<'_>, code: u32, why: &str) -> Result<(), SessionError> {
        self.link.set_newest(work.number);
        let why = &why.as_bytes()[..why.floor_char_boundary(REASON_MAX)];
        let refusal = RefusalRecord { code, reason: why.len() as u32 };
        self.write_frame(FrameKind::Refuse, work.number, &[refusal.as_bytes(), why, work.bytes])?;
        self.known = work.number;
        Ok(())
    }

    /// Waits until the worker has carried out all messages that were forwarded. Fails if the device is paused
    /// before.
    fn catch_up(&mut self) -> Result<(), SessionError> {
        self.ring.publish();
        let (link, newest) = (&self.link, self.link.newest());
        match link.wait_until(|| link.page.executed() >= newest)? {
            Waited::Reached => Ok(()),
            Waited::Paused => Err(SessionError::Paused),
        }
    }

    /// Tells the worker of shared memory that it may map.
    fn grant(&mut self, host: &SessionHost, grant: SharedRange) -> Result<(), SessionError> {
        let granted = GrantRecord::from(grant);
        let SharedRange::Pages { segment } = grant else {
            return self.write_frame(FrameKind::Grant, 0, &[granted.as_bytes()]);
        };
        let mut files: Vec<(u64, u64, OwnedFd)> = Vec::new();
        let mut runs: Vec<FileRun> = Vec::new();
        let mut failed = None;
        let first = self.files;
        host.each_run(segment, |part| {
            let mut find = || -> std::io::Result<u64> {
                let stat = fstat(part.file)?;
                let known = files.iter().position(|file| (file.0, file.1) == (stat.st_dev, stat.st_ino));
                let index = known.map_or_else(
                    || {
                        files.push((stat.st_dev, stat.st_ino, part.file.try_clone_to_owned()?));
                        Ok::<_, std::io::Error>(files.len() - 1)
                    },
                    Ok,
                )?;
                Ok(first + index as u64)
            };
            match find() {
                Ok(file) => runs.push(FileRun { file, offset: part.offset, bytes: part.bytes }),
                Err(error) => failed = Some(error),
            }
        });
        if let Some(error) = failed {
            return Err(SessionError::Lost(format!("hand guest pages to a worker process: {error}")));
        }
        for (index, some) in files.chunks(FILES_MAX).enumerate() {
            let borrowed: Vec<_> = some.iter().map(|file| file.2.as_fd()).collect();
            self.link.order(WorkerOrder::Files(first + (index * FILES_MAX) as u64), &borrowed)?;
        }
        self.files += files.len() as u64;
        self.write_frame(FrameKind::Grant, 0, &[granted.as_bytes(), runs.as_bytes()])
    }

    /// Tells the worker to release memory, and keeps the memory until it has.
    fn retire(&mut self, memory: RetiredMemory) {
        self.retirements += 1;
        let (id, granted) = (self.retirements, GrantRecord::from(memory.range()));
        self.link.retain(id, memory);
        // If the worker is gone, the memory is released with it.
        let _ = self.write_frame(FrameKind::Retire, id, &[granted.as_bytes()]);
    }
}

impl WorkerSession {
    pub(crate) const fn new(context: Arc<ExecutorContext>, host: SessionHost) -> Self {
        Self { context, host, worker: None }
    }

    /// Returns the worker of the session. Starts it if there is none.
    fn worker(&mut self) -> Result<&mut SessionWorker, SessionError> {
        if self.worker.is_none() {
            let worker = self.worker.insert(SessionWorker::start(&self.context, &self.host)?);
            for grant in self.host.grants() {
                worker.grant(&self.host, grant)?;
            }
        }
        self.worker.as_mut().ok_or_else(|| SessionError::Lost("no worker".to_owned()))
    }

    /// Answers how much memory the device has free. A worker knows only its own part of it.
    fn answer_memory_info(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        if let Some(worker) = &mut self.worker {
            // Memory that was freed earlier counts as free.
            worker.catch_up()?;
        }
        let Some(to) = work.reply_to() else { return Ok(()) };
        if let Some(code) = self.host.shown_error() {
            self.host.reply(to, code, &[]);
        } else {
            let usage = self.worker.as_ref().map(|worker| &*worker.usage);
            let (free, total) = self.context.pool.info(usage);
            self.host.reply(to, 0, MemInfoReply { free, total }.as_bytes());
        }
        Ok(())
    }

    /// Reserves the memory that a message requests, and that of the context which it may need. Returns the
    /// number of bytes for which the device has too little. Fails if the device is paused before that is
    /// certain.
    fn reserve_for(&mut self, work: &Work<'_>) -> Result<Option<u64>, SessionError> {
        let context = Arc::clone(&self.context);
        let worker = self.worker()?;
        let body = &work.message.body;
        let lacking = |usage: &SessionUsage, patience| {
            if !needs_no_context(body) && !context.pool.reserve_context(usage, patience) {
                return Some(context.pool.context_bytes());
            }
            requested_memory(body).filter(|&bytes| !context.pool.reserve(usage, work.number, bytes, patience))
        };
        if lacking(&worker.usage, Patience::None).is_none() {
            return Ok(None);
        }
        // The session may have freed memory by messages that are not carried out yet.
        worker.catch_up()?;
        let bytes = lacking(&worker.usage, Patience::Session);
        if bytes.is_some() && self.host.pausing() { Err(SessionError::Paused) } else { Ok(bytes) }
    }
}

impl Session for WorkerSession {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        if matches!(work.message.body, Body::MemInfo(_)) {
            return self.answer_memory_info(work);
        }
        if let Some(bytes) = self.reserve_for(work)? {
            let (free, total) = self.context.pool.info(self.worker.as_ref().map(|worker| &*worker.usage));
            let why = format!("{bytes} bytes: {free} of the device's {total} are free");
            return self.worker()?.forward_refusal(work, OUT_OF_MEMORY, &why);
        }
        self.worker()?.forward(work)
    }

    fn join(&mut self, stream: u32) -> Result<(), SessionError> {
        match &mut self.worker {
            Some(worker) => {
                worker.write_frame(FrameKind::Join, worker.link.newest(), &[&stream.to_le_bytes()])
            }
            // Without a worker, no stream exists and no work was submitted.
            None if stream == 0 || stream == JOIN_ALL => Ok(()),
            None => Err(Violation::unknown("stream", stream).into()),
        }
    }

    fn batch(&self) -> u32 {
        BATCH
    }

    fn granted(&mut self, grant: SharedRange) -> Result<(), SessionError> {
        match &mut self.worker {
            Some(worker) => worker.grant(&self.host, grant),
            None => Ok(()),
        }
    }

    fn refuse_in_order(&mut self, work: &Work<'_>, code: u32, why: &str) -> Result<bool, SessionError> {
        // The worker that is started for the refusal ignores later messages that name the missing object.
        self.worker()?.forward_refusal(work, code, why)?;
        Ok(true)
    }

    fn progress(&mut self, number: u64) -> Progress {
        let Some(worker) = &mut self.worker else { return Progress::Upto(number) };
        // What a pause has kept comes first. An error ends the session by itself.
        let _ = worker.ring.flush(&worker.link);
        let behind = worker.link.page.executed() < worker.known;
        if worker.known < number && behind {
            worker.link.set_newest(number);
            // The death of a worker ends the session by itself.
            if worker.write_frame(FrameKind::Through, number, &[]).is_ok() {
                worker.known = number;
            }
        }
        worker.link.page.set_awake(Awake::count());
        worker.ring.publish();
        if behind || worker.known == number {
            return Progress::ByItself;
        }
        // The worker is idle, so it stores no progress before it receives a later message.
        worker.link.set_done_here(number);
        Progress::Upto(number)
    }

    fn settle(&mut self, number: u64) -> Result<bool, SessionError> {
        let Some(worker) = &mut self.worker else { return Ok(true) };
        worker.link.set_asked(number);
        worker.write_frame(FrameKind::Settle, number, &[])?;
        worker.ring.publish();
        Ok(false)
    }

    fn retire(&mut self, memory: RetiredMemory) {
        match &mut self.worker {
            Some(worker) => worker.retire(memory),
            None => drop(memory),
        }
    }

    fn save(&mut self, descriptors: &mut KeptDescriptors) -> Result<Value, NotSaved> {
        self.save_worker(descriptors)
    }

    fn resume(&mut self) -> Result<(), SessionError> {
        let Some(worker) = &mut self.worker else { return Ok(()) };
        worker.link.resume_reports();
        if worker.supervisor.is_none() {
            let supervisor = supervise(&self.context, &worker.link, &worker.usage);
            let lost = |error| SessionError::Lost(format!("watch a worker process: {error}"));
            worker.supervisor = Some(supervisor.map_err(lost)?);
        }
        Ok(())
    }
}

impl Drop for WorkerSession {
    fn drop(&mut self) {
        let Some(mut worker) = self.worker.take() else { return };
        let link = &worker.link;
        // From here on, the worker's end is expected.
        self.host.stop();
        link.resume_reports();
        if worker.supervisor.is_none() {
            // It was restored, but not started.
            end_unwatched(&self.context, link, &worker.usage);
            link.set_reaped();
        }
        if !link.wait_reaped(ENDING_MOST) {
            tracing::debug!(session = self.host.session(), pid = link.pid, "worker does not end: killed");
            link.kill();
        }
        if let Some(supervisor) = worker.supervisor.take() {
            // A panic of the supervisor is a bug that has been reported. The worker is dead or will be
            // killed.
            let _ = supervisor.join();
        }
        // What it has done last counts too.
        link.show(self.host.gauges());
        self.host.set_worker(None);
        link.release_all_retired();
    }
}
