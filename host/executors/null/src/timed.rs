//! A GPU that takes time: the work of a session completes one after the other, each after a set time.
//!
//! As on a GPU, completions are stores to memory that wake nobody. A thread of the session imitates them: it
//! sleeps until shortly before the next completion, spins until its time has come, and stores. Guests that
//! sleep are woken [`WAKE_LATE`] afterwards, as late as a host may notice what a GPU has stored. A guest that
//! only waits to be woken is therefore late by that much.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::thread::set_current_timer_slack;
use vgpu_device::{ResolvedSpan, SessionHost, threads};
use vgpu_wire::Mark;

/// Time by which the thread wakes before a completion. Waking takes less.
const EARLY: Duration = Duration::from_micros(100);
/// Longest sleep after which the thread checks whether the session has ended.
const SLICE: Duration = Duration::from_millis(20);
/// Time from a completion until sleeping guests are woken: the longest pause of the cuda executor's thread.
const WAKE_LATE: Duration = Duration::from_millis(1);
/// Largest deviation from the set time, as a share of it.
const JITTER: f64 = 0.02;
/// Size in bytes of a copy from the device that receives the times of the work before it.
pub(crate) const TIMES_BYTES: u64 = 16;

/// A completion to store.
#[derive(Debug)]
struct Completion {
    started: Instant,
    at: Instant,
    mark: Mark,
    /// Memory that receives the times of the work, if a copy asks for them.
    times: Option<ResolvedSpan>,
}

/// The work of a session, and the thread that completes it.
#[derive(Debug)]
pub(crate) struct TimedWork {
    /// State of the generator that draws the deviations.
    random: u64,
    /// Start and end of the newest work.
    newest: Option<(Instant, Instant)>,
    completions: Option<Sender<Completion>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TimedWork {
    /// Starts the thread of a session.
    ///
    /// # Errors
    /// Fails if the system has no more threads.
    pub(crate) fn start(host: &SessionHost) -> std::io::Result<Self> {
        let (completions, receiver) = channel();
        let ended = Arc::new(AtomicBool::new(false));
        let (host, end) = (host.clone(), Arc::clone(&ended));
        let run = move || complete(&host, &receiver, &end);
        let thread = threads::spawn("simulated-gpu".to_owned(), run)?;
        let random = 0x9e37_79b9_7f4a_7c15;
        Ok(Self { random, newest: None, completions: Some(completions), ended, thread: Some(thread) })
    }

    /// Adds work that usually takes `usual` and starts once all earlier work has completed.
    pub(crate) fn add(&mut self, usual: Duration) {
        let now = Instant::now();
        let start = self.newest.map_or(now, |(_, end)| end.max(now));
        let took = usual.mul_f64(1.0 + JITTER * self.draw());
        self.newest = Some((start, start + took));
    }

    /// Returns a number from -1 to 1.
    #[allow(clippy::cast_precision_loss, reason = "a number with fewer digits is as random")]
    fn draw(&mut self) -> f64 {
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    /// Stores a mark once all work has completed. Returns false if it has, so that the caller stores it.
    pub(crate) fn mark(&self, mark: Mark, times: Option<ResolvedSpan>) -> bool {
        let Some((started, at)) = self.newest else { return false };
        if at <= Instant::now() && times.is_none() {
            return false;
        }
        let send =
            |completions: &Sender<_>| completions.send(Completion { started, at, mark, times }).is_ok();
        self.completions.as_ref().is_some_and(send)
    }
}

impl Drop for TimedWork {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.completions = None;
        if let Some(thread) = self.thread.take() {
            // The thread has logged its own panic.
            let _ = thread.join();
        }
    }
}

/// Runs the thread: stores each completion at its time.
fn complete(host: &SessionHost, completions: &Receiver<Completion>, ended: &AtomicBool) {
    // The timers of a thread are 50 µs late unless it sets otherwise. If it may not, it is only slower.
    let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
    let mut wake_at: Option<Instant> = None;
    loop {
        let left = wake_at.map_or(SLICE, |at| at.saturating_duration_since(Instant::now()));
        let next = completions.recv_timeout(left);
        if ended.load(Ordering::Acquire) {
            return;
        }
        match next {
            Ok(next) => {
                if let Some(at) = wake_at.take_if(|at| *at < next.at) {
                    sleep_until(at, ended);
                    host.wake();
                }
                sleep_until(next.at.checked_sub(EARLY).unwrap_or(next.at), ended);
                while Instant::now() < next.at && !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                store(host, &next);
                wake_at.get_or_insert_with(|| Instant::now() + WAKE_LATE);
            }
            Err(RecvTimeoutError::Timeout) => {
                if wake_at.take().is_some() {
                    host.wake();
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn sleep_until(at: Instant, ended: &AtomicBool) {
    while let left = at.saturating_duration_since(Instant::now())
        && !left.is_zero()
        && !ended.load(Ordering::Acquire)
    {
        sleep(left.min(SLICE));
    }
}

/// Returns the time since the start of 1970 in nanoseconds, as a copy carries it.
fn nanoseconds(time: SystemTime) -> [u8; 8] {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).to_le_bytes()
}

fn store(host: &SessionHost, completion: &Completion) {
    if let Some(times) = &completion.times {
        let ended = SystemTime::now();
        let started = ended - completion.started.elapsed();
        let bytes: Vec<u8> = [started, ended].into_iter().flat_map(nanoseconds).collect();
        host.slice(times).copy_from(&bytes);
    }
    host.store_at(&completion.mark, host.now());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_its_time_one_after_the_other() {
        let mut work =
            TimedWork { random: 1, newest: None, completions: None, ended: Arc::default(), thread: None };
        let usual = Duration::from_secs(1);
        work.add(usual);
        let (first, mut end) = work.newest.unwrap();
        let mut all = Vec::new();
        for _ in 0..1000 {
            work.add(usual);
            let (start, next) = work.newest.unwrap();
            assert_eq!(start, end);
            all.push(next.duration_since(start).as_secs_f64());
            end = next;
        }
        assert!(all.iter().all(|took| (0.98..=1.02).contains(took)), "{all:?}");
        assert!(all.iter().any(|took| *took < 0.985) && all.iter().any(|took| *took > 1.015), "{all:?}");
        assert!(end > first + Duration::from_secs(990));
    }
}
