//! Completions: a thread of the session polls the fences that were recorded. When a fence is reached, it
//! stores marks and drops what the work used.
//!
//! Each query of the driver takes locks that launches take, too. Beside a thread that queries without pause,
//! a store and an event take 21 µs instead of 1.6, and a launch into an empty stream takes 24 µs instead of 4
//! (H100, driver 580.159.04). So where the GPU stores a word after the work, the thread polls the word, and
//! queries the driver once the word has its value. The guest can write the word, so the word only says when
//! to query.

use std::any::Any;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::num::NonZeroU64;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;
use vgpu_device::{TrackedGuard, lock_tracked, threads};
use vgpu_wire::Mark;

use crate::driver::context::DriverContext;
use crate::driver::error::DriverError;
use crate::driver::stream::DriverStream;
use crate::gpu::busy::Busy;
use crate::gpu::clock::Clock;
use crate::gpu::fence::Fence;
use crate::gpu::health::Health;

/// Time for which the thread polls without a pause.
const SPIN: Duration = Duration::from_micros(50);
/// Interval of queries about work after which the GPU stores a word. They find errors, and earlier
/// completions of the stream.
const PULSE: Duration = Duration::from_millis(1);
/// Shortest pause between two queries after the spinning.
const PAUSE_LEAST: Duration = Duration::from_micros(20);
const PAUSE_MOST: Duration = Duration::from_millis(1);
/// Longest pause while the arbiter of the GPU's time waits for a completion, which may end a slice.
const SETTLE_PAUSE: Duration = Duration::from_micros(90);
/// Wait after which nobody waits for the end of a slice any more.
const SETTLE_MOST: Duration = Duration::from_millis(20);
/// Divisor of the time waited so far that gives the pause. It limits the delay of a completion to that
/// fraction.
const PAUSE_SHARE: u32 = 8;
/// Largest distance from the usual end at which the end is expected.
const MARGIN_MOST: Duration = Duration::from_millis(1);

/// Returns the pause after a wait of `waited`, if waits usually take `usual`. Pauses are shortest around the
/// expected end.
fn pause(waited: Duration, usual: Duration) -> Duration {
    let margin = (usual / PAUSE_SHARE).min(MARGIN_MOST);
    let pause = match usual.saturating_sub(margin).checked_sub(waited) {
        Some(early) => early.min(waited / PAUSE_SHARE),
        None if waited < usual + margin => PAUSE_LEAST,
        None => waited / PAUSE_SHARE,
    };
    pause.clamp(PAUSE_LEAST, PAUSE_MOST)
}

/// A value that work uses. It is dropped, in any thread, once the last work that uses it has completed.
pub(crate) type Retained = Arc<dyn Any + Send + Sync>;

/// An action to perform when a fence is reached.
#[derive(Debug)]
pub(crate) enum OnComplete {
    /// Stores the mark.
    Mark(Mark),
    /// Stores the mark and wakes the guest's threads. The GPU stores the mark too, but wakes nobody.
    Shown(Mark),
    /// Stores the mark with the time at which the timed fence was reached.
    Timed(Mark),
    /// Drops a value that the work used.
    Drop(Retained),
    /// Drops a value that reports the completion of all work, for which the arbiter waits.
    Settle(Retained),
}

#[derive(Debug)]
struct PendingItem {
    fence: Arc<Fence>,
    /// Number of the message that requested the actions.
    number: u64,
    then: Vec<OnComplete>,
}

/// Pending items by stream. The items of one stream are in its order, and those of different streams in no
/// order.
#[derive(Debug, Default)]
struct PendingByStream {
    items: BTreeMap<u64, VecDeque<PendingItem>>,
    /// Stream whose item is being completed.
    finishing: Option<u64>,
    stop: bool,
}

impl PendingByStream {
    /// Returns whether the arbiter waits for a completion.
    fn is_settling(&self) -> bool {
        let mut actions = self.items.values().flatten().flat_map(|item| &item.then);
        actions.any(|then| matches!(then, OnComplete::Settle(_)))
    }
}

#[derive(Debug)]
struct CompletionQueue {
    health: Arc<Health>,
    busy: Busy,
    clock: Mutex<Clock>,
    pending: Mutex<PendingByStream>,
    news: Condvar,
}

/// The session's completions, and the thread that finds them.
#[derive(Debug)]
pub(crate) struct Completions {
    shared: Arc<CompletionQueue>,
    thread: Option<JoinHandle<()>>,
}

