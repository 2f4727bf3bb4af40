//! What making a kernel ready may take: steps of work and bytes of memory, counted by whoever does it, and an
//! interrupt that is looked at now and then.

use std::cell::Cell;

use crate::interrupt::{Halt, Interrupt};

/// Steps that one kernel may take to be parsed and lowered. A step is a token, a visit of an instruction, or
/// 64 registers of a set: a few nanoseconds. The largest kernel of GGML's CUDA libraries takes less than a
/// tenth.
pub const STEPS_MOST: u64 = 1 << 30;
/// Bytes that one kernel may take while it is made ready.
pub const BYTES_MOST: u64 = 512 << 20;
/// Steps between two looks at the interrupt: well below a millisecond.
const LOOK: u64 = 1 << 14;
/// Bytes that the work may take between two looks at whether the host has them. What it holds is rounded up
/// to them and asked for once more, for lists that grow are there twice for a while.
const ASKED: u64 = 4 << 20;

/// Why work was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Spent {
    /// It was interrupted.
    #[error(transparent)]
    Halted(#[from] Halt),
    /// It takes too many steps.
    #[error("it takes more than {most} steps to be made ready")]
    Steps {
        /// How many there may be.
        most: u64,
    },
    /// It takes too much memory.
    #[error("it takes more than {most} bytes to be made ready")]
    Bytes {
        /// How many there may be.
        most: u64,
    },
    /// The host has no memory for it.
    #[error("the host has no memory to make it ready: it takes more than {held} bytes")]
    NoMemory {
        /// How many it held.
        held: u64,
    },
}

/// The steps and bytes that one piece of work may take, and has taken. It is used by one thread.
#[derive(Clone, Debug)]
pub struct Effort {
    interrupt: Interrupt,
    steps_most: u64,
    bytes_most: u64,
    steps: Cell<u64>,
    /// Steps at which the interrupt is looked at again.
    look: Cell<u64>,
    /// The most bytes at once so far.
    bytes: Cell<u64>,
    /// Bytes for which the host has been asked.
    asked: Cell<u64>,
}

impl Effort {
    /// Without limits, but for the interrupt: for texts, which take time and memory in proportion to their
    /// length.
    #[must_use]
    pub fn unlimited(interrupt: Interrupt) -> Self {
        Self::limited(interrupt, u64::MAX, u64::MAX)
    }

    /// With the limits of one kernel, [`STEPS_MOST`] and [`BYTES_MOST`].
    #[must_use]
    pub fn of_kernel(interrupt: Interrupt) -> Self {
        Self::limited(interrupt, STEPS_MOST, BYTES_MOST)
    }

    /// With limits of one's own.
    #[must_use]
    pub const fn limited(interrupt: Interrupt, steps_most: u64, bytes_most: u64) -> Self {
        let (steps, look, bytes, asked) = (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
        Self { interrupt, steps_most, bytes_most, steps, look, bytes, asked }
    }

    /// Counts steps before they are taken.
    ///
    /// # Errors
    /// There are too many, or the interrupt says so.
    #[inline]
    pub fn spend(&self, steps: u64) -> Result<(), Spent> {
        let steps = self.steps.get().saturating_add(steps);
        self.steps.set(steps);
        if steps < self.look.get() { Ok(()) } else { self.check() }
    }

    #[cold]
    fn check(&self) -> Result<(), Spent> {
        let steps = self.steps.get();
        if steps > self.steps_most {
            return Err(Spent::Steps { most: self.steps_most });
        }
        self.look.set(steps.saturating_add(LOOK).min(self.steps_most.saturating_add(1)));
        Ok(self.interrupt.check()?)
    }

    /// Says how many bytes the work holds now, before it takes the last of them.
    ///
    /// # Errors
    /// There are too many, or the host does not have as many: an allocation that failed would end the
    /// process.
    pub fn hold(&self, bytes: u64) -> Result<(), Spent> {
        self.bytes.set(self.bytes.get().max(bytes));
        if bytes > self.bytes_most {
            return Err(Spent::Bytes { most: self.bytes_most });
        }
        if bytes <= self.asked.get() { Ok(()) } else { self.ask(bytes) }
    }

    /// Asks the host for as much as is held now and as will be held at the next look, and lets go of it.
    #[cold]
    fn ask(&self, held: u64) -> Result<(), Spent> {
        let next = held.saturating_add(ASKED);
        let mut room = Vec::<u8>::new();
        let asked = usize::try_from(next).is_ok_and(|bytes| room.try_reserve_exact(bytes).is_ok());
        // Else the compiler may leave out memory that nobody uses.
        std::hint::black_box(&mut room);
        if !asked {
            return Err(Spent::NoMemory { held });
        }
        self.asked.set(next);
        Ok(())
    }

    /// Steps so far, and the most bytes at once.
    #[must_use]
    pub const fn so_far(&self) -> (u64, u64) {
        (self.steps.get(), self.bytes.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_exact_and_interrupts_are_seen() {
        let effort = Effort::limited(Interrupt::default(), 100_000, 10);
        for _ in 0..100_000 {
            effort.spend(1).unwrap();
        }
        assert_eq!(effort.spend(1), Err(Spent::Steps { most: 100_000 }));
        assert_eq!((effort.hold(10), effort.hold(11)), (Ok(()), Err(Spent::Bytes { most: 10 })));
        let interrupt = Interrupt::default();
        let effort = Effort::unlimited(interrupt.clone());
        effort.spend(1).unwrap();
        interrupt.stop();
        let seen = (0..=LOOK).find(|_| effort.spend(1).is_err());
        assert!(seen.is_some(), "not within {LOOK} steps");
    }
}
