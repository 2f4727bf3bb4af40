//! The device's other end: what takes its calls to a mediator and brings the answers back, at any time and from any thread.

use std::fmt::Debug;
use std::sync::Weak;

use vgpu_wire::v1::frame::{Call, Header};

use super::device::Device;

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
    /// The payload of a result's frame: [`vgpu_wire::v1::frame::Outcome`] and data.
    Result {
        /// The frame's request id.
        request_id: u32,
        /// Its payload.
        payload: &'a [u8],
    },
    /// The mediator turned the call away, for now.
    Busy,
    /// The mediator turned the machine away.
    Quarantined,
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
    /// Sends a call; the number of the connection that it goes by. Answers come by the [`Inlet`], never from within this.
    fn send(&self, submission: Submission) -> Result<u64, LinkError>;
}

/// Where a link brings what comes back.
#[derive(Clone, Debug)]
pub struct Inlet(pub(super) Weak<Device>);

impl Inlet {
    /// Hands something over; false: the device is gone.
    pub fn deliver(&self, delivery: Delivery<'_>) -> bool {
        self.0.upgrade().map(|device| device.deliver(delivery)).is_some()
    }
}
