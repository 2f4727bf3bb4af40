//! The device's side of the mediator's socket: a connection that is made when it is needed, again and again.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use vgpu_wire::v1::frame::{self, Header};
use zerocopy::IntoBytes;

use super::link::{Delivery, Inlet, Link, LinkError, Submission};
use super::stream::Frames;
use crate::host::lock;
use crate::sim::connect_to;

/// How long a mediator may take no bytes of a call before it counts as gone.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;

/// The way to a mediator that listens at a path.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    inlet: Inlet,
    state: Mutex<State>,
    limit: Duration,
}

#[derive(Debug, Default)]
struct State {
    current: Option<Current>,
    made: u64,
    /// Of connections that ended; those that have not noticed yet among them.
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Current {
    number: u64,
    socket: Arc<Socket>,
}

/// A connected socket. Calls are written by the guest's thread, answers to pings by the receiving one.
#[derive(Debug)]
struct Socket {
    stream: UnixStream,
    writing: Mutex<()>,
}

impl Client {
    /// A link that connects now, if a mediator listens at `path`, and else when there is a call.
    pub fn connect(path: &Path, inlet: Inlet) -> Self {
        Self::with_limit(path, inlet, SEND_LIMIT)
    }

    /// The same with another limit for a mediator that takes nothing.
    pub fn with_limit(path: &Path, inlet: Inlet, limit: Duration) -> Self {
        let client = Self { path: path.to_owned(), inlet, state: Mutex::default(), limit };
        if let Err(error) = client.connected(&mut lock(&client.state)) {
            tracing::info!(path = %path.display(), "no mediator yet: {error}");
        }
        client
    }

    /// The connection that there is, or a new one.
    fn connected<'a>(&self, state: &'a mut State) -> io::Result<&'a Current> {
        if state.current.as_ref().is_some_and(|current| is_dead(&current.socket.stream)) {
            state.hang_up();
        }
        if state.current.is_none() {
            let stream = UnixStream::from(connect_to(&self.path)?);
            stream.set_nonblocking(false)?;
            let socket = Arc::new(Socket { stream, writing: Mutex::default() });
            state.made += 1;
            let (number, inlet, own) = (state.made, self.inlet.clone(), Arc::clone(&socket));
            let receiver = thread::Builder::new().name("mediator".to_owned());
            let thread = receiver.spawn(move || receive_all(&own, number, &inlet))?;
            state.threads.retain(|thread| !thread.is_finished());
            state.threads.push(thread);
            state.current = Some(Current { number, socket });
        }
        state.current.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl State {
    fn hang_up(&mut self) {
        if let Some(current) = self.current.take() {
            // It may be down already.
            let _ = current.socket.stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Whether the peer has hung up. What it sent before that is the receiving thread's.
fn is_dead(stream: &UnixStream) -> bool {
    let mut byte = [0; 1];
    match recv(stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((bytes, _)) => bytes == 0,
        Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
    }
}

/// Writes all of `parts` before `end`.
fn write_all(mut stream: &UnixStream, parts: [&[u8]; 3], end: Instant) -> io::Result<()> {
    for mut part in parts {
        while !part.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_write_timeout(Some(left))?;
            match stream.write(part) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => part = &part[bytes..],
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

impl Link for Client {
    fn send(&self, submission: Submission) -> Result<u64, LinkError> {
        let mut state = lock(&self.state);
        let current = self.connected(&mut state).map_err(LinkError::Unreachable)?;
        let Submission { header, call, data } = &submission;
        let parts = [header.as_bytes(), call.as_bytes(), data];
        let writing = lock(&current.socket.writing);
        let written = write_all(&current.socket.stream, parts, Instant::now() + self.limit);
        drop(writing);
        match written {
            Ok(()) => Ok(current.number),
            Err(error) => {
                state.hang_up();
                Err(LinkError::Send(error))
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.hang_up();
        for thread in state.threads.drain(..) {
            // The last to hold the device may be such a thread itself, when it delivers.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

/// Receives until the mediator hangs up.
fn receive_all(socket: &Socket, number: u64, inlet: &Inlet) {
    let mut frames = Frames::default();
    let mut piece = vec![0; PIECE];
    let mut reader = &socket.stream;
    loop {
        let bytes = match reader.read(&mut piece) {
            Ok(0) => break,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        frames.push(&piece[..bytes]);
        loop {
            match frames.next_frame() {
                Ok(None) => break,
                Ok(Some((header, payload))) => {
                    if !take(socket, &header, payload, inlet) {
                        return;
                    }
                }
                Err(error) => {
                    // Dropped without a word to anybody but the log.
                    tracing::warn!("what the mediator sent is dropped: {error}");
                    frames.clear();
                }
            }
        }
    }
    inlet.deliver(Delivery::Closed { connection: number });
}

/// One frame; false: the device is gone.
fn take(socket: &Socket, header: &Header, payload: &[u8], inlet: &Inlet) -> bool {
    let request_id = header.request_id.get();
    match header.kind.get() {
        frame::CUDA_RESULT => inlet.deliver(Delivery::result(request_id, payload)),
        frame::BUSY => inlet.deliver(Delivery::Busy),
        frame::QUARANTINED => inlet.deliver(Delivery::Quarantined),
        frame::PING => {
            let mut pong = *header;
            pong.kind = frame::PONG.into();
            pong.bytes = 0.into();
            let _writing = lock(&socket.writing);
            let mut writer = &socket.stream;
            // Who does not take it has hung up, and the next read says so.
            let _ = writer.write_all(pong.as_bytes());
            true
        }
        // Unknown kinds are passed over.
        _ => true,
    }
}
