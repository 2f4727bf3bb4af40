//! The null executor accepts every message, does nothing and answers with success. It serves to measure the
//! transport and the device's checks.
//!
//! Answers are plausible, so that programs continue: addresses come from an allocator that knows the size of
//! the device's memory, and a kernel has the limits of its compute capability. Values that cannot be known
//! are 0, such as a kernel's [`FunctionReply::param_bytes`]. Physical memory of virtual memory management is
//! not counted. Copies from the device leave the destination unchanged.
//!
//! With [`NullOptions::complete_after`], each block of a launch takes that long, give or take 2 %, one after
//! the other, and a graph as long as a block. All streams of a session are one, so that a hold of one holds
//! all. Marks behind the work are stored when it is complete, as a GPU stores them. A copy of 16 bytes from
//! the device then receives two times of the newest launch, its start and its end, in nanoseconds since the
//! start of 1970 on the host's clock. A session's GPU time is that of its blocks.

#![forbid(unsafe_code)]

mod memory;
mod timed;

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use vgpu_device::{
    Executor, ExecutorError, GpuConfig, GpuError, RetiredMemory, Session, SessionError, SessionHost, Work,
};
use vgpu_wire::area::reply_text;
use vgpu_wire::body::copy::CopyOut;
use vgpu_wire::body::memory::{Address, MemInfoReply};
use vgpu_wire::body::module::{FunctionReply, GlobalReply, ModuleOpenReply, OccupancyReply};
use vgpu_wire::facts::{DeviceFacts, exec};
use vgpu_wire::{Body, Mark};
use zerocopy::IntoBytes;

use memory::{NullMemory, SessionMemory};
use timed::{Context, Engine, TIMES_BYTES};

/// Status `CUDA_SUCCESS`.
const SUCCESS: u32 = 0;
const OUT_OF_MEMORY: u32 = 2;
/// Size in bytes that is reported for every variable.
const GLOBAL_BYTES: u64 = 4096;
/// Number of messages between two reports of progress. A message takes a fraction of the time of a report.
const BATCH: u32 = 16;
/// Number of the `CUdevice_attribute` for the largest number of threads of a multiprocessor.
const MAX_THREADS_PER_MULTIPROCESSOR: usize = 39;
const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: usize = 97;
const MAX_BLOCKS_PER_MULTIPROCESSOR: usize = 106;

/// Abilities that the executor announces. [`exec::HOLDS`] is one more if work takes time. The executor cannot
/// link, because it cannot produce an image.
const ABILITIES: u32 =
    exec::KERNELS | exec::PTX | exec::CUBIN | exec::UNNAMED | exec::EPILOGUES | exec::VECTORS | exec::EDGES;

/// Options of the null executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NullOptions {
    /// Time that a block takes, or `None` if all work is complete at once.
    pub complete_after: Option<Duration>,
}

/// The null executor: a GPU whose calls succeed and have no effect.
#[derive(Debug)]
pub struct Null {
    facts: Arc<DeviceFacts>,
    memory: Arc<NullMemory>,
    options: NullOptions,
    /// Completes the work of launches that take time. It is started by the first session that has such
    /// launches.
    engine: OnceLock<Engine>,
}

impl Null {
    /// Makes a GPU of this configuration, whose work is complete at once. Fails if the configuration does not
    /// describe a GPU.
    pub fn new(config: &GpuConfig) -> Result<Self, GpuError> {
        Self::with(config, NullOptions::default())
    }

    /// Makes a GPU like [`Null::new`], whose launches take the time that the options say.
    pub fn with(config: &GpuConfig, options: NullOptions) -> Result<Self, GpuError> {
        let holds = if options.complete_after.is_some() { exec::HOLDS } else { 0 };
        let facts = config.facts(ABILITIES | holds)?;
        Ok(Self {
            facts: Arc::new(facts),
            memory: Arc::new(NullMemory::new(config.memory_bytes, config.addresses.clone())),
            options,
            engine: OnceLock::new(),
        })
    }

    /// Returns a context of the GPU for a session whose launches take time.
    fn context(&self, host: &SessionHost) -> Result<Context, ExecutorError> {
        let failed = |error| ExecutorError::Failed(format!("start a thread: {error}"));
        let engine = if let Some(engine) = self.engine.get() {
            engine
        } else {
            // The thread of an engine that loses a race ends with it.
            let started = Engine::start().map_err(failed)?;
            self.engine.get_or_init(|| started)
        };
        Ok(engine.context(host.clone()))
    }
}

impl Executor for Null {
    fn name(&self) -> &'static str {
        "null"
    }

    fn facts(&self) -> DeviceFacts {
        *self.facts
    }

    fn allocated(&self) -> u64 {
        self.memory.used()
    }

    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError> {
        let held = SessionMemory::new(Arc::clone(&self.memory));
        let takes_time = self.options.complete_after;
        let timed = takes_time.map(|block| Ok((self.context(&host)?, block))).transpose()?;
        Ok(Box::new(NullSession { host, facts: Arc::clone(&self.facts), held, timed }))
    }
}

#[derive(Debug)]
struct NullSession {
    host: SessionHost,
    facts: Arc<DeviceFacts>,
    held: SessionMemory,
    /// Context in which launches take time, and the time of a block. `None` if all work is complete at once.
    timed: Option<(Context, Duration)>,
}

impl NullSession {
    fn answer(&self, work: &Work<'_>, status: u32, data: &[u8]) {
        if let Some(to) = work.reply_to() {
            self.host.reply(to, status, data);
        }
    }

    fn allocate(&mut self, work: &Work<'_>, bytes: u64) {
        let allocated = self.held.allocate(bytes);
        // The report precedes the answer, so that it includes every address that the guest knows.
        self.report();
        match allocated {
            Some(address) => self.answer(work, SUCCESS, Address { address }.as_bytes()),
            None => self.answer(work, OUT_OF_MEMORY, &[]),
        }
    }

