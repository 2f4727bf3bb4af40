//! The process's file: mapped at its full length once, given room a step at a time, so that a full disk is an answer
//! and not a signal. Records are handed out by one atomic addition; each is written by one thread.

use core::ffi::{CStr, c_void};
use core::fmt::{self, Write};
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering};

use vgpu_trace_format::{FILE_MOST, Header, Kind, MAGIC, PREFIX, Record, TEXT_AT, TEXT_MOST, VERSION};

use crate::errno::Kept;
use crate::resolve;
use crate::table::{self, Entry as Function};
use crate::thread::Thread;

const HEADER: usize = size_of::<Header>();
const RECORD: usize = size_of::<Record>();
/// Records that a file can hold.
const MOST: u64 = ((FILE_MOST - HEADER) / RECORD) as u64;
/// Bytes by which a file is given room.
const STEP: usize = 1 << 20;
/// The environment variable, for the C library.
const FOLDER: &CStr = c"VGPU_TRACE";

/// A process's file; all zero before it is opened.
pub struct File {
    base: AtomicPtr<u8>,
    /// Records that there is room for.
    room: AtomicU64,
    /// Somebody makes room, or there will be no more.
    growing: AtomicU32,
    generation: AtomicU32,
    path: Path,
}

/// A record of a call that is being made.
#[derive(Clone, Copy)]
pub struct Entry {
    record: *mut Record,
    generation: u32,
}

/// A path for system calls.
struct Path(core::cell::UnsafeCell<[u8; Self::MOST]>);

// SAFETY: written by the one thread that opens the file, before any other can see it; read only after that.
unsafe impl Sync for Path {}

impl Path {
    const MOST: usize = 1024;
}

/// Formats into bytes; what does not fit is an error.
struct Text<'a> {
    bytes: &'a mut [u8],
    length: usize,
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes())
    }
}

impl Text<'_> {
    fn put(&mut self, text: &[u8]) -> fmt::Result {
        let place = self.bytes.get_mut(self.length..self.length + text.len()).ok_or(fmt::Error)?;
        place.copy_from_slice(text);
        self.length += text.len();
        Ok(())
    }
}

/// Makes a file in the folder that the environment names; false if it names none, or none can be made there.
pub fn open(file: &File, generation: u32) -> bool {
    let _errno = Kept::new();
    // SAFETY: a constant name. That nobody changes the environment meanwhile is every program's duty.
    let folder = unsafe { libc::getenv(FOLDER.as_ptr()) };
    if folder.is_null() {
        return false;
    }
    // SAFETY: getenv answers a text.
    let folder = unsafe { CStr::from_ptr(folder) }.to_bytes();
    let opened = now();
    // SAFETY: takes nothing.
    let process = unsafe { libc::getpid() };
    // SAFETY: this thread alone opens the file, and it is not open yet.
    let path = unsafe { &mut *file.path.0.get() };
    let mut text = Text { bytes: path, length: 0 };
    if folder.is_empty()
        || text.put(folder).is_err()
        || write!(text, "/{PREFIX}{process}.{opened}\0").is_err()
        || !create(path)
    {
        return false;
    }
    let room = grow(path, 0);
    let base = if room == 0 { None } else { map(path) };
    let Some(base) = base else { return false };
    write_header(base.cast(), process as u32, opened);
    file.generation.store(generation, Ordering::Relaxed);
    file.room.store(room, Ordering::Relaxed);
    file.base.store(base, Ordering::Release);
    true
}

fn create(path: &[u8]) -> bool {
    let descriptor = open_path(path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL);
    close(descriptor);
    descriptor >= 0
}

/// Opens the path, for this moment: a descriptor that is kept can be closed by anybody and then mean another file.
fn open_path(path: &[u8], flags: libc::c_int) -> libc::c_int {
    // SAFETY: the path ends in a zero. Raw, for the C library's function is a cancellation point.
    unsafe {
        libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) as i32
    }
}

fn close(descriptor: libc::c_int) {
    if descriptor >= 0 {
        // SAFETY: made just now, and nobody else's.
        unsafe { libc::syscall(libc::SYS_close, descriptor) };
    }
}

/// Gives the file room for one step more than `room` records; how many there is room for now.
fn grow(path: &[u8], room: u64) -> u64 {
    let have = if room == 0 { 0 } else { HEADER + room as usize * RECORD };
    let want = (have.div_ceil(STEP) + 1) * STEP;
    if want > FILE_MOST || !allowed(want as u64) {
        return room;
    }
    let descriptor = open_path(path, libc::O_RDWR);
    if descriptor < 0 {
        return room;
    }
    // Blocks are taken now: touching a page for which there is none would kill the process.
    // SAFETY: the descriptor is open; the call writes zeros where there was nothing.
    let failed = unsafe { libc::posix_fallocate(descriptor, 0, want as libc::off_t) };
    close(descriptor);
    if failed == 0 { ((want - HEADER) / RECORD) as u64 } else { room }
}

/// Whether files of this process may become so long: trying sends a signal where they may not.
fn allowed(bytes: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one structure.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) == 0 && bytes <= limit.rlim_cur }
}

