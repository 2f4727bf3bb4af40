//! The trace file of the process. Records are allocated by one atomic addition, and each is written by one
//! thread. A full file still holds the calls in flight, in its header.

use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use vgpu_trace_format::{
    COMMAND_MOST, CURRENT, Current, Header, MAGIC, Record, RecordKind, TEXT_AT, TEXT_MOST, VERSION,
};

use crate::entry::Entry;
use crate::errno::Kept;
use crate::place::{HEADER, MOST, Path, RECORD, close, open_path};
use crate::resolve;
use crate::table::{self, Entry as Function};
use crate::thread::Thread;

/// State of a process's trace file; all zero before the file is opened.
pub struct File {
    base: AtomicPtr<u8>,
    /// Number of records that there is room for.
    room: AtomicU64,
    /// Whether a thread is making room, or there will be no more room.
    growing: AtomicU32,
    generation: AtomicU32,
    path: Path,
}

/// Creates a file in the directory that the environment names. Returns false if it names none, or if the file
/// cannot be created.
pub fn open(file: &File, generation: u32) -> bool {
    let _errno = Kept::new();
    let opened = now();
    // SAFETY: takes nothing.
    let process = unsafe { libc::getpid() };
    // SAFETY: this thread alone opens the file, and it is not open yet.
    if !unsafe { file.path.make(process, opened) } {
        return false;
    }
    let room = file.path.grow(0);
    let base = if room == 0 { None } else { file.path.map() };
    let Some(base) = base else { return false };
    write_header(base.cast(), process as u32, opened);
    file.generation.store(generation, Ordering::Relaxed);
    file.room.store(room, Ordering::Relaxed);
    file.base.store(base, Ordering::Release);
    true
}

fn write_header(header: *mut Header, process: u32, opened: u64) {
    // SAFETY: takes nothing.
    let parent = unsafe { libc::getppid() } as u32;
    let mut command = [0_u8; COMMAND_MOST];
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
        taken: 0,
        current: [Current::default(); CURRENT],
        command,
    };
    // SAFETY: the first page of the mapping, which has room and is nobody else's yet.
    unsafe { header.write(whole) };
}

/// Returns nanoseconds on CLOCK_MONOTONIC, the clock of the file.
#[inline]
pub fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: reads the kernel's shared page and writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Writes a record and then its kind, so that a reader never mistakes half a record for a whole one.
///
/// # Safety
/// The record is in the mapping of a file that has room for it, and nobody else writes to it.
#[inline]
unsafe fn put(record: *mut Record, kind: u32, content: &Record) {
    // SAFETY: as the caller promises.
    unsafe { record.write(Record { kind: RecordKind::Empty as u32, ..*content }) };
    // SAFETY: as above; an aligned u32.
    unsafe { AtomicU32::from_ptr(record.wrapping_byte_add(offset_of!(Record, kind)).cast::<u32>()) }
        .store(kind, Ordering::Release);
}

/// Returns a copy of the record with the start of a text.
fn with_text(content: &Record, text: &[u8]) -> Record {
    let mut record = *content;
    // SAFETY: a record is plain bytes, and its last TEXT_MOST bytes are within it.
    unsafe {
        let place = (&raw mut record).cast::<u8>().wrapping_add(TEXT_AT);
        ptr::copy_nonoverlapping(text.as_ptr(), place, text.len().min(TEXT_MOST));
    }
    record
}

/// Returns the record of a function's name, without the text.
fn named(index: u32, function: &Function) -> Record {
    let (depth, flags) = (u16::from(function.library), resolve::returns(function));
    Record { index, depth, flags, ..Record::default() }
}

impl File {
    /// Returns the address of `offset` in the file, a multiple of the type's alignment: the file is mapped at
    /// a page, and all offsets are multiples of eight.
    fn place<T>(&self, offset: usize) -> *mut T {
        self.base.load(Ordering::Relaxed).wrapping_add(offset).cast::<T>()
    }

    /// Returns the generation of the file, which counts the files of this process and its ancestors.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Returns a counter in the header.
    fn counter(&self, offset: usize) -> &AtomicU64 {
        let word = self.place::<u64>(offset);
        // SAFETY: the header is mapped for good, the offset is that of an aligned u64 in it, and this process
        // touches these words only so.
        unsafe { AtomicU64::from_ptr(word) }
    }

