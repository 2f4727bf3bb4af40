//! The record of a device: a memory file from which the next process learns, after this one's death, what the
//! VMM's connection was, and which processes this one has started.
//!
//! ```text
//!      0  magic and version
//!      8  answering: how far the reply to the first request in the socket is, in one word
//!     16  processes: start time and number of each, the number last
//!   4096  two slots: sequence number, length and checksum, an image ([`Image`])
//! ```
//!
//! The file is mapped, so that a record costs no system call, and a death at any moment leaves what was stored
//! until then, in the order of the stores. So:
//! - `answering` is one word, which is either the old one or the new one.
//! - A process is there once its number is, which is stored after its start time and removed before.
//! - An image is written to the slot that is not the newest. The slot has no sequence number until it is
//!   whole, so that a death in between leaves the other slot as the newest.
//!
//! A checksum that is wrong under a sequence number is therefore no death, but damage: the record is refused
//! as a whole, because the older image may have a map of memory that is no longer the guest's.

mod image;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use vgpu_device::{Window, WindowError};

use crate::recorder::Answering;

pub use image::{ConnectionImage, FileId, Image, ImageError, Loss, MAX_FILES, MAX_REGIONS, RegionImage};

/// First word of a record: a magic number, and the version of its layout in the lowest byte.
pub const MAGIC: u64 = 0x5647_5055_5245_4301;
const ANSWERING: u64 = 8;
const PROCESSES: u64 = 16;
/// Number of processes that fit: each of 64 sessions has one, and those that are still ending.
const MAX_PROCESSES: u64 = 240;
/// Size of an entry: its start time, and its number.
const PROCESS_BYTES: u64 = 16;
/// Offset and size of the two slots.
const SLOTS: u64 = 4096;
const SLOT_BYTES: u64 = 32 << 10;
/// Offset of the image in its slot. Before it are the sequence number, and the checksum with the length.
const IMAGE: u64 = 16;
/// Size of the file.
const BYTES: u64 = SLOTS + 2 * SLOT_BYTES;

const _: () = assert!(PROCESSES + MAX_PROCESSES * PROCESS_BYTES <= SLOTS);
const _: () = assert!(image::MAX_BYTES as u64 + IMAGE <= SLOT_BYTES);

/// Kinds of [`Answering`] in the upper half of its word. The lower half is the id.
const REPLY: u64 = 1;
const REST: u64 = 2;

