//! A session's part of the GPU: its context and what is in it, how it starts and ends, and how marks are
//! stored.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, ThreadId};

use vgpu_abi::CUresult;
use vgpu_device::{Retired, SessionError, SessionHost, Share};
use vgpu_wire::{JOIN_ALL, Mark};

use crate::driver::context::Context;
use crate::driver::error::DriverError;
use crate::driver::range::Reserved;
use crate::driver::stream::Stream;
use crate::gpu::clock::Clock;
use crate::gpu::completion::{Completions, Then, Used};
use crate::gpu::copy::Copies;
use crate::gpu::fence::Fences;
use crate::gpu::health::Health;
use crate::gpu::holds::Holds;
use crate::gpu::loader::Loader;
use crate::gpu::memory::Memory;
use crate::gpu::product::{ProductError, Products, Target};
use crate::gpu::staging::Staging;
use crate::gpu::streams::Streams;
use crate::gpu::words::Words;
use crate::shared::Shared;

/// Why a session gets no part of the GPU.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The driver refuses: the guest gets its code.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// Another session of this process has the device's addresses: each session needs a process.
    #[error(
        "without worker processes (--worker) this device serves one session at a time, and another process \
         of the guest has it"
    )]
    Occupied,
    /// The addresses that were announced to the guest are taken in this process.
    #[error(
        "the driver reserves device addresses at {given:#x}, not at {wanted:#x} as the guest was told: \
         something else of this process is there"
    )]
    Addresses {
        /// Where the announced addresses begin.
        wanted: u64,
        /// Where the driver gave some.
        given: u64,
    },
    /// The system has no thread for the completions.
    #[error("the host has no more threads")]
    Thread,
}

/// A mark that the host stores when nothing has a share of this any more.
#[derive(Debug)]
struct StoreMark {
    host: SessionHost,
    mark: Mark,
}

impl Drop for StoreMark {
    fn drop(&mut self) {
        self.host.signal(&self.mark);
    }
}

/// A session's part of the GPU.
#[derive(Debug)]
pub(crate) struct Part {
    host: SessionHost,
    health: Arc<Health>,
    pub(crate) context: Arc<Context>,
    pub(crate) streams: Streams,
    pub(crate) copies: Copies,
    pub(crate) memory: Arc<Memory>,
    pub(crate) holds: Holds,
    pub(crate) products: Products,
    words: Words,
    pub(crate) staging: Arc<Staging>,
    /// The thread that loads modules and completes links, started for the first one.
    loader: Option<Loader>,
    /// The stream that graphs are captured from, made for the first one.
    capturing: Option<Stream>,
    /// The thread whose current context it is.
    thread: ThreadId,
}

impl Part {
    /// Makes a context and what every session has in it. The context is the calling thread's from now on.
    pub(crate) fn start(
        shared: &Shared,
        host: &SessionHost,
        health: &Arc<Health>,
    ) -> Result<Self, StartError> {
        let occupied = shared.occupy().ok_or(StartError::Occupied)?;
        let context = Context::create(&shared.device)?;
        shared.count_context();
        let range = shared.range;
        let reserved = Reserved::reserve(&context, range.base, range.bytes)?;
        if reserved.base() != range.base {
            return Err(StartError::Addresses { wanted: range.base, given: reserved.base() });
        }
        let fences = Fences::new(&context);
        let idle = Stream::create(&context, true, 0)?;
        let clock = Clock::start(&fences, &idle, || host.now())?;
        let completions = Completions::start(&context, health, clock).ok_or(StartError::Thread)?;
        let share = Share::new(Arc::clone(&shared.account), Arc::clone(host.charges()));
        let staging = Staging::new(health);
        host.gauges().contexts.store(1, Ordering::Relaxed);
        Ok(Self {
            host: host.clone(),
            health: Arc::clone(health),
            streams: Streams::new(&context, &fences, completions),
            copies: Copies::new(&context, host, Arc::clone(&staging)),
            memory: Memory::new(&context, share, host.clone(), (reserved, occupied), shared.granule),
            holds: Holds::new(host.clone()),
            products: Products::default(),
            words: Words::new(host.clone(), shared.stream_operations),
            staging,
            loader: None,
            capturing: None,
            thread: thread::current().id(),
            context,
        })
    }

    /// The session's guest.
    pub(crate) const fn host(&self) -> &SessionHost {
        &self.host
    }

    /// The stream that graphs are captured from, and what products need that it is given. It is given no other
    /// work, and the legacy default stream does not wait for it, which a capture would forbid.
    pub(crate) fn capturing(&mut self) -> Result<(&Stream, &mut Products, &Memory), DriverError> {
        if self.capturing.is_none() {
            self.capturing = Some(Stream::create(&self.context, true, 0)?);
        }
        let stream = self.capturing.as_ref().expect("it was just made");
        Ok((stream, &mut self.products, &self.memory))
    }

