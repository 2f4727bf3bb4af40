//! The device's side of the mediator's socket. A connection is made when a call needs one, and again after
//! each loss.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use vgpu_device::{connect_to, lock, threads};
use vgpu_wire::v1::frame::{self, Header};
use zerocopy::IntoBytes;

use super::device::Inlet;
use super::link::{Delivery, Link, LinkError, Submission};
use super::outbox::Outbox;
use super::stream::Frames;

/// Time after which a mediator that accepts no byte of a call is treated as hung up.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// Number of bytes read from the socket at a time.
const PIECE: usize = 256 << 10;

/// A link to a mediator that listens on a socket.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    inlet: Inlet,
    state: Mutex<ClientState>,
    limit: Duration,
}

#[derive(Debug, Default)]
struct ClientState {
    current: Option<CurrentConnection>,
    made: u64,
    /// Threads of the current connection, and of earlier ones until they have noticed its end.
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct CurrentConnection {
    number: u64,
    outbox: Arc<Outbox>,
}

impl Client {
    /// Makes a link that connects at once if a mediator listens at `path`, and otherwise with the first call.
    /// It connects again after each loss.
    pub fn connect(path: &Path, inlet: Inlet) -> Self {
        Self::with_limit(path, inlet, SEND_LIMIT)
    }

    /// Connects as [`Client::connect`] does, with another limit for a mediator that accepts nothing.
    pub fn with_limit(path: &Path, inlet: Inlet, limit: Duration) -> Self {
        let client = Self { path: path.to_owned(), inlet, state: Mutex::default(), limit };
        if let Err(error) = client.connected(&mut lock(&client.state)) {
            tracing::info!(path = %path.display(), "no mediator yet: {error}");
        }
        client
    }

    /// Returns the current connection, or makes a new one if there is none or the mediator has hung up.
    fn connected<'a>(&self, state: &'a mut ClientState) -> io::Result<&'a CurrentConnection> {
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
            // From here on `hang_up` closes the connection.
            state.current = Some(CurrentConnection { number, outbox: Arc::clone(&outbox) });
            let started = self.start(state, number, &outbox);
            if started.is_err() {
                state.hang_up();
            }
            started?;
        }
        state.current.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Starts the two threads of a connection: one receives results, the other writes queued calls.
    fn start(&self, state: &mut ClientState, number: u64, outbox: &Arc<Outbox>) -> io::Result<()> {
        state.threads.retain(|thread| !thread.is_finished());
        let (inlet, own) = (self.inlet.clone(), Arc::clone(outbox));
        let receive = move || receive_all(&own, number, &inlet);
        state.threads.push(threads::spawn("mediator", receive)?);
        let (inlet, own) = (self.inlet.clone(), Arc::clone(outbox));
        let write = move || write_all(&own, number, &inlet);
        state.threads.push(threads::spawn("mediator-calls", write)?);
        Ok(())
    }
}

impl ClientState {
    fn hang_up(&mut self) {
        if let Some(current) = self.current.take() {
            current.outbox.close();
        }
    }
}

/// Returns whether the peer has hung up. The receiving thread still handles frames that the peer sent before.
fn is_dead(stream: &UnixStream) -> bool {
    let mut byte = [0; 1];
    match recv(stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((bytes, _)) => bytes == 0,
        Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
    }
}

/// Writes the bytes that a doorbell could not write without waiting, until the connection ends. This is the
/// body of a thread.
fn write_all(outbox: &Outbox, number: u64, inlet: &Inlet) {
    if let Err(error) = outbox.write_on() {
        tracing::warn!("send a call to the mediator: {error}");
        // This is delivered first, because the end of the connection reports the loss with another status.
        inlet.deliver(Delivery::Unsent { connection: number });
        // The mediator would read any following bytes as part of this call.
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
            // An earlier call is still being sent, and the queue has no room for another.
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
            // A thread that delivers holds the device, so the last owner, which drops this, may be one of the
            // threads.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

/// Receives results and questions until the mediator hangs up or the device is gone. This is the body of a
/// thread.
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
                    if !handle_frame(outbox, &header, payload, inlet) {
                        return;
                    }
                }
                Err(error) => {
                    // The log tells that bytes were dropped; the guest waits for its call.
                    tracing::warn!("what the mediator sent is dropped: {error}");
                    frames.clear();
                }
            }
        }
    }
    inlet.deliver(Delivery::Closed { connection: number });
    // No thread writes to the connection from here on.
    outbox.close();
}

/// Handles one frame of the mediator. Returns false if the device is gone.
fn handle_frame(outbox: &Outbox, header: &Header, payload: &[u8], inlet: &Inlet) -> bool {
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
        // Frames of unknown kinds are ignored.
        _ => true,
    }
}
