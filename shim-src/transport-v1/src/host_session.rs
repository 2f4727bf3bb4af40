//! The host as one session calls it: the mailbox, together with the token of the calls' owner.

use crate::call::{Call, CallError, Results};
use crate::mailbox::Mailbox;

/// A session's handle to its host.
#[derive(Clone, Copy)]
pub(crate) struct HostSession<'a> {
    mailbox: &'a Mailbox,
    token: u32,
}

impl<'a> HostSession<'a> {
    /// Creates the handle of the host behind `mailbox`, for the session with `token`.
    pub(crate) const fn new(mailbox: &'a Mailbox, token: u32) -> Self {
        Self { mailbox, token }
    }

    /// Makes a call.
    ///
    /// # Safety
    /// As [`Mailbox::call`].
    pub(crate) unsafe fn call(self, call: &Call<'_>) -> Result<Results, CallError> {
        // SAFETY: as the caller promises.
        unsafe { self.mailbox.call(Some(self.token), call) }
    }

    /// Makes a call whose payload is a slice and whose answer has no payload.
    pub(crate) fn call_plain(self, call: &Call<'_>) -> Result<Results, CallError> {
        self.mailbox.call_plain(Some(self.token), call)
    }

    /// Releases the window before the program may pause. See [`Mailbox::release_window_while_idle`].
    pub(crate) fn release_window_while_idle(self) -> Result<(), CallError> {
        self.mailbox.release_window_while_idle(self.token)
    }

    /// Returns the maximum payload of a call in bytes, in each direction.
    pub(crate) fn payload_limit(self) -> usize {
        self.mailbox.payload_limit()
    }

    /// Returns whether payload travels through guest pages. If not, BAR1 carries it.
    pub(crate) fn has_window(self) -> bool {
        self.mailbox.window_bytes().is_some()
    }
}
