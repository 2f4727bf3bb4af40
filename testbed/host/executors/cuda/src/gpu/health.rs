//! Whether a session's context still works, and how the guest learns that it does not.

use std::sync::atomic::{AtomicU32, Ordering};

use vgpu_abi::CUresult;
use vgpu_device::{LateError, SessionHost};

use crate::driver::error::{DriverError, loses_context};

/// The state of a session's context. After a fault nothing is carried out any more; marks are stored at once
/// and questions answered with the fault's code, so that nobody waits in vain.
#[derive(Debug)]
pub(crate) struct Health {
    host: SessionHost,
    /// The code of the fault; 0: there was none.
    dead: AtomicU32,
}

impl Health {
    /// A context that works.
    pub(crate) const fn new(host: SessionHost) -> Self {
        Self { host, dead: AtomicU32::new(0) }
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
            self.host.fail(LateError { code: code.0, sticky: false, message: number });
        }
    }

    /// Loses the context. `number`: the message that is to blame, or the oldest that may be.
    pub(crate) fn die(&self, number: u64, code: u32, why: &dyn std::fmt::Display) {
        if self.dead.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        let session = self.host.session();
        self.host
            .log(0, || tracing::warn!(session, number, code, "the session's GPU context is lost: {why}"));
        self.host.fail(LateError { code, sticky: true, message: number.max(1) });
    }
}
