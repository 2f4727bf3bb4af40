//! What happens when work is complete: marks are stored and things that the work used are dropped, by a
//! thread of the session's own that finds out which fences are reached.
//!
//! Each question to the driver takes locks that launches take, too: beside a thread that asks without pause,
//! a store and an event that take 1.6 µs together take 21, and a launch into an empty stream 24 instead of 4
//! (H100, driver 580.159.04). So where the GPU stores a word behind the work, the thread looks at that, and
//! asks the driver once the word has its value. The word is the guest's to write, so it says when to ask and
//! no more.

use std::any::Any;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::num::NonZeroU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;
use vgpu_device::threads;
use vgpu_wire::Mark;

use crate::driver::context::Context;
use crate::driver::error::DriverError;
use crate::driver::stream::Stream;
use crate::gpu::busy::Busy;
use crate::gpu::clock::Clock;
use crate::gpu::fence::Fence;
use crate::gpu::health::Health;

/// How long the thread looks without pause for a fence that is not reached.
const SPIN: Duration = Duration::from_micros(50);
/// How often the driver is asked about work behind which the GPU stores a word: for errors, and for what that
/// work's stream did before.
const PULSE: Duration = Duration::from_micros(250);
/// The shortest and the longest pause between two questions after that.
const PAUSE_LEAST: Duration = Duration::from_micros(20);
const PAUSE_MOST: Duration = Duration::from_millis(1);
/// A pause is this part of the time waited so far, so that it delays an answer by that part at most.
const PAUSE_SHARE: u32 = 8;
/// How far from the usual end an end is expected, at most.
const MARGIN_MOST: Duration = Duration::from_millis(1);

/// How long to pause after so long a wait, where waits usually are so long: about the end that is to be
/// expected the pauses are the shortest.
fn pause(waited: Duration, usual: Duration) -> Duration {
    let margin = (usual / PAUSE_SHARE).min(MARGIN_MOST);
    let pause = match usual.saturating_sub(margin).checked_sub(waited) {
        Some(early) => early.min(waited / PAUSE_SHARE),
        None if waited < usual + margin => PAUSE_LEAST,
        None => waited / PAUSE_SHARE,
    };
    pause.clamp(PAUSE_LEAST, PAUSE_MOST)
}

/// Something that work uses. It is dropped, in any thread, when the last work that uses it is complete.
pub(crate) type Used = Arc<dyn Any + Send + Sync>;

/// What is done when a fence is reached.
#[derive(Debug)]
pub(crate) enum Then {
    /// The mark is stored.
    Mark(Mark),
    /// The GPU stores the mark itself; those who sleep are told.
    Shown(Mark),
    /// The mark is stored, with the time at which the timed fence was reached.
    Timed(Mark),
    /// What the work used is not used by it any more.
    Drop(Used),
}

#[derive(Debug)]
struct Item {
    fence: Arc<Fence>,
    /// The message that it belongs to.
    number: u64,
    then: Vec<Then>,
}

/// What waits, by lane: the items of a lane come in the order of one stream, those of different lanes in
/// none.
#[derive(Debug, Default)]
struct Lanes {
    items: BTreeMap<u64, VecDeque<Item>>,
    /// The lane whose item is being finished.
    finishing: Option<u64>,
    stop: bool,
}

#[derive(Debug)]
struct Shared {
    health: Arc<Health>,
    busy: Busy,
    clock: Mutex<Clock>,
    lanes: Mutex<Lanes>,
    news: Condvar,
}

/// The session's completions, and the thread that finds them.
#[derive(Debug)]
pub(crate) struct Completions {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Completions {
    /// Starts the thread. `None`: the system has no more threads.
    pub(crate) fn start(context: &Arc<Context>, health: &Arc<Health>, clock: Clock) -> Option<Self> {
        let shared = Arc::new(Shared {
            health: Arc::clone(health),
            busy: Busy::new(health.host().clone()),
            clock: Mutex::new(clock),
            lanes: Mutex::default(),
            news: Condvar::new(),
        });
        let (mine, context) = (Arc::clone(&shared), Arc::clone(context));
        let name = format!("cuda-{}", health.host().session());
        let thread = threads::spawn(name, move || mine.run(&context)).ok()?;
        Some(Self { shared, thread: Some(thread) })
    }

