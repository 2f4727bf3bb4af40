//! A GPU that takes time and no processor: the work of its contexts completes after a set time.
//!
//! As on a GPU, completions are stores to memory that wake nobody. A thread of the device imitates them: it
//! sleeps until shortly before the next completion, spins until its time has come, and stores. Guests that
//! sleep are woken [`WAKE_LATE`] afterwards, as late as a host may notice what a GPU has stored. A guest that
//! only waits to be woken is therefore late by that much.
//!
//! What a context has submitted is done in its order, and contexts with work take turns, as those of a GPU
//! whose driver shares its time. A late thread delays what is seen of the work, but not the work.

mod timeline;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::thread::set_current_timer_slack;
use vgpu_device::{ResolvedSpan, RetiredMemory, SessionHost, threads};
use vgpu_wire::Mark;

use timeline::{Timeline, WorkTimes};

/// Time by which the thread wakes before a completion. Waking takes less.
const EARLY: Duration = Duration::from_micros(100);
/// Time from a completion until sleeping guests are woken: the longest pause of the cuda executor's thread.
const WAKE_LATE: Duration = Duration::from_millis(1);
/// Largest deviation from the set time, as a share of it.
const JITTER: f64 = 0.02;
/// Size in bytes of a copy from the device that receives the times of the work before it.
pub(crate) const TIMES_BYTES: u64 = 16;

/// Largest number of tasks of a context that are not done. A GPU's queues are shorter.
const TASKS_MOST: usize = 1 << 16;

/// Action that follows work, once the work is complete.
#[derive(Debug)]
enum Completion {
    /// A mark is stored, and before it the times of the work to memory for which a copy asks.
    Mark(Mark, Option<ResolvedSpan>),
    /// Memory that the guest has freed becomes available.
    Retire { _memory: RetiredMemory },
}

/// The guests of all contexts, by number, in whose memory completions are stored.
#[derive(Debug, Default)]
struct Guests {
    hosts: BTreeMap<u32, SessionHost>,
    /// Contexts whose guest is to be woken, and when, in the order of these times.
    wakes: VecDeque<(Instant, u32)>,
}

