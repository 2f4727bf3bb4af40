//! BAR0 over a socket: a connection for each guest process, a packet for each register access, an
//! answer for each packet. Registers have side effects, so a file cannot stand for them.
//!
//! A request is 12 bytes, little endian: u32 operation (1 read, 2 write), u32 offset, u32 value. The answer is
//! 8 bytes: u32 status (0), u32 value read, or written. Whoever sends anything else is disconnected. The end
//! of a connection ends no session: a BAR has no such event.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, listen, recv, send, shutdown, socket_with,
};

use super::SimError;
use crate::device::Device;
use crate::host::lock;

/// Reads a register.
const READ: u32 = 1;
/// Writes a register.
const WRITE: u32 = 2;
/// Bytes of a request and of an answer.
const REQUEST_BYTES: usize = 12;
const ANSWER_BYTES: usize = 8;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// How long to leave guests waiting when the process is out of descriptors.
const OUT_OF_DESCRIPTORS_PAUSE: Duration = Duration::from_millis(20);

/// The open connections of a server, to be shut when it stops.
#[derive(Debug, Default)]
struct Connections {
    next: u64,
    /// None: the server has stopped and takes no more.
    open: Option<HashMap<u64, Connection>>,
}

/// One guest process.
#[derive(Debug)]
struct Connection {
    socket: Arc<OwnedFd>,
    /// Set as soon as it runs.
    thread: Option<JoinHandle<()>>,
}

/// The register socket of one device.
#[derive(Debug)]
pub(super) struct RegisterServer {
    listener: Arc<OwnedFd>,
    acceptor: Option<JoinHandle<()>>,
    connections: Arc<Mutex<Connections>>,
}

impl RegisterServer {
    /// Binds `path` and answers for `device` until stopped.
    pub(super) fn start(path: &Path, device: &Arc<Device>) -> Result<Self, SimError> {
        let failed = |source: Errno| SimError::file("listen at", path, source);
        let listener = listen_at(path, SocketType::SEQPACKET)
            .map_err(|source| SimError::file("listen at", path, source))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .map_err(|source| SimError::file("set the mode of", path, source))?;
        let listener = Arc::new(listener);
        let connections = Arc::new(Mutex::new(Connections { next: 0, open: Some(HashMap::new()) }));
        let accepting = (Arc::clone(&listener), Arc::clone(&connections), Arc::clone(device));
        let acceptor = thread::Builder::new()
            .name("registers".to_owned())
            .spawn(move || accept_all(&accepting.0, &accepting.1, &accepting.2))
            .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)))?;
        Ok(Self { listener, acceptor: Some(acceptor), connections })
    }

    /// Stops answering: guests find their connections closed. Returns when no thread is left.
    pub(super) fn stop(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        let open = lock(&self.connections).open.take();
        // Shutting a socket down wakes the thread that waits in it; errors mean that it is down already.
        let _ = shutdown(&*self.listener, Shutdown::Both);
        for (_, Connection { socket, thread }) in open.into_iter().flatten() {
            let _ = shutdown(&*socket, Shutdown::Both);
            if let Some(thread) = thread {
                let _ = thread.join();
            }
        }
        let _ = acceptor.join();
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

fn accept_all(listener: &OwnedFd, connections: &Arc<Mutex<Connections>>, device: &Arc<Device>) {
    loop {
        let connection = match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(connection) => Arc::new(connection),
            Err(Errno::INTR | Errno::CONNABORTED) => continue,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                tracing::warn!(device = %device.address(), "no descriptors or memory for another guest");
                // Whoever holds them need not be ours: nothing tells when there are some again.
                thread::sleep(OUT_OF_DESCRIPTORS_PAUSE);
                continue;
            }
            // The listener is shut down.
            Err(_) => return,
        };
        let mut guard = lock(connections);
        let id = guard.next;
        guard.next += 1;
        let Some(open) = guard.open.as_mut() else { return };
        open.insert(id, Connection { socket: Arc::clone(&connection), thread: None });
        let (device, all) = (Arc::clone(device), Arc::clone(connections));
        let spawned = thread::Builder::new().name(format!("registers-{id}")).spawn(move || {
            answer_all(&connection, &device);
            if let Some(open) = lock(&all).open.as_mut() {
                open.remove(&id);
            }
        });
        match spawned {
            Ok(thread) => {
                if let Some(entry) = open.get_mut(&id) {
                    entry.thread = Some(thread);
                }
            }
            Err(error) => {
                tracing::warn!("failed to start a thread for a guest: {error}");
                open.remove(&id);
            }
        }
    }
}

/// Answers one guest until it goes or says something else.
fn answer_all(connection: &OwnedFd, device: &Device) {
    // One byte more than a request, so that a longer packet shows.
    let mut request = [0u8; REQUEST_BYTES + 1];
    loop {
        match recv(connection.as_fd(), &mut request[..], RecvFlags::empty()) {
            Ok((REQUEST_BYTES, _)) => {}
            Err(Errno::INTR) => continue,
            _ => return,
        }
        let field =
            |at: usize| u32::from_le_bytes([request[at], request[at + 1], request[at + 2], request[at + 3]]);
        let (operation, offset, value) = (field(0), field(4), field(8));
        let value = match operation {
            READ => device.read(offset),
            WRITE => {
                device.write(offset, value);
                value
            }
            _ => return,
        };
        let mut answer = [0u8; ANSWER_BYTES];
        answer[4..].copy_from_slice(&value.to_le_bytes());
        if send(connection.as_fd(), &answer, SendFlags::NOSIGNAL) != Ok(ANSWER_BYTES) {
            return;
        }
    }
}
