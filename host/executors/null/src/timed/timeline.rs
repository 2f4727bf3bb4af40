//! Computes when the work of several contexts completes on a GPU that they share.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time for which a context works before another one does that has work, about that of NVIDIA's driver.
const SLICE: Duration = Duration::from_millis(2);

/// Time of work after which it is reported though more follows, and longest time to the next event, so that
/// status reports show long work grow.
const STEP: Duration = Duration::from_millis(100);

/// Times of work that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkTimes {
    pub(super) started: Instant,
    pub(super) ended: Instant,
}

#[derive(Debug)]
enum Task<C> {
    /// Work, with the time that it still takes, and its start once it has started.
    Work { left: Duration, started: Option<Instant> },
    /// A completion that follows the work before it.
    Follows(C),
    /// A hold, by its number: what is behind it waits until it is released.
    Hold(u32),
}

impl<C> Task<C> {
    const fn is_work(&self) -> bool {
        matches!(self, Self::Work { .. })
    }
}

#[derive(Debug)]
struct Context<C> {
    number: u32,
    /// Unfinished tasks in their order. The first is work or a hold.
    tasks: VecDeque<Task<C>>,
    newest: Option<WorkTimes>,
    /// Time for which the GPU has worked, as far as it was not reported.
    worked: Duration,
}

impl<C> Context<C> {
    fn has_work(&self) -> bool {
        self.tasks.front().is_some_and(Task::is_work)
    }

    /// Calls `complete` for the completions that follow the work that was complete at `now`, with the times
    /// of that work.
    fn settle(&mut self, now: Instant, complete: &mut impl FnMut(u32, C, WorkTimes)) {
        let done = self.newest.unwrap_or(WorkTimes { started: now, ended: now });
        while let Some(Task::Follows(follows)) =
            self.tasks.pop_front_if(|task| matches!(task, Task::Follows(_)))
        {
            complete(self.number, follows, done);
        }
    }
}

/// The work of all contexts.
#[derive(Debug)]
pub(super) struct Timeline<C> {
    /// Time up to which work is done.
    now: Instant,
    /// Contexts in the order of their turns.
    contexts: VecDeque<Context<C>>,
    /// Remaining time of the slice of the first context.
    slice: Duration,
}

impl<C> Timeline<C> {
    /// Returns a GPU without work at the time `now`.
    pub(super) const fn new(now: Instant) -> Self {
        Self { now, contexts: VecDeque::new(), slice: SLICE }
    }

    fn find(&mut self, number: u32) -> &mut Context<C> {
        let index = self.contexts.iter().position(|context| context.number == number);
        let index = index.unwrap_or_else(|| {
            let (tasks, newest, worked) = (VecDeque::new(), None, Duration::ZERO);
            self.contexts.push_back(Context { number, tasks, newest, worked });
            self.contexts.len() - 1
        });
        &mut self.contexts[index]
    }

    /// Returns the number of unfinished tasks of a context.
    pub(super) fn tasks(&self, number: u32) -> usize {
        self.contexts.iter().find(|context| context.number == number).map_or(0, |context| context.tasks.len())
    }

    /// Adds work of a context that takes `time`.
    pub(super) fn add(&mut self, number: u32, time: Duration) {
        self.find(number).tasks.push_back(Task::Work { left: time, started: None });
    }

    /// Adds a completion that follows the work of a context so far, or returns it if that work is complete.
    pub(super) fn push(&mut self, number: u32, follows: C) -> Result<(), C> {
        let context = self.find(number);
        if context.tasks.is_empty() {
            return Err(follows);
        }
        context.tasks.push_back(Task::Follows(follows));
        Ok(())
    }

    /// Adds a hold after all tasks of a context. Tasks that are added later wait until it is released.
    pub(super) fn hold(&mut self, number: u32, hold: u32) {
        self.find(number).tasks.push_back(Task::Hold(hold));
    }

