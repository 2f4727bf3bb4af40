//! The executor of the device's process: it carries nothing out itself.

use std::ffi::{CString, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User, getgrouplist};
use vgpu_device::{Addresses, Executor, ExecutorError, Session, SessionHost, WorkerCount};
use vgpu_wire::facts::DeviceFacts;

use crate::device::accounts::Accounts;
use crate::device::common::Common;
use crate::device::session::WorkerSession;
use crate::device::spawn::Program;
use crate::shared::setup::Identity;

/// The user that workers are if nobody says otherwise and root starts them.
const USUAL_USER: &str = "vgpu-worker";

/// What an executor of workers is made of.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// The word for the executor in the workers: "soft", "null", "cuda".
    pub name: &'static str,
    /// What the device says of itself; memory is what all sessions may have together.
    pub facts: DeviceFacts,
    /// Unit in which the executor in the workers takes device memory, in bytes.
    pub memory_unit: u64,
    /// The device's addresses, which this process keeps from other device processes for as long as the
    /// executor lives: workers know their number alone.
    pub addresses: Addresses,
    /// The program, which calls [`main`](crate::main) when it is given `arguments`. Usually `/proc/self/exe`:
    /// the program that runs, whatever has become of its file.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// What the program makes the executor of, in each worker. As JSON it has less than 32 KiB.
    pub executor: serde_json::Value,
    /// The user that workers are, where root starts them. `None`: `vgpu-worker` if there is such a user; else
    /// they stay root, and a warning says so.
    pub user: Option<String>,
    /// Workers may connect to UNIX sockets of this host, which they otherwise cannot: for a stand-in of the
    /// driver that finds its device behind one.
    pub connects: bool,
    /// A directory that NVIDIA's driver keeps the code in that it compiles for workers, made if it is not
    /// there, and the workers' user's alone. It must be this device's: what is in it is run. `None`: nothing
    /// is kept.
    pub compiled: Option<PathBuf>,
}

/// Why there is no executor.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// There is no such user.
    #[error("run workers as user {0}: there is no such user")]
    NoUser(String),
    /// The system cannot say.
    #[error("look up user {user}")]
    User {
        /// The user.
        user: String,
        /// What it said.
        #[source]
        source: Errno,
    },
    /// There is no directory for compiled code.
    #[error("make {path}, a directory for compiled code")]
    Compiled {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Another user than the one that runs this needs root.
    #[error("run workers as user {0}: only root can do that")]
    NotRoot(String),
}

/// Each session in a worker process of its own.
#[derive(Debug)]
pub struct WorkerExecutor {
    name: &'static str,
    facts: Box<DeviceFacts>,
    common: Arc<Common>,
    /// Keeps other device processes from the same addresses.
    _addresses: Addresses,
}

impl WorkerExecutor {
    /// No worker is started before a session needs one. There are at most as many as sessions.
    pub fn new(config: WorkerConfig) -> Result<Self, WorkerError> {
        let identity = identity(config.user)?;
        if let Some(path) = &config.compiled {
            make(path, identity.as_ref())
                .map_err(|source| WorkerError::Compiled { path: path.clone(), source })?;
        }
        let accounts = Arc::new(Accounts::new(config.facts.total_bytes, config.memory_unit));
        let program = Program {
            path: config.program,
            arguments: config.arguments,
            executor: config.executor,
            identity,
            connects: config.connects,
            compiled: config.compiled,
        };
        Ok(Self {
            name: config.name,
            facts: Box::new(config.facts),
            common: Arc::new(Common { program, accounts }),
            _addresses: config.addresses,
        })
    }
}

/// Makes a directory that is the workers' user's alone. Its parent is this process's.
fn make(path: &Path, identity: Option<&Identity>) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let user = identity.map_or_else(|| Uid::effective().as_raw(), |identity| identity.user);
    lchown(path, Some(user), identity.map(|identity| identity.group))
}

fn identity(user: Option<String>) -> Result<Option<Identity>, WorkerError> {
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
            Ok(Some(Identity { user: user.uid.as_raw(), group: user.gid.as_raw(), groups }))
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
        self.common.accounts.used()
    }

    fn charged_elsewhere(&self) -> u64 {
        self.common.accounts.charged()
    }

    fn workers(&self) -> Option<WorkerCount> {
        Some(self.common.accounts.workers())
    }

    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError> {
        Ok(Box::new(WorkerSession::new(Arc::clone(&self.common), host)))
    }
}
