//! A function behind a vfio-user socket, for a VMM that has `vfio-user-pci`, such as QEMU from 10.1 on. The
//! VMM connects to the socket, one VMM at a time: the next one waits to be accepted.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, accept_with};
use vgpu_device::{ListenError, LogBudget, listen_for};

use crate::connection::{Connection, Ended};
use crate::function::Function;
use crate::ram::SharedRam;
use crate::recorder::Recorder;
use crate::regions::Regions;
use crate::saved::{RestoreError, SavedConnection, UnsentReply};
use crate::stream::Stop;

/// Target of the log's lines that say when a VM connects and leaves, so that they can be logged where other
/// events of their level are not.
pub const VM_EVENTS: &str = "vm";
/// Number of those lines that are written at once, and a minute: a VMM may connect in a loop.
const EVENTS: u64 = 20;

/// Pause before the next try to accept a VMM when there are no descriptors or no memory for it.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Reason for which a socket cannot be served.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum SocketError {
    #[error("open the vfio-user socket")]
    Listen(#[from] ListenError),
    #[error("serve the vfio-user socket {path}: {source}")]
    Serve { path: PathBuf, source: std::io::Error },
    #[error("continue the vfio-user socket {path}")]
    Restore { path: PathBuf, source: RestoreError },
}

/// The socket of a function. When this is dropped, the connection is closed and the file is removed, unless it
/// was saved, or a panic drops it and the next process is to continue.
pub struct FunctionSocket {
    path: PathBuf,
    /// `None` once it was saved.
    listener: Option<OwnedFd>,
    regions: Regions,
    ram: SharedRam,
    connection: Option<Connection>,
    /// What is told of the connection, if another process is to continue it.
    recorder: Option<Arc<dyn Recorder>>,
    events: LogBudget,
    stop: Stop,
}

impl std::fmt::Debug for FunctionSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionSocket").field("path", &self.path).finish_non_exhaustive()
    }
}

impl FunctionSocket {
    /// Listens at `path`, for VMMs of this user and of `group`. A socket that a dead process left there is
    /// removed. `ram` will hold the guest's memory.
    pub fn bind(
        path: &Path,
        group: Option<u32>,
        function: Arc<dyn Function>,
        ram: SharedRam,
    ) -> Result<Self, SocketError> {
        Self::restore(path, listen_for(path, group)?, None, function, ram)
    }

    /// Continues what another process has saved: a socket that listens at `path`, and a connection that needs
    /// no negotiation. `ram` holds no memory yet. A connection that cannot be continued is closed.
    pub fn restore(
        path: &Path,
        listener: OwnedFd,
        connection: Option<SavedConnection>,
        function: Arc<dyn Function>,
        ram: SharedRam,
    ) -> Result<Self, SocketError> {
        let regions = Regions::new(function);
        let failed = |source| SocketError::Restore { path: path.to_owned(), source };
        let stop = Stop::new().map_err(|error| failed(error.into()))?;
        let connection = connection
            .map(|mut saved| match saved.check(&regions, &ram) {
                Ok(config) => Ok(Connection::continued(saved, stop.clone(), config, ram.clone())?),
                Err(error) => {
                    saved.close();
                    ram.change().clear();
                    Err(error)
                }
            })
            .transpose()
            .map_err(failed)?;
        let (path, listener) = (path.to_owned(), Some(listener));
        Ok(Self {
            path,
            listener,
            regions,
            ram,
            connection,
            recorder: None,
            events: LogBudget::new(EVENTS, EVENTS),
            stop,
        })
    }

    /// Returns what stops [`FunctionSocket::serve`] from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Tells `recorder` of the connection from now on, and leaves each request in the socket until it is
    /// answered. Who is to save the connection, or to leave it to the next process, calls this before it
    /// serves.
    pub fn record(&mut self, recorder: Arc<dyn Recorder>) {
        self.recorder = Some(recorder);
    }

