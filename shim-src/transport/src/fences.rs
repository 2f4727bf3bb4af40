//! Fences: completion words of a channel, whose values tell which work has completed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_pace::WaitEstimate;
use vgpu_wire::Mark;
use vgpu_wire::area::WORDS;

use crate::link::Link;
use crate::mutex::lock;
use crate::session_error::SessionError;
use crate::tracer::Awaited;
use crate::wait::wait_until;

/// The completion words of a session: which are in use, and the next value of each.
#[derive(Debug)]
pub(crate) struct Fences {
    /// Words without an owner, one bit each. Word 0 is never free.
    free: Mutex<[u64; WORDS as usize / 64]>,
    /// The newest value taken for each word, by any owner.
    last: Box<[AtomicU64]>,
    /// Estimate of the duration of waits for each word.
    usual: Box<[WaitEstimate]>,
}

impl Fences {
    pub(crate) fn new() -> Self {
        let mut free = [u64::MAX; WORDS as usize / 64];
        free[0] &= !1;
        Self {
            free: Mutex::new(free),
            last: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            usual: (0..WORDS).map(|_| WaitEstimate::new()).collect(),
        }
    }

    /// Takes a word without an owner. Returns `None` if all have owners.
    pub(crate) fn acquire_word(&self) -> Option<u32> {
        let mut free = lock(&self.free);
        let at = free.iter().position(|&bits| bits != 0)?;
        let bit = free[at].trailing_zeros();
        free[at] &= !(1 << bit);
        Some(at as u32 * 64 + bit)
    }

    /// Frees a word. The next owner continues with its values.
    pub(crate) fn release_word(&self, word: u32) {
        lock(&self.free)[word as usize / 64] |= 1 << (word % 64);
    }

    /// Returns the next value of a word.
    #[inline]
    pub(crate) fn next(&self, word: u32) -> u64 {
        self.last[word as usize].fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the value that [`Fences::next`] returned last, or 0 if it was never called for the word.
    #[inline]
    pub(crate) fn last(&self, word: u32) -> u64 {
        self.last[word as usize].load(Ordering::Relaxed)
    }

    /// Returns a mark with the next value of a word.
    pub(crate) fn mark(&self, word: u32) -> Mark {
        Mark::new(word, self.next(word))
    }

    /// Waits until a word has reached a value. Word 0 has reached every value.
    pub(crate) fn wait(&self, link: &Link, word: u32, value: u64) -> Result<(), SessionError> {
        link.enter()?;
        if word >= WORDS {
            return Err(SessionError::Misuse { what: "a completion word that does not exist" });
        }
        if word == 0 {
            return Ok(());
        }
        let usual = &self.usual[word as usize];
        wait_until(link, Awaited::Word(word), usual, || Ok(link.channel.value(word) >= value), Link::broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_word_0_are_given_once_and_values_go_on() {
        let words = Fences::new();
        let mut taken: Vec<u32> = std::iter::from_fn(|| words.acquire_word()).collect();
        assert_eq!(words.mark(700), Mark::new(700, 1));
        words.release_word(700);
        assert_eq!(words.acquire_word(), Some(700));
        assert_eq!(words.next(700), 2);
        taken.sort_unstable();
        assert!(taken.into_iter().eq(1..WORDS));
    }
}
