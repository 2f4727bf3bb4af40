//! The runner of a session: carries out its tasks one at a time, on the thread that calls it. It owns the
//! session's memory and its sticky error.

mod copy;
mod error;
mod launch;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use vgpu_arena::View;
use vgpu_device::{FailureReason, LateError, Quota, SessionHost, SharedSlice};
use vgpu_ptx::Interrupt;
use vgpu_wire::body::copy::CopyDevice;

use crate::device::SoftDevice;
use crate::gemm::{self, GemmError};
use crate::heap::OwnHeap;
use crate::memory::{Allocation, Memory, VirtualError};
use crate::profile::{Recorder, WorkKind};
use crate::task::{CopySource, DeferredReply, Task};

use copy::{CopyError, copy, copy_rows, fill};
use error::TaskError;

/// Carries out the tasks of one session.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) host: SessionHost,
    pub(crate) device: Arc<SoftDevice>,
    pub(crate) memory: Memory,
    /// The sticky error as a `CUresult`, or 0 if there is none.
    dead: AtomicU32,
    /// Stops running work when the session is ended.
    pub(crate) interrupt: Interrupt,
    /// Memory by which the blocks of cooperative launches synchronize, allocated for the first such launch.
    pub(crate) workspace: Mutex<Option<Allocation>>,
    /// Counts the session's work.
    pub(crate) recorder: Arc<Recorder>,
    /// Heap that kernels allocate from, created for the first kernel that does.
    heap: Mutex<Option<OwnHeap>>,
}

impl Runner {
    /// Creates a runner without memory and without an error.
    pub(crate) fn new(host: SessionHost, device: Arc<SoftDevice>) -> Self {
        let memory = Memory::new(
            Quota::new(Arc::clone(&device.account), Arc::clone(host.charges())),
            device.addresses.range().base,
        );
        let interrupt = Interrupt::new(host.stop_flag(), None);
        let (dead, workspace, heap) = (AtomicU32::new(0), Mutex::default(), Mutex::default());
        let recorder = device.recorders.start(host.charges());
        Self { host, device, memory, dead, interrupt, workspace, recorder, heap }
    }

    /// Returns the sticky error, if there is one.
    pub(crate) fn dead(&self) -> Option<u32> {
        Some(self.dead.load(Ordering::Acquire)).filter(|&code| code != 0)
    }

    /// Stops running work at its next poll of the interrupt. Later work is dropped.
    pub(crate) fn stop(&self) {
        self.interrupt.stop();
    }

    /// Returns whether the session is ending.
    pub(crate) fn stopping(&self) -> bool {
        self.interrupt.stopped()
    }

    /// Returns the interrupt of work that starts now: the end of the session, or the time limit.
    pub(crate) fn limited(&self) -> Interrupt {
        self.interrupt.limited(self.device.options.kernel_timeout)
    }

    /// Reports an error of message `message` to the guest, without a reason. After a sticky error, later work
    /// is dropped.
    pub(crate) fn fail(&self, message: u64, code: u32, sticky: bool) {
        self.fail_because(message, code, sticky, &FailureReason::default());
    }

    /// Reports an error of message `message` to the guest and to the log of the device, with its reason.
    fn fail_because(&self, message: u64, code: u32, sticky: bool, why: &FailureReason<'_>) {
        if sticky {
            // Only the first sticky error is kept.
            let _ = self.dead.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
        }
        self.host.fail_because(LateError { code, sticky, message }, why);
    }

    /// Reports a task that panicked, which is a bug in this program, as sticky `CUDA_ERROR_UNKNOWN`.
    pub(crate) fn lost(&self, message: u64) {
        const UNKNOWN: u32 = 999;
        self.fail(message, UNKNOWN, true);
    }

