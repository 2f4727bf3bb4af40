//! What of a function only a session needs: the window, and the lock file that says whose a channel is.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use crate::descriptor::Descriptor;
use crate::device::OpenError;
use crate::lock::LockFile;
use crate::mapping::{Mapping, MemoryType};
use crate::sysfs::PciFunction;
use crate::v1::Bridge;

/// What a session needs beside the registers.
#[derive(Debug)]
pub(crate) struct Reach {
    pub(crate) window: Arc<Mapping>,
    pub(crate) lock: LockFile,
}

impl Reach {
    /// Opens both.
    ///
    /// # Errors
    /// Which file cannot be opened or mapped, or that the file is shorter than the window.
    pub(crate) fn open(function: &PciFunction, window_mib: u32) -> Result<Self, OpenError> {
        let bytes = u64::from(window_mib) << 20;
        let path = function.dir.join("resource2");
        let lock = LockFile::open(&path).map_err(|source| OpenError::Open { path: path.clone(), source })?;
        // Memory that a file does not have would be a bus error.
        let room = lock.bytes().map_err(|source| OpenError::Open { path: path.clone(), source })?;
        if room < bytes {
            return Err(OpenError::ShortWindow { path, holds: room, announced: bytes });
        }
        let simulated = std::fs::metadata(function.dir.join("resource0"))
            .is_ok_and(|metadata| metadata.file_type().is_socket());
        let combined = function.dir.join("resource2_wc");
        let window = if !simulated && combined.exists() {
            map(&combined, bytes, MemoryType::WriteCombined)?
        } else {
            // On the simulated bus both names are one file, and to close a second descriptor of it would drop the locks.
            let memory = if simulated { MemoryType::WriteBack } else { MemoryType::Uncached };
            lock.with_number(|number| Mapping::of_file(number, bytes as usize, memory))
                .map_err(|source| OpenError::Map { path, source })?
        };
        Ok(Self { window: Arc::new(window), lock })
    }

    /// That of a device of version 1: memory of this process, and the file of the virtual machine's processes.
    ///
    /// # Errors
    /// As [`Reach::open`].
    pub(crate) fn of_bridge(bridge: &Bridge) -> Result<Self, OpenError> {
        let path = bridge.owners().to_owned();
        let lock = LockFile::open(&path).map_err(|source| OpenError::Open { path: path.clone(), source })?;
        let window = bridge.window().map_err(|source| OpenError::Map { path, source })?;
        Ok(Self { window, lock })
    }
}

/// Maps a file of a function.
pub(crate) fn map(path: &Path, bytes: u64, memory: MemoryType) -> Result<Mapping, OpenError> {
    let open = || {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
        Descriptor::adopt(file.into())
    };
    let file = open().map_err(|source| OpenError::Open { path: path.to_owned(), source })?;
    Mapping::of_file(file.number(), bytes as usize, memory)
        .map_err(|source| OpenError::Map { path: path.to_owned(), source })
}
