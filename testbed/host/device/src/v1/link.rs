//! The device's other end: what takes its calls to a mediator and brings the answers back, at any time and
//! from any thread.

use std::fmt::Debug;

use vgpu_wire::v1::frame::{Call, Header, Outcome};

/// A call on its way to the host.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The frame's head.
    pub header: Header,
    /// The call's head.
    pub call: Call,
    /// Its payload. May be shorter than the call states (Q7): a mediator hangs up then.
    pub data: Vec<u8>,
}

/// What comes back.
#[derive(Clone, Copy, Debug)]
pub enum Delivery<'a> {
    /// The result of a call.
    Result {
        /// The frame's request id.
        request_id: u32,
        /// The head of its payload; none: the frame was too short for one.
        outcome: Option<&'a Outcome>,
        /// The data behind it.
        data: &'a [u8],
    },
    /// The mediator turned the call away, for now.
    Busy,
    /// The mediator turned the machine away.
    Quarantined,
    /// The mediator does not take the rest of a call.
    Unsent {
        /// On which connection, as [`Link::send`] numbers them.
        connection: u64,
    },
    /// The mediator hung up.
    Closed {
        /// On which connection, as [`Link::send`] numbers them.
        connection: u64,
    },
}

/// Why a call is not on its way.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// There is no mediator.
    #[error("no mediator answers: {0}")]
    Unreachable(std::io::Error),
    /// It does not take the call.
    #[error("send a call to the mediator: {0}")]
    Send(std::io::Error),
}

/// The way to a mediator.
pub trait Link: Debug + Send + Sync {
    /// Sends a call; the number of the connection that it goes by. It waits for nobody: this is within a
    /// guest's register access. Answers come by the [`Inlet`](super::Inlet), never from within this.
    fn send(&self, submission: Submission) -> Result<u64, LinkError>;
}

impl<'a> Delivery<'a> {
    /// A result's frame, taken apart.
    #[must_use]
    pub fn result(request_id: u32, payload: &'a [u8]) -> Self {
        match Outcome::decode(payload) {
            Ok((outcome, data)) => Self::Result { request_id, outcome: Some(outcome), data },
            Err(_) => Self::Result { request_id, outcome: None, data: &[] },
        }
    }
}
