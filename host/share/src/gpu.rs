//! The file of a GPU: its mapping, its words, and the locks of its slots.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use vgpu_paths::{Access, Dir};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

use crate::error::ShareError;
use crate::layout::{ARBITER, ARBITER_WORDS, FILE_BYTES, MAGIC, PAGE, SLOTS, VERSION, header};
use crate::lock::{self, Kind, LockRange};
use crate::uuid::GpuUuid;

/// Time for which a claim waits for another one. A claim takes microseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two tries to lock the file, which cannot be waited for with a limit.
const PAUSE: Duration = Duration::from_millis(2);

/// A mapped GPU's file. Copies share the mapping.
#[derive(Clone, Debug)]
pub struct GpuShare(Arc<Mapped>);

/// The right to measure what a context costs on a GPU, until this is dropped.
#[derive(Debug)]
pub struct Measurement {
    _lock: File,
}

#[derive(Debug)]
struct Mapped {
    uuid: GpuUuid,
    dir: Arc<Dir>,
    path: PathBuf,
    /// Its lock admits one claim at a time. It belongs to the open file, so that threads need a mutex too.
    file: File,
    claims: Mutex<()>,
    region: MmapRegion<()>,
    /// Lock files of the slots, each opened when it is first looked at.
    locks: [OnceLock<File>; SLOTS],
}

impl GpuShare {
    /// Opens the file of a GPU in `dir`, and makes it if it does not exist.
    pub(crate) fn open(dir: Arc<Dir>, folder: &Path, uuid: GpuUuid) -> Result<Self, ShareError> {
        let path = folder.join(uuid.to_string());
        let failed = |doing| {
            let path = path.clone();
            move |source| ShareError::File { doing, path, source }
        };
        let file = open_or_create(&dir, &uuid.to_string()).map_err(failed("open"))?;
        if !is_made(&file).map_err(failed("read"))? {
            // Two processes that make the file do so one after the other.
            serialise(&file, &path)?;
            let made = make(&file, uuid);
            lock::set(&file, LockRange::All, Kind::None).map_err(failed("unlock"))?;
            made.map_err(failed("make"))?;
        }
        Self::map(dir, path, file, uuid)
    }

    /// Opens the file of a GPU in `dir`, which another process has made.
    pub(crate) fn existing(dir: Arc<Dir>, folder: &Path, uuid: GpuUuid) -> Result<Self, ShareError> {
        let path = folder.join(uuid.to_string());
        match dir.private(uuid.to_string(), Access::ReadWrite) {
            Ok(file) => Self::map(dir, path, file, uuid),
            Err(source) => Err(ShareError::File { doing: "open", path, source }),
        }
    }

    /// Maps a file that is made, and checks its header.
    fn map(dir: Arc<Dir>, path: PathBuf, file: File, uuid: GpuUuid) -> Result<Self, ShareError> {
        // A read, unlike an access to the mapping, does no harm where the file ends or has no storage.
        let made = is_made(&file).and_then(|made| if made { map(&file).map(Some) } else { Ok(None) });
        let region = match made {
            Ok(Some(region)) => region,
            Ok(None) => {
                return Err(ShareError::Format { path, found: "not a file of vgpu-device".to_owned() });
            }
            Err(source) => return Err(ShareError::File { doing: "map", path, source }),
        };
        let mapped = Mapped {
            uuid,
            dir,
            path: path.clone(),
            file,
            claims: Mutex::new(()),
            region,
            locks: [const { OnceLock::new() }; SLOTS],
        };
        let share = Self(Arc::new(mapped));
        let header = |offset| share.u64_at(offset).load(Ordering::Acquire);
        let uuid_words = [header(header::UUID), header(header::UUID + 8)];
        let found = match (header(header::MAGIC), header(header::VERSION)) {
            (MAGIC, VERSION) if uuid_words == uuid.words() => return Ok(share),
            (MAGIC, VERSION) => "the file of another GPU".to_owned(),
            (MAGIC, version) => format!("of version {version}, and this release has version {VERSION}"),
            _ => "not a file of vgpu-device".to_owned(),
        };
        Err(ShareError::Format { path, found })
    }

    /// Returns the UUID of the GPU.
    #[must_use]
    pub fn uuid(&self) -> GpuUuid {
        self.0.uuid
    }

