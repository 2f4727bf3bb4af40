//! A function behind a vfio-user socket, for a VMM that has `vfio-user-pci`, such as QEMU from 10.1 on. The
//! VMM connects to the socket, one VMM at a time: the next one waits to be accepted.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::PollFlags;
use rustix::net::{SocketFlags, accept_with};
use vgpu_device::{ListenError, listen_for};

use crate::connection::{Answering, Connection, Ended};
use crate::function::Function;
use crate::ram::SharedRam;
use crate::regions::Regions;
use crate::saved::{RestoreError, SavedConnection};
use crate::stream::Stop;

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

/// The socket of a function. Its file is removed when this is dropped, unless it was saved.
pub struct FunctionSocket {
    path: PathBuf,
    /// `None` once it was saved.
    listener: Option<OwnedFd>,
    regions: Regions,
    ram: SharedRam,
    connection: Option<Connection>,
    /// What records answers, if another process is to continue the connection.
    answering: Option<Answering>,
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
    /// no negotiation. `ram` holds no memory yet.
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
            .map(|mut saved| {
                let config = saved.check(&regions, &ram)?;
                Ok(Connection::continued(saved, stop.clone(), config, ram.clone())?)
            })
            .transpose()
            .map_err(failed)?;
        let (path, listener) = (path.to_owned(), Some(listener));
        Ok(Self { path, listener, regions, ram, connection, answering: None, stop })
    }

    /// Returns what stops [`FunctionSocket::serve`] from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Records from now on whether a reply is being sent, and leaves each request in the socket until then. Who
    /// is to save the connection, or to leave it to the next process, calls this before it serves.
    pub fn record(&mut self, answering: Answering) {
        self.answering = Some(answering);
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
                self.connection = Some(accepted);
                continue;
            };
            match connection.serve(&self.regions, self.answering.as_ref()) {
                Ok(Ended::Stopped) => return Ok(()),
                Ok(Ended::Gone) => {}
                // The end of the machine, whatever its reason, is not an error of this program.
                Err(error) if error.is_end() => {}
                Err(error) => tracing::warn!(socket = %self.path.display(), "the connection broke: {error}"),
            }
            tracing::info!(socket = %self.path.display(), "the machine is gone");
            // The VMM learns of the end after all that it had is gone.
            self.regions.reset();
            self.ram.change().clear();
            if let Some(connection) = self.connection.take() {
                connection.close();
            }
        }
    }

    /// Waits for a VMM, and returns `None` if the thread is to stop.
    fn accept(&self) -> std::io::Result<Option<Connection>> {
        let Some(listener) = &self.listener else { return Ok(None) };
        if !self.stop.or_ready(listener.as_fd(), PollFlags::IN)? {
            return Ok(None);
        }
        let socket = accept_with(listener, SocketFlags::CLOEXEC)?;
        Connection::new(socket, self.stop.clone(), self.regions.config(), self.ram.clone()).map(Some)
    }

    /// Returns the listener and the connection for [`FunctionSocket::restore`] in another process. The file
    /// stays.
    #[must_use]
    pub fn save(mut self) -> Option<(OwnedFd, Option<SavedConnection>)> {
        let connection = self.connection.take().map(Connection::save);
        Some((self.listener.take()?, connection))
    }
}

impl Drop for FunctionSocket {
    fn drop(&mut self) {
        if self.listener.is_some() {
            // The file may have been removed already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
