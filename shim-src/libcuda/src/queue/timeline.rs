//! A timeline is the order in which the host executes one stream's work, as far as the guest knows it: how
//! much was submitted, how much of that all later work is ordered after (by a join or a wait), and the
//! completion words that show its progress.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use vgpu_transport::Word;
use vgpu_wire::Mark;
use vgpu_wire::body::stream::Signal;

use crate::Result;
use crate::queue::holds::Implicit;
use crate::queue::pending::{FencePoint, Outstanding};
use crate::queue::submission::Queue;
use crate::sync::Mutex;

/// Order of a stream's work. The stream [`vgpu_wire::JOIN_ALL`] stands for all streams together.
#[derive(Debug, Default)]
pub struct Timeline {
    number: AtomicU32,
    /// Number of pieces of work submitted, each counted after it was sent.
    submitted: AtomicU64,
    /// Number of pieces, from the first, that all later work of the session is ordered after.
    joined: AtomicU64,
    /// [`Queue::observed_epoch`] when the newest piece was submitted.
    observed_epoch: AtomicU64,
    marks: Mutex<Marks>,
    /// Number of the newest hold for which the stream's work waits, its own or that of an event, or 0.
    hold: AtomicU32,
    /// Whether the stream and the legacy stream wait for each other.
    blocking: AtomicBool,
}

/// Marks of a timeline. Values are taken and sent under one lock, since values of a word must not decrease in
/// the ring.
#[derive(Debug, Default)]
struct Marks {
    /// Word that is marked in the order in which the work completes.
    done: Option<Word>,
    /// Word that is marked when the source of a copy has been read. That may precede the completion of
    /// earlier work, so it needs a word of its own.
    read: Option<Word>,
    /// Number of pieces of work that have completed once `done` reaches `value`.
    covered: u64,
    /// The newest value of `done` that covers all of them.
    value: u64,
}

impl Timeline {
    /// Creates a timeline without work.
    pub const fn new(number: u32) -> Self {
        Self {
            number: AtomicU32::new(number),
            submitted: AtomicU64::new(0),
            joined: AtomicU64::new(0),
            observed_epoch: AtomicU64::new(0),
            marks: Mutex::new(Marks { done: None, read: None, covered: 0, value: 0 }),
            hold: AtomicU32::new(0),
            blocking: AtomicBool::new(false),
        }
    }

    /// Reuses the timeline of a destroyed stream for a new one.
    pub fn begin(&self, number: u32, blocking: bool) {
        self.number.store(number, Ordering::Relaxed);
        self.submitted.store(0, Ordering::Relaxed);
        self.joined.store(0, Ordering::Relaxed);
        self.observed_epoch.store(0, Ordering::Relaxed);
        *self.marks.lock() = Marks::default();
        self.hold.store(0, Ordering::Relaxed);
        self.blocking.store(blocking, Ordering::Relaxed);
    }

    /// Frees the timeline's words.
    pub fn end(&self, queue: &Queue) {
        let marks = std::mem::take(&mut *self.marks.lock());
        for word in [marks.done, marks.read].into_iter().flatten() {
            queue.retire(word);
        }
    }

    /// Returns the stream's number in messages.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// Blocks while the stream waits for a host function and the work that waits for host functions is too
    /// much.
    #[inline]
    pub fn wait_for_room(&self, queue: &Queue) {
        if queue.holds.any() {
            queue.holds.wait_for_room(self.last_hold(queue));
        }
    }

    fn implicit(&self) -> Implicit {
        match (self.number(), self.blocking.load(Ordering::Relaxed)) {
            (0, _) => Implicit::Blocking,
            (_, true) => Implicit::Legacy,
            (_, false) => Implicit::Nothing,
        }
    }

    /// Returns the number of the newest hold for which later work of the stream waits, or 0.
    pub fn last_hold(&self, queue: &Queue) -> u32 {
        queue.holds.last(self.hold.load(Ordering::Acquire), self.implicit())
    }

    /// Orders later work of the stream after a hold, because the stream waits for an event that is.
    pub fn wait_for_hold(&self, hold: u32) {
        self.hold.fetch_max(hold, Ordering::AcqRel);
    }

    /// Counts a piece of work. It is called after the work was sent, so that a thread which sees the count
    /// also sees the work.
    #[inline]
    pub fn submitted(&self, queue: &Queue) {
        self.observed_epoch.store(queue.observed_epoch(), Ordering::Relaxed);
        self.submitted.fetch_add(1, Ordering::Release);
        if queue.holds.any() {
            queue.holds.count(self.last_hold(queue), self.implicit());
        }
    }

    /// Returns whether work was submitted since the program last learned of a completion. Only then may a
    /// query report that the work has not completed; otherwise it waits for the work.
    pub fn is_fresh(&self, queue: &Queue) -> bool {
        self.submitted_so_far() != 0 && self.observed_epoch.load(Ordering::Relaxed) == queue.observed_epoch()
    }

    /// Returns whether all later work is ordered after everything submitted here.
    pub fn is_joined(&self) -> bool {
        self.joined.load(Ordering::Acquire) >= self.submitted_so_far()
    }

