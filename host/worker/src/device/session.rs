//! A session whose messages a worker process carries out, as the device's process has it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::fstat;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use vgpu_device::threads;
use vgpu_device::{
    Awake, Charge, OUT_OF_MEMORY, Progress, Resource, Retired, Session, SessionError, SessionHost,
    SharedRange, Violation, Window, Work,
};
use vgpu_wire::body::memory::{MEM_MANAGED, MemInfoReply};
use vgpu_wire::{Body, JOIN_ALL, SEGMENT_INLINE};
use zerocopy::IntoBytes;

use crate::device::accounts::Account;
use crate::device::common::Common;
use crate::device::link::Link;
use crate::device::producer::Producer;
use crate::device::{keeper, spawn};
use crate::shared::board::{BOARD_BYTES, Board};
use crate::shared::frame::{FrameKind, Granted, PIECE_MAX, REASON_MAX, RING_BYTES, Refusal, RunOf};
use crate::shared::packet::{FILES_MAX, Order};

/// How long a worker has to end when it is told to; then it is killed.
const ENDING_MOST: Duration = Duration::from_secs(1);
/// Messages between two reports of progress: a message takes a fraction of what a report does.
const BATCH: u32 = 32;

/// A session, and its worker once it has one.
#[derive(Debug)]
pub(crate) struct WorkerSession {
    common: Arc<Common>,
    host: SessionHost,
    worker: Option<Worker>,
}

/// A worker of a session.
#[derive(Debug)]
struct Worker {
    link: Arc<Link>,
    producer: Producer,
    account: Arc<Account>,
    keeper: Option<JoinHandle<()>>,
    /// Up to which number the worker knows that messages have been handed over.
    known: u64,
    /// How much memory has been retired, and how many files have been sent: the numbers that the next will
    /// have.
    retirements: u64,
    files: u64,
    /// What ring and board take.
    _charge: Charge,
}

/// Device memory that a message asks for.
const fn wanted(body: &Body) -> Option<u64> {
    match body {
        // No executor has managed memory.
        Body::MemAlloc(body) if body.flags & MEM_MANAGED == 0 => Some(body.bytes),
        Body::MemAllocAsync(body) => Some(body.bytes),
        Body::MemCreate(body) => Some(body.bytes),
        _ => None,
    }
}

impl Worker {
    fn start(common: &Arc<Common>, host: &SessionHost) -> Result<Self, SessionError> {
        let charge = host.charges().take(Resource::HostBytes, RING_BYTES + BOARD_BYTES)?;
        let lost = |what: &str, error: &dyn std::fmt::Display| SessionError::Lost(format!("{what}: {error}"));
        let memory = |bytes| Window::anonymous(bytes).map_err(|error| lost("make a worker's memory", &error));
        let (board, ring) = (memory(BOARD_BYTES)?, memory(RING_BYTES)?);
        let started = spawn::start(&common.program, host, &board, &ring);
        let spawn::Started { child, socket, pidfd } =
            started.map_err(|error| lost("start a worker process", &error))?;
        let board = Arc::new(Board::new(board));
        let account = common.accounts.open(&board);
        let link = Arc::new(Link::new(host.clone(), Arc::clone(&board), socket, pidfd, child.id()));
        let keeper = {
            let (link, accounts, account) =
                (Arc::clone(&link), Arc::clone(&common.accounts), Arc::clone(&account));
            let keep = move || keeper::keep(&link, child, &accounts, &account);
            threads::spawn(format!("worker-{}", host.session()), keep)
        };
        let keeper = keeper.map_err(|error| {
            link.kill();
            // It is this process's child and was killed, so there is nothing to go wrong.
            let _ = waitid(WaitId::PidFd(link.pidfd.as_fd()), WaitIdOptions::EXITED);
            common.accounts.close(&account);
            lost("watch a worker process", &error)
        })?;
        host.lives_in(Some(Arc::clone(&link) as _));
        tracing::debug!(session = host.session(), pid = link.pid, "worker started");
        Ok(Self {
            producer: Producer::new(ring, board),
            link,
            account,
            keeper: Some(keeper),
            known: 0,
            retirements: 0,
            files: 0,
            _charge: charge,
        })
    }

