//! A mediator's conversation with one client, until one of them hangs up.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use vgpu_wire::v1::frame::{self, Call, Header};
use zerocopy::{FromBytes, IntoBytes};

use super::connection_turn::{ConnectionTurn, Turn};
use super::mediator::{Answer, Connection, Verdict};
use super::stream::Frames;

/// Time after which a client that accepts no byte of its answer is disconnected.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// Number of bytes read from the socket at a time.
const PIECE: usize = 256 << 10;

/// Returns the error with which the mediator ends a connection, because of what the client has sent.
fn refuse(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

/// Returns a frame of a kind without payload, with the ids of the frame that it answers.
fn word(header: &Header, kind: u32) -> Header {
    Header { kind: kind.into(), bytes: 0.into(), ..*header }
}

/// How a thread's conversation with a client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConversationEnd {
    /// The client has hung up, or was disconnected.
    Over,
    /// Another thread has taken over the client.
    LeftBehind,
}

/// Serves one client until it hangs up or is disconnected, or another thread takes over. `received` are bytes
/// that were read from it already. Fails if the client sends anything but calls, or reads nothing for too
/// long.
pub(super) fn serve(
    mut stream: &UnixStream,
    connection: &Connection,
    turns: &ConnectionTurn,
    turn: Turn,
    received: &[u8],
) -> io::Result<ConversationEnd> {
    stream.set_write_timeout(Some(SEND_LIMIT))?;
    let mut frames = Frames::default();
    frames.push(received);
    let mut piece = vec![0; PIECE];
    let mut calls = false;
    loop {
        while let Some((header, payload, behind)) = frames.next_of_all().map_err(refuse)? {
            let over = |()| ConversationEnd::Over;
            match header.kind.get() {
                frame::CUDA_CALL => calls = true,
                // Before its first call a client may ask whether a mediator is there.
                frame::PING if !calls => {
                    return stream.write_all(word(&header, frame::PONG).as_bytes()).map(over);
                }
                kind => return Err(refuse(format_args!("a frame of kind {kind:#x}"))),
            }
            let (call, data) =
                Call::ref_from_prefix(payload).map_err(|_| refuse("a call shorter than its head"))?;
            turns.begin(turn, call.owner.get(), behind);
            let verdict = connection.call_while(&|| turns.is(turn), &header, call, data);
            if !turns.end(turn) {
                return Ok(ConversationEnd::LeftBehind);
            }
            match verdict {
                Verdict::Answer(answer) => {
                    let Answer { outcome, data } = *answer;
                    let bytes = (size_of_val(&outcome) + data.len()) as u32;
                    let head = Header { kind: frame::CUDA_RESULT.into(), bytes: bytes.into(), ..header };
                    stream.write_all(&[head.as_bytes(), outcome.as_bytes()].concat())?;
                    stream.write_all(&data)?;
                }
                Verdict::Busy => return stream.write_all(word(&header, frame::BUSY).as_bytes()).map(over),
                Verdict::Quarantined => {
                    return stream.write_all(word(&header, frame::QUARANTINED).as_bytes()).map(over);
                }
                Verdict::HangUp(error) => return Err(refuse(error)),
                Verdict::Gone => return Ok(ConversationEnd::Over),
            }
            turns.rest(turn);
        }
        match stream.read(&mut piece) {
            Ok(0) => return Ok(ConversationEnd::Over),
            Ok(bytes) => frames.push(&piece[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
