//! Finds out that a session is lost, and hands out late errors.
//!
//! Gone is what says so: registers that read all ones, a changed generation, a closed socket, a channel with
//! another session's number. Silence is not gone. The device is asked at most every [`ASK_EVERY_MS`], by whoever sends, waits or
//! polls; a process that does none of these does not need to know.

use std::sync::atomic::Ordering;

use vgpu_wire::area::{ERROR_ENDED, ERROR_STICKY};
use vgpu_wire::registers::{self as reg, channel};

use crate::inner::{Inner, OPEN, OVER};
use crate::lock::Renewal;
use crate::lost::{GoneReason, LateError, Lost};
use crate::notice::{Notice, tell};
use crate::registers::RegisterError;
use crate::wait;

/// How often the device is asked whether it lives, at most.
const ASK_EVERY_MS: u64 = 400;
/// `CUDA_ERROR_UNKNOWN`, where a host gives no code.
const UNKNOWN: u32 = 999;

impl Inner {
    /// Marks the session as lost, unless it is already, and returns why it is.
    #[cold]
    pub(crate) fn lose(&self, lost: Lost) -> Lost {
        if self.home.left() {
            return Lost::Forked;
        }
        if self.lost.set(lost).is_ok() {
            self.state.store(OVER, Ordering::Release);
            self.replies.wake_all();
            wait::wake(self.channel.futex());
            if lost == (Lost::Gone { reason: GoneReason::Channel }) {
                // The channel's memory may be another session's by now; but the program has pointers to it. (What the host ended
                // stays the session's until it detaches.) Without memory for this the program itself will not get far.
                let _ = self.window.make_private();
            }
            if lost != Lost::Closed {
                tell(&Notice::Lost { function: self.function.address, lost });
            }
        }
        self.lost.get().copied().unwrap_or(lost)
    }

    pub(crate) fn gone(&self, reason: GoneReason) -> Lost {
        self.lose(Lost::Gone { reason })
    }

    /// What a failed register access says of the session.
    pub(crate) fn lost_by(&self, error: &RegisterError) -> Lost {
        match error {
            RegisterError::Forked => Lost::Forked,
            RegisterError::Closed(_) | RegisterError::TimedOut => self.gone(GoneReason::Socket),
            RegisterError::Refused(_) => self.gone(GoneReason::Nonsense),
            RegisterError::Lost(lost) => self.lose(*lost),
        }
    }

    /// Asks the device whether it lives, if that has not been done lately.
    #[inline]
    pub(crate) fn pulse(&self) -> Result<(), Lost> {
        let now = wait::coarse_milliseconds();
        let asked = self.asked.load(Ordering::Relaxed);
        if now.wrapping_sub(asked) < ASK_EVERY_MS { Ok(()) } else { self.ask(asked, now) }
    }

    #[cold]
    fn ask(&self, asked: u64, now: u64) -> Result<(), Lost> {
        // One thread does it for all.
        if self.asked.compare_exchange(asked, now, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return Ok(());
        }
        self.examine()
    }

    /// Asks the device and the lock file.
    pub(crate) fn examine(&self) -> Result<(), Lost> {
        self.enter()?;
        match self.lock.renew(self.index) {
            Ok(Renewal::Kept) => {}
            Ok(Renewal::Reopened) => tell(&Notice::Reopened { function: self.function.address }),
            Ok(Renewal::Lost) => return Err(self.gone(GoneReason::Channel)),
            // The file is removed with its device. If the device lives, its registers will say so below, and
            // a lock that cannot be had again is as bad as one that is lost.
            Err(_) => {
                self.examine_registers()?;
                return Err(self.gone(GoneReason::Channel));
            }
        }
        self.examine_registers()
    }

    fn examine_registers(&self) -> Result<(), Lost> {
        let base = channel::base(self.index);
        let read = self.registers.read([reg::V2_GENERATION, base + channel::SESSION]);
        let [generation, session] = read.map_err(|error| self.lost_by(&error))?;
        if generation == reg::ALL_ONES {
            return Err(self.gone(GoneReason::AllOnes));
        }
        if generation != self.generation {
            return Err(self.gone(GoneReason::Generation));
        }
        // A session that the host ended says so in its return area, and may keep its number or not.
        self.ended()?;
        if session != self.number {
            return Err(self.gone(GoneReason::Channel));
        }
        Ok(())
    }

    /// Whether the host has ended the session: one load.
    #[inline]
    pub(crate) fn ended(&self) -> Result<(), Lost> {
        if self.channel.error_flags() & ERROR_ENDED == 0 { Ok(()) } else { Err(self.learn_end()) }
    }

    #[cold]
    fn learn_end(&self) -> Lost {
        let error = self.channel.error();
        self.lose(Lost::Ended { code: known(error.code), message: error.message })
    }

    /// What ends a wait for a mark: the end of the session, or an error that stays.
    pub(crate) fn broken(&self) -> Result<(), Lost> {
        if self.channel.error_flags() & (ERROR_ENDED | ERROR_STICKY) == 0 {
            return Ok(());
        }
        self.ended()?;
        let error = self.channel.error();
        // If the session was lost meanwhile, the memory is empty by now.
        self.enter()?;
        Err(Lost::Ended { code: known(error.code), message: error.message })
    }

    #[inline]
    pub(crate) fn late_error(&self) -> Option<LateError> {
        // Nothing new, and the session stands: the common case.
        if self.enter().is_ok() && self.channel.error_message() == self.told.load(Ordering::Relaxed) {
            None
        } else {
            self.find_error()
        }
    }

    #[cold]
    fn find_error(&self) -> Option<LateError> {
        if self.home.left() {
            return Some(of_lost(Lost::Forked));
        }
        if self.state.load(Ordering::Acquire) != OPEN {
            return self.lost.get().copied().map(of_lost);
        }
        let stored = self.channel.error();
        if self.state.load(Ordering::Acquire) != OPEN {
            // Lost meanwhile: the memory is empty by now.
            return self.lost.get().copied().map(of_lost);
        }
        let error = LateError {
            code: known(stored.code),
            sticky: stored.flags & (ERROR_STICKY | ERROR_ENDED) != 0,
            ended: stored.flags & ERROR_ENDED != 0,
            message: stored.message,
        };
        if error.ended {
            self.learn_end();
        }
        if error.sticky {
            return Some(error);
        }
        // Of all who find it, one hands it out.
        let told = self.told.load(Ordering::Relaxed);
        let first = told != stored.message
            && self.told.compare_exchange(told, stored.message, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        first.then_some(error)
    }
}

fn known(code: u32) -> u32 {
    if code == 0 { UNKNOWN } else { code }
}

fn of_lost(lost: Lost) -> LateError {
    let message = if let Lost::Ended { message, .. } = lost { message } else { 0 };
    LateError { code: lost.code(), sticky: true, ended: true, message }
}