fn map(path: &[u8]) -> Option<*mut u8> {
    let descriptor = open_path(path, libc::O_RDWR);
    if descriptor < 0 {
        return None;
    }
    // SAFETY: a new mapping of a file that nobody else shortens; no address is asked for.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            FILE_MOST,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            descriptor,
            0,
        )
    };
    close(descriptor);
    if base == libc::MAP_FAILED {
        return None;
    }
    // A child makes a file of its own, and never writes here (`Entry::here`).
    // SAFETY: mapped just now.
    unsafe { libc::madvise(base, FILE_MOST, libc::MADV_DONTFORK) };
    Some(base.cast::<u8>())
}

fn write_header(header: *mut Header, process: u32, opened: u64) {
    // SAFETY: takes nothing.
    let parent = unsafe { libc::getppid() } as u32;
    let mut command = [0_u8; 4040];
    let descriptor = open_path(b"/proc/self/cmdline\0", libc::O_RDONLY);
    // SAFETY: writes at most that many bytes there; fails without a descriptor.
    let read = unsafe {
        libc::syscall(libc::SYS_read, descriptor, command.as_mut_ptr().cast::<c_void>(), command.len())
    };
    close(descriptor);
    let whole = Header {
        magic: MAGIC,
        version: VERSION,
        record_bytes: RECORD as u32,
        process,
        parent,
        opened,
        begun: 0,
        dropped: 0,
        command_bytes: read.max(0) as u32,
        reserved: 0,
        command,
    };
    // SAFETY: the first page of the mapping, which has room and is nobody else's yet.
    unsafe { header.write(whole) };
}

/// Nanoseconds on the clock of the file.
#[inline]
pub fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: reads the kernel's shared page and writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

impl File {
    /// What lies at `offset` of the file: at a multiple of its alignment, for the file is mapped at a page and all offsets are multiples of
    /// eight.
    fn place<T>(&self, offset: usize) -> *mut T {
        self.base.load(Ordering::Relaxed).wrapping_add(offset).cast::<T>()
    }

    /// A word of the header.
    fn counter(&self, offset: usize) -> &AtomicU64 {
        let word = self.place::<u64>(offset);
        // SAFETY: the header is mapped for good, the offset is that of an aligned u64 in it, and this process touches
        // these words only so.
        unsafe { AtomicU64::from_ptr(word) }
    }

