//! Distinguishes a forked child from the process that opened the device.
//!
//! A child inherits mappings and descriptors, but not the locks, and it must not use its parent's channel.
//! Words that are zero in a child distinguish the two at the cost of a load: they are in a page that the
//! kernel zeroes in a child (`MADV_WIPEONFORK`, Linux 4.14), even one that was forked by a raw system call.
//! On older kernels a handler of `pthread_atfork` clears it. There is only one page, because each costs a
//! process that only lists devices.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Identifies the process that opened devices, by a word that is 1 in it and 0 in its children.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home(&'static AtomicUsize);

/// Words that are zero in a forked child.
#[repr(C)]
struct Page {
    home: AtomicUsize,
    /// The two words that [`wiped`] returns.
    words: [AtomicUsize; 2],
}

static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());
/// Used instead of the page if none can be mapped.
static FALLBACK: Page = Page { home: AtomicUsize::new(0), words: [AtomicUsize::new(0), AtomicUsize::new(0)] };
/// Address of the word of the process that opened a device, or of the one that this process was forked from.
static HOME: AtomicPtr<AtomicUsize> = AtomicPtr::new(ptr::null_mut());

/// Number of bytes that are mapped for the page.
const BYTES: usize = 4096;

/// Returns two words for the library that links the transport: zero at first, and zero again in a forked
/// child, whatever the parent has stored.
pub fn wiped() -> &'static [AtomicUsize; 2] {
    &page().words
}

/// Returns the page, which the first call creates. It takes no lock, so it cannot hang in a child.
fn page() -> &'static Page {
    existing().unwrap_or_else(make)
}

fn existing() -> Option<&'static Page> {
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: what PAGE holds is a page that is never unmapped, zeros or words, or a static.
    unsafe { page.as_ref() }
}

#[cold]
fn make() -> &'static Page {
    let (page, wiped) = map().unwrap_or(((&raw const FALLBACK).cast_mut(), false));
    match PAGE.compare_exchange(ptr::null_mut(), page, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) if wiped => {}
        Ok(_) => {
            // If this fails too, for lack of memory, a child is not recognised. That takes a kernel before
            // 4.14.
            // SAFETY: the handler is a function that lives as long as this object, and does nothing but
            // stores.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
        Err(_) if ptr::eq(page, &raw const FALLBACK) => {}
        Err(_) => {
            // Another thread was first.
            // SAFETY: the page was mapped above and nobody else has seen it.
            unsafe { libc::munmap(page.cast::<c_void>(), BYTES) };
        }
    }
    existing().unwrap_or(&FALLBACK)
}

/// Maps a page. Returns it, and whether the kernel zeroes it in a child.
fn map() -> Option<(*mut Page, bool)> {
    // SAFETY: a new anonymous mapping; no address is asked for.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            // It is about to be written to.
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the page was mapped just now.
    let refused = unsafe { libc::madvise(page, BYTES, libc::MADV_WIPEONFORK) };
    Some((page.cast(), refused == 0))
}

extern "C" fn in_child() {
    if let Some(page) = existing() {
        page.home.store(0, Ordering::Relaxed);
        page.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

impl Home {
    /// Returns the word of this process, which the first call sets.
    pub(crate) fn get() -> Self {
        if let Some(home) = Self::existing() {
            return home;
        }
        let word = &page().home;
        // It is set before its address is published, so every thread that finds it finds it set.
        word.store(1, Ordering::Relaxed);
        HOME.store(ptr::from_ref(word).cast_mut(), Ordering::Release);
        Self(word)
    }

    fn existing() -> Option<Self> {
        let word = HOME.load(Ordering::Acquire);
        // SAFETY: what HOME holds is a word of a page that is never unmapped, or of a static.
        unsafe { word.as_ref() }.map(Self)
    }

    /// Returns whether this process is a forked child of the one that opened devices.
    #[inline]
    pub(crate) fn in_forked_child(self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// Returns whether this process is a forked child of one that had opened a device.
pub(crate) fn forked() -> bool {
    Home::existing().is_some_and(Home::in_forked_child)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_in_child(make: impl FnOnce() -> libc::pid_t) -> bool {
        let home = Home::get();
        assert!(!home.in_forked_child());
        let child = make();
        if child == 0 {
            // SAFETY: ends the child without running anything of the test harness.
            unsafe { libc::_exit(i32::from(home.in_forked_child() && forked())) };
        }
        assert!(child > 0);
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(!home.in_forked_child());
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1
    }

    #[test]
    fn words_of_others_are_empty_in_a_child() {
        let [first, second] = wiped();
        first.store(7, Ordering::Relaxed);
        second.store(8, Ordering::Relaxed);
        // SAFETY: the child only loads words and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let sum = wiped().iter().map(|word| word.load(Ordering::Relaxed)).sum::<usize>();
            // SAFETY: ends the child without running anything of the test harness.
            unsafe { libc::_exit(sum as i32) };
        }
        let mut status = -1;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!((first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)), (7, 8));
    }

    #[test]
    fn a_child_knows_that_it_is_one() {
        // SAFETY: the child only loads a word and exits.
        assert!(left_in_child(|| unsafe { libc::fork() }));
    }

    #[test]
    fn so_does_a_child_that_no_handler_saw() {
        // SAFETY: as above; this is fork without the C library's part.
        assert!(left_in_child(|| unsafe { libc::syscall(libc::SYS_fork) as libc::pid_t }));
    }
}