    fn free(&mut self, address: u64) {
        self.held.free(address);
        self.report();
    }

    fn report(&self) {
        let gauges = self.host.gauges();
        gauges.allocated.store(self.held.bytes(), Ordering::Relaxed);
        gauges.allocations.store(self.held.count(), Ordering::Relaxed);
    }

    /// Stores a mark once all work has completed.
    fn signal(&self, mark: &Mark) {
        if !self.timed.as_ref().is_some_and(|(context, _)| context.mark(*mark, None)) {
            self.host.signal(mark);
        }
    }

    /// Completes a copy from the device. It writes nothing, except the times of the newest launch to a
    /// destination of [`TIMES_BYTES`] if launches take time.
    fn copy_out(&self, body: &CopyOut) -> Result<(), SessionError> {
        let Some((context, _)) = &self.timed else {
            self.host.signal(&body.written);
            return Ok(());
        };
        let wants_times = body.destination.bytes == TIMES_BYTES;
        let times = wants_times.then(|| self.host.piece(&body.destination)).transpose()?;
        if !context.mark(body.written, times) {
            self.host.signal(&body.written);
        }
        Ok(())
    }

    /// Adds the time of a launch of so many blocks in x, y and z.
    fn launch(&self, grid: [u32; 3]) {
        if let Some((context, block)) = &self.timed {
            let blocks = grid.into_iter().fold(1, u32::saturating_mul);
            context.add(block.saturating_mul(blocks));
        }
    }

    fn function(&self) -> FunctionReply {
        let (major, minor) = (self.facts.cc_major, self.facts.cc_minor);
        FunctionReply {
            max_threads: 1024,
            shared_bytes: 0,
            const_bytes: 0,
            local_bytes: 0,
            registers: 32,
            ptx_version: 10 * major + minor,
            binary_version: 10 * major + minor,
            max_dynamic_shared: self.facts.attributes[MAX_SHARED_MEMORY_PER_BLOCK_OPTIN]
                .max(0)
                .cast_unsigned(),
            param_bytes: 0,
            reserved: [0; 7],
        }
    }

    fn occupancy(&self, threads: u32) -> u32 {
        let limit = |id: usize| self.facts.attributes[id].max(0).cast_unsigned();
        let by_threads = limit(MAX_THREADS_PER_MULTIPROCESSOR) / threads.max(1).next_multiple_of(32);
        by_threads.min(limit(MAX_BLOCKS_PER_MULTIPROCESSOR))
    }
}

impl Session for NullSession {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        if self.timed.as_ref().is_some_and(|(context, _)| context.is_full())
            && !matches!(work.message.body, Body::StreamRelease(_))
        {
            return Err(SessionError::OutOfMemory("queue more work".to_owned()));
        }
        match &work.message.body {
            Body::Launch(body) => self.launch(body.grid),
            Body::GraphLaunch(_) => self.launch([1; 3]),
            Body::CopyIn(body) => self.signal(&body.read),
            Body::CopyOut(body) => self.copy_out(body)?,
            Body::Signal(body) => self.signal(&body.mark),
            Body::EventRecord(body) => self.signal(&body.mark),
            Body::MemAlloc(body) => self.allocate(work, body.bytes),
            Body::MemAllocAsync(body) => self.allocate(work, body.bytes),
            Body::MemReserve(body) => match self.held.reserve(body.bytes, body.alignment, body.hint) {
                Ok(address) => self.answer(work, SUCCESS, Address { address }.as_bytes()),
                Err(refused) => self.answer(work, OUT_OF_MEMORY, reply_text(&refused.to_string())),
            },
            Body::MemUnreserve(body) => self.held.unreserve(body.address),
            Body::MemFree(body) => self.free(body.address),
            Body::MemFreeAsync(body) => self.free(body.address),
            Body::MemInfo(_) => {
                let (free, total) = self.held.info();
                self.answer(work, SUCCESS, MemInfoReply { free, total }.as_bytes());
            }
            // Images are sent as to a GPU, without digests, and dropped.
            Body::ModuleOpen(_) => {
                self.answer(work, SUCCESS, ModuleOpenReply { known: 0, reserved: 0 }.as_bytes());
            }
            Body::FunctionGet(_) => self.answer(work, SUCCESS, self.function().as_bytes()),
            Body::Occupancy(body) => {
                let blocks = self.occupancy(body.block_threads);
                self.answer(work, SUCCESS, OccupancyReply { blocks, reserved: 0 }.as_bytes());
            }
            // Variables are counted until the session ends, because modules are not distinguished.
            Body::GlobalGet(_) => match self.held.allocate(GLOBAL_BYTES) {
                Some(address) => {
                    self.answer(work, SUCCESS, GlobalReply { address, bytes: GLOBAL_BYTES }.as_bytes());
                }
                None => self.answer(work, OUT_OF_MEMORY, &[]),
            },
            Body::StreamHold(body) => {
                if let Some((context, _)) = &self.timed {
                    context.hold(body.hold, body.mark);
                }
            }
            Body::StreamRelease(body) => {
                if let Some((context, _)) = &self.timed {
                    context.release(body.hold);
                }
            }
            // All other messages are not answered, or answered without data.
            _ => self.answer(work, SUCCESS, &[]),
        }
        Ok(())
    }

    fn join(&mut self, _stream: u32) -> Result<(), SessionError> {
        Ok(())
    }

    fn batch(&self) -> u32 {
        BATCH
    }

    fn retire(&mut self, memory: RetiredMemory) {
        match &self.timed {
            Some((context, _)) => context.retire(memory),
            None => drop(memory),
        }
    }
}