impl Completions {
    /// Starts the thread. Returns `None` if the system has no more threads.
    pub(crate) fn start(context: &Arc<DriverContext>, health: &Arc<Health>, clock: Clock) -> Option<Self> {
        let shared = Arc::new(CompletionQueue {
            health: Arc::clone(health),
            busy: Busy::new(health.host().clone()),
            clock: Mutex::new(clock),
            pending: Mutex::default(),
            news: Condvar::new(),
        });
        let (mine, context) = (Arc::clone(&shared), Arc::clone(context));
        let name = format!("cuda-{}", health.host().session());
        let thread = threads::spawn(name, move || mine.poll_fences(&context)).ok()?;
        Some(Self { shared, thread: Some(thread) })
    }

    /// Performs `then` when the fence of a stream is reached.
    pub(crate) fn add_action(&self, stream_id: u64, fence: &Arc<Fence>, number: u64, then: OnComplete) {
        if self.shared.health.dead().is_some() {
            self.shared.perform(then, None, number);
            return;
        }
        let mut pending = self.shared.pending();
        let items = pending.items.entry(stream_id).or_default();
        match items.back_mut() {
            Some(last) if Arc::ptr_eq(&last.fence, fence) => last.then.push(then),
            _ => items.push_back(PendingItem { fence: Arc::clone(fence), number, then: vec![then] }),
        }
        drop(pending);
        self.shared.news.notify_one();
    }

    /// Drops `used`, which reports a completion, when a fence of a stream is reached. Later fences of the
    /// stream may be pending already, such as those behind a hold.
    pub(crate) fn settle_at(&self, stream_id: u64, fence: &Arc<Fence>, number: u64, used: Retained) {
        if self.shared.health.dead().is_some() {
            return;
        }
        let mut pending = self.shared.pending();
        let items = pending.items.entry(stream_id).or_default();
        let then = OnComplete::Settle(used);
        if let Some(item) = items.iter_mut().find(|item| Arc::ptr_eq(&item.fence, fence)) {
            item.then.push(then);
        } else {
            let later = items.iter().position(|item| item.fence.behind > fence.behind);
            let item = PendingItem { fence: Arc::clone(fence), number, then: vec![then] };
            items.insert(later.unwrap_or(items.len()), item);
        }
        drop(pending);
        self.shared.news.notify_one();
    }

    /// Returns the measurement of the time during which the session has work.
    pub(crate) fn busy(&self) -> &Busy {
        &self.shared.busy
    }

    /// Announces that a stream is about to be given work, whose time counts from now on.
    pub(crate) fn announce_work(&self, stream_id: u64, stream: &Arc<DriverStream>) {
        if self.shared.busy.begin_work(stream_id, stream) {
            // The thread either waits with the lock, or has not checked yet.
            drop(self.shared.pending());
            self.shared.news.notify_one();
        }
    }

    /// Reports to the guest that a call for message `number` found the context lost, if it did. It must
    /// precede the actions that wait for the lost work, so that a guest that sees a mark also sees the fault.
    pub(crate) fn report_loss(&self, number: u64, error: &DriverError) {
        if error.loses_context() {
            self.shared.health.failed(number, *error);
        }
    }

    /// Performs an action at once, because no work precedes it.
    pub(crate) fn perform_now(&self, then: OnComplete, number: u64) {
        self.shared.perform(then, None, number);
    }

    /// Returns whether all actions at fences of the stream were performed.
    pub(crate) fn is_settled(&self, stream_id: u64) -> bool {
        let pending = self.shared.pending();
        pending.finishing != Some(stream_id) && !pending.items.contains_key(&stream_id)
    }

    /// Wakes the thread because the context is lost.
    pub(crate) fn wake(&self) {
        self.shared.news.notify_one();
    }
}

impl Completions {
    /// Ends the thread. No work may be in progress, so that nothing uses the values that are dropped.
    pub(crate) fn stop(&mut self) {
        self.shared.pending().stop = true;
        self.shared.news.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread has logged its own panic.
            let _ = thread.join();
        }
        let left = std::mem::take(&mut self.shared.pending().items);
        drop(left);
        self.shared.busy.end();
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.stop();
    }
}

