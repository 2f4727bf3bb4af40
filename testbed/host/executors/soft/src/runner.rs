//! Does the tasks of a session, one at a time, on whichever thread has them; owns the session's memory and its error.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use vgpu_arena::View;
use vgpu_device::{LateError, SessionHost, SharedSlice};
use vgpu_ptx::{Halt, Interrupt};
use vgpu_wire::body::copy::CopyDevice;

use crate::account::{OutOfMemory, Share};
use crate::copy::{CopyError, copy, copy_rows, fill};
use crate::device::Device;
use crate::gemm::{self, GemmError};
use crate::memory::{Allocation, Memory};
use crate::status;
use crate::task::{Answer, Source, Task};
use crate::virtual_memory::VirtualError;

/// What a task came to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    /// A copy or a fill.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// A product or a solve.
    #[error(transparent)]
    Gemm(#[from] GemmError),
    /// Virtual memory management.
    #[error(transparent)]
    Virtual(#[from] VirtualError),
    /// A kernel.
    #[error("kernel {name}: {fault}")]
    Kernel {
        /// Its name.
        name: String,
        /// What happened.
        fault: vgpu_simt::Fault,
    },
    /// There is no memory for what the session itself needs.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

impl TaskError {
    /// The `CUresult`, and whether it stays; `None` if it is no error of the program's.
    fn code(&self) -> Option<(u32, bool)> {
        Some(match self {
            Self::Copy(CopyError::Illegal(_)) => (status::ILLEGAL_ADDRESS, true),
            Self::Copy(CopyError::Halted(Halt::TimedOut)) => (status::LAUNCH_TIMEOUT, true),
            Self::Copy(CopyError::Shape) | Self::Virtual(VirtualError::Invalid(_)) => {
                (status::INVALID_VALUE, false)
            }
            Self::Virtual(VirtualError::Arena(error)) => match error {
                vgpu_arena::ArenaError::Map { .. } => (status::OUT_OF_MEMORY, false),
                _ => (status::INVALID_VALUE, false),
            },
            Self::OutOfMemory(_) | Self::Virtual(VirtualError::OutOfMemory(_)) => {
                (status::OUT_OF_MEMORY, false)
            }
            Self::Gemm(error) => (error.code()?, error.sticky()),
            Self::Copy(CopyError::Halted(Halt::Stopped))
            | Self::Kernel { fault: vgpu_simt::Fault::Stopped, .. } => return None,
            Self::Kernel {
                fault:
                    fault @ (vgpu_simt::Fault::BadLaunch(_) | vgpu_simt::Fault::OutOfMemory { begun: false }),
                ..
            } => (fault.code(), false),
            Self::Kernel { fault, .. } => (fault.code(), true),
        })
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) host: SessionHost,
    pub(crate) device: Arc<Device>,
    pub(crate) memory: Memory,
    /// The sticky error; 0: none.
    dead: AtomicU32,
    /// Stopped when the session is being ended.
    pub(crate) interrupt: Interrupt,
    /// What cooperative launches meet in, once there was one.
    pub(crate) workspace: Mutex<Option<Allocation>>,
}

impl Runner {
    pub(crate) fn new(host: SessionHost, device: Arc<Device>) -> Self {
        let memory = Memory::new(
            Share::new(Arc::clone(&device.account), Arc::clone(host.charges())),
            device.address_base,
        );
        let interrupt = Interrupt::new(host.stop_flag(), None);
        let (dead, workspace) = (AtomicU32::new(0), Mutex::default());
        Self { host, device, memory, dead, interrupt, workspace }
    }

    /// The sticky error.
    pub(crate) fn dead(&self) -> Option<u32> {
        Some(self.dead.load(Ordering::Acquire)).filter(|&code| code != 0)
    }

    /// Ends what runs, soon.
    pub(crate) fn stop(&self) {
        self.interrupt.stop();
    }

    /// Whether the session is being ended.
    pub(crate) fn stopping(&self) -> bool {
        self.interrupt.stopped()
    }

    /// What ends a piece of work that begins now: the session's end, or the limit of its time.
    pub(crate) fn limited(&self) -> Interrupt {
        self.interrupt.limited(self.device.options.kernel_timeout)
    }

    /// Tells the guest of an error.
    pub(crate) fn fail(&self, message: u64, code: u32, sticky: bool) {
        if sticky {
            // The first one stays.
            let _ = self.dead.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
        }
        self.host.fail(LateError { code, sticky, message });
    }

    /// A task ended by a bug of this program.
    pub(crate) fn lost(&self, message: u64) {
        const UNKNOWN: u32 = 999;
        self.fail(message, UNKNOWN, true);
    }

    /// Does a task. After a sticky error nothing is carried out any more, but marks are stored and memory is freed, so that
    /// nobody waits in vain.
    pub(crate) fn run(&self, task: Task<'_>, number: u64) {
        let (mark, outcome) = match task {
            Task::CopyIn { destination, source, read } => {
                (Some(read), self.attempt(|memory| self.copy_in(memory, destination, &source)))
            }
            Task::CopyOut { source, destination, written } => {
                let outcome = self.attempt(|memory| {
                    let from = memory.readable(source, destination.bytes()).map_err(CopyError::from)?;
                    self.copy(&from, &self.host.slice(&destination))
                });
                (Some(written), outcome)
            }
            Task::CopyDevice(body) => (None, self.attempt(|memory| self.copy_device(memory, &body))),
            Task::CopyRows(body) => {
                (None, self.attempt(|memory| Ok(copy_rows(memory, &body, &self.limited())?)))
            }
            Task::Fill(body) => (None, self.attempt(|memory| Ok(fill(memory, &body, &self.limited())?))),
            Task::Launch(function, body, params) => {
                (None, self.attempt(|memory| self.launch(memory, &function, &body, &params)))
            }
            Task::Multiply(body) => {
                (None, self.attempt(|memory| self.with_run(|run| gemm::multiply(memory, &body, run))))
            }
            Task::Solve(body) => {
                (None, self.attempt(|memory| self.with_run(|run| gemm::solve(memory, &body, run))))
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
                answer(self);
                (None, Ok(()))
            }
        };
        if let Err(error) = outcome
            && let Some((code, sticky)) = error.code()
        {
            self.host.log(0, || tracing::warn!(session = self.host.session(), number, code, "{error}"));
            self.fail(number, code, sticky);
        }
        // After the error: who sees that the work is done sees how it ended.
        if let Some(mark) = mark {
            self.host.signal(&mark);
        }
    }

    /// Acts on memory, unless the session has a sticky error.
    fn attempt(&self, act: impl FnOnce(&View) -> Result<(), TaskError>) -> Result<(), TaskError> {
        if self.dead().is_some() || self.stopping() {
            return Ok(());
        }
        act(&self.memory.view()?)
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

    /// Makes a product on the device's threads.
    fn with_run(&self, act: impl FnOnce(&gemm::Run<'_>) -> Result<(), GemmError>) -> Result<(), TaskError> {
        let interrupt = self.limited();
        Ok(act(&gemm::Run { threads: self.device.options.threads, check: &|| interrupt.check() })?)
    }

    /// Virtual memory management. Done after a sticky error, too: memory goes back.
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

    /// Brings the status report up to date as far as memory goes.
    pub(crate) fn report(&self) {
        let gauges = self.host.gauges();
        gauges.allocated.store(self.memory.charged(), Ordering::Relaxed);
        gauges.allocations.store(self.memory.count(), Ordering::Relaxed);
        self.host.memory_changed();
    }
}
