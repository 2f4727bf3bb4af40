//! A lane is the order in which the host does one stream's work, seen from here: how much it was given, how much of that
//! later work is known to come after (a join or a wait), and the completion words that tell how far it is.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use vgpu_transport::Word;
use vgpu_wire::Mark;
use vgpu_wire::body::stream::Signal;

use crate::Result;
use crate::gpu::Gpu;
use crate::sync::Mutex;

/// A stream's order; [`vgpu_wire::JOIN_ALL`] stands for all streams together.
#[derive(Debug, Default)]
pub struct Lane {
    number: AtomicU32,
    /// Pieces of work given to the host, counted after each was sent.
    given: AtomicU64,
    /// So many of them come before all later work of the session.
    joined: AtomicU64,
    /// [`Gpu::lessons`] when the newest piece was given.
    lessons: AtomicU64,
    marks: Mutex<Marks>,
}

/// Values are taken and sent under one lock, since values of a word must not decrease in the ring.
#[derive(Debug, Default)]
struct Marks {
    /// Marked in the order of the work's completion.
    done: Option<Word>,
    /// Marked when the source of a copy has been read, which may come before earlier work is done: so a word of its own.
    read: Option<Word>,
    /// So many pieces of work are covered by `value`.
    covered: u64,
    /// The newest value of `done` that covers.
    value: u64,
}

/// A word's index and the value that tells that something is done.
pub type Goal = (u32, u64);

impl Lane {
    /// A lane that has been given nothing.
    pub const fn new(number: u32) -> Self {
        Self {
            number: AtomicU32::new(number),
            given: AtomicU64::new(0),
            joined: AtomicU64::new(0),
            lessons: AtomicU64::new(0),
            marks: Mutex::new(Marks { done: None, read: None, covered: 0, value: 0 }),
        }
    }

    /// Makes a used lane a new one.
    pub fn begin(&self, number: u32) {
        self.number.store(number, Ordering::Relaxed);
        self.given.store(0, Ordering::Relaxed);
        self.joined.store(0, Ordering::Relaxed);
        self.lessons.store(0, Ordering::Relaxed);
        *self.marks.lock() = Marks::default();
    }

    /// Gives the lane's words back.
    pub fn end(&self, gpu: &Gpu) {
        let marks = std::mem::take(&mut *self.marks.lock());
        for word in [marks.done, marks.read].into_iter().flatten() {
            gpu.retire(word);
        }
    }

    /// The stream's number on the wire.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// Counts a piece of work that was sent. After the sending: who learns of the work learns of the count.
    #[inline]
    pub fn given(&self, gpu: &Gpu) {
        self.lessons.store(gpu.lessons(), Ordering::Relaxed);
        self.given.fetch_add(1, Ordering::Release);
    }

    /// Whether it was given something since the program last learned that some work is done. Only then may it be said that
    /// its work is not done; else it is waited for.
    pub fn is_fresh(&self, gpu: &Gpu) -> bool {
        self.given_so_far() != 0 && self.lessons.load(Ordering::Relaxed) == gpu.lessons()
    }

    /// Whether a synchronize has covered all that it was given.
    pub fn is_joined(&self) -> bool {
        self.joined.load(Ordering::Acquire) >= self.given_so_far()
    }

    /// How many pieces of work it was given.
    pub fn given_so_far(&self) -> u64 {
        self.given.load(Ordering::Acquire)
    }

    /// Leaves a join behind, unless one is there for all that the lane was given.
    pub fn join(&self, gpu: &Gpu) {
        let given = self.given_so_far();
        if self.joined.load(Ordering::Acquire) < given {
            gpu.join(self.number());
            self.cover(given);
        } else {
            // There was nothing to join - a wait for an event that was done left no trace, say - but the program learns it now.
            gpu.learned();
        }
    }

    /// So much of what it was given comes before all later work.
    pub fn cover(&self, given: u64) {
        self.joined.fetch_max(given, Ordering::AcqRel);
    }

    /// Sends a piece of work that carries a mark, stored when the work before it and itself are done.
    pub fn mark(&self, gpu: &Gpu, send: impl FnOnce(Mark) -> Result<u64>) -> Result<Goal> {
        self.mark_done(gpu, send, 1)
    }

    fn mark_done(&self, gpu: &Gpu, send: impl FnOnce(Mark) -> Result<u64>, work: u64) -> Result<Goal> {
        let mut marks = self.marks.lock();
        let given = self.given.load(Ordering::Acquire);
        let mark = Self::next(&mut marks.done, gpu)?;
        send(mark)?;
        if work != 0 {
            self.given(gpu);
        }
        marks.covered = given + work;
        marks.value = mark.value;
        Ok((mark.word, mark.value))
    }

    /// Sends a hold, which carries a mark that is stored when the work before it is done. The mark tells nothing of the hold itself,
    /// which is work like any other.
    pub fn hold(&self, gpu: &Gpu, send: impl FnOnce(Mark) -> Result<u64>) -> Result<Goal> {
        let mut marks = self.marks.lock();
        let given = self.given.load(Ordering::Acquire);
        let mark = Self::next(&mut marks.done, gpu)?;
        send(mark)?;
        marks.covered = given;
        marks.value = mark.value;
        self.given(gpu);
        Ok((mark.word, mark.value))
    }