    /// Has `then` done when the fence, of a stream's lane, is reached.
    pub(crate) fn add(&self, lane: u64, fence: &Arc<Fence>, number: u64, then: Then) {
        if self.shared.health.dead().is_some() {
            self.shared.act(then, None, number);
            return;
        }
        let mut lanes = self.shared.lanes();
        let items = lanes.items.entry(lane).or_default();
        match items.back_mut() {
            Some(last) if Arc::ptr_eq(&last.fence, fence) => last.then.push(then),
            _ => items.push_back(Item { fence: Arc::clone(fence), number, then: vec![then] }),
        }
        drop(lanes);
        self.shared.news.notify_one();
    }

    /// How long there was work.
    pub(crate) fn busy(&self) -> &Busy {
        &self.shared.busy
    }

    /// The stream of a lane is given work next.
    pub(crate) fn give(&self, lane: u64, stream: &Arc<Stream>) {
        if self.shared.busy.give(lane, stream) {
            // The thread waits with the lock, or has not looked yet.
            drop(self.shared.lanes());
            self.shared.news.notify_one();
        }
    }

    /// Tells the guest that a call for message `number` found the context lost, if it did. Before anything is
    /// done that was to be done behind lost work: a guest that sees a mark sees the fault as well.
    pub(crate) fn lost(&self, number: u64, error: &DriverError) {
        if error.loses_context() {
            self.shared.health.failed(number, *error);
        }
    }

    /// Does it now: no work is before it.
    pub(crate) fn now(&self, then: Then, number: u64) {
        self.shared.act(then, None, number);
    }

    /// Whether all that was to be done at fences of the lane has been done.
    pub(crate) fn is_settled(&self, lane: u64) -> bool {
        let lanes = self.shared.lanes();
        lanes.finishing != Some(lane) && !lanes.items.contains_key(&lane)
    }