    /// The thread that loads modules and completes links.
    pub(crate) fn loader(&mut self) -> Result<&Loader, SessionError> {
        if self.loader.is_none() {
            self.loader = Loader::start(&self.context, &self.health);
        }
        self.loader.as_ref().ok_or_else(|| SessionError::Lost("the host has no more threads".to_owned()))
    }

    /// Makes the context the calling thread's, unless it is.
    pub(crate) fn enter(&mut self) -> Result<(), DriverError> {
        let thread = thread::current().id();
        if self.thread != thread {
            self.context.enter()?;
            self.thread = thread;
        }
        Ok(())
    }

    /// Stores a mark when all that the stream was given is complete, or all that any was ([`JOIN_ALL`]).
    pub(crate) fn mark(&mut self, stream: u32, message: u64, mark: Mark) -> Result<(), DriverError> {
        if mark.word == 0 {
            return Ok(());
        }
        if stream == JOIN_ALL || self.words.conflicts(self.streams.lane(stream), &mark) {
            return self.after_all(message, StoreMark { host: self.host.clone(), mark });
        }
        if self.streams.is_idle(stream) {
            self.host.signal(&mark);
            return Ok(());
        }
        let written = self.write(stream, &mark);
        // The host stores it too: that wakes those who sleep, and finds faults.
        let then = if let Ok(true) = written { Then::Shown(mark) } else { Then::Mark(mark) };
        self.streams.then(stream, message, then).and(written.map(drop))
    }

    /// Has the GPU store a mark, if it can; whether it does.
    fn write(&mut self, stream: u32, mark: &Mark) -> Result<bool, DriverError> {
        if !self.words.is_able() {
            return Ok(false);
        }
        let lane = self.streams.lane(stream);
        let to = self.streams.work(stream)?;
        self.words.write(&self.context, self.copies.memory(), lane, to, mark)
    }

    /// Drops `used` when all that any stream was given is complete.
    pub(crate) fn after_all(
        &mut self,
        message: u64,
        used: impl Send + Sync + std::fmt::Debug + 'static,
    ) -> Result<(), DriverError> {
        let used: Used = Arc::new(used);
        self.streams.after_all(message, &used)
    }

    /// The guest gives memory back, which `users` use: they are dropped before it.
    pub(crate) fn retire(
        &mut self,
        memory: Retired,
        users: impl Send + Sync + std::fmt::Debug + 'static,
    ) -> Result<(), DriverError> {
        let leaving = self.copies.memory().retire(memory);
        self.after_all(0, (users, leaving))
    }

    /// Gives a stream a product: `issue` does, once there is what it needs. `workspace`: the address that the
    /// message names, or 0.
    pub(crate) fn product(
        &mut self,
        shared: &Shared,
        stream: u32,
        workspace: u64,
        issue: impl FnOnce(&mut Products, &Target<'_>) -> Result<(), ProductError>,
    ) -> Result<(), ProductError> {
        self.products.prepare(shared, &self.context)?;
        let own = workspace == 0;
        let workspace = own.then(|| self.products.workspace_of(shared, &self.memory, stream)).flatten();
        let stream = self.streams.work(stream)?;
        issue(&mut self.products, &Target { stream, memory: &self.memory, workspace })
    }

    /// A stream of the guest's ends. Its work is finished first.
    pub(crate) fn destroy_stream(&mut self, stream: u32, message: u64) -> Result<(), DriverError> {
        let freed = match self.products.forget(stream) {
            Some(workspace) => self.streams.then(stream, message, Then::Drop(Arc::new(workspace))),
            None => Ok(()),
        };
        freed.and(self.streams.destroy(stream, message))
    }

    /// Whether the session neither ends nor is lost.
    pub(crate) fn goes_on(&self) -> bool {
        self.health.dead().is_none() && !self.host.stopping()
    }

    /// Reports a call that failed for a message.
    pub(crate) fn failed(&self, message: u64, error: DriverError) {
        self.refused(message, error.code, &error);
    }

    /// Refuses a message with a code, that of a fault among others.
    pub(crate) fn refused(&self, message: u64, code: CUresult, why: &dyn std::fmt::Display) {
        self.health.refused(message, code, why);
        if self.health.dead().is_some() {
            self.streams.completions().look();
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The compiler may wait for work that does.
        self.holds.release_all();
        drop(self.loader.take());
        // What fails here failed before, and was told: the context is lost.
        let _ = self.context.enter();
        let _ = self.context.synchronize();
        self.products.end();
        self.streams.end();
        self.memory.clear();
        self.staging.clear();
        self.host.gauges().contexts.store(0, Ordering::Relaxed);
    }
}