/// Reason for which a file is not a record that can be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum RecordError {
    #[error("it cannot be looked at")]
    File(#[source] io::Error),
    #[error("it cannot be mapped")]
    Map(#[from] WindowError),
    #[error("it is not a sealed file of {BYTES} bytes")]
    Size,
    #[error("it begins with {0:#x}: another version of vgpu-device has written it")]
    Version(u64),
    #[error("it says {0:#x} of the answer that is on its way")]
    Answering(u64),
    #[error("nothing has been recorded in it")]
    Empty,
    #[error("its checksum is wrong")]
    Checksum,
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// A process of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedProcess {
    /// Number of the process.
    pub pid: u32,
    /// Time of its start in clock ticks since the system's, as `/proc/PID/stat` has it. With it a number that
    /// another process has got is told apart.
    pub start: u64,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The newest image.
    pub image: Image,
    /// How far the reply to the first request in the socket was.
    pub answering: Answering,
    /// Processes that have not been reaped.
    pub processes: Vec<RecordedProcess>,
}

/// A record that this process writes.
#[derive(Debug)]
pub struct Record {
    memory: Window,
    /// The image that was written last, and its sequence number.
    newest: Mutex<(Option<Image>, u64)>,
    /// Held while an entry of a process is taken.
    processes: Mutex<()>,
}

impl Record {
    /// Makes a record that says nothing yet.
    pub fn new() -> Result<Self, WindowError> {
        let memory = Window::anonymous(BYTES)?;
        memory.u64_at(0).store(MAGIC, Ordering::Release);
        Ok(Self { memory, newest: Mutex::default(), processes: Mutex::default() })
    }

    /// Opens the record of a process that has died, to read it and to write it further. Nothing else writes it
    /// any more.
    pub fn open(file: OwnedFd) -> Result<(Self, Recorded), RecordError> {
        let sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let size = fstat(&file).map_err(|error| RecordError::File(error.into()))?.st_size;
        // A file that others could shrink would raise SIGBUS.
        if !sealed || u64::try_from(size) != Ok(BYTES) {
            return Err(RecordError::Size);
        }
        let memory = Window::from_file_range(File::from(file), 0, BYTES)?;
        let mut bytes = vec![0; BYTES as usize];
        memory.slice(0, BYTES).ok_or(RecordError::Size)?.copy_to(&mut bytes);
        let (recorded, sequence) = read(&bytes)?;
        let newest = Mutex::new((Some(recorded.image.clone()), sequence));
        Ok((Self { memory, newest, processes: Mutex::default() }, recorded))
    }

    /// Returns the file, for whoever keeps it.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    /// Records how far a reply is.
    pub fn answering(&self, answering: Answering) {
        let word = match answering {
            Answering::Nothing => 0,
            Answering::Reply(id) => REPLY << 32 | u64::from(id),
            Answering::Rest => REST << 32,
        };
        self.memory.u64_at(ANSWERING).store(word, Ordering::Release);
    }

    /// Changes the image. One that is not recorded as a whole would be wrong, so an image that does not fit
    /// is recorded without its connection, with the reason ([`Image::loss`]).
    pub fn change(&self, change: impl FnOnce(&mut Image)) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let (image, sequence) = &mut *newest;
        let image = image.get_or_insert_default();
        change(image);
        let bytes = image.encode();
        *sequence += 1;
        let slot = SLOTS + *sequence % 2 * SLOT_BYTES;
        self.memory.u64_at(slot).store(0, Ordering::Relaxed);
        // What follows is not stored before.
        fence(Ordering::SeqCst);
        if let Some(place) = self.memory.slice(slot + IMAGE, bytes.len() as u64) {
            place.copy_from(&bytes);
        }
        let check = u64::from(crc32fast::hash(&bytes)) << 32 | bytes.len() as u64;
        self.memory.u64_at(slot + 8).store(check, Ordering::Relaxed);
        self.memory.u64_at(slot).store(*sequence, Ordering::Release);
    }

    /// Returns the image that was recorded last.
    #[must_use]
    pub fn image(&self) -> Image {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).0.clone().unwrap_or_default()
    }

    /// Records a process until the returned value is dropped. Returns `None` if there is no room for it.
    #[must_use]
    pub fn add(self: &Arc<Self>, process: RecordedProcess) -> Option<ProcessEntry> {
        let _taking = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let free = |entry: &u64| self.memory.u64_at(entry + 8).load(Ordering::Acquire) == 0;
        let entry = (0..MAX_PROCESSES).map(|index| PROCESSES + PROCESS_BYTES * index).find(free)?;
        self.memory.u64_at(entry).store(process.start, Ordering::Release);
        self.memory.u64_at(entry + 8).store(process.pid.into(), Ordering::Release);
        Some(ProcessEntry { record: Arc::clone(self), entry })
    }

    /// Returns the processes that are recorded, each until it is dropped: those of the program that this
    /// process was before.
    #[must_use]
    pub fn entries(self: &Arc<Self>) -> Vec<ProcessEntry> {
        let entries = (0..MAX_PROCESSES).map(|index| PROCESSES + PROCESS_BYTES * index);
        let taken = entries.filter(|entry| self.memory.u64_at(entry + 8).load(Ordering::Acquire) != 0);
        taken.map(|entry| ProcessEntry { record: Arc::clone(self), entry }).collect()
    }

    /// Forgets all processes, because they are dead.
    pub fn forget_processes(&self) {
        for index in 0..MAX_PROCESSES {
            self.memory.u64_at(PROCESSES + PROCESS_BYTES * index + 8).store(0, Ordering::Release);
        }
    }
}

/// A recorded process. It is removed from the record when this is dropped.
#[derive(Debug)]
pub struct ProcessEntry {
    record: Arc<Record>,
    entry: u64,
}

