//! Writer of the log of registrations: one thread at a time, without a lock, from the registration of a fat
//! binary to the end of its contents.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::entries::{Entry, List, Log};

/// Returns a number that no other living thread has; never [`NOBODY`].
#[cfg(target_arch = "x86_64")]
#[inline]
fn this_thread() -> usize {
    let thread;
    // SAFETY: the ABI of x86-64 (ELF TLS, variant II) has a thread's own address at its segment's start, and
    // nothing writes there.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) thread, options(readonly, nostack, preserves_flags)) };
    thread
}

/// Returns a number that no other living thread has; never [`NOBODY`].
#[cfg(not(target_arch = "x86_64"))]
fn this_thread() -> usize {
    // SAFETY: has no requirements.
    unsafe { libc::pthread_self() as usize }
}

/// The log of registrations, and the thread that owns it from the registration of a fat binary to the end of
/// its contents. The struct is one cache line, because a start of GGML makes 8,430 calls that read and write
/// it.
#[repr(align(64))]
pub struct Writer {
    /// The thread that may use `open`. [`NOBODY`] means that a thread which holds the registry may become the
    /// owner.
    owner: AtomicUsize,
    open: UnsafeCell<Open>,
}

/// The value of [`Writer::owner`] that stands for no thread.
const NOBODY: usize = 0;

/// State that only the owner of the writer accesses.
pub struct Open {
    /// Handle of the fat binary whose contents are being registered; null between two of them.
    pub handle: *mut *mut c_void,
    /// Number of that fat binary.
    pub fatbin: u32,
    /// The log of registrations.
    pub log: Log,
}

// SAFETY: `open` is reached by its owner alone.
unsafe impl Sync for Writer {}

/// The only writer of the process.
pub static WRITER: Writer = Writer {
    owner: AtomicUsize::new(NOBODY),
    open: UnsafeCell::new(Open { handle: ptr::null_mut(), fatbin: 0, log: Log::new() }),
};

impl Writer {
    /// Calls `what` if the calling thread is the owner. `what` must not call the writer.
    #[inline]
    pub fn mine<T>(&self, what: impl FnOnce(&mut Open) -> T) -> Option<T> {
        if self.owner.load(Ordering::Relaxed) != this_thread() {
            return None;
        }
        // SAFETY: the calling thread is the owner, and no other reference lives in it: what gets one calls
        // nothing that could come back here.
        Some(what(unsafe { &mut *self.open.get() }))
    }

    /// Makes the calling thread, which holds the registry, the owner unless there is another one.
    pub fn try_own(&self) -> bool {
        let me = this_thread();
        match self.owner.compare_exchange(NOBODY, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => true,
            Err(owner) => owner == me,
        }
    }

    /// Releases the writer. The next owner finds what was written.
    pub fn release(&self) {
        self.owner.store(NOBODY, Ordering::Release);
    }

    /// Appends an entry to the log if the calling thread is the owner and the fatbin is the open one. Returns
    /// whether it did.
    #[inline]
    pub fn append(&self, handle: *mut *mut c_void, list: List, host: usize, name: *const c_char) -> bool {
        let appended = self.mine(|open| {
            let is_open = open.handle == handle;
            if is_open {
                open.log.append(list, Entry { host, name, fatbin: open.fatbin });
            }
            is_open
        });
        appended.unwrap_or(false)
    }

    /// Ends the contents of a fat binary. Returns false if it is not the open one of this thread.
    pub fn end(&self, handle: *mut *mut c_void) -> bool {
        let ended = self.mine(|open| {
            let ended = open.handle == handle;
            if ended {
                open.handle = ptr::null_mut();
            }
            ended
        });
        if ended == Some(true) {
            self.release();
        }
        ended == Some(true)
    }
}
