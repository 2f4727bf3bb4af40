//! Health of a session: whether its context still works, and how the guest learns that it does not.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use vgpu_abi::CUresult;
use vgpu_device::{FailureReason, LateError, SessionHost};

use crate::driver::error::DriverError;
use crate::driver::sticky::loses_context;

/// State of the session's context. After a fault nothing is carried out; marks are stored at once and queries
/// answered with the fault's code, so that nobody waits forever.
#[derive(Debug)]
pub(crate) struct Health {
    host: SessionHost,
    /// Code of the fault as a `CUresult`, or 0 while the context works.
    dead: AtomicU32,
    /// Reason of the fault as text, set before the code.
    why: OnceLock<String>,
}

impl Health {
    /// Creates the state of a context that works.
    pub(crate) const fn new(host: SessionHost) -> Self {
        Self { host, dead: AtomicU32::new(0), why: OnceLock::new() }
    }

    /// Returns the session's connection to its guest.
    pub(crate) const fn host(&self) -> &SessionHost {
        &self.host
    }

    /// Returns the code of the fault, if the context is lost.
    #[inline]
    pub(crate) fn dead(&self) -> Option<u32> {
        match self.dead.load(Ordering::Acquire) {
            0 => None,
            code => Some(code),
        }
    }

    /// Returns the code and reason of the fault, for an answer. Without a fault they are `UNKNOWN` and an
    /// empty text.
    pub(crate) fn loss(&self) -> (u32, &str) {
        let code = self.dead().unwrap_or(CUresult::UNKNOWN.0);
        (code, self.why.get().map_or("", String::as_str))
    }

    /// Reports to the guest that a call for message `number` failed. Loses the context if the code requires
    /// it.
    pub(crate) fn failed(&self, number: u64, error: DriverError) {
        self.refused(number, error.code, &error);
    }

    /// Reports to the guest that message `number` is refused. Loses the context if the code requires it.
    pub(crate) fn refused(&self, number: u64, code: CUresult, why: &dyn std::fmt::Display) {
        if loses_context(code) {
            self.lose_context(number, code.0, why);
        } else {
            let session = self.host.session();
            self.host.log(0, || tracing::warn!(session, number, "{why}"));
            let reason = why.to_string();
            let why = FailureReason { reason: &reason, ..FailureReason::default() };
            self.host.fail_because(LateError { code: code.0, sticky: false, message: number }, &why);
        }
    }

    /// Loses the context. `number` is the message that caused it, or the oldest that may have.
    pub(crate) fn lose_context(&self, number: u64, code: u32, why: &dyn std::fmt::Display) {
        // Stored before the code, so that whoever sees the code also sees the reason. If there are two faults
        // at once, either may give the reason.
        let reason = self.why.get_or_init(|| why.to_string());
        if self.dead.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        let session = self.host.session();
        self.host.log(0, || {
            tracing::warn!(session, number, code, "the session has no GPU context any more: {why}");
        });
        let why = FailureReason { reason, ..FailureReason::default() };
        self.host.fail_because(LateError { code, sticky: true, message: number.max(1) }, &why);
    }
}
