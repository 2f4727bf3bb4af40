//! Work that waits for holds: how much there is, and which holds streams pass on to each other.
//!
//! Holds are released in the order of their numbers. So of all holds that some work waits for, the newest
//! tells whether it waits.

use std::collections::BTreeMap;

use vgpu_abi::CUresult;

use crate::driver::error::DriverError;

/// Largest number of pieces of work of a session that may wait for holds. More are refused. A queue of the
/// driver takes about a thousand, and several streams may share one. More would block the thread that also
/// serves the session's other streams.
const WAITING_MOST: u64 = 768;

/// The work of a session that waits for holds.
#[derive(Debug, Default)]
pub(crate) struct WaitingWork {
    /// Number of pieces of work by the newest hold that they wait for.
    pieces: BTreeMap<u32, u64>,
    /// Number of the newest hold that was released.
    released: u32,
    /// Newest hold that work of the legacy stream waits for, and newest hold of a stream that the legacy
    /// stream waits for.
    legacy: u32,
    blocking: u32,
}

impl WaitingWork {
    /// Returns the newest hold that later work of a stream waits for without being told. It may have been
    /// released.
    pub(crate) const fn implicit(&self, is_legacy: bool, non_blocking: bool) -> u32 {
        match (is_legacy, non_blocking) {
            (true, _) => self.blocking,
            (false, false) => self.legacy,
            (false, true) => 0,
        }
    }

    /// Returns whether a hold has not been released.
    pub(crate) const fn is_open(&self, hold: u32) -> bool {
        hold > self.released
    }

    /// Counts a piece of work of a stream that waits for `hold`, if it has not been released.
    pub(crate) fn add(&mut self, hold: u32, is_legacy: bool, non_blocking: bool) -> Result<(), DriverError> {
        if !self.is_open(hold) {
            return Ok(());
        }
        if self.pieces.values().sum::<u64>() >= WAITING_MOST {
            return Err(DriverError {
                call: "queue work behind a held stream",
                code: CUresult::OUT_OF_MEMORY,
            });
        }
        *self.pieces.entry(hold).or_default() += 1;
        self.pass_on(hold, is_legacy, non_blocking);
        Ok(())
    }

    /// Records that later work of a stream waits for a new hold.
    pub(crate) fn hold(&mut self, hold: u32, is_legacy: bool, non_blocking: bool) {
        self.pass_on(hold, is_legacy, non_blocking);
    }

    /// Records that the legacy stream, or those that it waits for, have work that waits for a hold.
    fn pass_on(&mut self, hold: u32, is_legacy: bool, non_blocking: bool) {
        if is_legacy {
            self.legacy = self.legacy.max(hold);
        }
        if is_legacy || !non_blocking {
            self.blocking = self.blocking.max(hold);
        }
    }

    /// Records that a hold, and so all earlier ones, were released.
    pub(crate) fn release(&mut self, hold: u32) {
        self.released = self.released.max(hold);
        self.pieces = self.pieces.split_off(&(self.released.saturating_add(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds work until it is refused, and returns how much was accepted.
    fn fill(work: &mut WaitingWork, hold: u32) -> u64 {
        (0..=WAITING_MOST).take_while(|_| work.add(hold, false, true).is_ok()).count() as u64
    }

    #[test]
    fn work_is_counted_until_the_newest_hold_that_it_waits_for_is_released() {
        let mut work = WaitingWork::default();
        assert!((0..2 * WAITING_MOST).all(|_| work.add(0, false, false).is_ok()), "it waits for nothing");
        for hold in 1..=3 {
            work.hold(hold, false, true);
        }
        (0..100).for_each(|_| work.add(1, false, true).unwrap());
        (0..200).for_each(|_| work.add(3, false, true).unwrap());
        assert_eq!(fill(&mut work, 2), WAITING_MOST - 300);
        work.release(2);
        assert!(!work.is_open(2) && work.is_open(3));
        assert_eq!(fill(&mut work, 3), WAITING_MOST - 200);
        work.release(3);
        assert_eq!(work.pieces.len(), 0);
    }

    #[test]
    fn the_legacy_stream_passes_holds_on() {
        let mut work = WaitingWork::default();
        work.hold(5, false, false);
        assert_eq!(work.implicit(false, false), 0, "no work of the legacy stream lies between");
        assert_eq!((work.implicit(true, false), work.implicit(false, true)), (5, 0));
        work.add(5, true, false).unwrap();
        assert_eq!(work.implicit(false, false), 5);
        // A stream that waits by an event makes the legacy stream wait, too.
        work.hold(6, false, true);
        work.add(6, false, false).unwrap();
        assert_eq!(work.implicit(true, false), 6);
    }
}
