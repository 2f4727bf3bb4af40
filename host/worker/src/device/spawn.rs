//! Starts a worker process. It executes a program instead of only forking, with a socket as the program's
//! standard input.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tracing::Level;
use tracing::level_filters::LevelFilter;
use vgpu_device::{SessionHost, Window};
use vgpu_wire::area;

use crate::device::process_watch::{ProcessWatch, Watched};
use crate::device::worker_lock::WorkerLock;
use crate::shared::packet;
use crate::shared::protocol::PROTOCOL;
use crate::shared::setup::{FileRange, SETUP_MAX, Setup, WorkerUser};

/// Program and options with which an executor's workers are started.
#[derive(Clone, Debug)]
pub(crate) struct WorkerProgram {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) executor: serde_json::Value,
    pub(crate) identity: Option<WorkerUser>,
    pub(crate) connects: bool,
    pub(crate) explains: bool,
    /// Directory of the driver's cache of compiled code, or `None` to disable the cache.
    pub(crate) compiled: Option<PathBuf>,
    /// Makes the lock that a worker keeps, or `None` if there is none.
    pub(crate) lock: Option<WorkerLock>,
    /// Is told of each worker.
    pub(crate) watch: Option<ProcessWatch>,
}

/// A process that was just started.
pub(crate) struct SpawnedWorker {
    pub(crate) pid: u32,
    pub(crate) socket: OwnedFd,
    /// Descriptor of the process. `None` if the system has none: gVisor, and Linux before 5.3.
    pub(crate) pidfd: Option<OwnedFd>,
    /// What is kept until the process is reaped.
    pub(crate) watched: Option<Watched>,
}

/// Starts a worker and sends it the setup of its session.
pub(crate) fn spawn(
    program: &WorkerProgram,
    host: &SessionHost,
    page: &Window,
    ring: &Window,
) -> io::Result<SpawnedWorker> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let log = io::stderr().as_fd().try_clone_to_owned()?;
    let mut command = Command::new(&program.path);
    // The worker's name in a list of processes.
    command.arg0("vgpu-worker").args(&program.arguments);
    // The driver's default directory belongs to a user, whom the workers of several VMs may share.
    match &program.compiled {
        Some(directory) => command.env("CUDA_CACHE_PATH", directory).env_remove("CUDA_CACHE_DISABLE"),
        None => command.env_remove("CUDA_CACHE_PATH").env("CUDA_CACHE_DISABLE", "1"),
    };
    let mut child = command.stdin(theirs).stdout(Stdio::from(log)).spawn()?;
    // Nobody else reaps the process, so its number cannot be reused.
    let pidfd = Pid::from_raw(child.id().cast_signed()).ok_or(Errno::SRCH);
    let pidfd = pidfd.and_then(|pid| match pidfd_open(pid, PidfdFlags::empty()) {
        // Some filters of system calls refuse calls that they do not know with this error.
        Err(Errno::NOSYS | Errno::PERM) => Ok(None),
        opened => opened.map(Some),
    });
    let told = pidfd.map_err(io::Error::from).and_then(|pidfd| {
        let watched = program.watch.as_ref().map(|watch| watch.started(child.id())).transpose()?;
        send_setup(program, host, page, ring, &ours)?;
        Ok((pidfd, watched))
    });
    match told {
        Ok((pidfd, watched)) => Ok(SpawnedWorker { pid: child.id(), socket: ours, pidfd, watched }),
        Err(error) => {
            // The process may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Returns the least severe level that this process logs of a session. Single targets may log more, which a
/// worker's log does not.
fn logged() -> LevelFilter {
    if tracing::enabled!(Level::TRACE) {
        LevelFilter::TRACE
    } else if tracing::enabled!(Level::DEBUG) {
        LevelFilter::DEBUG
    } else if tracing::enabled!(Level::INFO) {
        LevelFilter::INFO
    } else if tracing::enabled!(Level::WARN) {
        LevelFilter::WARN
    } else {
        LevelFilter::ERROR
    }
}

fn send_setup(
    program: &WorkerProgram,
    host: &SessionHost,
    page: &Window,
    ring: &Window,
    socket: &OwnedFd,
) -> io::Result<()> {
    let (window, returns) = (host.window_file(), host.return_file());
    let setup = Setup {
        protocol: PROTOCOL,
        session: host.session(),
        channel: host.channel(),
        process: host.process(),
        wakes: host.wakes(),
        window: FileRange { offset: window.offset, bytes: window.bytes },
        area: FileRange { offset: host.area_offset(), bytes: area::AREA_BYTES },
        returns: returns.map(|part| FileRange { offset: part.offset, bytes: part.bytes }),
        now: host.now(),
        limits: *host.charges().limits(),
        identity: program.identity.clone(),
        lock: program.lock.is_some(),
        connects: program.connects,
        explains: program.explains,
        log: logged().to_string(),
        executor: program.executor.clone(),
    };
    let lock = program.lock.as_ref().map(WorkerLock::open).transpose()?;
    let text = serde_json::to_vec(&setup)?;
    if text.len() > SETUP_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the executor's description is too long"));
    }
    let mut files: Vec<BorrowedFd<'_>> = vec![page.file(), ring.file(), window.file];
    files.extend(returns.map(|part| part.file));
    files.extend(lock.as_ref().map(|lock| lock.as_fd()));
    packet::send(socket, &text, &files, SendFlags::empty())
}
