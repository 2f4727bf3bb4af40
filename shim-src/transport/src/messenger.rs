//! Messages and calls of a session: the link, together with the state of sending and of replies.

use vgpu_wire::RoundTrip;

use crate::link::Link;
use crate::outgoing::{Outgoing, Tail};
use crate::replies::{Answer, Replies};
use crate::session_error::SessionError;
use crate::submission::Submission;

/// State that the parts of a session which communicate with the host share.
#[derive(Debug)]
pub(crate) struct Messenger {
    pub(crate) link: Link,
    submission: Submission,
    replies: Replies,
}

impl Messenger {
    pub(crate) fn new(link: Link) -> Self {
        Self { link, submission: Submission::new(), replies: Replies::new() }
    }

    /// Sends a message and returns its number.
    #[inline]
    pub(crate) fn send(&self, message: &Outgoing<'_>) -> Result<u64, SessionError> {
        self.submission.send(&self.link, message)
    }

    /// Sends a message if that needs no wait. Returns whether it was sent.
    pub(crate) fn try_send(&self, message: &Outgoing<'_>) -> Result<bool, SessionError> {
        self.submission.try_send(&self.link, message)
    }

    /// Sends a message and waits for its reply.
    pub(crate) fn call<P: RoundTrip>(
        &self,
        body: P,
        tail: Tail<'_>,
        reply: &mut [u8],
    ) -> Result<Answer, SessionError> {
        self.replies.call(&self.link, &self.submission, body, tail, reply)
    }

    /// Adds a join to the next message.
    pub(crate) fn join(&self, stream: u32) {
        self.submission.join(&self.link, stream);
    }
}
