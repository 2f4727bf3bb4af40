//! Directories of the host in a guest, read-only: one virtiofsd serves each.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::agent::init::Share;

/// Error of the daemon that shares a directory.
#[derive(Debug, thiserror::Error)]
#[error("share {folder} with the guest: {source}")]
pub struct ShareError {
    folder: PathBuf,
    source: io::Error,
}

/// A daemon that shares one directory. It is killed when dropped, and exits when the machine ends.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    socket: PathBuf,
    share: Share,
}

impl Daemon {
    /// Starts `command`, which runs virtiofsd, to share `folder` at a socket in `sockets`. The guest sees the
    /// directory under its own path.
    pub fn start(
        mut command: Command,
        folder: &Path,
        sockets: &Path,
        number: usize,
    ) -> Result<Self, ShareError> {
        let error = |source| ShareError { folder: folder.to_owned(), source };
        let folder = folder.canonicalize().map_err(error)?;
        let socket = sockets.join(format!("share{number}"));
        // Bound here and inherited as its stdin, so that early connections wait for the daemon.
        let listener = UnixListener::bind(&socket).map_err(error)?;
        command.args([
            "--fd",
            "0",
            "--readonly",
            "--sandbox",
            "none",
            "--cache",
            "always",
            "--log-level",
            "error",
        ]);
        command.arg("--shared-dir").arg(&folder).stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)));
        let child = command.spawn().map_err(error)?;
        Ok(Self { child, socket, share: Share { tag: format!("share{number}"), path: folder } })
    }

    /// Returns the path of the socket to which QEMU connects.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the virtiofs tag of the share.
    pub fn tag(&self) -> &str {
        &self.share.tag
    }

    /// Returns the description of the share that the guest receives.
    pub fn share(&self) -> &Share {
        &self.share
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The daemon may already have ended; failures are ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
