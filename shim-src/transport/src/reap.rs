//! Ends the sessions of dead processes for a process that has no session itself.
//!
//! The lock file is opened for reading only. Watchers learn of the death of processes when a file that was
//! open for writing is closed, so closing this one must not look like a death.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::dead_processes;
use crate::device::Device;
use crate::lock::{self, ChannelLocks};
use crate::open_error::OpenError;

/// Sessions of dead processes that were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Number of sessions that dead processes had.
    pub found: u32,
    /// Number of these that have ended. The others end when the host's executor has stopped.
    pub ended: u32,
}

/// Shared locks, which exclude only processes that attach. Closing the file drops all locks that this process
/// has on it.
struct ReadLocks {
    path: PathBuf,
    file: File,
}

impl ReadLocks {
    fn open(path: &Path) -> io::Result<Self> {
        // As in `lock`, a link or a FIFO in the file's place must neither be followed nor block.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        Ok(Self { path: path.to_owned(), file })
    }
}

impl ChannelLocks for ReadLocks {
    fn try_lock(&self, channel: u32) -> io::Result<bool> {
        lock::set(self.file.as_raw_fd(), channel, libc::F_RDLCK)
    }

    fn has_owner(&self, channel: u32, area: Option<u64>) -> bool {
        lock::has_owner(&self.path, self.file.as_raw_fd(), channel, area).unwrap_or(true)
    }

    fn unlock(&self, channel: u32) {
        // The kernel drops the lock at the latest when the file is closed.
        let _ = lock::set(self.file.as_raw_fd(), channel, libc::F_UNLCK);
    }
}

impl Device {
    /// Ends the sessions of dead processes, and waits until they have ended, but no longer than `limit`. This
    /// process must have no session on the device, whose lock it would lose. A device of version 1 has other
    /// means to find the dead, and is left alone.
    ///
    /// # Errors
    /// Fails if the lock file cannot be opened, or if the device is gone.
    pub fn reap(&self, limit: Duration) -> Result<Reaped, OpenError> {
        if self.bridge.is_some() {
            return Ok(Reaped::default());
        }
        let path = self.function.dir.join("resource2");
        let locks = ReadLocks::open(&path).map_err(|source| OpenError::Open { path, source })?;
        let gone = |error| OpenError::from_read(&self.function, &error);
        let registers = self.registers.as_ref();
        let ending = dead_processes::end(registers, &locks, self.areas_of_owners()).map_err(gone)?;
        let found = ending.count();
        let ended = ending.wait_for_all(registers, &locks, self.pool.as_ref(), limit).map_err(gone)?;
        if let Some(pool) = &self.pool {
            dead_processes::sweep(registers, &locks, pool, self.areas.channels).map_err(gone)?;
        }
        Ok(Reaped { found, ended })
    }
}
