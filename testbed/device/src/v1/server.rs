//! The mediator's socket: devices of other processes, such as patched hypervisors, connect to it.
//!
//! Each client has a thread, so that one that sends half a frame, or takes no answer, keeps nobody else waiting; calls are carried out one
//! at a time all the same.

use std::collections::HashMap;
use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{Shutdown, SocketType, shutdown};
use vgpu_wire::v1::frame::{self, Call, Header};
use zerocopy::{FromBytes, IntoBytes};

use super::mediator::{Answer, Connection, Mediator, Verdict};
use super::stream::Frames;
use crate::host::lock;
use crate::sim::{connect_to, listen_at};

/// Clients at a time.
pub const CLIENTS_MAX: usize = 64;
/// How long a client may take nothing of its answer.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;
/// How long to leave clients waiting when the process is out of descriptors.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a mediator's socket cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Another process listens there.
    #[error("listen at {path}: another mediator does")]
    Served {
        /// The socket.
        path: PathBuf,
    },
    /// Anything else.
    #[error("{what} {path}")]
    File {
        /// What was tried.
        what: &'static str,
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    next: u64,
    open: HashMap<u64, Arc<UnixStream>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    mediator: Arc<Mediator>,
    listener: UnixListener,
    state: Mutex<State>,
}

/// A mediator's socket. It is gone when this is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `path`, for every user: hypervisors run as their own. What a dead mediator left there is removed.
    pub fn start(path: &Path, mediator: &Arc<Mediator>) -> Result<Self, ServerError> {
        let failed = |what| move |source| ServerError::File { what, path: path.to_owned(), source };
        let socket = std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
        if socket {
            match connect_to(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(failed("remove"))?;
                }
                // Taken, or not yet.
                _ => return Err(ServerError::Served { path: path.to_owned() }),
            }
        }
        let listener = listen_at(path, SocketType::STREAM).map_err(failed("listen at"))?;
        std::fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(failed("set the mode of"))?;
        let shared = Arc::new(Shared {
            mediator: Arc::clone(mediator),
            listener: listener.into(),
            state: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let acceptor = thread::Builder::new().name("mediator".to_owned()).spawn(move || own.accept_all());
        let thread = Some(acceptor.map_err(failed("start a thread for"))?);
        Ok(Self { shared, path: path.to_owned(), thread })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let threads = {
            let mut state = lock(&self.shared.state);
            state.stopped = true;
            // Errors mean that it is down already.
            let _ = shutdown(&self.shared.listener, Shutdown::Both);
            for stream in state.open.values() {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            std::mem::take(&mut state.threads)
        };
        self.shared.mediator.stop();
        for thread in self.thread.take().into_iter().chain(threads) {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Shared {
    fn accept_all(self: &Arc<Self>) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => Arc::new(stream),
                Err(_) if lock(&self.state).stopped => return,
                Err(error) => {
                    tracing::warn!("accept a device: {error}");
                    // Whoever holds descriptors need not be ours: nothing tells when there are some again.
                    thread::sleep(PAUSE);
                    continue;
                }
            };
            let mut state = lock(&self.state);
            if state.stopped {
                return;
            }
            if state.open.len() >= CLIENTS_MAX {
                tracing::warn!("a device is turned away: {CLIENTS_MAX} are connected");
                continue;
            }
            let id = state.next;
            state.next += 1;
            let (own, client) = (Arc::clone(self), Arc::clone(&stream));
            let serve = move || {
                let connection = own.mediator.connect();
                if let Err(error) = serve(&client, &connection) {
                    tracing::debug!("a device's connection ends: {error}");
                }
                // Before it counts as gone, what it owned is.
                drop(connection);
                lock(&own.state).open.remove(&id);
                let _ = client.shutdown(std::net::Shutdown::Both);
            };
            state.threads.retain(|thread| !thread.is_finished());
            match thread::Builder::new().name(format!("device-{id}")).spawn(serve) {
                Ok(thread) => {
                    state.open.insert(id, stream);
                    state.threads.push(thread);
                }
                Err(error) => tracing::warn!("start a thread for a device: {error}"),
            }
        }
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
fn serve(mut stream: &UnixStream, connection: &Connection) -> io::Result<()> {
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
            }
        }
    }
}
