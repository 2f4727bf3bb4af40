//! The runner of a session: does its tasks one at a time, on whichever thread has them. It owns the session's
//! memory and its sticky error.

mod copy;
mod error;
mod launch;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use vgpu_arena::View;
use vgpu_device::{LateError, SessionHost, Share, SharedSlice, Why};
use vgpu_ptx::Interrupt;
use vgpu_wire::body::copy::CopyDevice;

use crate::device::Device;
use crate::gemm::{self, GemmError};
use crate::heap::OwnHeap;
use crate::memory::{Allocation, Memory, VirtualError};
use crate::profile::{Recorder, Work};
use crate::task::{Answer, Source, Task};

use copy::{CopyError, copy, copy_rows, fill};
use error::TaskError;

/// Does the tasks of one session.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) host: SessionHost,
    pub(crate) device: Arc<Device>,
    pub(crate) memory: Memory,
    /// The sticky error, or 0.
    dead: AtomicU32,
    /// Stops what runs when the session is ended.
    pub(crate) interrupt: Interrupt,
    /// The memory in which the blocks of cooperative launches meet, once there was such a launch.
    pub(crate) workspace: Mutex<Option<Allocation>>,
    /// Counts what the session's work is.
    pub(crate) recorder: Arc<Recorder>,
    /// The memory that kernels allocate themselves, once there was a kernel that does.
    heap: Mutex<Option<OwnHeap>>,
}

impl Runner {
    /// A runner without memory or error.
    pub(crate) fn new(host: SessionHost, device: Arc<Device>) -> Self {
        let memory = Memory::new(
            Share::new(Arc::clone(&device.account), Arc::clone(host.charges())),
            device.addresses.range().base,
        );
        let interrupt = Interrupt::new(host.stop_flag(), None);
        let (dead, workspace, heap) = (AtomicU32::new(0), Mutex::default(), Mutex::default());
        let recorder = device.recorders.start(host.charges());
        Self { host, device, memory, dead, interrupt, workspace, recorder, heap }
    }

    /// The sticky error, if there is one.
    pub(crate) fn dead(&self) -> Option<u32> {
        Some(self.dead.load(Ordering::Acquire)).filter(|&code| code != 0)
    }

    /// Stops what runs, and all later work.
    pub(crate) fn stop(&self) {
        self.interrupt.stop();
    }

    /// Whether the session is ending.
    pub(crate) fn stopping(&self) -> bool {
        self.interrupt.stopped()
    }

    /// The interrupt of work that starts now: the end of the session, or the time limit.
    pub(crate) fn limited(&self) -> Interrupt {
        self.interrupt.limited(self.device.options.kernel_timeout)
    }

    /// Reports an error to the guest.
    pub(crate) fn fail(&self, message: u64, code: u32, sticky: bool) {
        self.fail_because(message, code, sticky, &Why::default());
    }

    /// The same with the reason.
    fn fail_because(&self, message: u64, code: u32, sticky: bool, why: &Why<'_>) {
        if sticky {
            // The first sticky error stays.
            let _ = self.dead.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
        }
        self.host.fail_because(LateError { code, sticky, message }, why);
    }

    /// Reports a task that ended because of a bug of this program.
    pub(crate) fn lost(&self, message: u64) {
        const UNKNOWN: u32 = 999;
        self.fail(message, UNKNOWN, true);
    }

