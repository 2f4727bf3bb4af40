//! The host as one session calls it: the mailbox, and the token that says whose calls these are.

use super::call::{Call, Failure, Results};
use super::mailbox::Mailbox;

/// A session's way to its host.
#[derive(Clone, Copy)]
pub(super) struct Host<'a> {
    mailbox: &'a Mailbox,
    token: u32,
}

impl<'a> Host<'a> {
    /// The host behind `mailbox`, called by the session with `token`.
    pub(super) const fn new(mailbox: &'a Mailbox, token: u32) -> Self {
        Self { mailbox, token }
    }

    /// Makes a call.
    ///
    /// # Safety
    /// As [`Mailbox::call`].
    pub(super) unsafe fn call(self, call: &Call<'_>) -> Result<Results, Failure> {
        // SAFETY: as the caller promises.
        unsafe { self.mailbox.call(Some(self.token), call) }
    }

    /// Makes a call whose payload is a slice.
    pub(super) fn plain(self, call: &Call<'_>) -> Result<Results, Failure> {
        self.mailbox.plain(Some(self.token), call)
    }

    /// The program may do nothing for a while: see [`Mailbox::rest`].
    pub(super) fn rest(self) -> Result<(), Failure> {
        self.mailbox.rest(self.token)
    }

    /// The most payload of a call, each way.
    pub(super) fn limit(self) -> usize {
        self.mailbox.limit()
    }

    /// As [`Mailbox::window_bytes`].
    pub(super) fn window_bytes(self) -> Option<u32> {
        self.mailbox.window_bytes()
    }
}
