//! The simulated bus: the packets by which a client accesses a BAR of a simulated device, over the BAR's UNIX
//! `SOCK_SEQPACKET` socket.
//!
//! A request is [`REQUEST_BYTES`] long, little endian: `{u32 operation, u32 offset, u32 value}`. A packet
//! holds 1 to [`BATCH`] requests, which the device executes in their order. The answer is one packet with
//! holds 1 to [`BATCH`] requests, which the device executes in their order. The answer is one packet with
//! [`ANSWER_BYTES`] for each request: `{u32 status, u32 value}`, where the value is the one read, or the one
//! written. A client that sends anything else is disconnected. Closing a connection ends no session, because
//! a BAR has no such event.
//!
//! A BAR that holds memory also takes blocks, each alone in its packet. A [`WRITE_BLOCK`] request states the
//! length in bytes as its value and is followed by the bytes. A [`READ_BLOCK`] request has the same form
//! without bytes, and its answer is followed by them. The answer to either states the length as its value.

/// Operation: read a register.
pub const READ: u32 = 1;
/// Operation: write a register.
pub const WRITE: u32 = 2;
/// Operation: write a block of at most [`BLOCK`] bytes.
pub const WRITE_BLOCK: u32 = 3;
/// Operation: read a block of at most [`BLOCK`] bytes.
pub const READ_BLOCK: u32 = 4;

/// Status: the device executed the request.
pub const DONE: u32 = 0;
/// Status: the block is not entirely within the BAR; nothing was read or written.
pub const OUTSIDE: u32 = 1;

/// Length in bytes of a request, without the bytes of a block.
pub const REQUEST_BYTES: usize = 12;
/// Length in bytes of an answer, without the bytes of a block.
pub const ANSWER_BYTES: usize = 8;
/// Maximum number of requests in a packet.
pub const BATCH: usize = 24;
/// Maximum length of a block in bytes.
pub const BLOCK: usize = 32 << 10;
