//! State of each thread: its number, and the return addresses of its followed calls. It consists of plain
//! thread-local words of an object that is present from the start, so it needs no allocation and no
//! destructor.

use core::cell::Cell;

use crate::entry::Entry;

/// Maximum depth of nested calls that are followed. Deeper ones are recorded without an end.
const MOST: usize = 48;

/// A followed call, on a thread's stack of them.
#[derive(Clone, Copy)]
pub struct Frame {
    /// Address on the stack at which the return address was.
    slot: usize,
    /// Return address of the call.
    caller: usize,
    /// Record of the call.
    pub entry: Entry,
}

/// The tracer's state of one thread.
pub struct Thread {
    number: Cell<u32>,
    generation: Cell<u32>,
    depth: Cell<usize>,
    frames: [Cell<Frame>; MOST],
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            number: Cell::new(0),
            generation: Cell::new(0),
            depth: Cell::new(0),
            frames: [const { Cell::new(Frame { slot: 0, caller: 0, entry: Entry::NONE }) }; MOST],
        }
    };
}

/// Calls `run` with this thread's state. Returns `None` if the thread is ending.
pub fn with<T>(run: impl FnOnce(&Thread) -> T) -> Option<T> {
    THREAD.try_with(run).ok()
}

impl Thread {
    /// Returns the number of traced calls that the thread is in.
    pub fn depth(&self) -> u16 {
        self.depth.get() as u16
    }

    /// Returns the thread's number, and whether the file of that generation does not have it yet.
    pub fn number(&self, generation: u32) -> (u32, bool) {
        if self.generation.replace(generation) == generation {
            return (self.number.get(), false);
        }
        // SAFETY: takes nothing, answers a number.
        let number = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
        self.number.set(number);
        (number, true)
    }

    /// Stores a return address. Returns false if too many are stored.
    pub fn push(&self, slot: usize, caller: usize, entry: Entry) -> bool {
        let mut depth = self.depth.get();
        // A frame at this very place was left by a jump.
        while depth > 0 && self.frames[depth - 1].get().slot == slot {
            depth -= 1;
        }
        let Some(frame) = self.frames.get(depth) else { return false };
        frame.set(Frame { slot, caller, entry });
        self.depth.set(depth + 1);
        true
    }

    /// Returns the return address that was at `slot`. Those of calls inside it, which were left by a jump,
    /// are dropped.
    pub fn pop(&self, slot: usize) -> Option<(usize, Entry)> {
        let frames = self.frames.get(..self.depth.get())?;
        let at = frames.iter().rposition(|frame| frame.get().slot == slot)?;
        self.depth.set(at);
        let Frame { caller, entry, .. } = frames[at].get();
        Some((caller, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_by_their_place() {
        with(|thread| {
            assert!(thread.push(900, 1, Entry::NONE) && thread.push(800, 2, Entry::NONE));
            assert_eq!(thread.pop(800).map(|found| found.0), Some(2));
            // The one at 700 is left by a jump: 900 is found beneath it.
            assert!(thread.push(700, 3, Entry::NONE));
            assert_eq!(thread.pop(900).map(|found| found.0), Some(1));
            assert!(thread.depth() == 0 && thread.pop(700).is_none());
            // This one is left by a jump too, and its entry is reused.
            assert!(thread.push(600, 4, Entry::NONE) && thread.push(600, 5, Entry::NONE));
            assert!(thread.depth() == 1 && thread.pop(600).map(|found| found.0) == Some(5));
        });
    }

    #[test]
    fn too_many_are_refused() {
        with(|thread| {
            for slot in 0..MOST {
                assert!(thread.push(1000 - slot, slot, Entry::NONE));
            }
            assert!(!thread.push(1, 0, Entry::NONE));
            assert_eq!(thread.pop(1000).map(|found| found.0), Some(0));
        });
    }
}
