//! Work that waits for holds: how much there is, and which holds streams pass on to each other.
//!
//! Holds are released in the order of their numbers. So of all holds that some work waits for, the newest
//! tells whether it waits.

use std::collections::BTreeMap;

use vgpu_abi::CUresult;

use crate::driver::error::DriverError;

/// Number of pieces of work of a session that wait for holds from which on more work is refused. A queue of
/// the driver takes about a thousand, and several streams may share one. More would block the thread that
/// also serves the session's other streams. Fences and the waits of joins count, too, but they are not
/// refused, because they come with work that was accepted.
const WAITING_MOST: u64 = 768;

/// The work of a session that waits for holds.
#[derive(Debug, Default)]
pub(crate) struct WaitingWork {
    /// Number of pieces of work by the newest hold that they wait for.
    pieces: BTreeMap<u32, u64>,
    /// Number of the newest hold, and of the newest that was released.
    newest: u32,
    released: u32,
    /// Newest hold that work of the legacy stream waits for, and newest hold of a stream that the legacy
    /// stream waits for.
    legacy: u32,
    blocking: u32,
}

impl WaitingWork {
    /// Returns the newest hold that later work of a stream waits for implicitly, by the rules of the
    /// legacy default stream. It may have been released.
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

    /// Returns whether any hold has not been released.
    pub(crate) const fn has_open_hold(&self) -> bool {
        self.is_open(self.newest)
    }

    fn waiting(&self) -> u64 {
        self.pieces.values().fold(0, |all, pieces| all.saturating_add(*pieces))
    }

    /// Refuses work that waits for `hold` if it has not been released and too much waits.
    pub(crate) fn admit(&self, hold: u32) -> Result<(), DriverError> {
        if self.is_open(hold) && self.waiting() >= WAITING_MOST {
            return Err(DriverError {
                call: "queue work behind a held stream",
                code: CUresult::OUT_OF_MEMORY,
            });
        }
        Ok(())
    }

    /// Counts pieces of work of a stream that wait for `hold`, if it has not been released. Work that is
    /// ordered after them by the rules of the legacy default stream then waits for the hold too.
    pub(crate) fn count(&mut self, hold: u32, pieces: u64, is_legacy: bool, non_blocking: bool) {
        if self.is_open(hold) {
            let counted = self.pieces.entry(hold).or_default();
            *counted = counted.saturating_add(pieces);
            self.pass_on(hold, is_legacy, non_blocking);
        }
    }

    /// Records that later work of a stream waits for a new hold.
    pub(crate) fn hold(&mut self, hold: u32, is_legacy: bool, non_blocking: bool) {
        self.newest = self.newest.max(hold);
        self.pass_on(hold, is_legacy, non_blocking);
    }

    /// Records that work of the legacy stream, or of a stream that it waits for, waits for a hold.
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
        let mut add = || work.admit(hold).map(|()| work.count(hold, 1, false, true));
        (0..=WAITING_MOST).take_while(|_| add().is_ok()).count() as u64
    }

    #[test]
    fn work_is_counted_until_the_newest_hold_that_it_waits_for_is_released() {
        let mut work = WaitingWork::default();
        work.count(0, 2 * WAITING_MOST, false, false);
        assert!(work.admit(0).is_ok() && !work.has_open_hold(), "it waits for nothing");
        for hold in 1..=3 {
            work.hold(hold, false, true);
        }
        work.count(1, 100, false, true);
        work.count(3, 200, false, true);
        assert_eq!(fill(&mut work, 2), WAITING_MOST - 300);
        work.release(2);
        assert!(!work.is_open(2) && work.is_open(3) && work.has_open_hold());
        assert_eq!(fill(&mut work, 3), WAITING_MOST - 200);
        work.release(3);
        assert_eq!((work.pieces.len(), work.has_open_hold()), (0, false));
    }

    #[test]
    fn the_legacy_stream_passes_holds_on() {
        let mut work = WaitingWork::default();
        work.hold(5, false, false);
        assert_eq!(work.implicit(false, false), 0, "no work of the legacy stream lies between");
        assert_eq!((work.implicit(true, false), work.implicit(false, true)), (5, 0));
        work.count(5, 1, true, false);
        assert_eq!(work.implicit(false, false), 5);
        // A stream that waits by an event makes the legacy stream wait, too.
        work.hold(6, false, true);
        work.count(6, 1, false, false);
        assert_eq!(work.implicit(true, false), 6);
    }
}
