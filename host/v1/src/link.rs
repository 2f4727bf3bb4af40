//! The link that takes a device's calls to a mediator. It delivers answers at any time and from any thread.

use std::fmt::Debug;

use vgpu_wire::v1::frame::{Call, Header, Outcome};

/// A call as it is sent to the mediator, in the parts of its frame.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Header of the frame.
    pub header: Header,
    /// Header of the call.
    pub call: Call,
    /// Payload of the call. It may be shorter than the call states (Q7); then the mediator closes the
    /// connection.
    pub data: Vec<u8>,
}

/// A message from a link to the device.
#[derive(Clone, Copy, Debug)]
pub enum Delivery<'a> {
    /// The mediator has sent the result of a call.
    Result {
        /// Request id of the frame.
        request_id: u32,
        /// Status and number of results, or `None` if the frame is too short to have them.
        outcome: Option<&'a Outcome>,
        /// Data that follows the results.
        data: &'a [u8],
    },
    /// The mediator refused the call for now.
    Busy,
    /// The mediator refuses all calls of this machine.
    Quarantined,
    /// The mediator did not accept the rest of a call within the limit, so the call is lost.
    Unsent {
        /// Number of the connection, as [`Link::send`] returned it.
        connection: u64,
    },
    /// The mediator has closed the connection.
    Closed {
        /// Number of the connection, as [`Link::send`] returned it.
        connection: u64,
    },
}

/// Reason for which a call cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// No mediator accepts a connection.
    #[error("no mediator answers: {0}")]
    Unreachable(std::io::Error),
    /// The mediator accepts no more bytes.
    #[error("send a call to the mediator: {0}")]
    Send(std::io::Error),
}

/// A connection to a mediator, in this process or another.
pub trait Link: Debug + Send + Sync {
    /// Sends a call and returns the number of the connection on which it was sent. It never waits, because it
    /// runs within a guest's register access. Answers are delivered through the [`Inlet`](super::Inlet),
    /// never from within this function.
    fn send(&self, submission: Submission) -> Result<u64, LinkError>;
}

impl<'a> Delivery<'a> {
    /// Decodes the payload of a result's frame.
    #[must_use]
    pub fn result(request_id: u32, payload: &'a [u8]) -> Self {
        match Outcome::decode(payload) {
            Ok((outcome, data)) => Self::Result { request_id, outcome: Some(outcome), data },
            Err(_) => Self::Result { request_id, outcome: None, data: &[] },
        }
    }
}
