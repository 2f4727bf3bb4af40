//! SIGXFSZ, which the kernel sends to whoever writes beyond the limit on the size of files (`ulimit -f`) and
//! which ends a process without a word. Memory files count, too. While it is held back such a write fails
//! with EFBIG, which can be reported; the program that the launcher becomes gets the signal as it was.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;
use nix::sys::signal::{SigSet, Signal};

/// Whether this process has held it back, and has to let it through before exec.
static HELD: AtomicBool = AtomicBool::new(false);

fn signal() -> SigSet {
    SigSet::from(Signal::SIGXFSZ)
}

/// Holds the signal back, in this thread and those that it starts. Children that the standard library starts
/// get it as usual: it empties their mask.
pub fn hold() {
    let already = SigSet::thread_get_mask().is_ok_and(|mask| mask.contains(Signal::SIGXFSZ));
    if !already && signal().thread_block().is_ok() {
        HELD.store(true, Ordering::Relaxed);
    }
}

/// Lets it through again, and forgets those that came meanwhile: they would end the program that this process
/// is about to become.
pub fn release() {
    if !HELD.swap(false, Ordering::Relaxed) {
        return;
    }
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let set = signal();
    let take = || {
        // SAFETY: set and time are valid for the call, which writes nothing where it is given no place.
        unsafe { libc::sigtimedwait(set.as_ref(), std::ptr::null_mut(), &raw const now) }
    };
    while take() == libc::SIGXFSZ {}
    let released = set.thread_unblock();
    debug_assert!(released.is_ok(), "the set holds one signal, which exists");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> bool {
        SigSet::thread_get_mask().unwrap().contains(Signal::SIGXFSZ)
    }

    #[test]
    fn what_came_meanwhile_is_forgotten() {
        hold();
        assert!(held());
        // SAFETY: takes nothing, and always succeeds.
        let this = unsafe { libc::pthread_self() };
        // SAFETY: the thread is this one, in which the signal is blocked.
        assert_eq!(unsafe { libc::pthread_kill(this, libc::SIGXFSZ) }, 0);
        release();
        assert!(!held(), "and this process is still there");
    }
}