#[derive(Debug)]
struct State {
    timeline: Timeline<Completion>,
    guests: Guests,
    /// Number of the newest context.
    newest: u32,
    /// State of the generator that draws the deviations.
    random: u64,
    ended: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The GPU, and the thread that completes its work. It ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct Engine {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A context of the GPU, whose work vanishes when the value is dropped.
#[derive(Debug)]
pub(crate) struct Context {
    shared: Arc<Shared>,
    number: u32,
}

impl Engine {
    /// Starts the thread.
    ///
    /// # Errors
    /// Fails if the system has no more threads.
    pub(crate) fn start() -> io::Result<Self> {
        let state = State {
            timeline: Timeline::new(Instant::now()),
            guests: Guests::default(),
            newest: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            ended: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let its = Arc::clone(&shared);
        let thread = threads::spawn("simulated-gpu".to_owned(), move || its.complete())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Makes a context for a session.
    pub(crate) fn context(&self, host: SessionHost) -> Context {
        let mut state = self.shared.state();
        state.newest += 1;
        let number = state.newest;
        state.guests.hosts.insert(number, host);
        Context { shared: Arc::clone(&self.shared), number }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread has logged its own panic.
            let _ = thread.join();
        }
    }
}

impl Context {
    /// Adds work that usually takes `usual` and starts once all earlier work has completed.
    pub(crate) fn add(&self, usual: Duration) {
        let mut state = self.shared.state();
        state.pass();
        let took = usual.mul_f64(1.0 + JITTER * state.draw());
        state.timeline.add(self.number, took);
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Stores a mark once all work has completed, and the times of the newest work to `times` before it.
    /// Returns false if all work is complete, so that the caller stores the mark.
    pub(crate) fn mark(&self, mark: Mark, times: Option<ResolvedSpan>) -> bool {
        let mut state = self.shared.state();
        state.pass();
        let Err(completion) = state.timeline.push(self.number, Completion::Mark(mark, times)) else {
            return true;
        };
        if let Completion::Mark(_, Some(times)) = &completion
            && let Some(done) = state.timeline.newest(self.number)
            && let Some(host) = state.guests.hosts.get(&self.number)
        {
            store_times(host, times, done);
        }
        false
    }

    /// Keeps memory that the guest has freed until all work has completed.
    pub(crate) fn retire(&self, memory: RetiredMemory) {
        // Nothing refers to it any more if there is no work.
        let _ = self.shared.state().timeline.push(self.number, Completion::Retire { _memory: memory });
    }

    /// Returns whether the context has as many unfinished tasks as it may, so that no more can be submitted.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.state().timeline.tasks(self.number) >= TASKS_MOST
    }

    /// Holds all later work once all earlier work has completed, and then stores a mark.
    pub(crate) fn hold(&self, hold: u32, mark: Mark) {
        let mut state = self.shared.state();
        state.pass();
        let reached = Completion::Mark(mark, None);
        if let Err(reached) = state.timeline.push(self.number, reached) {
            state.guests.store(self.number, &reached, None);
        }
        state.timeline.hold(self.number, hold);
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Lets the work behind a hold go on.
    pub(crate) fn release(&self, hold: u32) {
        let mut state = self.shared.state();
        state.pass();
        let State { timeline, guests, .. } = &mut *state;
        timeline.release(self.number, hold, |number, completion, done| {
            guests.store(number, &completion, Some(done));
        });
        drop(state);
        self.shared.changed.notify_one();
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.pass();
        let worked = state.timeline.leave(self.number);
        if let Some(host) = state.guests.hosts.remove(&self.number) {
            host.worked(worked);
        }
        state.guests.wakes.retain(|(_, number)| *number != self.number);
        drop(state);
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the thread: stores each completion at its time.
    fn complete(&self) {
        // The timers of a thread are 50 µs late unless it sets otherwise. If it may not, it is only slower.
        let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut state = self.state();
        while !state.ended {
            state.pass();
            state.guests.wake();
            let event = state.timeline.next_event();
            let early = event.map(|event| event.checked_sub(EARLY).unwrap_or(event));
            let wake = state.guests.wakes.front().map(|wake| wake.0);
            let now = Instant::now();
            if wake.is_some_and(|wake| wake <= now) {
                continue;
            }
            state = match early.into_iter().chain(wake).min() {
                Some(until) if until > now => {
                    let waited = self.changed.wait_timeout(state, until - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    drop(state);
                    while event.is_some_and(|event| Instant::now() < event) {
                        std::hint::spin_loop();
                    }
                    self.state()
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Guests {
    /// Stores the mark of a completion, with the times of the work before it, and notes that its guest is to
    /// be woken.
    fn store(&mut self, number: u32, completion: &Completion, done: Option<WorkTimes>) {
        let (Some(host), Completion::Mark(mark, times)) = (self.hosts.get(&number), completion) else {
            return;
        };
        if let (Some(times), Some(done)) = (times, done) {
            store_times(host, times, done);
        }
        host.store_at(mark, host.now());
        if self.wakes.iter().all(|wake| wake.1 != number) {
            self.wakes.push_back((Instant::now() + WAKE_LATE, number));
        }
    }

    /// Wakes the guests whose time has come.
    fn wake(&mut self) {
        let now = Instant::now();
        while let Some((_, number)) = self.wakes.pop_front_if(|wake| wake.0 <= now) {
            if let Some(host) = self.hosts.get(&number) {
                host.wake();
            }
        }
    }
}

impl State {
    /// Carries out the work whose time has come, stores what is complete, and counts the time of the work.
    fn pass(&mut self) {
        let Self { timeline, guests, .. } = self;
        timeline.pass(Instant::now(), |number, completion, done| {
            guests.store(number, &completion, Some(done));
        });
        timeline.report(|number, time| {
            if let Some(host) = guests.hosts.get(&number) {
                host.worked(time);
            }
        });
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
}

/// Returns the time since the start of 1970 in nanoseconds, as a copy carries it.
fn nanoseconds(time: SystemTime) -> [u8; 8] {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).to_le_bytes()
}

/// Stores the times of work whose completion is stored next. Its end is the time of the store: what a guest
/// is late by does not include what this thread is late by.
fn store_times(host: &SessionHost, times: &ResolvedSpan, done: WorkTimes) {
    let ended = SystemTime::now();
    let started = ended - done.started.elapsed();
    let bytes: Vec<u8> = [started, ended].into_iter().flat_map(nanoseconds).collect();
    host.slice(times).copy_from(&bytes);
}