    /// Releases a hold, and calls `complete` for the completions that follow it with no work in between. An
    /// unknown hold is ignored.
    pub(super) fn release(&mut self, number: u32, hold: u32, mut complete: impl FnMut(u32, C, WorkTimes)) {
        let now = self.now;
        let context = self.find(number);
        context.tasks.retain(|task| !matches!(task, Task::Hold(number) if *number == hold));
        context.settle(now, &mut complete);
    }

    /// Returns the times of the newest work of a context that is complete.
    pub(super) fn newest(&self, number: u32) -> Option<WorkTimes> {
        self.contexts.iter().find(|context| context.number == number)?.newest
    }

    /// Calls `tell` with the time that the GPU has worked for each context since the last report, unless the
    /// work goes on and took less than [`STEP`].
    pub(super) fn report(&mut self, mut tell: impl FnMut(u32, Duration)) {
        for context in &mut self.contexts {
            let due = if context.has_work() { STEP } else { Duration::from_nanos(1) };
            if context.worked >= due {
                tell(context.number, std::mem::take(&mut context.worked));
            }
        }
    }

    /// Removes a context with its work. Returns the time of its work that was not reported.
    pub(super) fn leave(&mut self, number: u32) -> Duration {
        let Some(at) = self.contexts.iter().position(|context| context.number == number) else {
            return Duration::ZERO;
        };
        if at == 0 {
            self.slice = SLICE;
        }
        self.contexts.remove(at).map_or(Duration::ZERO, |context| context.worked)
    }

    /// Moves the next context with work to the front. Returns the time for which it runs, which is until its
    /// work or its slice ends, or `None` if no context has work.
    fn schedule(&mut self) -> Option<Duration> {
        let with_work = self.contexts.iter().position(Context::has_work)?;
        if with_work > 0 {
            self.contexts.rotate_left(with_work);
            self.slice = SLICE;
        }
        match self.contexts.front()?.tasks.front()? {
            Task::Work { left, .. } => Some((*left).min(self.slice)),
            Task::Follows(_) | Task::Hold(_) => None,
        }
    }

    /// Returns whether only one context has work, so that the ends of its slices change nothing.
    fn is_alone(&self) -> bool {
        self.contexts.iter().filter(|context| context.has_work()).count() == 1
    }

    /// Returns the time at which work completes or another context has its turn, if there is any work.
    pub(super) fn next_event(&mut self) -> Option<Instant> {
        let slice = self.schedule()?;
        let work = match self.contexts.front()?.tasks.front()? {
            Task::Work { left, .. } if self.is_alone() => *left,
            _ => slice,
        };
        Some(self.now + work.min(STEP))
    }

