//! The output of a connection to the mediator. Bytes that the socket accepts at once are written at once; a
//! thread writes the others.
//!
//! Calls are sent within a guest's register access, which must not wait for a mediator. The reference device
//! makes the guest wait there for up to 30 s.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, PoisonError};

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use vgpu_device::lock;

/// Number of queued bytes above which another call is refused. It allows for a few calls of the longest kind,
/// left by processes that were killed while they were sent.
const WAITING_MOST: usize = 32 << 20;
/// Number of queued bytes above which a mediator's question is not answered.
const ANSWERED_MOST: usize = 64 << 10;

/// The writing half of a connection.
#[derive(Debug)]
pub(super) struct Outbox {
    stream: UnixStream,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    pieces: VecDeque<QueuedBytes>,
    /// Number of queued bytes, including those being written. While it is 0, no thread writes to the socket.
    bytes: usize,
    closed: bool,
}

/// Bytes that are queued, and how many of them have been sent already.
#[derive(Debug)]
struct QueuedBytes {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, waiting: Mutex::default(), changed: Condvar::new() }
    }

    /// Returns the socket, for reading.
    pub(super) const fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends or queues the parts of a call. Fails if the mediator has hung up, or has left too many bytes
    /// unread.
    pub(super) fn call(&self, parts: [Vec<u8>; 2]) -> io::Result<()> {
        self.post(parts, WAITING_MOST)
    }

    /// Answers a question of the mediator (`PING`), unless it has left too many bytes unread.
    pub(super) fn answer(&self, bytes: &[u8]) {
        // A mediator that has hung up needs no answer, and the next read reports it.
        let _ = self.post([bytes.to_vec()], ANSWERED_MOST);
    }

    fn post<const N: usize>(&self, parts: [Vec<u8>; N], most: usize) -> io::Result<()> {
        let mut waiting = lock(&self.waiting);
        if waiting.closed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if waiting.bytes >= most {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        for bytes in parts {
            // Queued bytes keep their order, so only an empty queue may be bypassed.
            let sent = if waiting.bytes == 0 { send_some(&self.stream, &bytes)? } else { 0 };
            if sent < bytes.len() {
                waiting.bytes += bytes.len() - sent;
                waiting.pieces.push_back(QueuedBytes { bytes, sent });
                self.changed.notify_one();
            }
        }
        Ok(())
    }

    /// Writes queued bytes until the connection is closed. This is the body of the writing thread. Fails if
    /// the mediator accepts no byte within the socket's write timeout, or has hung up.
    pub(super) fn write_on(&self) -> io::Result<()> {
        let mut waiting = lock(&self.waiting);
        loop {
            if waiting.closed {
                return Ok(());
            }
            let Some(piece) = waiting.pieces.pop_front() else {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(waiting);
            let rest = &piece.bytes[piece.sent..];
            let written = (&self.stream).write_all(rest);
            waiting = lock(&self.waiting);
            if let Err(error) = written {
                // An error after this side has closed the connection is not the mediator's failure.
                return if waiting.closed { Ok(()) } else { Err(error) };
            }
            waiting.bytes -= rest.len();
        }
    }

    /// Ends the connection. Queued bytes are dropped.
    pub(super) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.changed.notify_all();
        // The error means that the socket is shut down already.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Sends the bytes that the socket accepts without waiting, and returns their number.
fn send_some(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match send(stream, &bytes[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => sent += more,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sent)
}
