//! Whether a session's context still works, and how the guest learns that it does not.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use vgpu_abi::CUresult;
use vgpu_device::{LateError, SessionHost, Why};

use crate::driver::error::DriverError;
use crate::driver::sticky::loses_context;

/// The state of a session's context. After a fault nothing is carried out any more; marks are stored at once
/// and questions answered with the fault's code, so that nobody waits in vain.
#[derive(Debug)]
pub(crate) struct Health {
    host: SessionHost,
    /// The code of the fault; 0: there was none.
    dead: AtomicU32,
    /// Why there is no context, in words.
    why: OnceLock<String>,
}

impl Health {
    /// A context that works.
    pub(crate) const fn new(host: SessionHost) -> Self {
        Self { host, dead: AtomicU32::new(0), why: OnceLock::new() }
    }

    /// The session's guest.
    pub(crate) const fn host(&self) -> &SessionHost {
        &self.host
    }

    /// The code with which the context was lost, if it was.
    #[inline]
    pub(crate) fn dead(&self) -> Option<u32> {
        match self.dead.load(Ordering::Acquire) {
            0 => None,
            code => Some(code),
        }
    }

    /// The same, and why in words, for an answer.
    pub(crate) fn loss(&self) -> (u32, &str) {
        let code = self.dead().unwrap_or(CUresult::UNKNOWN.0);
        (code, self.why.get().map_or("", String::as_str))
    }

    /// A call for message `number` failed: the guest is told, and the context is lost if the code says so.
    pub(crate) fn failed(&self, number: u64, error: DriverError) {
        self.refused(number, error.code, &error);
    }

    /// Message `number` is refused with a code: the guest is told, and the context is lost if the code says
    /// so.
    pub(crate) fn refused(&self, number: u64, code: CUresult, why: &dyn std::fmt::Display) {
        if loses_context(code) {
            self.die(number, code.0, why);
        } else {
            let session = self.host.session();
            self.host.log(0, || tracing::warn!(session, number, "{why}"));
            let reason = why.to_string();
            let why = Why { reason: &reason, ..Why::default() };
            self.host.fail_because(LateError { code: code.0, sticky: false, message: number }, &why);
        }
    }

    /// Loses the context. `number`: the message that is to blame, or the oldest that may be.
    pub(crate) fn die(&self, number: u64, code: u32, why: &dyn std::fmt::Display) {
        // Before the code, so that who sees that has this. The first of two at once may give either.
        let reason = self.why.get_or_init(|| why.to_string());
        if self.dead.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        let session = self.host.session();
        self.host.log(0, || {
            tracing::warn!(session, number, code, "the session has no GPU context any more: {why}");
        });
        let why = Why { reason, ..Why::default() };
        self.host.fail_because(LateError { code, sticky: true, message: number.max(1) }, &why);
    }
}
