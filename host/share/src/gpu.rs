//! The file of a GPU: its mapping, its words, and the locks of its slots.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use vgpu_paths::{Access, Dir};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

use crate::error::ShareError;
use crate::layout::{ARBITER, ARBITER_WORDS, FILE_BYTES, MAGIC, PAGE, SLOTS, VERSION, header};
use crate::lock::{self, Kind};
use crate::uuid::GpuUuid;

/// Time for which a claim waits for another one. A claim takes microseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two tries to lock the file, which cannot be waited for with a limit.
const PAUSE: Duration = Duration::from_millis(2);

/// A mapped GPU's file. Copies share the mapping.
#[derive(Clone, Debug)]
pub struct GpuShare(Arc<Mapped>);

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
        let name = uuid.to_string();
        let path = folder.join(&name);
        let failed = |doing| {
            let path = path.clone();
            move |source| ShareError::File { doing, path, source }
        };
        let file = open_or_create(&dir, &name).map_err(failed("open"))?;
        // Two processes that make the file do so one after the other.
        serialise(&file, &path, || 0)?;
        let made = make(&file, uuid);
        lock::set(&file, Kind::None).map_err(failed("unlock"))?;
        let region = made.map_err(failed("map"))?.ok_or_else(|| ShareError::Format {
            path: path.clone(),
            found: "not a file of vgpu-device".to_owned(),
        })?;
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

    /// Returns the bytes of memory that the GPU has, as the device has found that took the first slot. It is 0
    /// before there was one.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.u64_at(header::BYTES).load(Ordering::Acquire)
    }

    /// Returns the bytes that are promised to nobody.
    #[must_use]
    pub fn reserve_bytes(&self) -> u64 {
        self.u64_at(header::RESERVE).load(Ordering::Acquire)
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

    /// Returns whether the device of a slot or one of its workers lives.
    pub(crate) fn is_taken(&self, index: usize) -> Result<bool, ShareError> {
        let lock = &self.0.locks[index];
        let file = match lock.get() {
            Some(file) => file,
            None => match self.0.dir.private(self.lock_name(index), Access::Read) {
                Ok(file) => lock.get_or_init(|| file),
                // No device has ever taken the slot.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(self.failed("open the lock of a slot of", error)),
            },
        };
        lock::is_locked(file).map_err(|error| self.failed("look at the lock of a slot of", error))
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

    /// Returns a file whose lock makes this process the node process of the GPU for as long as the file is
    /// open, or `None` if another process is.
    pub(crate) fn lock_for_node(&self) -> Result<Option<File>, ShareError> {
        let failed = |error| self.failed("lock as the node process", error);
        let file = open_or_create(&self.0.dir, &format!("{}.node", self.0.uuid)).map_err(failed)?;
        let locked = lock::set(&file, Kind::Exclusive).map_err(failed)?;
        Ok(locked.then_some(file))
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
        serialise(&self.0.file, &self.0.path, || claimer.load(Ordering::Relaxed))?;
        claimer.store(u64::from(std::process::id()), Ordering::Relaxed);
        let outcome = claim();
        claimer.store(0, Ordering::Relaxed);
        lock::set(&self.0.file, Kind::None).map_err(|error| self.failed("unlock", error))?;
        outcome
    }

    /// Records what the GPU has, in a claim.
    pub(crate) fn set_memory(&self, bytes: u64, reserve: u64) {
        self.u64_at(header::BYTES).store(bytes, Ordering::Release);
        self.u64_at(header::RESERVE).store(reserve, Ordering::Release);
    }

    /// Allocates storage for a slot.
    pub(crate) fn reserve_slot(&self, index: usize) -> Result<(), ShareError> {
        let done = reserve(&self.0.file, Self::slot_offset(index));
        done.map_err(|error| self.failed("allocate storage in", error))
    }

    pub(crate) fn failed(&self, doing: &'static str, source: io::Error) -> ShareError {
        ShareError::File { doing, path: self.0.path.clone(), source }
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

/// Opens a file of this user for reading and writing. Another process may create it at the same time.
fn open_or_create(dir: &Dir, name: &str) -> io::Result<File> {
    match dir.create(name, Access::ReadWrite, 0o600) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => dir.private(name, Access::ReadWrite),
        created => created,
    }
}

/// Locks the file, as soon as no other process has.
fn serialise(file: &File, path: &Path, holder: impl Fn() -> u64) -> Result<(), ShareError> {
    let start = Instant::now();
    loop {
        let locked = lock::set(file, Kind::Exclusive);
        if locked.map_err(|source| ShareError::File { doing: "lock", path: path.to_owned(), source })? {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            let seconds = PATIENCE.as_secs();
            return Err(ShareError::Busy { path: path.to_owned(), process: holder(), seconds });
        }
        std::thread::sleep(PAUSE);
    }
}

/// Allocates storage for a page of the file, so that no later access to it finds the file system full.
pub(crate) fn reserve(file: &File, offset: usize) -> io::Result<()> {
    Ok(nix::fcntl::posix_fallocate(file, offset as i64, PAGE as i64)?)
}

/// Maps the file, and gives it its size and header if it is new, or if the process that made it was killed. The
/// caller has locked it. Returns `None` if it is something else: an access behind its end would be fatal.
fn make(file: &File, uuid: GpuUuid) -> io::Result<Option<MmapRegion<()>>> {
    match file.metadata()?.len() {
        0 => {
            file.set_len(FILE_BYTES as u64)?;
            reserve(file, 0)?;
        }
        bytes if bytes == FILE_BYTES as u64 => {}
        _ => return Ok(None),
    }
    let region = MmapRegion::from_file(FileOffset::new(file.try_clone()?, 0), FILE_BYTES)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let word =
        |offset| -> &AtomicU64 { region.get_atomic_ref(offset).expect("an aligned word of the header") };
    if word(header::MAGIC).load(Ordering::Acquire) == 0 {
        let [low, high] = uuid.words();
        word(header::VERSION).store(VERSION, Ordering::Relaxed);
        word(header::UUID).store(low, Ordering::Relaxed);
        word(header::UUID + 8).store(high, Ordering::Relaxed);
        word(header::MAGIC).store(MAGIC, Ordering::Release);
    }
    Ok(Some(region))
}