impl Drop for ProcessEntry {
    fn drop(&mut self) {
        self.record.memory.u64_at(self.entry + 8).store(0, Ordering::Release);
    }
}

/// Reads the bytes of a record. Returns the sequence number of its newest image, too.
///
/// # Errors
/// They are none that [`Record`] has written.
pub fn read(bytes: &[u8]) -> Result<(Recorded, u64), RecordError> {
    if bytes.len() as u64 != BYTES {
        return Err(RecordError::Size);
    }
    let word = |at: u64| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at as usize..][..8]);
        u64::from_ne_bytes(word)
    };
    if word(0) != MAGIC {
        return Err(RecordError::Version(word(0)));
    }
    let answering = match (word(ANSWERING) >> 32, u16::try_from(word(ANSWERING) & 0xffff_ffff)) {
        (0, Ok(0)) => Answering::Nothing,
        (REPLY, Ok(id)) => Answering::Reply(id),
        (REST, Ok(0)) => Answering::Rest,
        _ => return Err(RecordError::Answering(word(ANSWERING))),
    };
    let entry = |index: u64| PROCESSES + PROCESS_BYTES * index;
    let process = |index| {
        let pid = u32::try_from(word(entry(index) + 8)).ok().filter(|pid| *pid != 0)?;
        Some(RecordedProcess { pid, start: word(entry(index)) })
    };
    let processes = (0..MAX_PROCESSES).filter_map(process).collect();
    let newest = [SLOTS, SLOTS + SLOT_BYTES].into_iter().max_by_key(|slot| word(*slot)).unwrap_or(SLOTS);
    let sequence = word(newest);
    if sequence == 0 {
        return Err(RecordError::Empty);
    }
    let check = word(newest + 8);
    let length = check & 0xffff_ffff;
    if length > SLOT_BYTES - IMAGE {
        return Err(RecordError::Checksum);
    }
    let image = &bytes[(newest + IMAGE) as usize..][..length as usize];
    if u64::from(crc32fast::hash(image)) != check >> 32 {
        return Err(RecordError::Checksum);
    }
    Ok((Recorded { image: Image::decode(image)?, answering, processes }, sequence))
}

/// Returns the time of a process's start, or `None` if there is no such process.
///
/// # Errors
/// It cannot be read.
pub fn start_of(pid: u32) -> io::Result<Option<u64>> {
    let text = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // It died while it was looked at.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => return Ok(None),
        text => text?,
    };
    // The name before may have any character. The start is the 22nd field, and the state behind the name the
    // 3rd.
    let fields = text.rsplit_once(')').map(|(_, fields)| fields.split_ascii_whitespace());
    let start = fields.and_then(|mut fields| fields.nth(19)).and_then(|start| start.parse().ok());
    start.map(Some).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has no start time")))
}

impl AsFd for Record {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::image::tests::images;
    use super::*;

    fn bytes(record: &Record) -> Vec<u8> {
        let mut bytes = vec![0; BYTES as usize];
        record.memory.slice(0, BYTES).unwrap().copy_to(&mut bytes);
        bytes
    }

    fn image(generation: u32) -> Image {
        Image { generation, ..Image::default() }
    }