    /// Does a task. After a sticky error nothing is carried out any more, but marks are stored and memory is
    /// freed, so that nobody waits in vain.
    pub(crate) fn run(&self, task: Task<'_>, number: u64) {
        let (mark, outcome) = match task {
            Task::CopyIn { destination, source, read } => (
                Some(read),
                self.attempt(Some(Work::CopyIn), |memory| self.copy_in(memory, destination, &source)),
            ),
            Task::CopyOut { source, destination, written } => {
                let outcome = self.attempt(Some(Work::CopyOut), |memory| {
                    let from = memory.readable(source, destination.bytes()).map_err(CopyError::from)?;
                    self.copy(&from, &self.host.slice(&destination))
                });
                (Some(written), outcome)
            }
            Task::CopyDevice(body) => {
                (None, self.attempt(Some(Work::CopyDevice), |memory| self.copy_device(memory, &body)))
            }
            Task::CopyRows(body) => {
                let copy = |memory: &View| Ok(copy_rows(memory, &body, &self.limited())?);
                (None, self.attempt(Some(Work::CopyRows), copy))
            }
            Task::Fill(body) => {
                (None, self.attempt(Some(Work::Fill), |memory| Ok(fill(memory, &body, &self.limited())?)))
            }
            Task::Launch(function, body, params) => {
                (None, self.attempt(None, |memory| self.launch(memory, &function, &body, &params)))
            }
            Task::Multiply(body) => {
                (None, self.compute(Work::Product, |memory, run| gemm::multiply(memory, &body, run)))
            }
            Task::Solve(body) => {
                (None, self.compute(Work::Solve, |memory, run| gemm::solve(memory, &body, run)))
            }
            Task::Matmul(body) => {
                (None, self.compute(Work::Matmul, |memory, run| gemm::matmul(memory, &body, run)))
            }
            Task::Vector(body) => {
                (None, self.compute(Work::Vector, |memory, run| gemm::vector(memory, &body, run)))
            }
            Task::Mark(mark) | Task::Hold(_, mark) => (Some(mark), Ok(())),
            Task::Free(allocations, freeing) => {
                drop(allocations);
                drop(freeing);
                self.report();
                (None, Ok(()))
            }
            Task::Map(_) | Task::Unmap(_) | Task::SetAccess(_) | Task::Unreserve(_) | Task::Release(_) => {
                let outcome = self.manage(&task);
                self.report();
                (None, outcome)
            }
            Task::Retire(memory) => {
                drop(memory);
                (None, Ok(()))
            }
            Task::Answer(Answer(answer)) => {
                answer();
                (None, Ok(()))
            }
        };
        if let Err(error) = outcome
            && let Some((code, sticky)) = error.code()
        {
            self.host.log(0, || tracing::warn!(session = self.host.session(), number, code, "{error}"));
            let reason = error.reason();
            let why = Why { kernel: error.kernel(), reason: &reason, address: error.address() };
            self.fail_because(number, code, sticky, &why);
        }
        // The mark follows the error: whoever sees that the work is done sees how it ended.
        if let Some(mark) = mark {
            self.host.signal(&mark);
        }
    }

    /// Calls `act` on the memory, unless the session has a sticky error or is ending. Launches count
    /// themselves, because only they know the kernel; other work is counted as `work`.
    fn attempt(
        &self,
        work: Option<Work>,
        act: impl FnOnce(&View) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        if self.dead().is_some() || self.stopping() {
            return Ok(());
        }
        let start = Instant::now();
        let done = act(&self.memory.view()?);
        let time = start.elapsed();
        self.host.worked(time);
        if let Some(work) = work {
            self.recorder.worked(work, time);
        }
        done
    }

    fn copy(&self, from: &SharedSlice<'_>, to: &SharedSlice<'_>) -> Result<(), TaskError> {
        Ok(copy(from, to, &self.limited()).map_err(CopyError::from)?)
    }

    fn copy_in(&self, memory: &View, destination: u64, source: &Source<'_>) -> Result<(), TaskError> {
        match source {
            Source::Inline(bytes) => {
                let bytes: &Cow<'_, [u8]> = bytes;
                let to = memory.writable(destination, bytes.len() as u64).map_err(CopyError::from)?;
                to.copy_from(bytes);
                Ok(())
            }
            Source::Window(piece) => {
                let to = memory.writable(destination, piece.bytes()).map_err(CopyError::from)?;
                self.copy(&self.host.slice(piece), &to)
            }
        }
    }

    fn copy_device(&self, memory: &View, body: &CopyDevice) -> Result<(), TaskError> {
        let from = memory.readable(body.source, body.bytes).map_err(CopyError::from)?;
        let to = memory.writable(body.destination, body.bytes).map_err(CopyError::from)?;
        self.copy(&from, &to)
    }

    /// Calls `act` on the memory with the device's threads, for what cuBLAS does.
    fn compute(
        &self,
        work: Work,
        act: impl FnOnce(&View, &gemm::Run<'_>) -> Result<(), GemmError>,
    ) -> Result<(), TaskError> {
        self.attempt(Some(work), |memory| {
            let interrupt = self.limited();
            let run = gemm::Run { threads: self.device.options.threads, check: &|| interrupt.check() };
            Ok(act(memory, &run)?)
        })
    }

    /// Does a task of virtual memory management. It is done after a sticky error too, because memory goes
    /// back.
    fn manage(&self, task: &Task<'_>) -> Result<(), TaskError> {
        let done: Result<(), VirtualError> =
            self.memory.with_virtual(|virtual_memory, region, share| match task {
                Task::Map(body) => virtual_memory.map(region, share, body),
                Task::Unmap(body) => virtual_memory.unmap(region, body),
                Task::SetAccess(body) => virtual_memory.set_access(region, body),
                Task::Unreserve(body) => virtual_memory.unreserve(region, body),
                Task::Release(handle) => virtual_memory.release(*handle),
                _ => Ok(()),
            });
        Ok(done?)
    }

    /// Updates the status report's figures of memory.
    pub(crate) fn report(&self) {
        let gauges = self.host.gauges();
        gauges.allocated.store(self.memory.charged(), Ordering::Relaxed);
        gauges.allocations.store(self.memory.count(), Ordering::Relaxed);
        self.host.memory_changed();
    }
}
