//! What goes out on a connection to the mediator: what the socket takes at once, and the rest by a thread.
//!
//! Calls are handed over within a guest's register access, which waits for no mediator. The real device keeps
//! the guest waiting there, for up to 30 s.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, PoisonError};

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::sync::lock;

/// Bytes that wait for the mediator before another call is refused: some calls of the longest kind, of
/// processes that were killed meanwhile.
const WAITING_MOST: usize = 32 << 20;
/// Bytes that wait before a question is left without its answer.
const ANSWERED_MOST: usize = 64 << 10;

/// A connection, as far as it is written to.
#[derive(Debug)]
pub(super) struct Outbox {
    stream: UnixStream,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    pieces: VecDeque<Piece>,
    /// Of them all, that which is being written included: 0 says that the socket is nobody's.
    bytes: usize,
    closed: bool,
}

/// Bytes, and how many of them have been sent.
#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, waiting: Mutex::default(), changed: Condvar::new() }
    }

    /// The socket, to read from.
    pub(super) const fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends a call's parts, or has them sent. Fails where the mediator has hung up, and where it has left
    /// too much untaken.
    pub(super) fn call(&self, parts: [Vec<u8>; 2]) -> io::Result<()> {
        self.post(parts, WAITING_MOST)
    }

    /// Sends an answer to a question of the mediator. Who asks and takes nothing goes without.
    pub(super) fn answer(&self, bytes: &[u8]) {
        // Who has hung up needs none, and the next read says so.
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
            // What comes first goes first.
            let sent = if waiting.bytes == 0 { send_some(&self.stream, &bytes)? } else { 0 };
            if sent < bytes.len() {
                waiting.bytes += bytes.len() - sent;
                waiting.pieces.push_back(Piece { bytes, sent });
                self.changed.notify_one();
            }
        }
        Ok(())
    }

    /// Writes what waits until the connection is closed: the work of a thread of its own. Fails when the
    /// mediator takes no byte for as long as the socket's limit for writing, or has hung up.
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
                // That of who closed it is no failure of the mediator's.
                return if waiting.closed { Ok(()) } else { Err(error) };
            }
            waiting.bytes -= rest.len();
        }
    }

    /// Ends the connection. What waits is not sent.
    pub(super) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.changed.notify_all();
        // It may be down already.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Sends what the socket takes without waiting: so many bytes.
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