    /// Carries out a task. After a sticky error all work is dropped, but marks are still stored and memory is
    /// still freed, so that the guest's waits end.
    pub(crate) fn execute(&self, task: Task<'_>, number: u64) {
        let (mark, outcome) = match task {
            Task::CopyIn { destination, source, read } => (
                Some(read),
                self.attempt(Some(WorkKind::CopyIn), |memory| self.copy_in(memory, destination, &source)),
            ),
            Task::CopyOut { source, destination, written } => {
                let outcome = self.attempt(Some(WorkKind::CopyOut), |memory| {
                    let from = memory.readable(source, destination.bytes()).map_err(CopyError::from)?;
                    self.copy(&from, &self.host.slice(&destination))
                });
                (Some(written), outcome)
            }
            Task::CopyDevice(body) => {
                (None, self.attempt(Some(WorkKind::CopyDevice), |memory| self.copy_device(memory, &body)))
            }
            Task::CopyRows(body) => {
                let copy = |memory: &View| Ok(copy_rows(memory, &body, &self.limited())?);
                (None, self.attempt(Some(WorkKind::CopyRows), copy))
            }
            Task::Fill(body) => {
                (None, self.attempt(Some(WorkKind::Fill), |memory| Ok(fill(memory, &body, &self.limited())?)))
            }
            Task::Launch(function, body, params) => {
                (None, self.attempt(None, |memory| self.launch(memory, &function, &body, &params)))
            }
            Task::Multiply(body) => {
                (None, self.compute(WorkKind::Product, |memory, run| gemm::multiply(memory, &body, run)))
            }
            Task::Solve(body) => {
                (None, self.compute(WorkKind::Solve, |memory, run| gemm::solve(memory, &body, run)))
            }
            Task::Matmul(body) => {
                (None, self.compute(WorkKind::Matmul, |memory, run| gemm::matmul(memory, &body, run)))
            }
            Task::Vector(body) => {
                (None, self.compute(WorkKind::Vector, |memory, run| gemm::vector(memory, &body, run)))
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
            Task::Answer(DeferredReply(answer)) => {
                answer();
                (None, Ok(()))
            }
        };
        if let Err(error) = outcome
            && let Some((code, sticky)) = error.code()
        {
            self.host.log(0, || tracing::warn!(session = self.host.session(), number, code, "{error}"));
            let reason = error.reason();
            let why = FailureReason { kernel: error.kernel(), reason: &reason, address: error.address() };
            self.fail_because(number, code, sticky, &why);
        }
        // The mark is stored after the error: whoever sees the completion also sees the result.
        if let Some(mark) = mark {
            self.host.signal(&mark);
        }
    }

    /// Calls `act` with the memory, unless the session has a sticky error or is ending. The time is counted
    /// as `work`; launches count themselves, because only they know the kernel.
    fn attempt(
        &self,
        work: Option<WorkKind>,
        act: impl FnOnce(&View) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        if self.dead().is_some() || self.stopping() {
            return Ok(());
        }
        let view = self.memory.view()?;
        let start = Instant::now();
        self.host.start_work();
        let done = act(&view);
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

    fn copy_in(&self, memory: &View, destination: u64, source: &CopySource<'_>) -> Result<(), TaskError> {
        match source {
            CopySource::Inline(bytes) => {
                let bytes: &Cow<'_, [u8]> = bytes;
                let to = memory.writable(destination, bytes.len() as u64).map_err(CopyError::from)?;
                to.copy_from(bytes);
                Ok(())
            }
            CopySource::Window(piece) => {
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

    /// Calls `act` with the memory, and with the device's number of threads and the interrupt, for cuBLAS
    /// operations.
    fn compute(
        &self,
        work: WorkKind,
        act: impl FnOnce(&View, &gemm::Workers<'_>) -> Result<(), GemmError>,
    ) -> Result<(), TaskError> {
        self.attempt(Some(work), |memory| {
            let interrupt = self.limited();
            let run = gemm::Workers { threads: self.device.options.threads, check: &|| interrupt.check() };
            Ok(act(memory, &run)?)
        })
    }

    /// Carries out a task of virtual memory management. Does so even after a sticky error, because such tasks
    /// free memory.
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

    /// Updates the session's figures of allocated memory in the status report.
    pub(crate) fn report(&self) {
        let gauges = self.host.gauges();
        gauges.set_allocated(|| self.memory.charged());
        gauges.allocations.store(self.memory.count(), Ordering::Relaxed);
        self.host.memory_changed();
    }
}
