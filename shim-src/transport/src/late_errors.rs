//! Delivery of late errors: which error is reported to which caller.

use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_wire::area::{ERROR_ENDED, ERROR_STICKY};

use crate::link::Link;
use crate::session_error::{LateError, SessionError, known};

/// Record of the late errors of a session that have been returned.
#[derive(Debug, Default)]
pub(crate) struct LateErrors {
    /// Number of the message that caused the late error returned last.
    told: AtomicU64,
}

impl LateErrors {
    /// Returns the newest late error if it is to be reported to this caller: a sticky one each time, any
    /// other to one caller.
    #[inline]
    pub(crate) fn next(&self, link: &Link) -> Option<LateError> {
        // The common case: nothing new, and the session stands.
        if link.enter().is_ok() && link.channel.error_message() == self.told.load(Ordering::Relaxed) {
            None
        } else {
            self.find(link)
        }
    }

    #[cold]
    fn find(&self, link: &Link) -> Option<LateError> {
        if let Some(lost) = link.lost() {
            return Some(LateError::of_lost(lost));
        }
        let stored = link.channel.error();
        // If the session was lost meanwhile, the memory reads zeros.
        if let Some(lost) = link.lost() {
            return Some(LateError::of_lost(lost));
        }
        let error = LateError {
            code: known(stored.code),
            sticky: stored.flags & (ERROR_STICKY | ERROR_ENDED) != 0,
            ended: stored.flags & ERROR_ENDED != 0,
            message: stored.message,
        };
        if error.ended {
            let _: SessionError = link.learn_end();
        }
        if error.sticky {
            return Some(error);
        }
        // Several threads may find the error. One of them returns it.
        let told = self.told.load(Ordering::Relaxed);
        let first = told != stored.message
            && self.told.compare_exchange(told, stored.message, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        first.then_some(error)
    }
}