    /// The context is lost: the thread looks at it now.
    pub(crate) fn look(&self) {
        self.shared.news.notify_one();
    }
}

impl Completions {
    /// Ends the thread. Nothing is under way any more, so that what was used is not used.
    pub(crate) fn stop(&mut self) {
        self.shared.lanes().stop = true;
        self.shared.news.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was logged by it.
            let _ = thread.join();
        }
        let left = std::mem::take(&mut self.shared.lanes().items);
        drop(left);
        self.shared.busy.end();
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's life.
    fn run(&self, context: &Context) {
        if let Err(error) = context.enter() {
            self.health.die(1, error.code.0, &error);
        }
        // The timers of a thread are 50 µs late unless it says otherwise. Where it may not, it is only
        // slower.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let (mut since, mut usual) = (Instant::now(), Duration::ZERO);
        let (mut asked, mut pulse) = (Instant::now(), Instant::now());
        loop {
            if self.health.dead().is_some() {
                self.flush();
                self.busy.end();
            }
            let pulsed = pulse.elapsed() >= PULSE;
            if pulsed {
                pulse = Instant::now();
            }
            let any = self.advance(pulsed);
            if any {
                usual = (usual * 3 + since.elapsed()) / 4;
                since = Instant::now();
            }
            // What has no fence of its own is likely to be complete with what has one.
            if (any && pulsed) || asked.elapsed() >= PAUSE_MOST {
                let fenced: HashSet<u64> = self.lanes().items.keys().copied().collect();
                self.busy.ask(|lane| fenced.contains(&lane));
                asked = Instant::now();
            }
            let lanes = self.lanes();
            if lanes.stop {
                drop(lanes);
                context.leave();
                return;
            }
            if lanes.items.is_empty() {
                if self.busy.is_outstanding() {
                    drop(self.news.wait_timeout(lanes, PAUSE_MOST).unwrap_or_else(PoisonError::into_inner));
                } else {
                    drop(self.news.wait(lanes).unwrap_or_else(PoisonError::into_inner));
                }
                since = Instant::now();
                continue;
            }
            let waited = since.elapsed();
            if waited < SPIN {
                drop(lanes);
                thread::yield_now();
                continue;
            }
            let pause = pause(waited, usual);
            drop(self.news.wait_timeout(lanes, pause).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Whether to ask the driver about a lane: the GPU has stored a word behind its first item, or will not
    /// store one.
    fn is_due(&self, items: &VecDeque<Item>) -> bool {
        let mut due = true;
        for then in items.iter().flat_map(|item| &item.then) {
            match then {
                Then::Shown(mark) if self.health.host().has_reached(mark.word, mark.value) => return true,
                Then::Shown(_) => due = false,
                Then::Mark(_) | Then::Timed(_) => return true,
                Then::Drop(_) => {}
            }
        }
        due
    }

    /// Does what is to be done at the fences that are reached. Whether there were any. `all`: the driver is
    /// asked about all lanes.
    fn advance(&self, all: bool) -> bool {
        let is_due = |(_, items): &(&u64, &VecDeque<Item>)| all || self.is_due(items);
        let lanes: Vec<u64> = self.lanes().items.iter().filter(is_due).map(|(lane, _)| *lane).collect();
        let mut any = false;
        for lane in lanes {
            while let Some((fence, number)) = self.first(lane) {
                match fence.is_complete() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        self.health.die(number, error.code.0, &error);
                        self.flush();
                        return true;
                    }
                }
                any = true;
                // First, so that whoever is woken finds the time counted.
                self.busy.reached(lane, fence.behind);
                let item = self.take(lane);
                self.finish(item);
                self.lanes().finishing = None;
            }
        }
        any
    }

    fn first(&self, lane: u64) -> Option<(Arc<Fence>, u64)> {
        let lanes = self.lanes();
        let item = lanes.items.get(&lane)?.front()?;
        Some((Arc::clone(&item.fence), item.number))
    }

    fn take(&self, lane: u64) -> Option<Item> {
        let mut lanes = self.lanes();
        let items = lanes.items.get_mut(&lane)?;
        let item = items.pop_front();
        if items.is_empty() {
            lanes.items.remove(&lane);
        }
        lanes.finishing = Some(lane);
        item
    }

    fn finish(&self, item: Option<Item>) {
        let Some(Item { fence, number, then }) = item else { return };
        for then in then {
            self.act(then, Some(&fence), number);
        }
    }

    fn act(&self, then: Then, fence: Option<&Arc<Fence>>, number: u64) {
        let host = self.health.host();
        match (then, fence) {
            (Then::Mark(mark) | Then::Shown(mark), _) | (Then::Timed(mark), None) => host.signal(&mark),
            (Then::Timed(mark), Some(fence)) => match self.time_of(fence) {
                Ok(time) => host.signal_at(&mark, time),
                Err(error) => {
                    self.health.failed(number, error);
                    host.signal(&mark);
                }
            },
            (Then::Drop(used), _) => drop(used),
        }
    }

    fn time_of(&self, fence: &Arc<Fence>) -> Result<u64, DriverError> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner).time_of(fence)
    }

    /// The context is lost: nothing is waited for.
    fn flush(&self) {
        let all = std::mem::take(&mut self.lanes().items);
        for Item { number, then, .. } in all.into_values().flatten() {
            for then in then {
                self.act(then, None, number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When an end is seen, and at which look.
    fn see(end: Duration, usual: Duration) -> (Duration, u32) {
        let (mut now, mut looks) = (SPIN, 0);
        while now < end {
            now += pause(now, usual);
            looks += 1;
        }
        (now, looks)
    }

    #[test]
    fn an_end_that_comes_when_it_is_expected_is_seen_at_once() {
        for usual in [200, 1300, 8000, 18_000].map(Duration::from_micros) {
            for end in [usual * 19 / 20, usual, usual * 21 / 20] {
                let (now, looks) = see(end, usual);
                assert!(now.saturating_sub(end) <= PAUSE_LEAST, "{now:?} of {end:?}");
                assert!(looks <= 150, "{looks} looks at {end:?}");
            }
        }
    }

    #[test]
    fn another_end_is_late_by_an_eighth() {
        for (end, usual) in [(700, 0), (700, 5000), (9000, 300)] {
            let (end, usual) = (Duration::from_micros(end), Duration::from_micros(usual));
            let (now, _) = see(end, usual);
            assert!(now.saturating_sub(end) <= (end / 8).max(PAUSE_LEAST), "{now:?} of {end:?}");
        }
    }
}
