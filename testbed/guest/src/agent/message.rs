//! Messages between host and agent, as frames.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use super::frame;

/// Name of the virtio-serial port that connects agent and host.
pub const PORT: &str = "vgpu.agent";

/// A command that the agent is to run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Program and its arguments.
    pub command: Vec<String>,
    /// Environment variables besides `PATH` and `HOME`.
    pub environment: BTreeMap<String, String>,
    /// Name of the user who runs the command, from the guest's `/etc/passwd`.
    pub user: String,
    /// Working directory of the command.
    pub folder: String,
}

/// Exit code or signal with which a command ended.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum End {
    /// The command exited with this code.
    Code(i32),
    /// The command was ended by the signal with this number.
    Signal(i32),
}

impl End {
    /// Returns the exit code that a shell would report: the code itself, or 128 plus the signal.
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code as u8,
            Self::Signal(signal) => (128 + signal) as u8,
        }
    }
}

/// A message that the agent sends to the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The agent accepts commands. The text is the time since the kernel's start, in seconds.
    Ready(String),
    /// Bytes that the command wrote to stdout.
    Stdout(Vec<u8>),
    /// Bytes that the command wrote to stderr.
    Stderr(Vec<u8>),
    /// The command ended, and all of its output has been sent.
    Ended(End),
    /// The command could not be run, or the system could not be prepared.
    Failed(String),
}

/// Returns the error for bytes that form no message.
fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a message: {what}"))
}

/// Kind of the frame that holds a [`Job`].
const JOB: u8 = 0;

impl Job {
    /// Sends the job to the agent.
    ///
    /// # Errors
    /// Returns the error of the stream.
    pub fn send(&self, stream: &mut impl Write) -> io::Result<()> {
        frame::write(stream, JOB, &serde_json::to_vec(self)?)
    }

    /// Receives the next job. Returns `None` when the host has no more.
    ///
    /// # Errors
    /// Fails if the received frame is no job, or if the stream fails.
    pub fn receive(stream: &mut impl Read) -> io::Result<Option<Self>> {
        let Some(frame) = frame::read(stream)? else { return Ok(None) };
        if frame.kind != JOB {
            return Err(nonsense("no job"));
        }
        Ok(Some(serde_json::from_slice(&frame.payload)?))
    }
}

impl Message {
    /// Sends the message to the host.
    ///
    /// # Errors
    /// Returns the error of the stream.
    pub fn send(&self, stream: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Ready(text) => frame::write(stream, 1, text.as_bytes()),
            Self::Stdout(bytes) => frame::write(stream, 2, bytes),
            Self::Stderr(bytes) => frame::write(stream, 3, bytes),
            Self::Ended(end) => frame::write(stream, 4, &serde_json::to_vec(end)?),
            Self::Failed(text) => frame::write(stream, 5, text.as_bytes()),
        }
    }

    /// Receives the next message. Returns `None` when the guest has closed the port.
    ///
    /// # Errors
    /// Fails if the received frame is no message, or if the stream fails.
    pub fn receive(stream: &mut impl Read) -> io::Result<Option<Self>> {
        let Some(frame) = frame::read(stream)? else { return Ok(None) };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| nonsense("no text"));
        Ok(Some(match frame.kind {
            1 => Self::Ready(text(frame.payload)?),
            2 => Self::Stdout(frame.payload),
            3 => Self::Stderr(frame.payload),
            4 => Self::Ended(serde_json::from_slice(&frame.payload)?),
            5 => Self::Failed(text(frame.payload)?),
            kind => return Err(nonsense(&format!("kind {kind}"))),
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_and_jobs_come_as_they_went() {
        let messages = [
            Message::Ready("1.5".to_owned()),
            Message::Stdout(b"\xff\0".to_vec()),
            Message::Stderr(Vec::new()),
            Message::Ended(End::Signal(9)),
            Message::Failed("no such program".to_owned()),
        ];
        let mut bytes = Vec::new();
        for message in &messages {
            message.send(&mut bytes).unwrap();
        }
        let mut stream = &bytes[..];
        for message in messages {
            assert_eq!(Message::receive(&mut stream).unwrap(), Some(message));
        }
        assert_eq!(Message::receive(&mut stream).unwrap(), None);
        assert_eq!((End::Code(3).code(), End::Signal(9).code()), (3, 137));

        let job = Job { command: vec!["ls".into(), "-l".into()], user: "root".into(), ..Job::default() };
        let mut bytes = Vec::new();
        job.send(&mut bytes).unwrap();
        assert_eq!(Job::receive(&mut &bytes[..]).unwrap(), Some(job));
        assert!(Message::receive(&mut &bytes[..]).is_err());
    }

    proptest! {
        #[test]
        fn any_frame_is_a_message_or_refused(kind: u8, payload in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut bytes = Vec::new();
            frame::write(&mut bytes, kind, &payload).unwrap();
            let _ = Message::receive(&mut &bytes[..]);
            let _ = Job::receive(&mut &bytes[..]);
        }
    }
}
