//! What a connection tells of itself while it is served, so that another process can continue it if this one
//! dies.
//!
//! Each change is told after [`Answering::Reply`] and before the reply is sent. A process that dies
//! - before the former leaves a request that was never recorded, which is carried out again;
//! - after it leaves a request in doubt, and a record that may have its change. Both are answered as
//!   [`SavedConnection::in_doubt`](crate::SavedConnection::in_doubt) says.

use std::os::fd::BorrowedFd;

use crate::config::BYTES;
use crate::limits::Limits;
use crate::ram::Region;

/// How far the reply to the first request in the socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answering {
    /// The first request has no reply yet, and nothing of it has been recorded.
    Nothing,
    /// The reply to the request of this id is sent, or will be.
    Reply(u16),
    /// A part of a reply was sent, and the rest was not. Nobody but this process can send it.
    Rest,
}

/// Keeps what it is told where the next process finds it. No call may wait for the VMM.
pub trait Recorder: Send + Sync {
    /// Is called twice for each request that is answered. It must cost next to nothing.
    fn answering(&self, _answering: Answering) {}

    /// A VMM has connected, and has negotiated nothing yet. The configuration space is as after power-on.
    fn connected(&self, _socket: BorrowedFd<'_>, _config: &[u8; BYTES]) {}

    /// The VMM has negotiated the version.
    fn negotiated(&self, _limits: Limits) {}

    /// The configuration space was written to.
    fn configured(&self, _bytes: &[u8; BYTES]) {}

    /// The guest's memory has changed, and is in these regions now.
    fn mapped(&self, _regions: &[(u64, Region)]) {}

    /// The connection is about to be closed. The next process has none to continue.
    fn ended(&self) {}
}

/// Records nothing. It has requests left in the socket until they are answered.
impl Recorder for () {}