    /// The next free record and its number.
    #[inline]
    fn take(&self) -> Option<(*mut Record, u64)> {
        let number = self.counter(offset_of!(Header, begun)).fetch_add(1, Ordering::Relaxed);
        if number >= self.room.load(Ordering::Acquire) && !self.make_room(number) {
            self.counter(offset_of!(Header, dropped)).fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let at = HEADER + number as usize * RECORD;
        Some((self.place::<Record>(at), number))
    }

    #[cold]
    fn make_room(&self, number: u64) -> bool {
        let _errno = Kept::new();
        if number >= MOST {
            return false;
        }
        loop {
            let room = self.room.load(Ordering::Acquire);
            if number < room {
                return true;
            }
            match self.growing.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    // SAFETY: the path was written before the file could be seen.
                    let path = unsafe { &*self.path.0.get() };
                    let grown = grow(path, room);
                    self.room.store(grown, Ordering::Release);
                    // 2: there is no more, and nobody need try.
                    self.growing.store(if grown == room { 2 } else { 0 }, Ordering::Release);
                }
                Err(2) => return false,
                // SAFETY: takes nothing.
                Err(_) => drop(unsafe { libc::sched_yield() }),
            }
        }
    }

    fn entry(&self, record: *mut Record) -> Entry {
        Entry { record, generation: self.generation.load(Ordering::Relaxed) }
    }

    /// Begins a record: all of it, then its kind, so that a reader never takes half of one for a whole.
    #[inline]
    fn write(&self, kind: u32, content: &Record) -> Option<(Entry, u64)> {
        let (record, number) = self.take()?;
        // SAFETY: the record is in the mapping, there is room for it, and it is this thread's alone.
        unsafe { record.write(Record { kind: Kind::Empty as u32, ..*content }) };
        // SAFETY: as above; an aligned u32.
        unsafe { AtomicU32::from_ptr(record.wrapping_byte_add(offset_of!(Record, kind)).cast::<u32>()) }
            .store(kind, Ordering::Release);
        Some((self.entry(record), number))
    }

    /// Writes text into as many records as it takes.
    fn text(&self, kind: Kind, content: Record, text: &[u8]) {
        for (part, text) in text.chunks(TEXT_MOST).enumerate() {
            let part = if kind == Kind::Library { part as u16 } else { content.depth };
            let mut record = Record { depth: part, ..content };
            // SAFETY: a record is plain bytes, and its last TEXT_MOST bytes are within it.
            unsafe {
                let place = (&raw mut record).cast::<u8>().wrapping_add(TEXT_AT);
                ptr::copy_nonoverlapping(text.as_ptr(), place, text.len());
            }
            self.write(kind as u32, &record);
        }
    }

    /// Makes the function's number known to this file.
    #[inline]
    pub fn name(&self, index: u32, function: &Function, real: *const u8) {
        let Some(slot) = table::slots().get(index as usize) else { return };
        let generation = u64::from(self.generation.load(Ordering::Relaxed));
        if slot.load(Ordering::Relaxed) >> 32 != generation {
            slot.store(generation << 32, Ordering::Relaxed);
            self.new_name(index, function, real);
        }
    }

    #[cold]
    fn new_name(&self, index: u32, function: &Function, real: *const u8) {
        let name = Record {
            index,
            depth: u16::from(function.library),
            flags: resolve::returns(function),
            ..Record::default()
        };
        self.text(Kind::Name, name, function.name().to_bytes());
        if let Some(file) = resolve::file_of(real) {
            let library = Record { index: u32::from(function.library), ..Record::default() };
            self.text(Kind::Library, library, file.to_bytes());
        }
    }

    /// Counts a call of a function of which there are thousands.
    pub fn count(&self, index: u32, function: &Function, real: *const u8) {
        let Some(slot) = table::slots().get(index as usize) else { return };
        let generation = self.generation.load(Ordering::Relaxed);
        let known = slot.load(Ordering::Acquire);
        let time = now();
        if known >> 32 != u64::from(generation) || known as u32 == 0 {
            self.name(index, function, real);
            let record = Record { index, begin: time, ..Record::default() };
            let Some((entry, number)) = self.write(Kind::Count as u32, &record) else { return };
            // Two threads that are first at once have a record each: the reader adds them up.
            slot.store(u64::from(generation) << 32 | (number + 1), Ordering::Release);
            entry.add(time);
            return;
        }
        let at = HEADER + (known as u32 - 1) as usize * RECORD;
        let record = self.place::<Record>(at);
        self.entry(record).add(time);
    }

    /// Begins a call.
    #[inline]
    pub fn call(&self, thread: &Thread, index: u32, arguments: &[u64; 6]) -> Option<Entry> {
        let content = Record {
            index,
            thread: self.thread(thread),
            depth: thread.depth(),
            arguments: *arguments,
            begin: now(),
            ..Record::default()
        };
        Some(self.write(Kind::Call as u32, &content)?.0)
    }

    /// Writes a record that is complete: kind and index, begin and end (0: now), a result and an argument.
    pub fn event(&self, thread: &Thread, what: [u32; 2], when: [u64; 2], result: u64, argument: u64) {
        let [begin, end] = when.map(|time| if time == 0 { now() } else { time });
        let content = Record {
            index: what[1],
            thread: self.thread(thread),
            depth: thread.depth(),
            begin,
            end,
            result,
            arguments: [argument, 0, 0, 0, 0, 0],
            ..Record::default()
        };
        self.write(what[0], &content);
    }

    /// The thread's number; the first time, its name too.
    #[inline]
    fn thread(&self, thread: &Thread) -> u32 {
        let (number, new) = thread.number(self.generation.load(Ordering::Relaxed));
        if new {
            let mut name = [0_u8; 16];
            // SAFETY: the call writes at most sixteen bytes.
            unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
            self.text(Kind::Thread, Record { thread: number, ..Record::default() }, &name);
        }
        number
    }
}

impl Entry {
    /// No record.
    pub const NONE: Self = Self { record: ptr::null_mut(), generation: 0 };

    /// Whether the record is of this file: a forked child may return from a call that its parent began.
    fn here(&self, file: &File) -> bool {
        !self.record.is_null() && self.generation == file.generation.load(Ordering::Relaxed)
    }

    /// Completes it.
    #[inline]
    pub fn end(&self, file: &File, result: u64) {
        if self.here(file) {
            // SAFETY: the record is mapped and this call's; an aligned u64.
            unsafe {
                AtomicU64::from_ptr(self.record.wrapping_byte_add(offset_of!(Record, result)).cast::<u64>())
            }
            .store(result, Ordering::Relaxed);
            // SAFETY: as above.
            unsafe {
                AtomicU64::from_ptr(self.record.wrapping_byte_add(offset_of!(Record, end)).cast::<u64>())
            }
            .store(now(), Ordering::Release);
        }
    }

    /// Sets its flags.
    pub fn mark(&self, file: &File, flags: u16) {
        if self.here(file) {
            // SAFETY: as in `end`; an aligned u16.
            unsafe {
                AtomicU16::from_ptr(self.record.wrapping_byte_add(offset_of!(Record, flags)).cast::<u16>())
            }
            .store(flags, Ordering::Relaxed);
        }
    }

    /// Counts one more, at that time.
    fn add(&self, time: u64) {
        // SAFETY: the record is one of this file that there is room for; an aligned u64.
        unsafe {
            AtomicU64::from_ptr(self.record.wrapping_byte_add(offset_of!(Record, result)).cast::<u64>())
        }
        .fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.record.wrapping_byte_add(offset_of!(Record, end)).cast::<u64>()) }
            .store(time, Ordering::Relaxed);
    }
}
