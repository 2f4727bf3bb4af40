//! The null executor accepts every message, does nothing and answers with success. It serves to measure the
//! transport and the device's checks.
//!
//! Answers are plausible, so that programs continue: addresses come from an allocator that knows the size of
//! the device's memory, and a kernel has the limits of its compute capability. Values that cannot be known
//! are 0, such as a kernel's [`FunctionReply::param_bytes`]. Physical memory of virtual memory management is
//! not counted. Copies from the device leave the destination unchanged.

#![forbid(unsafe_code)]

mod memory;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vgpu_device::{Executor, ExecutorError, GpuConfig, GpuError, Session, SessionError, SessionHost, Work};
use vgpu_wire::area::reply_text;
use vgpu_wire::body::memory::{Address, MemInfoReply};
use vgpu_wire::body::module::{FunctionReply, GlobalReply, ModuleOpenReply, OccupancyReply};
use vgpu_wire::facts::{DeviceFacts, exec};
use vgpu_wire::{Body, Mark};
use zerocopy::IntoBytes;

use memory::{NullMemory, SessionMemory};

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

/// Optional features that the executor announces. It cannot link, because it cannot produce an image.
const ABILITIES: u32 = exec::KERNELS | exec::PTX | exec::CUBIN | exec::EPILOGUES | exec::VECTORS;

/// The null executor: a GPU whose calls succeed and have no effect.
#[derive(Debug)]
pub struct Null {
    facts: Arc<DeviceFacts>,
    memory: Arc<NullMemory>,
}

impl Null {
    /// Makes a GPU with these facts. It claims to run kernels.
    pub fn new(config: &GpuConfig) -> Result<Self, GpuError> {
        let facts = config.facts(ABILITIES)?;
        Ok(Self {
            facts: Arc::new(facts),
            memory: Arc::new(NullMemory::new(config.memory_bytes, config.addresses.clone())),
        })
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
        Ok(Box::new(NullSession { host, facts: Arc::clone(&self.facts), held }))
    }
}

#[derive(Debug)]
struct NullSession {
    host: SessionHost,
    facts: Arc<DeviceFacts>,
    held: SessionMemory,
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

    fn signal(&self, mark: &Mark) {
        self.host.signal(mark);
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
        match &work.message.body {
            Body::Launch(_) => {}
            Body::CopyIn(body) => self.signal(&body.read),
            Body::CopyOut(body) => self.signal(&body.written),
            Body::Signal(body) => self.signal(&body.mark),
            Body::EventRecord(body) => self.signal(&body.mark),
            Body::MemAlloc(body) => self.allocate(work, body.bytes),
            Body::MemAllocAsync(body) => self.allocate(work, body.bytes),
            Body::MemReserve(body) => match self.held.reserve(body.bytes, body.alignment) {
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
            // Every image counts as cached, so that none is sent.
            Body::ModuleOpen(_) => {
                self.answer(work, SUCCESS, ModuleOpenReply { known: 1, reserved: 0 }.as_bytes());
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
}
