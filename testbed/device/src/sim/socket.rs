//! BAR0 over a socket: a connection for each guest process, packets of register accesses, an
//! answer for each packet. Registers have side effects, so a file cannot stand for all of them.
//!
//! A request is 12 bytes, little endian: u32 operation (1 read, 2 write), u32 offset, u32 value. A packet holds 1 to 24
//! of them, carried out in order. The answer is one packet with 8 bytes for each: u32 status (0), u32 value read, or
//! written. Whoever sends anything else is disconnected. The end of a connection ends no session: a BAR has no such event.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, listen, recv, send, shutdown, socket_with,
};

use super::SimError;
use crate::device::Device;
use crate::host::lock;
use crate::spin;

/// Reads a register.
const READ: u32 = 1;
/// Writes a register.
const WRITE: u32 = 2;
/// Bytes of a request and of an answer.
const REQUEST_BYTES: usize = 12;
const ANSWER_BYTES: usize = 8;
/// The most requests of a packet.
const BATCH: usize = 24;
/// Threads that wait for guests, beyond the one that must: a wake-up is faster than a start.
const SPARE: usize = 4;
/// How long to look for the next packet before sleeping: accesses come in bursts, when a guest attaches.
const LINGER: Duration = Duration::from_micros(60);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// How long to leave guests waiting when the process is out of descriptors.
const OUT_OF_DESCRIPTORS_PAUSE: Duration = Duration::from_millis(20);

/// What the threads of a server share.
#[derive(Debug)]
struct Server {
    listener: OwnedFd,
    device: Arc<Device>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Set: the server takes no more.
    stopped: bool,
    open: HashMap<u64, Arc<OwnedFd>>,
    /// Threads that wait for a guest.
    waiting: usize,
    threads: HashMap<ThreadId, JoinHandle<()>>,
}

/// The register socket of one device.
#[derive(Debug)]
pub(super) struct RegisterServer(Arc<Server>);

impl RegisterServer {
    /// Binds `path` and answers for `device` until stopped.
    pub(super) fn start(path: &Path, device: &Arc<Device>) -> Result<Self, SimError> {
        let listener = listen_at(path, SocketType::SEQPACKET)
            .map_err(|source| SimError::file("listen at", path, source))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .map_err(|source| SimError::file("set the mode of", path, source))?;
        let server = Arc::new(Server { listener, device: Arc::clone(device), state: Mutex::default() });
        let started = spawn_waiter(&server, &mut lock(&server.state));
        started.map_err(|source| SimError::file("start a thread for", path, source))?;
        Ok(Self(server))
    }

    /// Stops answering: guests find their connections closed. Returns when no thread is left.
    pub(super) fn stop(&mut self) {
        let threads = {
            let mut state = lock(&self.0.state);
            state.stopped = true;
            // Shutting a socket down wakes the threads that wait in it; errors mean that it is down already.
            let _ = shutdown(&self.0.listener, Shutdown::Both);
            for connection in state.open.values() {
                let _ = shutdown(&**connection, Shutdown::Both);
            }
            std::mem::take(&mut state.threads)
        };
        for (_, thread) in threads {
            let _ = thread.join();
        }
    }
}

impl Drop for RegisterServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A listening socket bound to `path`, which may be longer than a socket address can hold.
pub(super) fn listen_at(path: &Path, kind: SocketType) -> io::Result<OwnedFd> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let short =
        Path::new("/proc/self/fd").join(std::os::fd::AsRawFd::as_raw_fd(&folder).to_string()).join(name);
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new(short.as_path())?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Starts one more thread that waits for guests.
fn spawn_waiter(server: &Arc<Server>, state: &mut State) -> io::Result<()> {
    let own = Arc::clone(server);
    let thread = thread::Builder::new().name("registers".to_owned()).spawn(move || serve(&own))?;
    state.waiting += 1;
    state.threads.insert(thread.thread().id(), thread);
    Ok(())
}

/// Takes guests, one after the other, until the server stops or enough others wait.
fn serve(server: &Arc<Server>) {
    loop {
        let connection = match accept_with(&server.listener, SocketFlags::CLOEXEC) {
            Ok(connection) => Arc::new(connection),
            Err(Errno::INTR | Errno::CONNABORTED) => continue,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                tracing::warn!(device = %server.device.address(), "no descriptors or memory for another guest");
                // Whoever holds them need not be ours: nothing tells when there are some again.
                thread::sleep(OUT_OF_DESCRIPTORS_PAUSE);
                continue;
            }
            // The listener is shut down.
            Err(_) => return,
        };
        let id = {
            let mut state = lock(&server.state);
            if state.stopped {
                return;
            }
            let id = state.next;
            state.next += 1;
            state.open.insert(id, Arc::clone(&connection));
            state.waiting -= 1;
            // Somebody must always be there for the next guest.
            if state.waiting == 0
                && let Err(error) = spawn_waiter(server, &mut state)
            {
                tracing::warn!("failed to start a thread for guests: {error}");
            }
            id
        };
        answer_all(&connection, &server.device);
        let mut state = lock(&server.state);
        state.open.remove(&id);
        if state.stopped {
            return;
        }
        if state.waiting > SPARE {
            // Nobody joins a thread that goes while the server lives.
            state.threads.remove(&thread::current().id());
            return;
        }
        state.waiting += 1;
    }
}

/// Receives a packet: looks for it for a while, where there are processors to spare, then sleeps.
fn receive(connection: &OwnedFd, packet: &mut [u8]) -> Result<usize, Errno> {
    let start = Instant::now();
    while spin::to_spare() && start.elapsed() < LINGER {
        match recv(connection.as_fd(), &mut *packet, RecvFlags::DONTWAIT) {
            Ok((bytes, _)) => return Ok(bytes),
            Err(Errno::AGAIN | Errno::INTR) => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    loop {
        match recv(connection.as_fd(), &mut *packet, RecvFlags::empty()) {
            Ok((bytes, _)) => return Ok(bytes),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Answers one guest until it goes or says something else.
fn answer_all(connection: &OwnedFd, device: &Device) {
    // One byte more than fits, so that a longer packet shows.
    let mut packet = [0u8; BATCH * REQUEST_BYTES + 1];
    let mut answers = [0u8; BATCH * ANSWER_BYTES];
    loop {
        let Ok(bytes) = receive(connection, &mut packet) else { return };
        if bytes == 0 || bytes > BATCH * REQUEST_BYTES || !bytes.is_multiple_of(REQUEST_BYTES) {
            return;
        }
        let requests = packet[..bytes].chunks_exact(REQUEST_BYTES);
        for (request, answer) in requests.zip(answers.chunks_exact_mut(ANSWER_BYTES)) {
            let field = |at: usize| {
                u32::from_le_bytes([request[at], request[at + 1], request[at + 2], request[at + 3]])
            };
            let (operation, offset, value) = (field(0), field(4), field(8));
            let value = match operation {
                READ => device.read(offset),
                WRITE => {
                    device.write(offset, value);
                    value
                }
                _ => return,
            };
            answer[4..].copy_from_slice(&value.to_le_bytes());
        }
        let answer = &answers[..bytes / REQUEST_BYTES * ANSWER_BYTES];
        if send(connection.as_fd(), answer, SendFlags::NOSIGNAL) != Ok(answer.len()) {
            return;
        }
    }
}