    /// Returns the bytes of memory that the GPU has, as the device has found that took the first slot. It is
    /// 0 before there was one.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.u64_at(header::BYTES).load(Ordering::Acquire)
    }

    /// Returns a word that the node process owns, zero before it stores there. It has a number below 128.
    ///
    /// # Panics
    /// Panics if there is no word of this number.
    #[must_use]
    pub fn node_word(&self, number: usize) -> &AtomicU64 {
        assert!(number < ARBITER_WORDS, "word {number} of the node process");
        self.u64_at(ARBITER + 8 * number)
    }

    /// Returns the lower half of a word that the node process owns, which a futex can wait for.
    ///
    /// # Panics
    /// Panics if there is no word of this number.
    #[must_use]
    pub fn node_half(&self, number: usize) -> &AtomicU32 {
        assert!(number < ARBITER_WORDS, "word {number} of the node process");
        self.u32_at(ARBITER + 8 * number)
    }

    /// Returns the part of a slot's lock that is taken: the device's if the device lives, otherwise the
    /// workers' if one of them lives.
    pub(crate) fn locked_part(&self, index: usize) -> Result<Option<LockRange>, ShareError> {
        let lock = &self.0.locks[index];
        let file = match lock.get() {
            Some(file) => file,
            None => match self.0.dir.private(self.lock_name(index), Access::Read) {
                Ok(file) => lock.get_or_init(|| file),
                // No device has ever taken the slot.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(self.failed("open the lock of a slot of", error)),
            },
        };
        for part in [LockRange::Device, LockRange::Workers] {
            let locked = lock::is_locked(file, part);
            if locked.map_err(|error| self.failed("look at the lock of a slot of", error))? {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }

    /// Waits until no other process measures what a context costs, but not longer than `patience`. Returns a
    /// lock that is held until it is dropped, or `None` if another process measures for so long.
    ///
    /// # Errors
    /// The file of the lock cannot be opened or locked.
    pub fn lock_measurement(&self, patience: Duration) -> Result<Option<Measurement>, ShareError> {
        let failed = |error| self.failed("lock the measurement of contexts of", error);
        let file = open_or_create(&self.0.dir, &format!("{}.cost", self.0.uuid)).map_err(failed)?;
        let locked = wait_for_lock(&file, patience).map_err(failed)?;
        Ok(locked.then_some(Measurement { _lock: file }))
    }

    /// Opens the lock file of a slot once more, so that it has locks of its own.
    pub(crate) fn open_lock(&self, index: usize, access: Access) -> Result<File, ShareError> {
        let name = self.lock_name(index);
        let opened = match access {
            Access::Read => self.0.dir.private(&name, access),
            _ => open_or_create(&self.0.dir, &name),
        };
        opened.map_err(|error| self.failed("open the lock of a slot of", error))
    }

    /// Returns a lock that makes this process the node process of the GPU until it is dropped, or `None` if
    /// another process is.
    pub(crate) fn lock_for_node(&self) -> Result<Option<NodeLock>, ShareError> {
        let failed = |error| self.failed("lock as the node process", error);
        let file = open_or_create(&self.0.dir, &self.node_name()).map_err(failed)?;
        let locked = lock::set(&file, LockRange::All, Kind::Exclusive).map_err(failed)?;
        Ok(locked.then_some(NodeLock(file)))
    }

    /// Returns whether a node process has this GPU now. It may hang. Nothing is locked meanwhile.
    ///
    /// # Errors
    /// The node process's lock file cannot be opened.
    pub fn has_node(&self) -> Result<bool, ShareError> {
        let found = match self.0.dir.private(self.node_name(), Access::Read) {
            Ok(file) => lock::is_locked(&file, LockRange::All),
            // No node process has ever had the GPU.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        found.map_err(|error| self.failed("look at the lock of the node process of", error))
    }

    fn node_name(&self) -> String {
        format!("{}.node", self.0.uuid)
    }

    fn lock_name(&self, index: usize) -> String {
        format!("{}.{index:02}", self.0.uuid)
    }

    /// Calls `claim` while no other thread and no other process claims a slot of this GPU.
    pub(crate) fn exclusively<T>(
        &self,
        claim: impl FnOnce() -> Result<T, ShareError>,
    ) -> Result<T, ShareError> {
        let _claims = self.0.claims.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let claimer = self.u64_at(header::CLAIMER);
        serialise(&self.0.file, &self.0.path)?;
        claimer.store(u64::from(std::process::id()), Ordering::Relaxed);
        let outcome = claim();
        claimer.store(0, Ordering::Relaxed);
        lock::set(&self.0.file, LockRange::All, Kind::None).map_err(|error| self.failed("unlock", error))?;
        outcome
    }

    /// Records what the GPU has, in a claim.
    pub(crate) fn set_memory(&self, bytes: u64) {
        self.u64_at(header::BYTES).store(bytes, Ordering::Release);
    }

    /// Allocates storage for a slot.
    pub(crate) fn reserve_slot(&self, index: usize) -> Result<(), ShareError> {
        let done = reserve(&self.0.file, Self::slot_offset(index));
        done.map_err(|error| self.failed("allocate storage in", error))
    }

    pub(crate) fn failed(&self, doing: &'static str, source: io::Error) -> ShareError {
        ShareError::File { doing, path: self.0.path.clone(), source }
    }

    pub(crate) fn unrecorded(&self, slot: usize) -> ShareError {
        ShareError::Unrecorded { path: self.0.path.clone(), slot }
    }

    /// Returns the offset of a slot in the file.
    pub(crate) const fn slot_offset(index: usize) -> usize {
        PAGE * (1 + index)
    }

    /// Returns the 64-bit word at an offset, which comes from this crate's layout.
    pub(crate) fn u64_at(&self, offset: usize) -> &AtomicU64 {
        self.0.region.get_atomic_ref(offset).expect("an aligned word within the file")
    }

    /// Returns the 32-bit word at an offset, which comes from this crate's layout.
    pub(crate) fn u32_at(&self, offset: usize) -> &AtomicU32 {
        self.0.region.get_atomic_ref(offset).expect("an aligned word within the file")
    }
}

/// The lock of the node process of one GPU.
pub(crate) struct NodeLock(pub(crate) File);

impl Drop for NodeLock {
    /// Closing the file would not do: a child that another thread is starting has a duplicate of the
    /// descriptor until it executes its program, and the lock would last as long.
    fn drop(&mut self) {
        // A lock that this process holds can be dropped. If not, the kernel does it when the file is closed.
        let _ = lock::set(&self.0, LockRange::All, Kind::None);
    }
}

/// Opens a file of this user for reading and writing. Another process may create it at the same time.
fn open_or_create(dir: &Dir, name: &str) -> io::Result<File> {
    match dir.create(name, Access::ReadWrite, 0o600) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => dir.private(name, Access::ReadWrite),
        created => created,
    }
}

/// Locks the file as soon as no other process has, or returns false when `patience` is over.
fn wait_for_lock(file: &File, patience: Duration) -> io::Result<bool> {
    let end = Instant::now() + patience;
    while !lock::set(file, LockRange::All, Kind::Exclusive)? {
        if Instant::now() > end {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(true)
}

/// Locks the file of a GPU for a claim.
fn serialise(file: &File, path: &Path) -> Result<(), ShareError> {
    match wait_for_lock(file, PATIENCE) {
        Ok(true) => Ok(()),
        Ok(false) => {
            // A file that is being made has no such word yet.
            let process = read_word(file, header::CLAIMER).unwrap_or(0);
            Err(ShareError::Busy { path: path.to_owned(), process, seconds: PATIENCE.as_secs() })
        }
        Err(source) => Err(ShareError::File { doing: "lock", path: path.to_owned(), source }),
    }
}

/// Reads a word of a file, which fails behind its end.
fn read_word(file: &File, offset: usize) -> io::Result<u64> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, offset as u64)?;
    Ok(u64::from_ne_bytes(word))
}

/// Returns whether the file has its size and the first word of a header, which is stored last.
fn is_made(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.len() == FILE_BYTES as u64 && read_word(file, header::MAGIC)? != 0)
}

