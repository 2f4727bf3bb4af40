//! The executor of the device's process. It carries out no message itself: each session's messages go to a
//! worker process.

use std::ffi::{CString, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User, getgrouplist};
use serde::Deserialize as _;
use serde_json::{Value, json};
use vgpu_device::{
    Addresses, Executor, ExecutorError, KeptDescriptors, NotSaved, RestoreError, Session, SessionClaims,
    SessionHost, WorkerCount,
};
use vgpu_wire::facts::DeviceFacts;

use crate::device::context::ExecutorContext;
use crate::device::memory_pool::MemoryPool;
use crate::device::process_watch::ProcessWatch;
use crate::device::saved::{ExecutorState, WorkerSessionState};
use crate::device::session::{WorkerSession, abandon};
use crate::device::spawn::WorkerProgram;
use crate::device::worker_lock::WorkerLock;
use crate::shared::setup::WorkerUser;

/// User of the workers if the configuration names none and root starts them.
const USUAL_USER: &str = "vgpu-worker";

/// Configuration of an executor that runs each session in a worker process.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Name of the executor in the workers: "soft", "null" or "cuda".
    pub name: &'static str,
    /// Facts that the device announces. Their memory size is the limit for all sessions together.
    pub facts: DeviceFacts,
    /// Unit in which the executor in the workers takes device memory, in bytes.
    pub memory_unit: u64,
    /// Device memory that each session's context costs, in bytes. It is charged to the limit of all sessions
    /// together, from before the first message that may need a context until the worker has ended.
    pub context_bytes: u64,
    /// Makes the lock that each worker keeps, by which others see that not all of them have ended.
    pub lock: Option<WorkerLock>,
    /// Is told of each worker, or `None` if nobody needs to know.
    pub watch: Option<ProcessWatch>,
    /// Device addresses of the sessions. This process keeps them from other device processes for as long as
    /// the executor lives. A worker only knows the number of the range.
    pub addresses: Addresses,
    /// Program of a worker, which must call [`main`](crate::main) when it is given `arguments`. It is usually
    /// `/proc/self/exe`, which names the running program even if its file was replaced.
    pub program: PathBuf,
    /// Arguments of a worker's program.
    pub arguments: Vec<OsString>,
    /// Description from which the program makes the executor in each worker. Its JSON text must be shorter
    /// than 32 KiB.
    pub executor: serde_json::Value,
    /// User of the workers if root starts them. `None` selects `vgpu-worker` if that user exists; otherwise
    /// workers stay root, and a warning is logged.
    pub user: Option<String>,
    /// Whether workers may connect to UNIX sockets of this host. Only a stand-in of the driver needs that, to
    /// find its device behind a socket.
    pub connects: bool,
    /// Whether workers name each system call that they are refused on standard error, for the first start
    /// with a new driver. A thread that blocks SIGSYS ends its worker by a refused call then.
    pub explains: bool,
    /// Directory in which NVIDIA's driver caches the code that it compiles. It is created if it is missing
    /// and belongs to the workers' user. Only one device may use it, because workers execute its content.
    /// `None` disables the cache.
    pub compiled: Option<PathBuf>,
}

/// Reason for which an executor of workers cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The configured user does not exist.
    #[error("run workers as user {0}: there is no such user")]
    NoUser(String),
    /// The user database cannot be read.
    #[error("look up user {user}")]
    User {
        /// Name of the configured user, or `vgpu-worker` if none is configured.
        user: String,
        /// Error of the system.
        #[source]
        source: Errno,
    },
    /// The directory for compiled code cannot be created.
    #[error("make {path}, a directory for compiled code")]
    Compiled {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// Only root can run workers as another user.
    #[error("run workers as user {0}: only root can do that")]
    NotRoot(String),
}

/// An executor that runs each session in a worker process of its own.
#[derive(Debug)]
pub struct WorkerExecutor {
    name: &'static str,
    facts: Box<DeviceFacts>,
    context: Arc<ExecutorContext>,
    /// Keeps the addresses reserved against other device processes.
    _addresses: Addresses,
}

