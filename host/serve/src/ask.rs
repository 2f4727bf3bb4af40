//! Questions to running devices, by their control sockets. Each may be asked in a thread of its own, so that
//! one that hangs makes nobody wait ([`Questions`]).

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::Value;
use vgpu_device::threads;

use crate::control::{ControlPath, ENDING_MOST, EndReply, Instance, Request};

/// Maximum time that a device may take to answer, beside what it waits for.
const ANSWER_MOST: Duration = Duration::from_secs(5);
/// Maximum time that a device may take until it is reloaded: sessions that are ending are waited for.
const RELOAD_MOST: Duration = Duration::from_mins(1);
/// Maximum length of an answer in bytes. An answer for 64 channels takes a hundredth of it.
const ANSWER_BYTES: u64 = 16 << 20;

/// Reason for which a device has not answered a question.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// Nobody can be reached by the socket.
    #[error("connect to {}", .socket.display())]
    Connect {
        /// Path of the control socket.
        socket: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// There was no answer in time.
    #[error("the device at {} does not answer", .socket.display())]
    Silent {
        /// Path of the control socket.
        socket: PathBuf,
    },
    /// The connection ended without an answer.
    #[error("the device at {} ends the connection without an answer", .socket.display())]
    Ended {
        /// Path of the control socket.
        socket: PathBuf,
    },
    /// The question could not be sent, or the answer not be read.
    #[error("ask the device at {}", .socket.display())]
    Talk {
        /// Path of the control socket.
        socket: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// The answer is not one of this release.
    #[error("understand the answer of the device at {}", .socket.display())]
    Answer {
        /// Path of the control socket.
        socket: PathBuf,
        /// Error of the parser.
        #[source]
        source: serde_json::Error,
    },
    /// The device refuses the question.
    #[error("the device at {} answers: {error}", .socket.display())]
    Refused {
        /// Path of the control socket.
        socket: PathBuf,
        /// The device's words.
        error: String,
    },
}

impl AskError {
    /// Returns whether the device is another user's.
    fn is_forbidden(&self) -> bool {
        matches!(self, Self::Connect { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// Tells the instance whose control socket is `socket` to end a session.
pub(crate) fn end(socket: &Path, session: u32) -> Result<EndReply, AskError> {
    request(socket, Request::End { session })
}

/// Asks the instance whose control socket is `socket` for its state.
pub(crate) fn status(socket: &Path) -> Result<Instance, AskError> {
    request(socket, Request::Status)
}

/// Tells the instance whose control socket is `socket` to execute the program that is installed now. Returns
/// when it does, or begins to.
pub(crate) fn reload(socket: &Path) -> Result<(), AskError> {
    match request::<()>(socket, Request::Reload) {
        // The connection has ended with the program that was asked.
        Err(AskError::Ended { .. }) => Ok(()),
        answer => answer,
    }
}

/// Sends a request, and reads the answer.
fn request<T: DeserializeOwned>(socket: &Path, request: Request) -> Result<T, AskError> {
    let path = || socket.to_owned();
    let stream =
        UnixStream::connect(socket).map_err(|source| AskError::Connect { socket: path(), source })?;
    let line = talk(stream, request).map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AskError::Silent { socket: path() },
        _ => AskError::Talk { socket: path(), source },
    })?;
    if line.is_empty() {
        return Err(AskError::Ended { socket: path() });
    }
    let wrong = |source| AskError::Answer { socket: path(), source };
    let answer: Value = serde_json::from_str(&line).map_err(wrong)?;
    if let Some(error) = answer["error"].as_str() {
        return Err(AskError::Refused { socket: path(), error: error.to_owned() });
    }
    serde_json::from_value(answer).map_err(wrong)
}

/// Sends a request, and reads the answer as text.
fn talk(mut stream: UnixStream, request: Request) -> io::Result<String> {
    let waits = match request {
        Request::Status => Duration::ZERO,
        Request::End { .. } => ENDING_MOST,
        Request::Reload => RELOAD_MOST,
    };
    stream.set_read_timeout(Some(ANSWER_MOST + waits))?;
    stream.set_write_timeout(Some(ANSWER_MOST))?;
    writeln!(stream, "{}", serde_json::to_string(&request)?)?;
    let mut line = String::new();
    BufReader::new(stream).take(ANSWER_BYTES).read_line(&mut line)?;
    Ok(line)
}

/// A device that has not answered.
#[derive(Debug)]
pub(crate) struct Unanswered {
    /// Name of the device, which is empty if only its socket is known.
    pub(crate) name: String,
    /// Why there is no answer.
    pub(crate) reason: String,
    /// Whether the device is another user's.
    is_forbidden: bool,
}

/// Answers of several devices, in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) instances: Vec<Instance>,
    pub(crate) unanswered: Vec<Unanswered>,
}

impl Unanswered {
    fn new(place: &ControlPath, error: AskError) -> Self {
        let is_forbidden = error.is_forbidden();
        Self { name: place.name.clone(), reason: format!("{:#}", anyhow::Error::from(error)), is_forbidden }
    }
}

impl Answers {
    /// Returns whether there is no device to ask.
    pub(crate) const fn are_none(&self) -> bool {
        self.instances.is_empty() && self.unanswered.is_empty()
    }

    /// Returns whether a device has answered, and each that this user may ask.
    pub(crate) fn are_complete(&self) -> bool {
        !self.instances.is_empty() && self.unanswered.iter().all(|device| device.is_forbidden)
    }
}

/// Questions to devices. A device that has not answered one is not asked another.
#[derive(Debug)]
pub(crate) struct Questions {
    to: Sender<(ControlPath, Result<Instance, AskError>)>,
    answers: Receiver<(ControlPath, Result<Instance, AskError>)>,
    /// Devices that are being asked, by their sockets.
    open: BTreeMap<PathBuf, ControlPath>,
}

impl Questions {
    /// Returns no questions.
    pub(crate) fn new() -> Self {
        let (to, answers) = channel();
        Self { to, answers, open: BTreeMap::new() }
    }

    /// Asks devices for their state.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(crate) fn ask(&mut self, places: Vec<ControlPath>) -> io::Result<()> {
        for place in places {
            if self.open.contains_key(&place.socket) {
                continue;
            }
            let (to, asked) = (self.to.clone(), place.clone());
            // A thread whose device hangs in the middle of a connect ends with this process.
            threads::spawn("question", move || {
                let answer = status(&asked.socket);
                // It is not received if this process ends.
                let _ = to.send((asked, answer));
            })?;
            self.open.insert(place.socket.clone(), place);
        }
        Ok(())
    }

    /// Returns what devices have answered, once all have or the time `limit` has come.
    pub(crate) fn answers_by(&mut self, limit: Instant) -> Answers {
        let (mut instances, mut unanswered) = (Vec::new(), Vec::new());
        while !self.open.is_empty() {
            let left = limit.saturating_duration_since(Instant::now());
            let Ok((place, answer)) = self.answers.recv_timeout(left) else { break };
            self.open.remove(&place.socket);
            match answer {
                Ok(instance) => instances.push((place.name, instance)),
                Err(error) => unanswered.push(Unanswered::new(&place, error)),
            }
        }
        let silent =
            |place: &ControlPath| Unanswered::new(place, AskError::Silent { socket: place.socket.clone() });
        unanswered.extend(self.open.values().map(silent));
        instances.sort_by(|one, other| one.0.cmp(&other.0));
        unanswered.sort_by(|one, other| one.name.cmp(&other.name));
        Answers { instances: instances.into_iter().map(|(_, instance)| instance).collect(), unanswered }
    }
}
