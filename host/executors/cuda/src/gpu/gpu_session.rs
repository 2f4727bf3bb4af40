//! A session's state on the GPU: its context and everything in it. This module creates and destroys that
//! state, and stores marks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, ThreadId};

use vgpu_abi::CUresult;
use vgpu_device::{Quota, RetiredMemory, SessionError, SessionHost};
use vgpu_wire::{Body, JOIN_ALL, Mark};

use crate::driver::context::DriverContext;
use crate::driver::error::DriverError;
use crate::driver::range::{AddressError, Reserved};
use crate::driver::stream::DriverStream;
use crate::gpu::clock::Clock;
use crate::gpu::code_memory::LocalMemory;
use crate::gpu::completion::{Completions, OnComplete, Retained};
use crate::gpu::copy::Copies;
use crate::gpu::fence::Fences;
use crate::gpu::health::Health;
use crate::gpu::holds::Holds;
use crate::gpu::loader::{BackgroundDrop, Loader};
use crate::gpu::memory::DeviceMemory;
use crate::gpu::product::{BlasSession, ProductError, ProductTarget, lacks_workspace, pieces};
use crate::gpu::staging::Staging;
use crate::gpu::streams::Streams;
use crate::gpu::words::CompletionWords;
use crate::shared_gpu::SharedGpu;

/// Reason for which a session gets no context.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The driver refuses the context. The guest gets the driver's code.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// Another session of this process uses the device's addresses, and each session needs a process.
    #[error(
        "without worker processes (--worker) this device serves one session at a time, and another process \
         of the guest has it"
    )]
    Occupied,
    /// The driver does not reserve the addresses that were announced to the guest.
    #[error(transparent)]
    Addresses(#[from] AddressError),
    /// The system has no thread for the completions.
    #[error("the host has no more threads")]
    Thread,
}

/// Stores a mark when the last reference to it is dropped.
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

/// Reports that all work up to a message is complete, when the last reference to it is dropped.
#[derive(Debug)]
struct ReportSettled {
    host: SessionHost,
    number: u64,
}

impl Drop for ReportSettled {
    fn drop(&mut self) {
        self.host.report_complete(self.number);
    }
}

/// A session's state on the GPU.
#[derive(Debug)]
pub(crate) struct GpuSession {
    host: SessionHost,
    health: Arc<Health>,
    pub(crate) context: Arc<DriverContext>,
    pub(crate) streams: Streams,
    pub(crate) copies: Copies,
    pub(crate) memory: Arc<DeviceMemory>,
    /// Local memory of the kernels that were launched.
    pub(crate) local: LocalMemory,
    pub(crate) holds: Holds,
    pub(crate) products: BlasSession,
    words: CompletionWords,
    pub(crate) staging: Arc<Staging>,
    /// Thread that loads modules and completes links, started when it is first needed.
    loader: Option<Loader>,
    /// Thread that drops what completed work used, where the drop may wait for other work. It is started when
    /// it is first needed.
    reaper: Option<Loader>,
    /// Stream from which graphs are captured, created for the first graph.
    capturing: Option<DriverStream>,
    /// Thread in which the context is current.
    thread: ThreadId,
}

impl GpuSession {
    /// Creates a context and the state that every session has. The context becomes current in the calling
    /// thread.
    pub(crate) fn start(
        shared: &SharedGpu,
        host: &SessionHost,
        health: &Arc<Health>,
    ) -> Result<Self, StartError> {
        let occupied = shared.occupy().ok_or(StartError::Occupied)?;
        let context = DriverContext::create(&shared.device)?;
        shared.count_context();
        let range = shared.range;
        let reserved = Reserved::reserve(&context, range.base, range.bytes)?;
        let fences = Fences::new(&context);
        let idle = DriverStream::create(&context, true, 0)?;
        let clock = Clock::start(&fences, &idle, || host.now())?;
        let completions = Completions::start(&context, health, clock).ok_or(StartError::Thread)?;
        let share = Quota::new(Arc::clone(&shared.account), Arc::clone(host.charges()));
        let staging = Staging::new(health);
        host.gauges().contexts.store(1, Ordering::Relaxed);
        Ok(Self {
            host: host.clone(),
            health: Arc::clone(health),
            streams: Streams::new(&context, &fences, completions),
            copies: Copies::new(&context, host, Arc::clone(&staging)),
            memory: DeviceMemory::new(&context, share, host.clone(), (reserved, occupied), shared.granule),
            local: LocalMemory::new(shared, host),
            holds: Holds::new(health, shared.stream_operations),
            products: BlasSession::default(),
            words: CompletionWords::new(host.clone(), shared.stream_operations),
            staging,
            loader: None,
            reaper: None,
            capturing: None,
            thread: thread::current().id(),
            context,
        })
    }