impl WorkerExecutor {
    /// Creates the executor. No worker starts before a session needs one, and there are at most as many
    /// workers as sessions.
    pub fn new(config: WorkerConfig) -> Result<Self, WorkerError> {
        let identity = identity(config.user)?;
        if let Some(path) = &config.compiled {
            make(path, identity.as_ref())
                .map_err(|source| WorkerError::Compiled { path: path.clone(), source })?;
        }
        let pool = MemoryPool::new(config.facts.total_bytes, config.memory_unit, config.context_bytes);
        let program = WorkerProgram {
            path: config.program,
            arguments: config.arguments,
            executor: config.executor,
            identity,
            connects: config.connects,
            explains: config.explains,
            compiled: config.compiled,
            lock: config.lock,
            watch: config.watch,
        };
        Ok(Self {
            name: config.name,
            facts: Box::new(config.facts),
            context: Arc::new(ExecutorContext { program, pool: Arc::new(pool) }),
            _addresses: config.addresses,
        })
    }
}

/// Creates a directory that belongs to the workers' user. This process must own its parent.
fn make(path: &Path, identity: Option<&WorkerUser>) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let user = identity.map_or_else(|| Uid::effective().as_raw(), |identity| identity.user);
    lchown(path, Some(user), identity.map(|identity| identity.group))
}

fn identity(user: Option<String>) -> Result<Option<WorkerUser>, WorkerError> {
    let (asked, name) = (user.is_some(), user.unwrap_or_else(|| USUAL_USER.to_owned()));
    if !Uid::effective().is_root() {
        return if asked { Err(WorkerError::NotRoot(name)) } else { Ok(None) };
    }
    match User::from_name(&name) {
        Ok(Some(user)) => {
            let groups = CString::new(name.clone()).map_err(|_| Errno::EINVAL);
            let groups = groups.and_then(|name| getgrouplist(&name, user.gid));
            let groups = groups.map_err(|source| WorkerError::User { user: name, source })?;
            let groups = groups.into_iter().map(Gid::as_raw).collect();
            Ok(Some(WorkerUser { user: user.uid.as_raw(), group: user.gid.as_raw(), groups }))
        }
        Ok(None) if asked => Err(WorkerError::NoUser(name)),
        Ok(None) => {
            tracing::warn!("worker processes run as root: there is no user {name}");
            Ok(None)
        }
        Err(source) => Err(WorkerError::User { user: name, source }),
    }
}

impl Executor for WorkerExecutor {
    fn name(&self) -> &'static str {
        self.name
    }

    fn facts(&self) -> DeviceFacts {
        *self.facts
    }

    fn allocated(&self) -> u64 {
        self.context.pool.used()
    }

    fn context_bytes(&self) -> u64 {
        self.context.pool.context_bytes()
    }

    fn charged_in_workers(&self) -> u64 {
        self.context.pool.charged()
    }

    fn workers(&self) -> Option<WorkerCount> {
        Some(self.context.pool.workers())
    }

    fn set_pausing(&self, pausing: bool) {
        self.context.pool.set_pausing(pausing);
    }

    fn save(&self) -> Result<Value, NotSaved> {
        Ok(json!(self.context.pool.save()))
    }

    fn check(&self, state: &Value) -> Result<(), RestoreError> {
        self.context.pool.check(&ExecutorState::deserialize(state)?)
    }

    fn restore(&self, state: &Value) -> Result<(), RestoreError> {
        self.check(state)?;
        self.context.pool.restore(&ExecutorState::deserialize(state)?);
        Ok(())
    }

    fn check_session(&self, number: u64, state: &Value) -> Result<SessionClaims, RestoreError> {
        let state = WorkerSessionState::deserialize(state)?;
        let Some(worker) = state.worker else { return Ok(SessionClaims::default()) };
        worker.check(number)?;
        let retired = worker.retired.into_iter().map(|(_, memory)| memory).collect();
        Ok(SessionClaims { retired, process: Some(worker.pid) })
    }

    fn abandon_session(&self, state: &Value) {
        if let Ok(WorkerSessionState { worker: Some(worker) }) = WorkerSessionState::deserialize(state) {
            abandon(&worker);
        }
    }

    fn restore_session(
        &self,
        host: SessionHost,
        state: &Value,
        descriptors: &mut KeptDescriptors,
    ) -> Result<Box<dyn Session>, RestoreError> {
        let state = WorkerSessionState::deserialize(state)?;
        let session = WorkerSession::restore(Arc::clone(&self.context), host, &state, descriptors)?;
        Ok(Box::new(session))
    }

    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError> {
        Ok(Box::new(WorkerSession::new(Arc::clone(&self.context), host)))
    }
}