    /// Sends a copy that carries a mark, stored when its source has been read, and counts it.
    pub fn mark_read(&self, gpu: &Gpu, send: impl FnOnce(Mark) -> Result<u64>) -> Result<Goal> {
        let mut marks = self.marks.lock();
        let mark = Self::next(&mut marks.read, gpu)?;
        send(mark)?;
        self.given(gpu);
        Ok((mark.word, mark.value))
    }

    fn next(word: &mut Option<Word>, gpu: &Gpu) -> Result<Mark> {
        if word.is_none() {
            *word = Some(gpu.take_word()?);
        }
        Ok(word.as_ref().map_or(Mark::NONE, Word::mark))
    }

    /// What tells that all that the lane was given is done; asks the host for a mark if there is none yet.
    /// `None`: it was given nothing.
    pub fn signal(&self, gpu: &Gpu) -> Result<Option<Goal>> {
        let given = self.given.load(Ordering::Acquire);
        if given == 0 {
            return Ok(None);
        }
        {
            let marks = self.marks.lock();
            if let Some(word) = marks.done.as_ref().filter(|_| marks.covered >= given) {
                return Ok(Some((word.index(), marks.value)));
            }
        }
        self.signal_always(gpu).map(Some)
    }

    /// The same, but asks the host in any case.
    pub fn signal_always(&self, gpu: &Gpu) -> Result<Goal> {
        let stream = self.number();
        self.mark_done(gpu, |mark| gpu.send(&Signal { stream, reserved: 0, mark }, &[]), 0)
    }

    /// Really waits for the lane's work.
    pub fn drain(&self, gpu: &Gpu) -> Result {
        let given = self.given.load(Ordering::Acquire);
        if let Some((word, value)) = self.signal(gpu)? {
            gpu.wait(word, value)?;
            self.cover(given);
        }
        Ok(())
    }

    /// Synchronises the host with the lane: waits only if copies of the host's own memory may be under way, else leaves a join behind.
    pub fn synchronize(&self, gpu: &Gpu) -> Result {
        if !gpu.pending.any() {
            self.join(gpu);
            return Ok(());
        }
        let words = {
            let marks = self.marks.lock();
            [&marks.done, &marks.read].map(|word| word.as_ref().map_or(0, Word::index))
        };
        match gpu.pending.of(gpu, words) {
            Outstanding::Nothing => self.join(gpu),
            Outstanding::Here(goals) => {
                // All of them are this lane's own: when they are done, the rest of its work can wait for itself.
                for (word, value) in goals.into_iter().flatten() {
                    gpu.wait(word, value)?;
                }
                self.join(gpu);
            }
            Outstanding::Elsewhere => self.drain(gpu)?,
        }
        Ok(())
    }
}

/// Copies between the device and pinned memory that the host has not reported done: what a synchronize has to wait for.
#[derive(Debug, Default)]
pub struct Pending {
    any: AtomicBool,
    /// The newest goal of each word.
    goals: Mutex<Vec<Goal>>,
}

/// What is outstanding, for a lane with two words.
#[derive(Debug, PartialEq, Eq)]
enum Outstanding {
    Nothing,
    Here([Option<Goal>; 2]),
    Elsewhere,
}

impl Pending {
    /// Adds a copy.
    pub fn add(&self, (word, value): Goal) {
        let mut goals = self.goals.lock();
        match goals.iter_mut().find(|goal| goal.0 == word) {
            Some(goal) => goal.1 = goal.1.max(value),
            None => goals.push((word, value)),
        }
        self.any.store(true, Ordering::Release);
    }

    /// Whether there may be any.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Forgets what is done; whether nothing is left.
    pub fn forget_done(&self, gpu: &Gpu) -> bool {
        self.left(gpu, <[Goal]>::is_empty)
    }

    fn of(&self, gpu: &Gpu, words: [u32; 2]) -> Outstanding {
        self.left(gpu, |goals| sort(goals, words))
    }

    fn left<R>(&self, gpu: &Gpu, look: impl FnOnce(&[Goal]) -> R) -> R {
        if !self.any() {
            return look(&[]);
        }
        let mut goals = self.goals.lock();
        goals.retain(|&(word, value)| gpu.session.word_value(word) < value);
        if goals.is_empty() {
            self.any.store(false, Ordering::Release);
        }
        look(&goals)
    }
}

fn sort(goals: &[Goal], words: [u32; 2]) -> Outstanding {
    if goals.is_empty() {
        Outstanding::Nothing
    } else if goals.iter().all(|goal| goal.0 != 0 && words.contains(&goal.0)) {
        Outstanding::Here(words.map(|word| goals.iter().copied().find(|goal| goal.0 == word)))
    } else {
        Outstanding::Elsewhere
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lanes_own_copies_let_it_skip_the_signal() {
        assert_eq!(sort(&[], [3, 4]), Outstanding::Nothing);
        assert_eq!(sort(&[(3, 9)], [3, 4]), Outstanding::Here([Some((3, 9)), None]));
        assert_eq!(sort(&[(4, 1), (3, 9)], [3, 4]), Outstanding::Here([Some((3, 9)), Some((4, 1))]));
        assert_eq!(sort(&[(3, 9), (5, 1)], [3, 4]), Outstanding::Elsewhere);
        assert_eq!(sort(&[(5, 1)], [0, 0]), Outstanding::Elsewhere);
    }

    #[test]
    fn a_words_newest_goal_stands_for_the_others() {
        let pending = Pending::default();
        pending.add((2, 5));
        pending.add((2, 3));
        pending.add((7, 1));
        pending.add((2, 8));
        assert_eq!(*pending.goals.lock(), [(2, 8), (7, 1)]);
    }
}
