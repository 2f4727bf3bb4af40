//! Fence points that a synchronize must wait for: work that reads or writes the program's own memory, or
//! calls its functions, and that the host has not reported complete.

use std::sync::atomic::{AtomicBool, Ordering};

use vgpu_transport::Session;

use crate::sync::Mutex;

/// A completion word's index, and the value that the device stores there once the work has completed.
pub type FencePoint = (u32, u64);

/// Work that the host has not reported complete and that a synchronize has to wait for.
#[derive(Debug, Default)]
pub struct Pending {
    any: AtomicBool,
    /// The newest fence point of each word.
    fences: Mutex<Vec<FencePoint>>,
}

/// Outstanding work, as seen from a timeline that owns two words.
#[derive(Debug, PartialEq, Eq)]
pub enum Outstanding {
    /// All work has completed.
    Nothing,
    /// Only work of this timeline is outstanding: the newest fence point of each of its words.
    Here([Option<FencePoint>; 2]),
    /// Work of other timelines is outstanding too.
    Elsewhere,
}

impl Pending {
    /// Adds work that has completed once this fence point is reached.
    pub fn add(&self, (word, value): FencePoint) {
        let mut fences = self.fences.lock();
        match fences.iter_mut().find(|fence| fence.0 == word) {
            Some(fence) => fence.1 = fence.1.max(value),
            None => fences.push((word, value)),
        }
        self.any.store(true, Ordering::Release);
    }

    /// Returns whether there may be outstanding work.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Removes work that has completed. Returns whether none is left.
    pub fn forget_done(&self, session: &Session) -> bool {
        self.left(session, <[FencePoint]>::is_empty)
    }

    /// Returns what is outstanding for a timeline with these words; 0 stands for a word that it does not
    /// have.
    pub fn outstanding(&self, session: &Session, words: [u32; 2]) -> Outstanding {
        self.left(session, |fences| sort(fences, words))
    }

    fn left<R>(&self, session: &Session, look: impl FnOnce(&[FencePoint]) -> R) -> R {
        if !self.any() {
            return look(&[]);
        }
        let mut fences = self.fences.lock();
        fences.retain(|&(word, value)| session.word_value(word) < value);
        if fences.is_empty() {
            self.any.store(false, Ordering::Release);
        }
        look(&fences)
    }
}

fn sort(fences: &[FencePoint], words: [u32; 2]) -> Outstanding {
    if fences.is_empty() {
        Outstanding::Nothing
    } else if fences.iter().all(|fence| fence.0 != 0 && words.contains(&fence.0)) {
        Outstanding::Here(words.map(|word| fences.iter().copied().find(|fence| fence.0 == word)))
    } else {
        Outstanding::Elsewhere
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_timelines_own_copies_let_it_skip_the_signal() {
        assert_eq!(sort(&[], [3, 4]), Outstanding::Nothing);
        assert_eq!(sort(&[(3, 9)], [3, 4]), Outstanding::Here([Some((3, 9)), None]));
        assert_eq!(sort(&[(4, 1), (3, 9)], [3, 4]), Outstanding::Here([Some((3, 9)), Some((4, 1))]));
        assert_eq!(sort(&[(3, 9), (5, 1)], [3, 4]), Outstanding::Elsewhere);
        assert_eq!(sort(&[(5, 1)], [0, 0]), Outstanding::Elsewhere);
    }

    #[test]
    fn a_words_newest_fence_point_stands_for_the_others() {
        let pending = Pending::default();
        pending.add((2, 5));
        pending.add((2, 3));
        pending.add((7, 1));
        pending.add((2, 8));
        assert_eq!(*pending.fences.lock(), [(2, 8), (7, 1)]);
    }
}
