//! Starts a worker process: exec of a program, never a fork without one, with a socket as its standard input.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tracing::level_filters::LevelFilter;
use vgpu_device::{SessionHost, Window};
use vgpu_wire::area;

use crate::shared::packet;
use crate::shared::setup::{Identity, Place, SETUP_MAX, Setup};

/// What every worker of an executor is started with.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) executor: serde_json::Value,
    pub(crate) identity: Option<Identity>,
    pub(crate) connects: bool,
    /// Where NVIDIA's driver keeps what it compiles; `None`: nowhere.
    pub(crate) compiled: Option<PathBuf>,
}

/// A process that was just started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) child: Child,
    pub(crate) socket: OwnedFd,
    pub(crate) pidfd: OwnedFd,
}

/// Starts a worker and tells it its session.
pub(crate) fn start(
    program: &Program,
    host: &SessionHost,
    board: &Window,
    ring: &Window,
) -> io::Result<Started> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let log = io::stderr().as_fd().try_clone_to_owned()?;
    let mut command = Command::new(&program.path);
    // Its name in a list of processes.
    command.arg0("vgpu-worker").args(&program.arguments);
    // The driver's own places for it are a user's, which several VMs' workers may be.
    match &program.compiled {
        Some(directory) => command.env("CUDA_CACHE_PATH", directory).env_remove("CUDA_CACHE_DISABLE"),
        None => command.env_remove("CUDA_CACHE_PATH").env("CUDA_CACHE_DISABLE", "1"),
    };
    let mut child = command.stdin(theirs).stdout(Stdio::from(log)).spawn()?;
    // Nobody else reaps it, so the number is its own.
    let pidfd = Pid::from_raw(child.id().cast_signed()).ok_or(rustix::io::Errno::SRCH);
    let pidfd = pidfd.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
    let told = pidfd.map_err(io::Error::from).and_then(|pidfd| {
        tell(program, host, board, ring, &ours)?;
        Ok(pidfd)
    });
    match told {
        Ok(pidfd) => Ok(Started { child, socket: ours, pidfd }),
        Err(error) => {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

fn tell(
    program: &Program,
    host: &SessionHost,
    board: &Window,
    ring: &Window,
    socket: &OwnedFd,
) -> io::Result<()> {
    let (window, returns) = (host.window_part(), host.return_part());
    let setup = Setup {
        session: host.session(),
        channel: host.channel(),
        process: host.process(),
        wakes: host.wakes(),
        window: Place { offset: window.offset, bytes: window.bytes },
        area: Place { offset: host.area_offset(), bytes: area::AREA_BYTES },
        returns: returns.map(|part| Place { offset: part.offset, bytes: part.bytes }),
        now: host.now(),
        limits: *host.charges().limits(),
        identity: program.identity.clone(),
        connects: program.connects,
        log: LevelFilter::current().to_string(),
        executor: program.executor.clone(),
    };
    let text = serde_json::to_vec(&setup)?;
    if text.len() > SETUP_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the executor's description is too long"));
    }
    let mut files: Vec<BorrowedFd<'_>> = vec![board.file(), ring.file(), window.file];
    files.extend(returns.map(|part| part.file));
    packet::send(socket, &text, &files, SendFlags::empty())
}