    fn put(&mut self, kind: FrameKind, number: u64, parts: &[&[u8]]) -> Result<(), SessionError> {
        self.producer.put(&self.link, kind, number, parts)
    }

    /// Passes a message on.
    fn pass(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        self.link.set_newest(work.number);
        let records = match &work.message.body {
            Body::GraphDefine(body) => Some(body.records.segment),
            Body::GraphUpdate(body) => Some(body.records.segment),
            _ => None,
        };
        // Records that do not lie in the message were copied, and the copy was checked: that is what goes on.
        if records.is_some_and(|segment| segment != SEGMENT_INLINE) {
            for piece in work.payload.chunks(PIECE_MAX) {
                self.put(FrameKind::Payload, work.number, &[piece])?;
            }
        }
        if let Body::StreamRelease(body) = &work.message.body {
            // The thread that reads the ring may be in a call of the driver that returns only then.
            self.link.order(Order::Release(body.hold), &[])?;
        }
        self.put(FrameKind::Message, work.number, &[work.bytes])?;
        self.known = work.number;
        Ok(())
    }

    /// Passes a message on that is not to be carried out.
    fn pass_refused(&mut self, work: &Work<'_>, code: u32, why: &str) -> Result<(), SessionError> {
        self.link.set_newest(work.number);
        let why = &why.as_bytes()[..why.floor_char_boundary(REASON_MAX)];
        let refusal = Refusal { code, reason: why.len() as u32 };
        self.put(FrameKind::Refuse, work.number, &[refusal.as_bytes(), why, work.bytes])?;
        self.known = work.number;
        Ok(())
    }

    /// Waits until the worker has carried out all that it was given.
    fn catch_up(&mut self) -> Result<(), SessionError> {
        self.producer.publish();
        let (link, newest) = (&self.link, self.link.newest());
        link.wait_until(|| link.board.executed() >= newest)
    }

    /// Tells the worker of memory that it may map.
    fn grant(&mut self, host: &SessionHost, grant: SharedRange) -> Result<(), SessionError> {
        let granted = Granted::from(grant);
        let SharedRange::Pages { segment } = grant else {
            return self.put(FrameKind::Grant, 0, &[granted.as_bytes()]);
        };
        let mut files: Vec<(u64, u64, OwnedFd)> = Vec::new();
        let mut runs: Vec<RunOf> = Vec::new();
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
                Ok(file) => runs.push(RunOf { file, offset: part.offset, bytes: part.bytes }),
                Err(error) => failed = Some(error),
            }
        });
        if let Some(error) = failed {
            return Err(SessionError::Lost(format!("hand guest pages to a worker process: {error}")));
        }
        for (index, some) in files.chunks(FILES_MAX).enumerate() {
            let borrowed: Vec<_> = some.iter().map(|file| file.2.as_fd()).collect();
            self.link.order(Order::Files(first + (index * FILES_MAX) as u64), &borrowed)?;
        }
        self.files += files.len() as u64;
        self.put(FrameKind::Grant, 0, &[granted.as_bytes(), runs.as_bytes()])
    }

    /// Tells the worker of memory that it is to let go of, and keeps that until it has.
    fn retire(&mut self, memory: Retired) {
        self.retirements += 1;
        let (id, granted) = (self.retirements, Granted::from(memory.range()));
        self.link.keep(id, memory);
        // If the worker is gone, the memory is let go of with it.
        let _ = self.put(FrameKind::Retire, id, &[granted.as_bytes()]);
    }
}

impl WorkerSession {
    pub(crate) const fn new(common: Arc<Common>, host: SessionHost) -> Self {
        Self { common, host, worker: None }
    }

