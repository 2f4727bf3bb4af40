//! Who writes to the log of registrations: one thread at a time, without a lock, from the registration of a
//! fatbin to the end of its contents.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::entries::{List, Log};

/// What tells the calling thread from every other that lives; never [`NOBODY`].
#[cfg(target_arch = "x86_64")]
#[inline]
fn this_thread() -> usize {
    let thread;
    // SAFETY: the ABI of x86-64 (ELF TLS, variant II) has a thread's own address at its segment's start, and
    // nothing writes there.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) thread, options(readonly, nostack, preserves_flags)) };
    thread
}

/// What tells the calling thread from every other that lives; never [`NOBODY`].
#[cfg(not(target_arch = "x86_64"))]
fn this_thread() -> usize {
    // SAFETY: has no requirements.
    unsafe { libc::pthread_self() as usize }
}

/// The log, and who writes to it: a thread from the registration of a fatbin to the end of its contents. In
/// one line of the cache:
/// 8,430 calls of a start need nothing else.
#[repr(align(64))]
pub struct Writer {
    /// The thread that may use `open`; [`NOBODY`]: whoever holds the registry and makes itself the owner.
    owner: AtomicUsize,
    open: UnsafeCell<Open>,
}

/// [`Writer::owner`]: no thread.
const NOBODY: usize = 0;

/// What the owner has.
pub struct Open {
    /// The fatbin whose contents come; null between two.
    pub handle: *mut *mut c_void,
    /// The log of registrations.
    pub log: Log,
}

// SAFETY: `open` is reached by its owner alone.
unsafe impl Sync for Writer {}

/// The process's only writer.
pub static WRITER: Writer = Writer {
    owner: AtomicUsize::new(NOBODY),
    open: UnsafeCell::new(Open { handle: ptr::null_mut(), log: Log::new() }),
};

impl Writer {
    /// Calls `what` if the calling thread is the owner. `what` must not come back here.
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
    pub fn take(&self) -> bool {
        let me = this_thread();
        match self.owner.compare_exchange(NOBODY, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => true,
            Err(owner) => owner == me,
        }
    }

    /// Lets go of the writer; what was written is for whoever takes it.
    pub fn release(&self) {
        self.owner.store(NOBODY, Ordering::Release);
    }

    /// Notes an entry, if the calling thread is the owner and the fatbin is the open one. False: it did not.
    #[inline]
    pub fn note(&self, handle: *mut *mut c_void, list: List, host: usize, name: usize) -> bool {
        self.mine(|open| open.handle == handle && open.log.note(list, host, name)).unwrap_or(false)
    }

    /// The same after making room, if that was what the log did not have.
    pub fn note_with_room(&self, handle: *mut *mut c_void, list: List, host: usize, name: usize) -> bool {
        let grown = self.mine(|open| {
            open.handle == handle && open.log.is_full() && {
                open.log.grow();
                open.log.note(list, host, name)
            }
        });
        grown.unwrap_or(false)
    }

    /// The owner's last word on a fatbin. False: it is not the open one of this thread.
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