    /// Returns the session's connection to its guest.
    pub(crate) const fn host(&self) -> &SessionHost {
        &self.host
    }

    /// Returns the stream from which graphs are captured, with what products in it need. The stream gets no
    /// other work, and the legacy default stream does not wait for it, which a capture would forbid.
    pub(crate) fn capturing(
        &mut self,
    ) -> Result<(&DriverStream, &mut BlasSession, &DeviceMemory), DriverError> {
        if self.capturing.is_none() {
            self.capturing = Some(DriverStream::create(&self.context, true, 0)?);
        }
        let stream = self.capturing.as_ref().expect("it was just made");
        Ok((stream, &mut self.products, &self.memory))
    }

    /// Creates all streams that work may need, because the call may wait for a stream that is held.
    pub(crate) fn create_streams(&mut self) -> Result<(), DriverError> {
        self.streams.create_all()?;
        self.capturing().map(drop)
    }

    /// Returns the thread that loads modules and completes links. Starts it on the first call, and fails if
    /// the system has no more threads.
    pub(crate) fn loader(&mut self) -> Result<&Loader, SessionError> {
        if self.loader.is_none() {
            self.loader = Loader::start(&self.context, &self.health, "load");
        }
        self.loader.as_ref().ok_or_else(|| SessionError::Lost("the host has no more threads".to_owned()))
    }

    /// Makes the context current in the calling thread if it is not.
    pub(crate) fn enter(&mut self) -> Result<(), DriverError> {
        let thread = thread::current().id();
        if self.thread != thread {
            self.context.enter()?;
            self.thread = thread;
        }
        Ok(())
    }

    /// Stores a mark once all work of the stream so far, or of all streams ([`JOIN_ALL`]), is complete.
    pub(crate) fn mark(&mut self, stream: u32, message: u64, mark: Mark) -> Result<(), DriverError> {
        if mark.word == 0 {
            return Ok(());
        }
        if stream == JOIN_ALL || self.words.conflicts(self.streams.id(stream), &mark) {
            return self.drop_after_all(message, StoreMark { host: self.host.clone(), mark });
        }
        if self.streams.is_idle(stream) {
            self.host.signal(&mark);
            return Ok(());
        }
        let written = self.write(stream, &mark);
        // The host also stores the mark. That wakes sleeping guests, and finds faults.
        let then = if let Ok(true) = written { OnComplete::Shown(mark) } else { OnComplete::Mark(mark) };
        self.streams.on_complete(stream, message, then).and(written.map(drop))
    }

    /// Makes the GPU store a mark if it can. Returns whether it does.
    fn write(&mut self, stream: u32, mark: &Mark) -> Result<bool, DriverError> {
        if !self.words.is_able() {
            return Ok(false);
        }
        let stream_id = self.streams.id(stream);
        let to = self.streams.begin_work(stream)?;
        self.words.write(&self.context, self.copies.memory(), stream_id, to, mark)
    }

    /// Reports to the session's host once all work of messages up to `number` is complete, except for work
    /// that waits for the guest.
    pub(crate) fn settle(&mut self, number: u64) -> Result<(), DriverError> {
        let used: Retained = Arc::new(ReportSettled { host: self.host.clone(), number });
        self.streams.settle(number, &used)
    }