    #[test]
    fn the_next_process_reads_what_was_recorded_last() {
        let record = Arc::new(Record::new().unwrap());
        assert!(matches!(read(&bytes(&record)), Err(RecordError::Empty)));
        for generation in 1..5 {
            record.change(|image| image.generation = generation);
        }
        record.answering(Answering::Reply(0xfffe));
        let one = record.add(RecordedProcess { pid: 7, start: 70 }).unwrap();
        let two = record.add(RecordedProcess { pid: 8, start: 80 }).unwrap();
        drop(one);
        let (next, recorded) = Record::open(record.file().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!((&recorded.image, recorded.answering), (&image(4), Answering::Reply(0xfffe)));
        assert_eq!(recorded.processes, [RecordedProcess { pid: 8, start: 80 }]);
        drop(two);
        next.forget_processes();
        next.change(|image| image.generation = 5);
        let (_, recorded) = Record::open(next.file().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!((recorded.image, recorded.processes.len()), (image(5), 0));
    }

    /// A death at any store leaves the image before or the new one.
    #[test]
    fn a_death_between_two_stores_leaves_a_record() {
        let record = Record::new().unwrap();
        record.change(|image| image.generation = 1);
        record.change(|image| image.generation = 2);
        let before = bytes(&record);
        record.change(|image| image.generation = 3);
        let after = bytes(&record);
        // The third image is in the second slot, as each odd one is.
        let slot = (SLOTS + SLOT_BYTES) as usize;
        let mut dying = before.clone();
        // The stores in their order: no sequence number, the bytes one by one, the checksum, the number.
        dying[slot..slot + 8].fill(0);
        assert_eq!(read(&dying).unwrap().0.image, image(2));
        for at in slot + 8..slot + SLOT_BYTES as usize {
            if dying[at] != after[at] {
                dying[at] = after[at];
                assert_eq!(read(&dying).unwrap().0.image, image(2), "{at}");
            }
        }
        dying[slot..slot + 8].copy_from_slice(&after[slot..slot + 8]);
        assert_eq!(dying, after);
        assert_eq!(read(&dying).unwrap().0.image, image(3));
    }

    #[test]
    fn damage_is_refused() {
        let record = Record::new().unwrap();
        record.change(|image| image.generation = 1);
        let good = bytes(&record);
        let slot = (SLOTS + SLOT_BYTES) as usize;
        for (at, is_expected) in [
            (0, (|error| matches!(error, RecordError::Version(_))) as fn(RecordError) -> bool),
            (12 + 1, |error| matches!(error, RecordError::Answering(_))),
            (slot + 8, |error| matches!(error, RecordError::Checksum)),
            (slot + 16, |error| matches!(error, RecordError::Checksum)),
        ] {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            assert!(is_expected(read(&bad).unwrap_err()), "{at}");
        }
        let open = |file: File| Record::open(file.into()).map(drop);
        assert!(matches!(open(tempfile::tempfile().unwrap()), Err(RecordError::Size)));
        let unsealed = tempfile::tempfile().unwrap();
        unsealed.set_len(BYTES).unwrap();
        assert!(matches!(open(unsealed), Err(RecordError::Size)));
        let other = Window::anonymous(BYTES / 2).unwrap();
        assert!(matches!(Record::open(other.file().try_clone_to_owned().unwrap()), Err(RecordError::Size)));
    }

    #[test]
    fn the_table_of_processes_is_bounded() {
        let record = Arc::new(Record::new().unwrap());
        let mut entries: Vec<_> = (1..=MAX_PROCESSES as u32)
            .map(|pid| record.add(RecordedProcess { pid, start: 1 }).unwrap())
            .collect();
        assert!(record.add(RecordedProcess { pid: 9999, start: 1 }).is_none());
        entries.pop();
        assert!(record.add(RecordedProcess { pid: 9999, start: 1 }).is_some());
    }

    #[test]
    fn a_process_has_a_start() {
        let own = start_of(std::process::id()).unwrap().unwrap();
        assert!(own > 0 && start_of(1).unwrap().unwrap() <= own);
        assert_eq!(start_of(u32::MAX).unwrap(), None);
    }

    proptest! {
        #[test]
        fn what_was_recorded_is_read(first in images(), second in images()) {
            let record = Record::new().unwrap();
            for written in [&first, &second, &first] {
                record.change(|image| *image = written.clone());
                prop_assert_eq!(&read(&bytes(&record)).unwrap().0.image, written);
            }
        }

        #[test]
        fn no_damage_panics(changes in proptest::collection::vec((0..BYTES as usize, any::<u8>()), 0..40), near in proptest::collection::vec((SLOTS as usize..SLOTS as usize + 600, any::<u8>()), 0..8), image in images()) {
            let record = Record::new().unwrap();
            record.change(|written| *written = image.clone());
            record.change(|_| ());
            let mut bytes = bytes(&record);
            for (at, byte) in changes.into_iter().chain(near) {
                bytes[at] = byte;
            }
            if let Ok((read, _)) = read(&bytes) {
                // Damage of an image is seen.
                prop_assert_eq!(read.image, image);
            }
        }
    }
}
