//! Resources of a function that only a session needs: the mapped window, and the lock file that states which
//! process owns a channel.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vgpu_wire::area;

use crate::areas::Areas;
use crate::bridge::Bridge;
use crate::descriptor::Descriptor;
use crate::lock::LockFile;
use crate::mapping::{Mapping, MemoryType};
use crate::open_error::OpenError;
use crate::sysfs::PciFunction;

/// Resources that a session needs beside the registers.
///
/// The window is mapped in parts: those that all sessions share when it is opened, those of a channel's area
/// when the session has one. Memory that the guest polls, which is return area and facts, is mapped through
/// `resource2`, everything else through `resource2_wc` where it exists. No page is mapped in both ways by any
/// process: a kernel would give the second mapping the memory type of the first, or refuse it.
#[derive(Debug)]
pub(crate) struct BarMappings {
    pub(crate) window: Arc<Mapping>,
    pub(crate) lock: LockFile,
    /// File from which the window is mapped; `None` if it is the file that is locked.
    combined: Option<Descriptor>,
    /// Memory type of mappings of `resource2`.
    polled: MemoryType,
    /// Whether the window is memory of this process, because the device is behind a bridge.
    whole: bool,
    /// Path of `resource2`, for errors.
    path: PathBuf,
}

impl BarMappings {
    /// Opens and maps both BARs.
    ///
    /// # Errors
    /// Returns which file cannot be opened or mapped, or that the file is shorter than the window.
    pub(crate) fn open(function: &PciFunction, window_mib: u32, areas: &Areas) -> Result<Self, OpenError> {
        let bytes = u64::from(window_mib) << 20;
        let path = function.dir.join("resource2");
        let simulated = function.is_simulated();
        let polled = if simulated { MemoryType::WriteBack } else { MemoryType::Uncached };
        let lock = LockFile::open_watched(&path, areas.base + area::FACTS, polled)
            .map_err(|source| OpenError::Open { path: path.clone(), source })?;
        // An access to mapped memory beyond the end of the file would raise a bus error.
        let room = lock.bytes().map_err(|source| OpenError::Open { path: path.clone(), source })?;
        if room < bytes {
            return Err(OpenError::ShortWindow { path, holds: room, announced: bytes });
        }
        let combined = function.dir.join("resource2_wc");
        // On the simulated bus both names are one file, and to close a second descriptor of it would drop the
        // locks.
        let combined = if !simulated && combined.exists() {
            let file = open(&combined).map_err(|source| OpenError::Open { path: combined, source })?;
            Some(file)
        } else {
            None
        };
        let memory = if combined.is_some() { MemoryType::WriteCombined } else { polled };
        let window = Mapping::reserved(bytes as usize, memory)
            .map_err(|source| OpenError::Map { path: path.clone(), source })?;
        let mappings = Self { window: Arc::new(window), lock, combined, polled, whole: false, path };
        let shared = areas.end();
        mappings.lay(shared, bytes.saturating_sub(shared)).map_err(|source| mappings.unmapped(source))?;
        Ok(mappings)
    }

    /// Maps a part of the window that is written, or read in bulk. Bytes that are not mapped that way stay
    /// inaccessible.
    fn lay(&self, offset: u64, bytes: u64) -> io::Result<()> {
        match (bytes, &self.combined) {
            (0, _) => Ok(()),
            (_, Some(file)) if file.intact() => self.window.lay(offset, file.number(), offset, bytes),
            (_, Some(closed)) => {
                // The program has closed it, and the number may name another file.
                let file = open(&self.path.with_file_name("resource2_wc"))?;
                if file.identity() != closed.identity() {
                    return Err(io::ErrorKind::NotFound.into());
                }
                self.window.lay(offset, file.number(), offset, bytes)
            }
            (_, None) => self.lock.with_number(|number| self.window.lay(offset, number, offset, bytes)),
        }
    }

    /// Maps a part of the window that is polled.
    pub(crate) fn polled(&self, offset: u64, bytes: u64) -> Result<Mapping, OpenError> {
        let map = |number| Mapping::of_part(number, offset, bytes as usize, self.polled);
        self.lock.with_number(map).map_err(|source| self.unmapped(source))
    }

