//! Tells a forked child from the process that opened the device.
//!
//! A child inherits mappings and descriptors, but not the locks, and it must not use a channel that is its
//! parent's. One word tells the two apart at the price of a load: it lies in a page that the kernel gives
//! to a child empty (`MADV_WIPEONFORK`, Linux 4.14), which also covers children made by a raw system call. On
//! older kernels a handler of `pthread_atfork` clears it.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Proof that this process is the one that opened devices: 1 there, 0 in its children.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home(&'static AtomicU32);

static HOME: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// Stands in for the page where none can be mapped.
static FALLBACK: AtomicU32 = AtomicU32::new(1);

/// Bytes that are mapped for the word; the kernel rounds up to a page.
const PAGE: usize = 4096;

impl Home {
    /// The word of this process, made at the first call. Takes no lock, so it cannot hang in a child.
    pub(crate) fn get() -> Self {
        if let Some(home) = Self::existing() {
            return home;
        }
        let word = wiped_page().unwrap_or((&raw const FALLBACK).cast_mut());
        match HOME.compare_exchange(ptr::null_mut(), word, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                // A failure (no memory) leaves the wiped page, which is enough on every current kernel.
                // SAFETY: the handler is a function that lives as long as this object, and does nothing but a store.
                unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            }
            Err(_) if ptr::eq(word, &raw const FALLBACK) => {}
            Err(_) => {
                // Another thread was first.
                // SAFETY: the page was mapped above and nobody else has seen it.
                unsafe { libc::munmap(word.cast::<c_void>(), PAGE) };
            }
        }
        Self::existing().unwrap_or(Self(&FALLBACK))
    }

    fn existing() -> Option<Self> {
        let word = HOME.load(Ordering::Acquire);
        // SAFETY: what HOME holds is a word in a page that is never unmapped, or a static.
        unsafe { word.as_ref() }.map(Self)
    }

    /// Whether this process is a forked child.
    #[inline]
    pub(crate) fn left(self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// Whether this process is a forked child of one that had opened a device.
pub(crate) fn forked() -> bool {
    Home::existing().is_some_and(Home::left)
}

fn wiped_page() -> Option<*mut AtomicU32> {
    // SAFETY: a new anonymous mapping; no address is asked for.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return None;
    }
    // Old kernels refuse; then the handler alone does it.
    // SAFETY: the page was mapped just now.
    unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) };
    let word = page.cast::<AtomicU32>();
    // SAFETY: the page is mapped, writable, aligned, and not shared with anybody yet.
    unsafe { word.write(AtomicU32::new(1)) };
    Some(word)
}

extern "C" fn in_child() {
    if let Some(home) = Home::existing() {
        home.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_in_child(make: impl FnOnce() -> libc::pid_t) -> bool {
        let home = Home::get();
        assert!(!home.left());
        let child = make();
        if child == 0 {
            // SAFETY: ends the child without running anything of the test harness.
            unsafe { libc::_exit(i32::from(home.left() && forked())) };
        }
        assert!(child > 0);
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(!home.left());
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1
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
