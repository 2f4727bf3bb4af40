//! The cuda executor: a real GPU, through the host's libcuda, which is loaded when the executor is made.
//!
//! ```text
//!  message ─► session ──► gpu: context, streams, memory, copies, code ──► driver: libcuda
//!                                 │
//!                                 └► completions, in a thread of their own
//! ```
//! From the top: a `session` knows the guest's handles and turns messages into calls; its part of the `gpu`
//! is made when it first needs one, so that guests that only look cost no context; the `driver` is the only
//! unsafe module. Each knows those below it alone.
//!
//! **Asynchrony is CUDA's.** A stream of the guest's is a stream of the driver's, and stream 0 is the legacy
//! default stream. Modules are loaded and links completed by a thread of their own, and completions have one,
//! so the ring is read and marks are stored while code is compiled. The thread that reads a session's ring
//! waits only where CUDA's own calls do, or where what comes next cannot go before: for a queue of the
//! driver's that is full, while a graph is instantiated, for a pinned buffer when all of them are in use, to
//! map addresses whose former mapping earlier work still uses, and for a module or a link that a message
//! names while it is made. Nobody else waits with it: marks of earlier work are stored, other sessions have
//! other threads and, with workers, other processes; registers, attaches and a device's end wait for no
//! session's thread; and a worker that does not stop is killed. What waits in this process looks whether its
//! session ends, but for calls of the driver, which nothing interrupts.
//!
//! **While the guest holds a stream** some calls of the driver wait until it lets go: those that load or
//! unload a module, end a registration or free pinned memory; and beside one of these a launch, a copy or an
//! event waits, too (driver 580.159.04, `testbed/bench/drivers`). The release is a later message of the same
//! ring. So in a worker process the thread that the device's process talks to lets the stream go, which calls
//! no driver. Without workers such a session may hang.
//!
//! **One session a process has memory.** All sessions of a device have the same addresses, and the driver
//! gives a process a range once. Without worker processes a second session that needs a context is refused it
//! with `CUDA_ERROR_DEVICE_UNAVAILABLE` (46) and the reason.
//!
//! **A context is no wall.** Kernels reach all that their context's process has on the GPU, and on some
//! systems all memory of the process. Sessions of guests that must not trust each other belong into processes
//! of their own, which is not this crate's to see to. What it sees to is that copies and fills stay within
//! what their session has allocated.
//!
//! **Faults** belong to one session: its context is lost, nothing of it is carried out any more, its marks
//! are stored so that nobody waits in vain.
//!
//! Not supported, answered with `CUDA_ERROR_NOT_SUPPORTED`, and said once in the log: managed memory;
//! products and graphs of them where the host has no cuBLAS; streams that wait for the guest, where
//! the GPU's streams cannot wait for words.

#![deny(unsafe_code)]

mod driver;
mod facts;
mod gpu;
mod options;
mod session;
mod shared;

use std::sync::Arc;

use vgpu_device::{Executor, ExecutorError, Session, SessionHost};
use vgpu_wire::facts::DeviceFacts;

use driver::device::Device;
use driver::library::Driver;
use session::CudaSession;
use shared::Shared;

pub use driver::error::{DriverError, LoadError};
pub use options::CudaOptions;

/// A GPU of this host.
#[derive(Debug)]
pub struct Cuda {
    facts: Box<DeviceFacts>,
    shared: Arc<Shared>,
}

impl Cuda {
    /// Loads the driver and looks at the GPU. Makes no context.
    pub fn new(options: &CudaOptions) -> Result<Self, LoadError> {
        let driver = Driver::load(options.libcuda.as_deref())?;
        let device = Device::find(&driver, options.uuid)?;
        let facts = facts::facts(&device, options)?;
        let shared = Arc::new(Shared::new(device, options, &facts)?);
        Ok(Self { facts, shared })
    }

    /// How many contexts were made, of all sessions so far.
    #[must_use]
    pub fn contexts(&self) -> u64 {
        self.shared.contexts()
    }

    /// How many graphs were instantiated, of all sessions so far. A graph that is changed is instantiated anew
    /// only where the driver does not make the change.
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