    /// The worker, which is started if there is none.
    fn worker(&mut self) -> Result<&mut Worker, SessionError> {
        if self.worker.is_none() {
            let worker = self.worker.insert(Worker::start(&self.common, &self.host)?);
            for grant in self.host.grants() {
                worker.grant(&self.host, grant)?;
            }
        }
        self.worker.as_mut().ok_or_else(|| SessionError::Lost("no worker".to_owned()))
    }

    /// Answers how much memory is free. That is the device's, of which a worker knows only its own part.
    fn info(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        if let Some(worker) = &mut self.worker {
            // What was freed before counts as free.
            worker.catch_up()?;
        }
        let Some(to) = work.reply_to() else { return Ok(()) };
        if let Some(code) = self.host.shown_error() {
            self.host.reply(to, code, &[]);
        } else {
            let (free, total) = self.common.accounts.info();
            self.host.reply(to, 0, MemInfoReply { free, total }.as_bytes());
        }
        Ok(())
    }

    /// Charges a message that asks for device memory. False: the device has too little.
    fn reserve(&mut self, number: u64, bytes: u64) -> Result<bool, SessionError> {
        let common = Arc::clone(&self.common);
        let worker = self.worker()?;
        if common.accounts.reserve(&worker.account, number, bytes) {
            return Ok(true);
        }
        // The session may have freed some by messages that are not carried out yet.
        worker.catch_up()?;
        Ok(common.accounts.reserve(&worker.account, number, bytes))
    }
}

impl Session for WorkerSession {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        if matches!(work.message.body, Body::MemInfo(_)) {
            return self.info(work);
        }
        if let Some(bytes) = wanted(&work.message.body)
            && !self.reserve(work.number, bytes)?
        {
            let (free, total) = self.common.accounts.info();
            let why = format!("{bytes} bytes: {free} of the device's {total} are free");
            return self.worker()?.pass_refused(work, OUT_OF_MEMORY, &why);
        }
        self.worker()?.pass(work)
    }

    fn join(&mut self, stream: u32) -> Result<(), SessionError> {
        match &mut self.worker {
            Some(worker) => worker.put(FrameKind::Join, worker.link.newest(), &[&stream.to_le_bytes()]),
            // Without a worker no stream has been made, and none has been given anything.
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
        // A worker that is started for this excuses later messages that name what was not made.
        self.worker()?.pass_refused(work, code, why)?;
        Ok(true)
    }

    fn progress(&mut self, number: u64) -> Progress {
        let Some(worker) = &mut self.worker else { return Progress::Upto(number) };
        let behind = worker.link.board.executed() < worker.known;
        if worker.known < number && behind {
            worker.link.set_newest(number);
            // A worker that is gone ends the session by itself.
            if worker.put(FrameKind::Through, number, &[]).is_ok() {
                worker.known = number;
            }
        }
        worker.link.board.set_awake(Awake::count());
        worker.producer.publish();
        if behind || worker.known == number {
            return Progress::ByItself;
        }
        // It has nothing to do, so it stores no progress before it is given something later.
        worker.link.set_done_here(number);
        Progress::Upto(number)
    }

    fn retire(&mut self, memory: Retired) {
        match &mut self.worker {
            Some(worker) => worker.retire(memory),
            None => drop(memory),
        }
    }
}

impl Drop for WorkerSession {
    fn drop(&mut self) {
        let Some(mut worker) = self.worker.take() else { return };
        let link = &worker.link;
        // From here on its end is expected.
        self.host.stop();
        if !link.wait_reaped(ENDING_MOST) {
            tracing::debug!(session = self.host.session(), pid = link.pid, "worker does not end: killed");
            link.kill();
        }
        if let Some(keeper) = worker.keeper.take() {
            // A panic there is a bug that has been reported; the worker is dead or will be.
            let _ = keeper.join();
        }
        self.host.lives_in(None);
        link.let_all_go();
    }
}
