//! Waiting: spins for a bounded time that adapts to what this wait usually takes, then sleeps.
//!
//! A spinning wait ends 0.1 µs after the fact, a sleeping one some 30 µs after it, at times 300. So a wait that usually
//! is short spins until twice its usual length; one that is usually long spins hardly at all, since the price of
//! waking is small against it. With one processor nobody spins: the other side needs it.
//!
//! Asleep, a thread is woken by futex where guest and host share pages in one kernel. Where they do not, only time can
//! wake it: it sleeps to just before the predicted end, then in steps that grow with the time already waited, so that it is
//! never late by more than an eighth. Timer slack, a setting of the host program's thread, is left alone. Either way it looks
//! after its device twice a second.

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::counters::Live;
use crate::inner::{Inner, lock};
use crate::lost::Lost;
use crate::tracer::Awaited;

/// Looks between two readings of the clock.
const POLLS: u32 = 24;
/// Spinning time of a wait about which nothing is known.
const SPIN_UNKNOWN: Duration = Duration::from_micros(50);
/// Spinning time of a wait that is usually long.
const SPIN_LITTLE: Duration = Duration::from_micros(10);
/// A wait that is usually longer than this sleeps; a wake-up is then a tenth of it or less.
const LONG: Duration = Duration::from_micros(300);
/// The longest sleep, after which the device is looked after.
pub(crate) const SLICE: Duration = Duration::from_millis(450);
/// The shortest sleep to a deadline; the kernel's timer slack alone is 50 µs.
const STEP_LEAST: Duration = Duration::from_micros(20);
/// The longest step towards an end that is overdue.
const STEP_MOST: Duration = Duration::from_millis(20);
/// Waking takes this long: a predicted sleep ends earlier by it.
const WAKING: Duration = Duration::from_micros(80);

/// How long waits of one sort usually take, in nanoseconds, smoothed; 0: not known.
#[derive(Debug, Default)]
pub(crate) struct Usual(AtomicU32);

impl Usual {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    fn get(&self) -> Duration {
        Duration::from_nanos(u64::from(self.0.load(Ordering::Relaxed)))
    }

    /// Takes a wait's length into account. A race between two loses one of them, which does no harm.
    fn learn(&self, took: Duration) {
        let took = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX).max(1);
        let old = self.0.load(Ordering::Relaxed);
        let new = if old == 0 { took } else { old - old / 4 + took / 4 };
        self.0.store(new.max(1), Ordering::Relaxed);
    }

    fn spin(&self) -> Duration {
        match self.get() {
            Duration::ZERO => SPIN_UNKNOWN,
            usual if usual > LONG => SPIN_LITTLE,
            usual => (2 * usual).max(SPIN_LITTLE),
        }
    }
}

/// How this process waits.
#[derive(Debug)]
pub(crate) struct Pace {
    /// There are processors enough to spin on.
    spins: bool,
    /// The host wakes by futex.
    futex: bool,
    /// How many threads sleep. Locked while the count is passed on, so that the host never reads an older one last.
    sleepers: Mutex<u32>,
}

impl Pace {
    pub(crate) fn new(futex: bool) -> Self {
        Self { spins: processors() > 1, futex, sleepers: Mutex::new(0) }
    }
}

/// One more sleeper while it lives.
struct Asleep<'a>(&'a Inner);

impl<'a> Asleep<'a> {
    fn new(inner: &'a Inner) -> Self {
        let mut sleepers = lock(&inner.pace.sleepers);
        *sleepers += 1;
        inner.channel.set_sleepers(*sleepers);
        Self(inner)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        let mut sleepers = lock(&self.0.pace.sleepers);
        *sleepers -= 1;
        self.0.channel.set_sleepers(*sleepers);
    }
}

impl Inner {
    /// Waits until `ready`, which looks at shared memory only. `stop` gives the reasons, beside a lost session, to wait
    /// no longer.
    #[inline]
    pub(crate) fn wait_until(
        &self,
        awaited: Awaited,
        usual: &Usual,
        mut ready: impl FnMut() -> Result<bool, Lost>,
        stop: impl Fn(&Self) -> Result<(), Lost>,
    ) -> Result<(), Lost> {
        if ready()? { Ok(()) } else { self.wait_longer(awaited, usual, &mut ready, &stop) }
    }

    fn wait_longer(
        &self,
        awaited: Awaited,
        usual: &Usual,
        ready: &mut impl FnMut() -> Result<bool, Lost>,
        stop: &impl Fn(&Self) -> Result<(), Lost>,
    ) -> Result<(), Lost> {
        Live::add(&self.counters.waits, 1);
        let begin = self.tracer.begin();
        let mut slept = false;
        let waited = self.spin_then_sleep(usual, ready, stop, &mut slept);
        self.tracer.wait(awaited, begin, slept);
        waited
    }

