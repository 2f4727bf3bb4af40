//! What a mediator says to one client, until one of them hangs up.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use vgpu_wire::v1::frame::{self, Call, Header};
use zerocopy::{FromBytes, IntoBytes};

use super::mediator::{Answer, Connection, Verdict};
use super::stream::Frames;
use crate::host::lock;

/// How long a client may take nothing of its answer.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;

/// Since when a client has asked for nothing.
#[derive(Debug)]
pub(super) struct Idle(Mutex<Option<Instant>>);

impl Idle {
    /// From now on.
    pub(super) fn new() -> Self {
        Self(Mutex::new(Some(Instant::now())))
    }

    /// `None`: a call is under way, or its answer.
    pub(super) fn since(&self) -> Option<Instant> {
        *lock(&self.0)
    }

    fn set(&self, since: Option<Instant>) {
        *lock(&self.0) = since;
    }
}

/// Why a connection ends by the mediator's will.
fn refuse(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

/// A frame without payload that answers another.
fn word(header: &Header, kind: u32) -> Header {
    Header { kind: kind.into(), bytes: 0.into(), ..*header }
}

/// Serves one client until it goes, or is hung up on.
pub(super) fn serve(mut stream: &UnixStream, connection: &Connection, idle: &Idle) -> io::Result<()> {
    stream.set_write_timeout(Some(SEND_LIMIT))?;
    let mut frames = Frames::default();
    let mut piece = vec![0; PIECE];
    let mut calls = false;
    loop {
        let bytes = match stream.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        frames.push(&piece[..bytes]);
        while let Some((header, payload)) = frames.next_frame().map_err(refuse)? {
            match header.kind.get() {
                frame::CUDA_CALL => calls = true,
                // Before the first call a client may ask whether anybody is there.
                frame::PING if !calls => return stream.write_all(word(&header, frame::PONG).as_bytes()),
                kind => return Err(refuse(format_args!("a frame of kind {kind:#x}"))),
            }
            let (call, data) =
                Call::ref_from_prefix(payload).map_err(|_| refuse("a call shorter than its head"))?;
            idle.set(None);
            match connection.call(&header, call, data) {
                Verdict::Answer(answer) => {
                    let Answer { outcome, data } = *answer;
                    let bytes = (size_of_val(&outcome) + data.len()) as u32;
                    let head = Header { kind: frame::CUDA_RESULT.into(), bytes: bytes.into(), ..header };
                    stream.write_all(&[head.as_bytes(), outcome.as_bytes()].concat())?;
                    stream.write_all(&data)?;
                }
                Verdict::Busy => return stream.write_all(word(&header, frame::BUSY).as_bytes()),
                Verdict::Quarantined => {
                    return stream.write_all(word(&header, frame::QUARANTINED).as_bytes());
                }
                Verdict::HangUp(error) => return Err(refuse(error)),
                Verdict::Gone => return Ok(()),
            }
            idle.set(Some(Instant::now()));
        }
    }
}
