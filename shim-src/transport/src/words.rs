//! Completion words: who has which, and what value comes next.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use vgpu_wire::Mark;
use vgpu_wire::area::WORDS;

use crate::inner::{Inner, lock};
use crate::lost::Lost;
use crate::tracer::Awaited;
use crate::wait::Usual;

/// The words of a session.
#[derive(Debug)]
pub(crate) struct Words {
    /// Free words, a bit each; word 0 is none.
    free: Mutex<[u64; WORDS as usize / 64]>,
    /// The value given last for each word, by whichever owner.
    last: Box<[AtomicU64]>,
    /// How long a wait for each word usually takes.
    usual: Box<[Usual]>,
}

impl Words {
    pub(crate) fn new() -> Self {
        let mut free = [u64::MAX; WORDS as usize / 64];
        free[0] &= !1;
        Self {
            free: Mutex::new(free),
            last: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            usual: (0..WORDS).map(|_| Usual::new()).collect(),
        }
    }

    /// A word that nobody has.
    pub(crate) fn take(&self) -> Option<u32> {
        let mut free = lock(&self.free);
        let at = free.iter().position(|&bits| bits != 0)?;
        let bit = free[at].trailing_zeros();
        free[at] &= !(1 << bit);
        Some(at as u32 * 64 + bit)
    }

    pub(crate) fn give_back(&self, word: u32) {
        lock(&self.free)[word as usize / 64] |= 1 << (word % 64);
    }

    /// The next value of a word.
    #[inline]
    pub(crate) fn next(&self, word: u32) -> u64 {
        self.last[word as usize].fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A mark with the next value of a word.
    pub(crate) fn mark(&self, word: u32) -> Mark {
        Mark::new(word, self.next(word))
    }
}

impl Inner {
    /// Waits until a word has reached a value.
    pub(crate) fn wait_word(&self, word: u32, value: u64) -> Result<(), Lost> {
        self.enter()?;
        if word >= WORDS {
            return Err(Lost::Misuse { what: "a completion word that does not exist" });
        }
        if word == 0 {
            return Ok(());
        }
        let usual = &self.words.usual[word as usize];
        self.wait_until(Awaited::Word(word), usual, || Ok(self.channel.value(word) >= value), Self::broken)
    }
}

/// A completion word of a session; given back on drop.
///
/// A word outlives its owners: marks of the last owner may still be under way when the next one gets
/// it. So values come from [`Word::next`] alone, which never gives a value twice, whoever asks. Marks of a word must
/// be *sent* in the order of their values (the host ends a session whose values decrease): threads that share a word hold a
/// lock from [`Word::next`] to the send. Values are reached in their order too: who waits for one that is done
/// before an earlier one, of another stream, waits no longer, so marks of a word should be marks of one stream.
#[derive(Debug)]
pub struct Word {
    inner: Arc<Inner>,
    index: u32,
}

impl Word {
    pub(crate) fn new(inner: Arc<Inner>) -> Option<Self> {
        inner.enter().ok()?;
        let index = inner.words.take()?;
        Some(Self { inner, index })
    }

    /// Its index, for [`Mark::word`], [`crate::Session::wait`] and its like.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The next value to mark with: above every value of this word before it, by any owner.
    #[inline]
    pub fn next(&self) -> u64 {
        self.inner.words.next(self.index)
    }

    /// The value that [`Word::next`] gave last, by any owner; 0, which is always reached, where it never did.
    #[inline]
    pub fn last(&self) -> u64 {
        self.inner.words.last[self.index as usize].load(Ordering::Relaxed)
    }

    /// A mark on this word with its next value.
    #[inline]
    pub fn mark(&self) -> Mark {
        self.inner.words.mark(self.index)
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        // In a forked child the table's lock may be held for ever.
        if !self.inner.home.left() {
            self.inner.words.give_back(self.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_word_0_are_given_once_and_values_go_on() {
        let words = Words::new();
        let mut taken: Vec<u32> = std::iter::from_fn(|| words.take()).collect();
        assert_eq!(words.mark(700), Mark::new(700, 1));
        words.give_back(700);
        assert_eq!(words.take(), Some(700));
        assert_eq!(words.next(700), 2);
        taken.sort_unstable();
        assert!(taken.into_iter().eq(1..WORDS));
    }
}