impl CompletionQueue {
    fn pending(&self) -> TrackedGuard<'_, PendingByStream> {
        lock_tracked(&self.pending)
    }

    /// Runs the thread: polls fences until the session ends.
    fn poll_fences(&self, context: &DriverContext) {
        if let Err(error) = context.enter() {
            self.health.lose_context(1, error.code.0, &error);
        }
        // The timers of a thread are 50 µs late unless it sets otherwise. If it may not, it is only slower.
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
            // Work without a fence of its own is likely to be complete along with work that has one.
            if (any && pulsed) || asked.elapsed() >= PAUSE_MOST {
                let fenced: HashSet<u64> = self.pending().items.keys().copied().collect();
                self.busy.ask(|stream_id| fenced.contains(&stream_id));
                asked = Instant::now();
            }
            let pending = self.pending();
            if pending.stop {
                drop(pending);
                context.leave();
                return;
            }
            if pending.items.is_empty() {
                if self.busy.is_outstanding() {
                    drop(pending.wait_timeout(&self.news, PAUSE_MOST));
                } else {
                    drop(pending.wait(&self.news));
                }
                since = Instant::now();
                continue;
            }
            let waited = since.elapsed();
            let settles = waited < SETTLE_MOST && pending.is_settling();
            if waited < SPIN {
                drop(pending);
                thread::yield_now();
                continue;
            }
            let pause = pause(waited, usual).min(if settles { SETTLE_PAUSE } else { PAUSE_MOST });
            drop(pending.wait_timeout(&self.news, pause));
        }
    }

    /// Returns whether to query the driver about a stream: the GPU has stored the word of its first item, or
    /// will not store one.
    fn is_due(&self, items: &VecDeque<PendingItem>) -> bool {
        let mut due = true;
        for then in items.iter().flat_map(|item| &item.then) {
            match then {
                OnComplete::Shown(mark) if self.health.host().has_reached(mark.word, mark.value) => {
                    return true;
                }
                OnComplete::Shown(_) => due = false,
                OnComplete::Mark(_) | OnComplete::Timed(_) | OnComplete::Settle(_) => return true,
                OnComplete::Drop(_) => {}
            }
        }
        due
    }

    /// Performs the actions at fences that were reached, and returns whether there were any. If `all`, every
    /// stream is queried.
    fn advance(&self, all: bool) -> bool {
        let is_due = |(_, items): &(&u64, &VecDeque<PendingItem>)| all || self.is_due(items);
        let pending: Vec<u64> =
            self.pending().items.iter().filter(is_due).map(|(stream_id, _)| *stream_id).collect();
        let mut any = false;
        for stream_id in pending {
            while let Some((fence, number)) = self.first(stream_id) {
                match fence.is_complete() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        self.health.lose_context(number, error.code.0, &error);
                        self.flush();
                        return true;
                    }
                }
                any = true;
                // Recorded first, so that whoever is woken finds the time counted.
                self.busy.reached(stream_id, fence.behind);
                let item = self.pop_first(stream_id);
                self.perform_item(item);
                self.pending().finishing = None;
            }
        }
        any
    }

    fn first(&self, stream_id: u64) -> Option<(Arc<Fence>, u64)> {
        let pending = self.pending();
        let item = pending.items.get(&stream_id)?.front()?;
        Some((Arc::clone(&item.fence), item.number))
    }

    fn pop_first(&self, stream_id: u64) -> Option<PendingItem> {
        let mut pending = self.pending();
        let items = pending.items.get_mut(&stream_id)?;
        let item = items.pop_front();
        if items.is_empty() {
            pending.items.remove(&stream_id);
        }
        pending.finishing = Some(stream_id);
        item
    }

    fn perform_item(&self, item: Option<PendingItem>) {
        let Some(PendingItem { fence, number, then }) = item else { return };
        for then in then {
            self.perform(then, Some(&fence), number);
        }
    }

    fn perform(&self, then: OnComplete, fence: Option<&Arc<Fence>>, number: u64) {
        let host = self.health.host();
        match (then, fence) {
            (OnComplete::Mark(mark) | OnComplete::Shown(mark), _) | (OnComplete::Timed(mark), None) => {
                host.signal(&mark);
            }
            (OnComplete::Timed(mark), Some(fence)) => match self.time_of(fence) {
                Ok(time) => host.signal_at(&mark, time),
                Err(error) => {
                    self.health.failed(number, error);
                    host.signal(&mark);
                }
            },
            (OnComplete::Drop(used) | OnComplete::Settle(used), _) => drop(used),
        }
    }

    fn time_of(&self, fence: &Arc<Fence>) -> Result<u64, DriverError> {
        lock_tracked(&self.clock).time_of(fence)
    }

    /// Performs all pending actions without waiting, because the context is lost.
    fn flush(&self) {
        let all = std::mem::take(&mut self.pending().items);
        for PendingItem { number, then, .. } in all.into_values().flatten() {
            for then in then {
                self.perform(then, None, number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the time at which an end is seen, and the number of polls before it.
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
