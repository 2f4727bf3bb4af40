//! Limits on the work and memory that the preparation of a kernel may take. The code that does the work
//! counts its steps and bytes here, and polls an interrupt.

use std::cell::Cell;

use crate::interrupt::{Halt, Interrupt};

/// Largest number of steps that the parsing and lowering of one kernel may take. A step is a token, a visit
/// of an instruction, or 64 registers of a set, and takes a few nanoseconds. The largest kernel of GGML's
/// CUDA libraries takes less than a tenth.
pub const STEPS_MOST: u64 = 1 << 30;
/// Largest number of bytes that the preparation of one kernel may take.
pub const BYTES_MOST: u64 = 512 << 20;
/// Number of steps between two polls of the interrupt, well below a millisecond.
const LOOK: u64 = 1 << 14;
/// Number of bytes that the work may take before it checks again that the host has them. The check rounds the
/// bytes held up to a multiple of it and reserves that much again, because a list that grows exists twice for
/// a while.
const ASKED: u64 = 4 << 20;

/// Reason for which work was abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Spent {
    /// The work was interrupted.
    #[error(transparent)]
    Halted(#[from] Halt),
    /// The work takes more steps than its limit.
    #[error("it takes more than {most} steps to be made ready")]
    Steps {
        /// Limit that was exceeded.
        most: u64,
    },
    /// The work takes more bytes of memory than its limit.
    #[error("it takes more than {most} bytes to be made ready")]
    Bytes {
        /// Limit that was exceeded.
        most: u64,
    },
    /// The host cannot provide the memory that the work needs.
    #[error("the host has no memory to make it ready: it takes more than {held} bytes")]
    NoMemory {
        /// Number of bytes that the work held.
        held: u64,
    },
}

/// Counts the steps and bytes of one piece of work against their limits. Only one thread uses it.
#[derive(Clone, Debug)]
pub struct Effort {
    interrupt: Interrupt,
    steps_most: u64,
    bytes_most: u64,
    steps: Cell<u64>,
    /// Number of steps at which the limit and the interrupt are checked next.
    look: Cell<u64>,
    /// Largest number of bytes that were held at once so far.
    bytes: Cell<u64>,
    /// Number of bytes that the host has been checked to have.
    asked: Cell<u64>,
}

impl Effort {
    /// Makes an effort without limits, which an interrupt can end. It serves for texts, which take time and
    /// memory in proportion to their length.
    #[must_use]
    pub fn unlimited(interrupt: Interrupt) -> Self {
        Self::limited(interrupt, u64::MAX, u64::MAX)
    }

    /// Makes an effort with the limits of one kernel, [`STEPS_MOST`] and [`BYTES_MOST`].
    #[must_use]
    pub fn of_kernel(interrupt: Interrupt) -> Self {
        Self::limited(interrupt, STEPS_MOST, BYTES_MOST)
    }

    /// Makes an effort with the given limits.
    #[must_use]
    pub const fn limited(interrupt: Interrupt, steps_most: u64, bytes_most: u64) -> Self {
        let (steps, look, bytes, asked) = (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
        Self { interrupt, steps_most, bytes_most, steps, look, bytes, asked }
    }

    /// Counts steps before they are taken. The interrupt is polled every few thousand steps.
    ///
    /// # Errors
    /// The limit is exceeded, or the interrupt is set.
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

    /// Sets the number of bytes that the work holds, before it allocates the last of them.
    ///
    /// # Errors
    /// The limit is exceeded, or the host does not have the memory. An allocation that failed would end the
    /// process.
    pub fn hold(&self, bytes: u64) -> Result<(), Spent> {
        self.bytes.set(self.bytes.get().max(bytes));
        if bytes > self.bytes_most {
            return Err(Spent::Bytes { most: self.bytes_most });
        }
        if bytes <= self.asked.get() { Ok(()) } else { self.ask(bytes) }
    }

    /// Reserves as much memory as is held now and as will be held at the next check, and frees it. This shows
    /// that the host has it.
    #[cold]
    fn ask(&self, held: u64) -> Result<(), Spent> {
        let next = held.saturating_add(ASKED);
        let mut room = Vec::<u8>::new();
        let asked = usize::try_from(next).is_ok_and(|bytes| room.try_reserve_exact(bytes).is_ok());
        // Otherwise, the compiler may remove an allocation that nothing uses.
        std::hint::black_box(&mut room);
        if !asked {
            return Err(Spent::NoMemory { held });
        }
        self.asked.set(next);
        Ok(())
    }

    /// Returns the number of steps so far, and the largest number of bytes that were held at once.
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