    /// Returns a value that maps polled parts of the window later, even after this one is dropped.
    ///
    /// # Errors
    /// Fails if the window's file can no longer be opened.
    pub(crate) fn polled_parts(&self) -> Result<PolledParts, OpenError> {
        let open = |source| OpenError::Open { path: self.path.clone(), source };
        Ok(PolledParts { lock: LockFile::open(&self.path).map_err(open)?, memory: self.polled })
    }

    fn unmapped(&self, source: io::Error) -> OpenError {
        OpenError::Map { path: self.path.clone(), source }
    }

    /// Maps the area at `base` of a channel that this process has locked, without its return area.
    ///
    /// # Errors
    /// Fails if the area cannot be mapped.
    pub(crate) fn map_area(&self, base: u64) -> Result<(), OpenError> {
        if self.whole {
            return Ok(());
        }
        let parts = [(area::SUBMIT, area::RETURN), (area::STAGING, area::AREA_BYTES - area::STAGING)];
        let laid = parts.iter().try_for_each(|&(offset, bytes)| self.lay(base + offset, bytes));
        laid.map_err(|source| self.unmapped(source))
    }

    /// Returns a mapping of the return area of the channel's area at `base`, and the offset of the return
    /// area in it.
    ///
    /// # Errors
    /// Fails if the return area cannot be mapped.
    pub(crate) fn returns(&self, base: u64) -> Result<(Arc<Mapping>, u64), OpenError> {
        if self.whole {
            return Ok((Arc::clone(&self.window), base + area::RETURN));
        }
        self.polled(base + area::RETURN, area::RETURN_BYTES).map(|mapping| (Arc::new(mapping), 0))
    }

    /// Maps the page of the facts, in the first channel's area at `base`, which needs no session.
    ///
    /// # Errors
    /// Fails if the page cannot be mapped.
    pub(crate) fn facts(&self, base: u64) -> Result<Mapping, OpenError> {
        self.polled(base + area::FACTS, area::FACTS_BYTES)
    }

    /// Returns the mappings of a device behind a bridge: memory of this process, and the lock file of the
    /// virtual machine's processes.
    ///
    /// # Errors
    /// Fails as [`BarMappings::open`] does.
    pub(crate) fn from_bridge(bridge: &dyn Bridge) -> Result<Self, OpenError> {
        let path = bridge.lock_file().to_owned();
        let lock = LockFile::open(&path).map_err(|source| OpenError::Open { path: path.clone(), source })?;
        let window = bridge.window().map_err(|source| OpenError::Map { path: path.clone(), source })?;
        Ok(Self { window, lock, combined: None, polled: MemoryType::WriteBack, whole: true, path })
    }
}

/// Parts of a window that are polled, and mapped when they are needed.
#[derive(Debug)]
pub(crate) struct PolledParts {
    lock: LockFile,
    memory: MemoryType,
}

impl PolledParts {
    /// Maps a part of the window that is polled.
    pub(crate) fn map(&self, offset: u64, bytes: u64) -> io::Result<Mapping> {
        self.lock.with_number(|number| Mapping::of_part(number, offset, bytes as usize, self.memory))
    }
}

fn open(path: &Path) -> io::Result<Descriptor> {
    Descriptor::adopt(std::fs::OpenOptions::new().read(true).write(true).open(path)?.into())
}

/// Maps a BAR from its file, such as `resource0`, shared, for reading and writing. `bytes` is the size of the
/// BAR.
///
/// # Errors
/// Fails if the file cannot be opened or mapped, or is shorter than `bytes`.
pub fn map(path: &Path, bytes: u64, memory: MemoryType) -> Result<Mapping, OpenError> {
    let file = open(path).map_err(|source| OpenError::Open { path: path.to_owned(), source })?;
    let there = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if there < bytes {
        // A load beyond the end of the file would end the process.
        let source = io::Error::other(format!("the file has {there} bytes, and the BAR {bytes}"));
        return Err(OpenError::Map { path: path.to_owned(), source });
    }
    Mapping::of_file(file.number(), bytes as usize, memory)
        .map_err(|source| OpenError::Map { path: path.to_owned(), source })
}