    /// Lets time pass until `now`, and calls `complete` for each completion that is reached.
    pub(super) fn pass(&mut self, now: Instant, mut complete: impl FnMut(u32, C, WorkTimes)) {
        while let Some(time) = self.schedule() {
            let time = time.min(now.saturating_duration_since(self.now));
            let (start, end) = (self.now, self.now + time);
            let Some(context) = self.contexts.front_mut() else { return };
            let Some(Task::Work { left, started }) = context.tasks.front_mut() else { return };
            let started = *started.get_or_insert(start);
            *left -= time;
            context.worked += time;
            let ended = left.is_zero();
            self.now = end;
            self.slice -= time;
            if ended {
                context.newest = Some(WorkTimes { started, ended: end });
                context.tasks.pop_front();
                context.settle(end, &mut complete);
            }
            if self.slice.is_zero() {
                self.contexts.rotate_left(1);
                self.slice = SLICE;
            }
            if end >= now && !ended {
                return;
            }
        }
        // Time without work is not saved up.
        self.now = self.now.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns what is complete at `now`, with the context, and its start and end in milliseconds.
    fn pass(timeline: &mut Timeline<char>, start: Instant, now: u32) -> Vec<(u32, char, u128, u128)> {
        let mut done = Vec::new();
        let since = |at: Instant| (at - start).as_millis();
        timeline.pass(start + now * MS, |number, what, times| {
            done.push((number, what, since(times.started), since(times.ended)));
        });
        done
    }

    #[test]
    fn work_of_a_context_is_done_in_order_and_at_its_time() {
        let start = Instant::now();
        let mut timeline = Timeline::new(start);
        assert_eq!(timeline.push(1, 'a'), Err('a'));
        timeline.add(1, 3 * MS);
        assert_eq!(timeline.push(1, 'b'), Ok(()));
        timeline.add(1, 4 * MS);
        assert_eq!((timeline.push(1, 'c'), timeline.push(1, 'd')), (Ok(()), Ok(())));
        assert_eq!(timeline.next_event(), Some(start + 3 * MS));
        assert_eq!(pass(&mut timeline, start, 2), []);
        // A late call does not change the times.
        assert_eq!(pass(&mut timeline, start, 20), [(1, 'b', 0, 3), (1, 'c', 3, 7), (1, 'd', 3, 7)]);
        assert_eq!((timeline.next_event(), timeline.push(1, 'e')), (None, Err('e')));
        timeline.add(1, MS);
        assert_eq!(timeline.next_event(), Some(start + 21 * MS), "idle time is not saved up");
    }

    #[test]
    fn a_hold_delays_what_is_behind_it_and_no_other_context() {
        let start = Instant::now();
        let mut timeline = Timeline::new(start);
        timeline.hold(1, 7);
        assert_eq!(timeline.push(1, 'a'), Ok(()));
        timeline.add(1, MS);
        assert_eq!(timeline.push(1, 'b'), Ok(()));
        timeline.add(2, MS);
        assert_eq!(timeline.push(2, 'x'), Ok(()));
        assert_eq!(pass(&mut timeline, start, 10), [(2, 'x', 0, 1)]);
        let mut released = Vec::new();
        timeline.release(1, 6, |_, what, _| released.push(what));
        assert_eq!(released, []);
        timeline.release(1, 7, |_, what, _| released.push(what));
        assert_eq!(released, ['a']);
        assert_eq!(pass(&mut timeline, start, 11), [(1, 'b', 10, 11)]);
    }

    #[test]
    fn contexts_with_work_take_turns() {
        let start = Instant::now();
        let mut timeline = Timeline::new(start);
        for (number, time) in [(1, 1000), (2, 5), (3, 1)] {
            timeline.add(number, time * MS);
            assert_eq!(timeline.push(number, 'x'), Ok(()));
        }
        assert_eq!(pass(&mut timeline, start, 12), [(3, 'x', 4, 5), (2, 'x', 2, 12)]);
        timeline.add(2, MS);
        assert_eq!(timeline.push(2, 'y'), Ok(()));
        timeline.leave(1);
        assert_eq!(pass(&mut timeline, start, 13), [(2, 'y', 12, 13)]);
    }
    #[test]
    fn the_time_of_each_context_is_that_of_its_work() {
        let start = Instant::now();
        let mut timeline = Timeline::new(start);
        let report = |timeline: &mut Timeline<char>| {
            let mut told = Vec::new();
            timeline.report(|number, time| told.push((number, time.as_millis())));
            told.sort_unstable();
            told
        };
        timeline.add(1, 1000 * MS);
        timeline.add(2, 5 * MS);
        // The second context has its last millisecond in its third slice.
        assert_eq!(pass(&mut timeline, start, 50), []);
        assert_eq!(report(&mut timeline), [(2, 5)], "the work of the first one goes on");
        assert_eq!(timeline.next_event(), Some(start + 150 * MS));
        assert_eq!(pass(&mut timeline, start, 150), []);
        assert_eq!(report(&mut timeline), [(1, 145)]);
        assert_eq!(report(&mut timeline), []);
        assert_eq!(pass(&mut timeline, start, 160), []);
        assert_eq!((timeline.leave(1), timeline.leave(1)), (10 * MS, Duration::ZERO));
        timeline.hold(2, 1);
        timeline.add(2, MS);
        assert_eq!(pass(&mut timeline, start, 400), []);
        assert_eq!(report(&mut timeline), [], "a hold is no work");
    }
}
