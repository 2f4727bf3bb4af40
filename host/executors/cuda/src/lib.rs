//! The cuda executor: a real GPU, through the host's libcuda, which is loaded when the executor is created.
//!
//! ```text
//!  message ─► session ──► gpu: context, streams, memory, copies, code ──► driver: libcuda
//!                                 │
//!                                 └► completions, in a thread of their own
//! ```
//! A `session` knows the guest's handles and turns messages into calls. Its state on the `gpu` is created
//! when it is first needed, so that guests that only read the facts cost no context. The `driver` is the only
//! unsafe module. Each layer knows only those below it.
//!
//! **Asynchrony is CUDA's.** A stream of the guest is a stream of the driver, and stream 0 is the legacy
//! default stream. One thread loads modules and completes links, and another polls completions, so that the
//! ring is read and marks are stored while code is compiled. The thread that reads a session's ring waits
//! only where CUDA's own calls do, or where order requires it: for a full queue of the driver, while a graph
//! is instantiated, for a staging buffer when all are in use, to map addresses whose former mapping earlier
//! work still uses, and for a module or link that a message names while it is being made. Nobody else waits
//! with it: marks of earlier work are stored, and other sessions have other threads and, with workers, other
//! processes. Registers, attaches and the end of a device wait for no session's thread, and a worker that
//! does not stop is killed. Waits in this process check whether their session ends, except for calls of the
//! driver, which cannot be interrupted.
//!
//! **While the guest holds a stream**, some calls of the driver wait for the release: those that load or
//! unload a module, end a registration or free pinned memory. Beside one of these, a launch, a copy or an
//! event waits, too (driver 580.159.04, `testbed/bench/drivers`). So the stream waits for a word that the
//! guest stores, and a release needs no thread of this process.
//!
//! **One session of a process has memory.** All sessions of a device have the same addresses, and the driver
//! gives a process a range once. Without worker processes, a second session that needs a context is refused
//! with `CUDA_ERROR_DEVICE_UNAVAILABLE` (46) and the reason.
//!
//! **A context isolates nothing.** Kernels can access everything that their context's process has on the GPU,
//! and on some systems all memory of the process. Sessions of guests that must not trust each other belong in
//! processes of their own, which is not the task of this crate. This crate ensures that copies and fills stay
//! within what their session has allocated.
//!
//! **Faults** belong to one session: its context is lost, nothing more of it is carried out, and its marks
//! are stored so that nobody waits forever.
//!
//! Unsupported requests are answered with `CUDA_ERROR_NOT_SUPPORTED` and logged once: managed memory, and
//! products and graphs of them where the host has no cuBLAS.

#![deny(unsafe_code)]

mod cost;
mod driver;
mod facts;
mod gpu;
mod offers;
mod options;
mod session;
mod shared_gpu;

use std::sync::Arc;

use vgpu_device::{Executor, ExecutorError, Session, SessionHost};
use vgpu_wire::facts::DeviceFacts;

use driver::device::DriverDevice;
use driver::library::DriverLibrary;
use session::CudaSession;
use shared_gpu::SharedGpu;

pub use cost::{ContextProbe, GpuIdentity, HandleError};
pub use driver::blas::library::{FoundBlas, cublas_files};
pub use driver::error::{DriverError, LoadError};
pub use driver::under_lock::{LockObserver, observe_calls_under_locks};
pub use offers::{RangeOffer, offered_ranges};
pub use options::{CONTEXT_BYTES, CudaOptions};

/// The executor of a GPU of this host.
#[derive(Debug)]
pub struct Cuda {
    facts: Box<DeviceFacts>,
    shared: Arc<SharedGpu>,
}

impl Cuda {
    /// Loads the driver and reads the GPU's facts. Creates no context. Fails if the driver cannot be loaded
    /// or does not have the GPU, or if the GPU lacks what guests need.
    pub fn new(options: &CudaOptions) -> Result<Self, LoadError> {
        let driver = DriverLibrary::load(options.libcuda.as_deref())?;
        let device = DriverDevice::find(&driver, options.uuid)?;
        let facts = facts::facts(&device, options)?;
        let shared = Arc::new(SharedGpu::new(device, options, &facts)?);
        Ok(Self { facts, shared })
    }

    /// Returns the files of cuBLAS. Searches for them on the first call.
    #[must_use]
    pub fn found_blas(&self) -> FoundBlas {
        FoundBlas(self.shared.blas_files().to_vec())
    }

    /// Returns the number of contexts that were created, for all sessions so far.
    #[must_use]
    pub fn contexts(&self) -> u64 {
        self.shared.contexts()
    }

    /// Returns the number of graphs that were instantiated, for all sessions so far. An updated graph is
    /// instantiated again only if the driver refuses the update.
    #[must_use]
    pub fn instantiations(&self) -> u64 {
        self.shared.instantiations()
    }
}

impl Executor for Cuda {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn facts(&self) -> DeviceFacts {
        let mut facts = *self.facts;
        facts.abilities |= self.shared.extensions();
        facts
    }

    fn allocated(&self) -> u64 {
        self.shared.account.used()
    }

    fn memory_unit(&self) -> u64 {
        self.shared.granule
    }

    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError> {
        Ok(Box::new(CudaSession::new(host, Arc::clone(&self.shared))))
    }
}
