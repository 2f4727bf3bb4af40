//! Blocks SIGXFSZ, which the kernel sends to a process that writes beyond the limit on the size of files
//! (`ulimit -f`) and which ends the process without a message. The limit applies to memory files too. While
//! the signal is blocked, the write fails with EFBIG, which can be reported. The signal's state is restored
//! for the program that the launcher becomes.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;
use nix::sys::signal::{SigSet, Signal};

/// Whether this process has blocked the signal and must unblock it before exec.
static HELD: AtomicBool = AtomicBool::new(false);

fn signal() -> SigSet {
    SigSet::from(Signal::SIGXFSZ)
}

/// Blocks the signal in this thread and in threads that it starts. Children that the standard library starts
/// are not affected, because it clears their signal mask.
pub fn hold() {
    let already = SigSet::thread_get_mask().is_ok_and(|mask| mask.contains(Signal::SIGXFSZ));
    if !already && signal().thread_block().is_ok() {
        HELD.store(true, Ordering::Relaxed);
    }
}

/// Unblocks the signal and discards pending ones, which would end the program that this process is about to
/// become.
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