/// Allocates storage for a page of the file, so that no later access to it finds the file system full.
pub(crate) fn reserve(file: &File, offset: usize) -> io::Result<()> {
    Ok(nix::fcntl::posix_fallocate(file, offset as i64, PAGE as i64)?)
}

/// Maps a file of the right size. An access behind its end would be fatal.
fn map(file: &File) -> io::Result<MmapRegion<()>> {
    MmapRegion::from_file(FileOffset::new(file.try_clone()?, 0), FILE_BYTES)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Gives the file its size, storage and header if it is new, or if the process that made it was killed. The
/// caller has locked it. A file of another size stays as it is.
fn make(file: &File, uuid: GpuUuid) -> io::Result<()> {
    match file.metadata()?.len() {
        0 => file.set_len(FILE_BYTES as u64)?,
        bytes if bytes == FILE_BYTES as u64 => {}
        _ => return Ok(()),
    }
    reserve(file, 0)?;
    let region = map(file)?;
    let word =
        |offset| -> &AtomicU64 { region.get_atomic_ref(offset).expect("an aligned word of the header") };
    word(header::CLAIMER).store(u64::from(std::process::id()), Ordering::Relaxed);
    if word(header::MAGIC).load(Ordering::Acquire) == 0 {
        let [low, high] = uuid.words();
        word(header::VERSION).store(VERSION, Ordering::Relaxed);
        word(header::UUID).store(low, Ordering::Relaxed);
        word(header::UUID + 8).store(high, Ordering::Relaxed);
        word(header::MAGIC).store(MAGIC, Ordering::Release);
    }
    word(header::CLAIMER).store(0, Ordering::Relaxed);
    Ok(())
}
