//! Handle by which an owner uses a completion word.

use std::sync::Arc;

use vgpu_wire::Mark;

use crate::session_core::SessionCore;

/// A completion word of a session, which is freed on drop.
///
/// A word outlives its owners: marks of the last owner may still be pending when the next one takes the word.
/// So values come only from [`Word::next`], which never returns a value twice to anybody. Marks of a word
/// must be *sent* in the order of their values, because the host ends a session whose values decrease:
/// threads that share a word hold a lock from [`Word::next`] to the send. Values are reached in their order
/// too. A value that completes before an earlier one of another stream ends the waits for both, so the marks
/// of a word should all belong to one stream.
#[derive(Debug)]
pub struct Word {
    core: Arc<SessionCore>,
    index: u32,
}

impl Word {
    pub(crate) fn new(core: Arc<SessionCore>) -> Option<Self> {
        core.link().enter().ok()?;
        let index = core.fences.acquire_word()?;
        Some(Self { core, index })
    }

    /// Returns the word's index, as [`Mark::word`] and [`crate::Session::wait`] take it.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the next value to mark with, which is above every earlier value of this word, whoever owned
    /// it.
    #[inline]
    pub fn next(&self) -> u64 {
        self.core.fences.next(self.index)
    }

    /// Returns the value that [`Word::next`] returned last, to any owner; 0, which is always reached, if it
    /// was never called.
    #[inline]
    pub fn last(&self) -> u64 {
        self.core.fences.last(self.index)
    }

    /// Returns a mark on this word with its next value.
    #[inline]
    pub fn mark(&self) -> Mark {
        self.core.fences.mark(self.index)
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        // In a forked child the lock may be held forever by a thread that the child does not have.
        if !self.core.link().in_forked_child() {
            self.core.fences.release_word(self.index);
        }
    }
}