    /// Returns the socket that listens.
    #[must_use]
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Serves VMMs, one after the other, until it is told to stop. Nothing that a VMM sends ends it.
    ///
    /// # Errors
    /// The socket cannot accept another VMM.
    pub fn serve(&mut self) -> Result<(), SocketError> {
        loop {
            let Some(connection) = &mut self.connection else {
                let failed = |source| SocketError::Serve { path: self.path.clone(), source };
                let Some(accepted) = self.accept().map_err(failed)? else { return Ok(()) };
                if let Some(recorder) = &self.recorder {
                    recorder.connected(accepted.socket(), accepted.config());
                }
                let peer = socket_peercred(accepted.socket()).ok();
                let (process, user) = peer.map(|peer| (peer.pid.as_raw_pid(), peer.uid.as_raw())).unzip();
                self.tell(
                    |socket| tracing::info!(target: VM_EVENTS, %socket, process, user, "a VM has connected"),
                );
                self.connection = Some(accepted);
                continue;
            };
            match connection.serve(&self.regions, self.recorder.as_deref()) {
                Ok(Ended::Stopped) => return Ok(()),
                Ok(Ended::Gone) => {}
                // The end of the machine, whatever its reason, is not an error of this program.
                Err(error) if error.is_end() => {}
                Err(error) => tracing::warn!(socket = %self.path.display(), "the connection broke: {error}"),
            }
            self.tell(|socket| tracing::info!(target: VM_EVENTS, %socket, "the VM has left"));
            // The VMM learns of the end after all that it had is gone.
            self.regions.reset();
            self.close();
        }
    }

    /// Writes a line that a VMM caused, unless there were too many.
    fn tell(&self, write: impl FnOnce(&std::path::Display<'_>)) {
        let socket = self.path.display();
        if self.events.admit(0, |text| tracing::warn!(%socket, "{text}")) {
            write(&socket);
        }
    }

    /// Closes the connection, if there is one.
    fn close(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        self.ram.change().clear();
        if let Some(recorder) = &self.recorder {
            recorder.ended();
        }
        connection.close();
    }

    /// Waits for a VMM, and returns `None` if the thread is to stop.
    fn accept(&self) -> std::io::Result<Option<Connection>> {
        let Some(listener) = &self.listener else { return Ok(None) };
        let mut told = false;
        while self.stop.or_ready(listener.as_fd(), PollFlags::IN)? {
            let connection =
                accept_with(listener, SocketFlags::CLOEXEC).map_err(Into::into).and_then(|socket| {
                    Connection::new(socket, self.stop.clone(), self.regions.config(), self.ram.clone())
                });
            let error = match connection {
                Ok(connection) => return Ok(Some(connection)),
                Err(error) => error,
            };
            match Errno::from_io_error(&error) {
                Some(Errno::INTR | Errno::AGAIN | Errno::CONNABORTED) => {}
                Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(socket = %self.path.display(), "a VMM waits to be accepted: {error}");
                    }
                    // Others may have what is missing, and nothing signals that there is some again.
                    self.stop.or_sleep(ACCEPT_PAUSE)?;
                }
                _ => return Err(error),
            }
        }
        Ok(None)
    }

    /// Returns the listener and the connection for [`FunctionSocket::restore`] in another process. The file
    /// stays.
    #[must_use]
    pub fn save(mut self) -> Option<(OwnedFd, Option<SavedConnection>)> {
        let connection = self.connection.take().map(Connection::save);
        Some((self.listener.take()?, connection))
    }

    /// Returns the reply for which the VMM has left no room, if there is one.
    #[must_use]
    pub fn unsent_reply(&self) -> Option<&UnsentReply> {
        self.connection.as_ref()?.unsent_reply()
    }

    /// Returns the same for a process that this one becomes, if it does. It must not serve meanwhile.
    pub fn copy(&self) -> std::io::Result<Option<(OwnedFd, Option<SavedConnection>)>> {
        let Some(listener) = &self.listener else { return Ok(None) };
        let connection = self.connection.as_ref().map(Connection::copy).transpose()?;
        Ok(Some((listener.try_clone()?, connection)))
    }
}

impl Drop for FunctionSocket {
    fn drop(&mut self) {
        if self.recorder.is_some() && std::thread::panicking() {
            return;
        }
        self.close();
        if self.listener.is_some() {
            // The file may have been removed already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