    /// Returns the number of pieces of work submitted.
    pub fn submitted_so_far(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// Orders all later work after this timeline's, unless a join or a wait has done so already.
    pub fn join(&self, queue: &Queue) {
        let submitted = self.submitted_so_far();
        if self.joined.load(Ordering::Acquire) < submitted {
            queue.join(self.number());
            self.cover(submitted);
        } else {
            // There is nothing to join (a wait for an event that was complete leaves no message, say), but
            // the program learns now that the work is complete.
            queue.observe_completion();
        }
    }

    /// Records that all later work is ordered after the first `submitted` pieces.
    pub fn cover(&self, submitted: u64) {
        self.joined.fetch_max(submitted, Ordering::AcqRel);
    }

    /// Sends a piece of work that carries a mark, which the device stores once this and all earlier work of
    /// the stream has completed.
    pub fn mark(&self, queue: &Queue, send: impl FnOnce(Mark) -> Result<u64>) -> Result<FencePoint> {
        self.mark_done(queue, send, 1)
    }

    fn mark_done(
        &self,
        queue: &Queue,
        send: impl FnOnce(Mark) -> Result<u64>,
        work: u64,
    ) -> Result<FencePoint> {
        let mut marks = self.marks.lock();
        let submitted = self.submitted.load(Ordering::Acquire);
        let mark = Self::next(&mut marks.done, queue)?;
        send(mark)?;
        if work != 0 {
            self.submitted(queue);
        }
        marks.covered = submitted + work;
        marks.value = mark.value;
        Ok((mark.word, mark.value))
    }

    /// Sends a hold with a number. Its mark is stored once the work before it has completed and says nothing
    /// about the hold itself, which counts as work like any other.
    pub fn hold(
        &self,
        queue: &Queue,
        hold: u32,
        send: impl FnOnce(Mark) -> Result<u64>,
    ) -> Result<FencePoint> {
        let mut marks = self.marks.lock();
        let submitted = self.submitted.load(Ordering::Acquire);
        let mark = Self::next(&mut marks.done, queue)?;
        send(mark)?;
        marks.covered = submitted;
        marks.value = mark.value;
        self.wait_for_hold(hold);
        queue.holds.hold(hold, self.implicit());
        self.observed_epoch.store(queue.observed_epoch(), Ordering::Relaxed);
        self.submitted.fetch_add(1, Ordering::Release);
        Ok((mark.word, mark.value))
    }

    /// Sends a copy whose mark is stored once its source has been read, and counts it.
    pub fn mark_read(&self, queue: &Queue, send: impl FnOnce(Mark) -> Result<u64>) -> Result<FencePoint> {
        let mut marks = self.marks.lock();
        let mark = Self::next(&mut marks.read, queue)?;
        send(mark)?;
        self.submitted(queue);
        Ok((mark.word, mark.value))
    }

    fn next(word: &mut Option<Word>, queue: &Queue) -> Result<Mark> {
        if word.is_none() {
            *word = Some(queue.take_word()?);
        }
        Ok(word.as_ref().map_or(Mark::NONE, Word::mark))
    }

    /// Returns the fence point that the device reaches once everything submitted on this stream has
    /// completed. Requests a mark from the host if there is none yet. Returns `None` if nothing was
    /// submitted.
    pub fn signal(&self, queue: &Queue) -> Result<Option<FencePoint>> {
        let submitted = self.submitted.load(Ordering::Acquire);
        if submitted == 0 {
            return Ok(None);
        }
        {
            let marks = self.marks.lock();
            if let Some(word) = marks.done.as_ref().filter(|_| marks.covered >= submitted) {
                return Ok(Some((word.index(), marks.value)));
            }
        }
        self.signal_always(queue).map(Some)
    }

    /// Returns the fence point of everything submitted on this stream, and requests a new mark for it in any
    /// case.
    pub fn signal_always(&self, queue: &Queue) -> Result<FencePoint> {
        let stream = self.number();
        self.mark_done(queue, |mark| queue.send(&Signal { stream, reserved: 0, mark }, &[]), 0)
    }

    /// Waits until the timeline's work has completed.
    pub fn drain(&self, queue: &Queue) -> Result {
        let submitted = self.submitted.load(Ordering::Acquire);
        if let Some((word, value)) = self.signal(queue)? {
            queue.wait(word, value)?;
            self.cover(submitted);
        }
        Ok(())
    }

    /// Synchronises the program with the timeline. Waits only while the host may still use the program's
    /// memory; otherwise it leaves a join behind.
    pub fn synchronize(&self, queue: &Queue) -> Result {
        if !queue.pending.any() {
            self.join(queue);
            return Ok(());
        }
        let words = {
            let marks = self.marks.lock();
            [&marks.done, &marks.read].map(|word| word.as_ref().map_or(0, Word::index))
        };
        match queue.pending.outstanding(&queue.session, words) {
            Outstanding::Nothing => self.join(queue),
            Outstanding::Here(fences) => {
                // All of them are this timeline's own: once they are complete, the rest of its work need not
                // be waited for.
                for (word, value) in fences.into_iter().flatten() {
                    queue.wait(word, value)?;
                }
                self.join(queue);
            }
            Outstanding::Elsewhere => self.drain(queue)?,
        }
        Ok(())
    }
}
