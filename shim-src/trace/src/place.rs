//! Path, disk space and mapping of a process's file. It is mapped once at its maximum length and extended
//! step by step, so that a full disk is an error and not a signal.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::fmt::{self, Write};
use core::ptr;

use vgpu_trace_format::{FILE_MOST, Header, PREFIX, Record};

/// Length of the header in bytes.
pub const HEADER: usize = size_of::<Header>();
/// Length of a record in bytes.
pub const RECORD: usize = size_of::<Record>();
/// Maximum number of records in a file.
pub const MOST: u64 = ((FILE_MOST - HEADER) / RECORD) as u64;
/// Number of bytes by which a file is extended.
const STEP: usize = 1 << 20;
/// Name of the environment variable for the directory, as a C string.
const FOLDER: &CStr = c"VGPU_TRACE";

/// Path of the file for system calls.
pub struct Path(UnsafeCell<[u8; Self::MOST]>);

// SAFETY: written by the one thread that opens the file, before any other can see it; read only after that.
unsafe impl Sync for Path {}

impl Path {
    const MOST: usize = 1024;

    /// Chooses the name of this process's file and creates it; `opened` is the time. Returns false if there
    /// is no directory for it, or if it cannot be created.
    ///
    /// # Safety
    /// At most one thread calls this, and nobody else uses the path meanwhile.
    pub unsafe fn make(&self, process: i32, opened: u64) -> bool {
        // SAFETY: a constant name. That nobody changes the environment meanwhile is every program's duty.
        let folder = unsafe { libc::getenv(FOLDER.as_ptr()) };
        if folder.is_null() {
            return false;
        }
        // SAFETY: getenv answers a text.
        let folder = unsafe { CStr::from_ptr(folder) }.to_bytes();
        // SAFETY: nobody else uses it, as the caller promises.
        let path = unsafe { &mut *self.0.get() };
        let mut text = Text { bytes: path, length: 0 };
        !folder.is_empty()
            && text.put(folder).is_ok()
            && write!(text, "/{PREFIX}{process}.{opened}\0").is_ok()
            && create(path)
    }

    /// Returns the bytes of the path, with a zero at the end.
    fn bytes(&self) -> &[u8] {
        // SAFETY: written once, by `make`, before the file could be seen.
        unsafe { &*self.0.get() }
    }

    /// Extends the file by one step beyond `room` records. Returns the number of records that there is room
    /// for now.
    pub fn grow(&self, room: u64) -> u64 {
        grow(self.bytes(), room)
    }

    /// Maps the file at its maximum length.
    pub fn map(&self) -> Option<*mut u8> {
        map(self.bytes())
    }
}

/// Formats a text into bytes. A text that does not fit is an error.
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

fn create(path: &[u8]) -> bool {
    let descriptor = open_path(path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL);
    close(descriptor);
    descriptor >= 0
}

/// Opens the file at the path, without following a link, for one operation: the program could close a
/// descriptor that is kept, and the number could then mean another file.
pub fn open_path(path: &[u8], flags: libc::c_int) -> libc::c_int {
    // SAFETY: the path ends in a zero. Raw, for the C library's function is a cancellation point.
    unsafe {
        let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600) as i32
    }
}

/// Closes a descriptor unless it is negative.
pub fn close(descriptor: libc::c_int) {
    if descriptor >= 0 {
        // SAFETY: made just now, and nobody else's.
        unsafe { libc::syscall(libc::SYS_close, descriptor) };
    }
}

/// Extends the file by one step beyond `room` records. Returns the number of records that there is room for
/// now.
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

/// Returns whether the limit on file size permits this length. Extending a file beyond the limit would raise
/// a signal.
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
    // A child makes a file of its own, and never writes here.
    // SAFETY: mapped just now.
    unsafe { libc::madvise(base, FILE_MOST, libc::MADV_DONTFORK) };
    Some(base.cast::<u8>())
}
