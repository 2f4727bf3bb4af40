//! Sleeping and waking of threads, and clocks.
//!
//! The system calls are raw: those of the C library are cancellation points, and a thread that the host
//! program cancels must not unwind out of these frames.

use core::ptr;
use core::sync::atomic::AtomicU32;
use std::time::Duration;

/// Returns the number of processors that this process may run on. It costs one system call; the standard
/// library's count also reads the files of the control group.
pub(crate) fn processors() -> usize {
    // SAFETY: a set is plain bits, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the call writes one set.
    let got = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    // SAFETY: reads the set that the call has filled.
    if got == 0 { (unsafe { libc::CPU_COUNT(&set) }) as usize } else { 1 }
}

/// Converts a duration to the kernel's structure.
pub(crate) fn timespec(time: Duration) -> libc::timespec {
    let seconds = libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX);
    libc::timespec { tv_sec: seconds, tv_nsec: libc::c_long::from(time.subsec_nanos() as i32) }
}

/// Sleeps until somebody wakes the word, its value is not `value`, or a signal arrives. Returns false if none
/// of these happened within `limit`.
pub(crate) fn sleep_on(word: &AtomicU32, value: u32, limit: Duration) -> bool {
    let limit = timespec(limit);
    // SAFETY: the kernel reads the word, which the reference keeps mapped, and the time. The futex is not
    // private, because the process that wakes it is another one. The caller checks its condition again,
    // whatever ends the call.
    let slept =
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const limit) };
    slept == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT)
}

/// Wakes all threads that sleep on the word.
pub fn wake(word: &AtomicU32) {
    // SAFETY: names a mapped word; nothing is written.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Sleeps for a while. A signal ends it early.
pub(crate) fn sleep_for(time: Duration) {
    let time = timespec(time);
    // SAFETY: the kernel reads the time.
    unsafe {
        libc::syscall(
            libc::SYS_clock_nanosleep,
            libc::CLOCK_MONOTONIC,
            0,
            &raw const time,
            ptr::null_mut::<libc::timespec>(),
        )
    };
}

/// Returns milliseconds on a monotonic clock that costs a few nanoseconds to read and ticks every few
/// milliseconds.
#[inline]
pub(crate) fn coarse_milliseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel's shared page is read and one `timespec` written.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    (now.tv_sec as u64).wrapping_mul(1000).wrapping_add(now.tv_nsec as u64 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_sleeper_is_woken_and_not_put_to_sleep_by_news() {
        static WORD: AtomicU32 = AtomicU32::new(1);
        let start = Instant::now();
        // The word has another value already.
        sleep_on(&WORD, 0, Duration::from_mins(2));
        let sleeper = std::thread::spawn(|| sleep_on(&WORD, 1, Duration::from_mins(2)));
        while !sleeper.is_finished() {
            wake(&WORD);
            std::thread::yield_now();
        }
        sleeper.join().unwrap();
        assert!(start.elapsed() < Duration::from_mins(1));
    }
}