    /// Allocates a record. Returns it with its number, or `None` if there is no room.
    #[inline]
    fn claim(&self) -> Option<(*mut Record, u64)> {
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
                    let grown = self.path.grow(room);
                    self.room.store(grown, Ordering::Release);
                    // 2 means that there is no more room, so no thread need try.
                    self.growing.store(if grown == room { 2 } else { 0 }, Ordering::Release);
                }
                Err(2) => return false,
                // SAFETY: takes nothing.
                Err(_) => drop(unsafe { libc::sched_yield() }),
            }
        }
    }

    fn entry(&self, record: *mut Record) -> Entry {
        Entry::new(record, self.generation(), 0)
    }

    /// Writes a new record. Returns its entry and its number.
    #[inline]
    fn write(&self, kind: u32, content: &Record) -> Option<(Entry, u64)> {
        let (record, number) = self.claim()?;
        // SAFETY: the record is in the mapping, there is room for it, and it is this thread's alone.
        unsafe { put(record, kind, content) };
        Some((self.entry(record), number))
    }

    /// Writes text into as many records as it takes.
    fn text(&self, kind: RecordKind, content: Record, text: &[u8]) {
        for (part, text) in text.chunks(TEXT_MOST).enumerate() {
            let numbered = matches!(kind, RecordKind::Library | RecordKind::Reason | RecordKind::Kernel);
            let part = if numbered { part as u16 } else { content.depth };
            self.write(kind as u32, &with_text(&Record { depth: part, ..content }, text));
        }
    }

    /// Writes the function's name to the file, unless the file has it already.
    #[inline]
    pub fn name(&self, index: u32, function: &Function, real: *const u8) {
        let Some(slot) = table::slots().get(index as usize) else { return };
        let generation = u64::from(self.generation());
        if slot.load(Ordering::Relaxed) >> 32 != generation {
            slot.store(generation << 32, Ordering::Relaxed);
            self.new_name(index, function, real);
        }
    }

    #[cold]
    fn new_name(&self, index: u32, function: &Function, real: *const u8) {
        self.text(RecordKind::Name, named(index, function), function.name().to_bytes());
        if let Some(file) = resolve::file_of(real) {
            let library = Record { index: u32::from(function.library), ..Record::default() };
            self.text(RecordKind::Library, library, file.to_bytes());
        }
    }

    /// Counts a call without recording it: kernel registrations, of which a start makes thousands.
    pub fn count(&self, index: u32, function: &Function, real: *const u8) {
        let Some(slot) = table::slots().get(index as usize) else { return };
        let generation = self.generation();
        let known = slot.load(Ordering::Acquire);
        let time = now();
        if known >> 32 != u64::from(generation) || known as u32 == 0 {
            self.name(index, function, real);
            let record = Record { index, begin: time, ..Record::default() };
            let Some((entry, number)) = self.write(RecordKind::Count as u32, &record) else { return };
            // Two threads that are first at once have a record each: the reader adds them up.
            slot.store(u64::from(generation) << 32 | (number + 1), Ordering::Release);
            entry.add(time);
            return;
        }
        let at = HEADER + (known as u32 - 1) as usize * RECORD;
        let record = self.place::<Record>(at);
        self.entry(record).add(time);
    }

    /// Records the start of a call. One for which there is no room is in the header of the file until it
    /// returns.
    #[inline]
    pub fn call(
        &self,
        thread: &Thread,
        index: u32,
        function: &Function,
        arguments: &[u64; 6],
    ) -> Option<Entry> {
        let content = Record {
            index,
            thread: self.thread(thread),
            depth: thread.depth(),
            arguments: *arguments,
            begin: now(),
            ..Record::default()
        };
        match self.write(RecordKind::Call as u32, &content) {
            Some((entry, _)) => Some(entry),
            None => self.call_at_head(function, &content),
        }
    }

    #[cold]
    fn call_at_head(&self, function: &Function, call: &Record) -> Option<Entry> {
        let taken = self.taken();
        let free = |taken: u32| (taken.trailing_ones() < CURRENT as u32).then(|| taken | (taken + 1));
        let before = taken.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).ok()?;
        let number = before.trailing_ones();
        let at = offset_of!(Header, current) + number as usize * size_of::<Current>();
        let name = with_text(&named(call.index, function), function.name().to_bytes());
        // SAFETY: in the header, and this thread's alone until the bit is cleared.
        unsafe { put(self.place(at + offset_of!(Current, name)), RecordKind::Name as u32, &name) };
        let record = self.place(at + offset_of!(Current, call));
        // SAFETY: as above.
        unsafe { put(record, RecordKind::Call as u32, call) };
        Some(Entry::new(record, self.generation(), 1 << number))
    }

    fn taken(&self) -> &AtomicU32 {
        let word = self.place::<u32>(offset_of!(Header, taken));
        // SAFETY: as in `counter`; an aligned u32.
        unsafe { AtomicU32::from_ptr(word) }
    }

    /// Completes the record of a call.
    #[inline]
    pub fn end(&self, entry: &Entry, result: u64) {
        if entry.is_of(self.generation()) && !entry.end(result, now) {
            self.free_head(entry.head());
        }
    }

    /// Stores that the end of a call will not be recorded.
    pub fn lose(&self, entry: &Entry) {
        if entry.is_of(self.generation()) && !entry.lose() {
            self.free_head(entry.head());
        }
    }

    /// Frees an entry of the header.
    #[cold]
    fn free_head(&self, bit: u32) {
        self.taken().fetch_and(!bit, Ordering::Release);
    }

    /// Writes a complete record: kind and index, start and end time (0: now), a result and an argument.
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

    /// Writes why the host refused a call, into as many records as the text needs.
    pub fn refusal(&self, thread: &Thread, kind: u32, status: u32, reason: &[u8]) {
        let what = [RecordKind::Refusal as u32, kind];
        self.event(thread, what, [0, 0], u64::from(status), reason.len() as u64);
        let content = Record { thread: self.thread(thread), ..Record::default() };
        self.text(RecordKind::Reason, content, reason);
    }

    /// Writes a kernel's name, into as many records as it needs.
    pub fn kernel(&self, session: u32, function: u32, name: &[u8]) {
        let content = Record { index: function, flags: session as u16, ..Record::default() };
        self.text(RecordKind::Kernel, content, name);
    }

    /// Returns the thread's number, and writes its name if the file does not have it yet.
    #[inline]
    fn thread(&self, thread: &Thread) -> u32 {
        let (number, new) = thread.number(self.generation());
        if new {
            let mut name = [0_u8; 16];
            // SAFETY: the call writes at most sixteen bytes.
            unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
            self.text(RecordKind::Thread, Record { thread: number, ..Record::default() }, &name);
        }
        number
    }
}
