//! The device's side of the mediator's socket: a connection that is made when it is needed, again and again.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use vgpu_wire::v1::frame::{self, Header};
use zerocopy::IntoBytes;

use super::device::Inlet;
use super::link::{Delivery, Link, LinkError, Submission};
use super::outbox::Outbox;
use super::stream::Frames;
use crate::sync::lock;
use crate::unix_socket::connect_to;

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
    outbox: Arc<Outbox>,
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
        if state.current.as_ref().is_some_and(|current| is_dead(current.outbox.stream())) {
            state.hang_up();
        }
        if state.current.is_none() {
            let stream = UnixStream::from(connect_to(&self.path)?);
            stream.set_nonblocking(false)?;
            stream.set_write_timeout(Some(self.limit))?;
            let outbox = Arc::new(Outbox::new(stream));
            state.made += 1;
            let number = state.made;
            // From here on it is closed when it is given up.
            state.current = Some(Current { number, outbox: Arc::clone(&outbox) });
            let started = self.start(state, number, &outbox);
            if started.is_err() {
                state.hang_up();
            }
            started?;
        }
        state.current.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Starts a connection's two threads, one for each direction.
    fn start(&self, state: &mut State, number: u64, outbox: &Arc<Outbox>) -> io::Result<()> {
        state.threads.retain(|thread| !thread.is_finished());
        let (inlet, own) = (self.inlet.clone(), Arc::clone(outbox));
        let receive = move || receive_all(&own, number, &inlet);
        state.threads.push(thread::Builder::new().name("mediator".to_owned()).spawn(receive)?);
        let (inlet, own) = (self.inlet.clone(), Arc::clone(outbox));
        let write = move || write_all(&own, number, &inlet);
        state.threads.push(thread::Builder::new().name("mediator-calls".to_owned()).spawn(write)?);
        Ok(())
    }
}

impl State {
    fn hang_up(&mut self) {
        if let Some(current) = self.current.take() {
            current.outbox.close();
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

/// Writes what a doorbell left to be written, until the connection ends.
fn write_all(outbox: &Outbox, number: u64, inlet: &Inlet) {
    if let Err(error) = outbox.write_on() {
        tracing::warn!("send a call to the mediator: {error}");
        // First, for the end of the connection says it another way.
        inlet.deliver(Delivery::Unsent { connection: number });
        // What follows would be taken for the rest of this call.
        outbox.close();
    }
}

impl Link for Client {
    fn send(&self, submission: Submission) -> Result<u64, LinkError> {
        let mut state = lock(&self.state);
        let current = self.connected(&mut state).map_err(LinkError::Unreachable)?;
        let Submission { header, call, data } = submission;
        let sent = current.outbox.call([[header.as_bytes(), call.as_bytes()].concat(), data]);
        match sent {
            Ok(()) => Ok(current.number),
            // An earlier call is still on its way, and there is no room for another behind it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(LinkError::Send(error)),
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
fn receive_all(outbox: &Outbox, number: u64, inlet: &Inlet) {
    let mut frames = Frames::default();
    let mut piece = vec![0; PIECE];
    let mut reader = outbox.stream();
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
                    if !take(outbox, &header, payload, inlet) {
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
    // Nobody writes to it any more.
    outbox.close();
}

/// One frame; false: the device is gone.
fn take(outbox: &Outbox, header: &Header, payload: &[u8], inlet: &Inlet) -> bool {
    let request_id = header.request_id.get();
    match header.kind.get() {
        frame::CUDA_RESULT => inlet.deliver(Delivery::result(request_id, payload)),
        frame::BUSY => inlet.deliver(Delivery::Busy),
        frame::QUARANTINED => inlet.deliver(Delivery::Quarantined),
        frame::PING => {
            let mut pong = *header;
            pong.kind = frame::PONG.into();
            pong.bytes = 0.into();
            outbox.answer(pong.as_bytes());
            true
        }
        // Unknown kinds are passed over.
        _ => true,
    }
}