    fn spin_then_sleep(
        &self,
        usual: &Usual,
        ready: &mut impl FnMut() -> Result<bool, Lost>,
        stop: &impl Fn(&Self) -> Result<(), Lost>,
        slept: &mut bool,
    ) -> Result<(), Lost> {
        let start = Instant::now();
        if self.pace.spins {
            let budget = usual.spin();
            loop {
                for _ in 0..POLLS {
                    core::hint::spin_loop();
                    if ready()? {
                        usual.learn(start.elapsed());
                        return Ok(());
                    }
                }
                self.enter()?;
                stop(self)?;
                if start.elapsed() >= budget {
                    break;
                }
            }
        }
        Live::add(&self.counters.sleeps, 1);
        *slept = true;
        if self.pace.futex {
            self.sleep_until_woken(ready, stop)?;
        } else {
            self.sleep_by_time(start, usual.get(), ready, stop)?;
        }
        usual.learn(start.elapsed());
        Ok(())
    }

    fn sleep_until_woken(
        &self,
        ready: &mut impl FnMut() -> Result<bool, Lost>,
        stop: &impl Fn(&Self) -> Result<(), Lost>,
    ) -> Result<(), Lost> {
        let _asleep = Asleep::new(self);
        loop {
            // The host stores, fences, looks for sleepers, adds to the word and wakes. So: be counted, fence, read the word,
            // and look once more, in this order.
            fence(Ordering::SeqCst);
            let word = self.channel.futex().load(Ordering::Acquire);
            if ready()? {
                return Ok(());
            }
            self.enter()?;
            stop(self)?;
            let woken = sleep_on(self.channel.futex(), word, SLICE);
            if ready()? {
                return Ok(());
            }
            self.pulse()?;
            if woken {
                continue;
            }
            // Who published the work may have been stopped before it rang.
            self.rouse_again()?;
        }
    }

    fn sleep_by_time(
        &self,
        start: Instant,
        usual: Duration,
        ready: &mut impl FnMut() -> Result<bool, Lost>,
        stop: &impl Fn(&Self) -> Result<(), Lost>,
    ) -> Result<(), Lost> {
        let mut waited = start.elapsed();
        let mut patience = waited + SLICE;
        if let Some(early) = usual.checked_sub(waited + WAKING).filter(|early| *early >= STEP_LEAST) {
            sleep_for(early.min(SLICE));
        }
        loop {
            if ready()? {
                return Ok(());
            }
            self.enter()?;
            stop(self)?;
            self.pulse()?;
            waited = start.elapsed();
            if waited > patience {
                patience = waited + SLICE;
                // Who published the work may have been stopped before it rang.
                self.rouse_again()?;
            }
            sleep_for((waited / 8).clamp(STEP_LEAST, STEP_MOST));
        }
    }
}

/// Processors that this process may run on. One system call: std's own count also reads the files of the control group.
pub(crate) fn processors() -> usize {
    // SAFETY: a set is plain bits, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the call writes one set.
    let got = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    // SAFETY: reads the set that the call has filled.
    if got == 0 { (unsafe { libc::CPU_COUNT(&set) }) as usize } else { 1 }
}

pub(crate) fn timespec(time: Duration) -> libc::timespec {
    let seconds = libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX);
    libc::timespec { tv_sec: seconds, tv_nsec: libc::c_long::from(time.subsec_nanos() as i32) }
}

// The system calls below are raw: those of the C library are cancellation points.

/// Sleeps until the word is woken or is not `value`, or a signal comes. False: none of these in the time.
fn sleep_on(word: &AtomicU32, value: u32, limit: Duration) -> bool {
    let limit = timespec(limit);
    // SAFETY: the kernel reads the word, which the reference keeps mapped, and the time. Not private: who wakes is in another
    // process. Every way in which it returns is one to look again.
    let slept =
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const limit) };
    slept == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT)
}

/// Wakes this process's own sleepers, to tell them that the session is over.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: names a mapped word; nothing is written.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

pub(crate) fn sleep_for(time: Duration) {
    let time = timespec(time);
    // SAFETY: the kernel reads the time. A signal ends it early, which does no harm.
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

/// Milliseconds on a clock that costs a few nanoseconds to read and ticks every few milliseconds.
#[inline]
pub(crate) fn coarse_milliseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel's shared page is read and one `timespec` written.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    (now.tv_sec as u64).wrapping_mul(1000).wrapping_add(now.tv_nsec as u64 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_follows_what_is_usual() {
        let usual = Usual::default();
        assert_eq!(usual.spin(), SPIN_UNKNOWN);
        usual.learn(Duration::from_micros(40));
        assert_eq!(usual.spin(), Duration::from_micros(80));
        for _ in 0..40 {
            usual.learn(Duration::from_millis(8));
        }
        assert_eq!(usual.spin(), SPIN_LITTLE);
        let near = usual.get().as_micros();
        assert!((7900..=8000).contains(&near), "{near}");
        for _ in 0..60 {
            usual.learn(Duration::from_nanos(300));
        }
        assert_eq!(usual.spin(), SPIN_LITTLE);
        usual.learn(Duration::from_secs(1000));
        assert!(usual.get() > Duration::from_secs(1));
    }

    #[test]
    fn a_sleeper_is_woken_and_not_put_to_sleep_by_news() {
        static WORD: AtomicU32 = AtomicU32::new(1);
        let start = Instant::now();
        // The value is another one already.
        sleep_on(&WORD, 0, Duration::from_secs(20));
        let sleeper = std::thread::spawn(|| sleep_on(&WORD, 1, Duration::from_secs(20)));
        while !sleeper.is_finished() {
            wake(&WORD);
            std::thread::yield_now();
        }
        sleeper.join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