    /// Drops `used` once all work so far, of all streams, is complete.
    pub(crate) fn drop_after_all(
        &mut self,
        message: u64,
        used: impl Send + Sync + std::fmt::Debug + 'static,
    ) -> Result<(), DriverError> {
        let used: Retained = Arc::new(used);
        self.streams.drop_after_all(message, &used)
    }

    /// Removes memory from the session. `users`, which use the memory, are dropped before it.
    pub(crate) fn retire(
        &mut self,
        memory: RetiredMemory,
        users: impl Send + Sync + std::fmt::Debug + 'static,
    ) -> Result<(), DriverError> {
        let leaving = self.copies.memory().retire(memory);
        let leaving = self.drop_aside((users, leaving));
        self.drop_after_all(0, leaving)
    }

    /// Wraps a value so that the reaper's thread drops it.
    pub(crate) fn drop_aside<T: Send + 'static>(&mut self, value: T) -> BackgroundDrop<T> {
        if self.reaper.is_none() {
            self.reaper = Loader::start(&self.context, &self.health, "reap");
        }
        BackgroundDrop::new(value, self.reaper.as_ref())
    }

    /// Wraps a value that unmaps memory when it is dropped, or that needs the memory of earlier ones. The
    /// reaper's thread drops it if that thread has other values still to drop, or while unmapping may wait
    /// for a held stream. Otherwise it is dropped in place.
    pub(crate) fn unmap_aside<T: Send + 'static>(&mut self, value: T) -> BackgroundDrop<T> {
        let waits = self.holds.unmapping_waits();
        // Without the thread, there are no earlier values.
        let value = match waits {
            Some(_) => self.drop_aside(value),
            None => BackgroundDrop::new(value, self.reaper.as_ref()),
        };
        value.in_order(waits)
    }

    /// Enqueues the product of a message, after its preparation.
    pub(crate) fn enqueue_product(
        &mut self,
        shared: &SharedGpu,
        stream: u32,
        body: &Body,
    ) -> Result<(), ProductError> {
        self.products.prepare(shared, &self.context)?;
        let own = lacks_workspace(body);
        let workspace = own.then(|| self.products.workspace_of(shared, &self.memory, stream)).flatten();
        let stream = self.streams.begin_pieces(stream, pieces(body))?;
        self.products.issue(&ProductTarget { stream, memory: &self.memory, workspace }, body)
    }

    /// Destroys a stream of the guest. Its work still completes.
    pub(crate) fn destroy_stream(&mut self, stream: u32, message: u64) -> Result<(), DriverError> {
        let freed = match self.products.forget(stream) {
            Some(workspace) => {
                let workspace = self.unmap_aside(workspace);
                self.streams.on_complete(stream, message, OnComplete::Drop(Arc::new(workspace)))
            }
            None => Ok(()),
        };
        freed.and(self.streams.destroy(stream, message))
    }

    /// Returns whether the session is neither ending nor lost.
    pub(crate) fn is_running(&self) -> bool {
        self.health.dead().is_none() && !self.host.stopping()
    }

    /// Reports to the guest that a message is refused. The code may lose the context.
    pub(crate) fn refused(&self, message: u64, code: CUresult, why: &dyn std::fmt::Display) {
        self.health.refused(message, code, why);
        if self.health.dead().is_some() {
            self.streams.completions().wake();
        }
    }
}

impl Drop for GpuSession {
    fn drop(&mut self) {
        // The compiler may wait for work that is held.
        self.holds.release_all();
        drop(self.loader.take());
        // A failure here has been reported before: the context is lost.
        let _ = self.context.enter();
        let _ = self.context.synchronize();
        self.products.end();
        self.streams.end();
        // No value for the reaper's thread is left elsewhere, so the thread ends.
        drop(self.reaper.take());
        self.memory.clear();
        self.staging.clear();
        self.host.gauges().contexts.store(0, Ordering::Relaxed);
    }
}
