//! A BAR over a socket: a connection for each guest process, packets of register accesses, and an answer for
//! each packet. Registers have side effects, so a file cannot represent all of them. The packets are those of
//! [`vgpu_wire::sim_bus`].

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, accept_with, recv, send, shutdown,
    sockopt::socket_peercred,
};
use vgpu_pace::SpinBackoff;
use vgpu_wire::pci::PciAddress;
use vgpu_wire::sim_bus::{BATCH, BLOCK, DONE, OUTSIDE, READ, READ_BLOCK, REQUEST_BYTES, WRITE, WRITE_BLOCK};

use super::error::SimError;
use crate::spin;
use crate::sync::lock;
use crate::thread_group::ThreadGroup;
use crate::unix_socket::listen_at;

/// Number of spare threads that wait for guests. Waking one is faster than starting one.
const SPARE: usize = 4;
/// Time to poll for the next packet before sleeping, because an attaching guest sends several.
const LINGER: Duration = Duration::from_micros(60);
/// Number of other threads that spin while one of these waits: the guest's thread.
const GUEST: usize = 1;
/// Pause before the next `accept` when the process is out of descriptors.
const OUT_OF_DESCRIPTORS_PAUSE: Duration = Duration::from_millis(20);

/// A BAR whose accesses arrive at a socket, from any thread.
pub trait Bar: std::fmt::Debug + Send + Sync {
    /// Returns the device's address, for log lines.
    fn address(&self) -> PciAddress;

    /// Delays `accesses` accesses of at most 8 bytes each by their cost. It is called before each access.
    fn pay(&self, _accesses: usize) {}

    /// Is called before each access in a packet of `process`, with its offset, its value or the bytes of its
    /// block, and whether it writes. Returns false if the process is dead: then neither this access nor the
    /// rest of the packet is carried out.
    fn admits(&self, _process: u32, _offset: u32, _value: u32, _write: bool) -> bool {
        true
    }

    /// Reads the register at `offset`.
    fn read(&self, offset: u32) -> u32;

    /// Writes the register at `offset`.
    fn write(&self, offset: u32, value: u32);

    /// Returns the lock that keeps packets of several accesses apart, so that no access of another process
    /// comes between those of one. Without a lock they mix. A packet may be carried out long after its
    /// process has died, when the next one is busy with the same registers.
    fn packets(&self) -> Option<&Mutex<()>> {
        None
    }

    /// Returns the number of bytes that blocks can reach, which is 0 if the BAR has no blocks.
    fn block_bytes(&self) -> usize {
        0
    }

    /// Reads `bytes` from `offset` on, which are within [`Bar::block_bytes`].
    fn read_block(&self, _offset: u32, _bytes: usize) -> Vec<u8> {
        Vec::new()
    }

    /// Writes `bytes` from `offset` on, which are within [`Bar::block_bytes`].
    fn write_block(&self, _offset: u32, _bytes: &[u8]) {}
}

/// State that the threads of a server share.
#[derive(Debug)]
struct SharedServer {
    listener: OwnedFd,
    bar: Arc<dyn Bar>,
    state: Mutex<ServerState>,
    threads: ThreadGroup,
}

#[derive(Debug, Default)]
struct ServerState {
    next: u64,
    /// Whether the server accepts no more guests.
    stopped: bool,
    open: HashMap<u64, Arc<OwnedFd>>,
    /// Number of threads that wait for a guest.
    waiting: usize,
}

/// Server of the socket of one BAR.
#[derive(Debug)]
pub(super) struct RegisterServer(Arc<SharedServer>);

impl RegisterServer {
    /// Listens at `path` and serves accesses to `bar` until stopped.
    pub(super) fn start(path: &Path, bar: Arc<dyn Bar>) -> Result<Self, SimError> {
        let listener = listen_at(path, SocketType::SEQPACKET)
            .map_err(|source| SimError::file("listen at", path, source))?;
        let server = Arc::new(SharedServer {
            listener,
            bar,
            state: Mutex::default(),
            threads: ThreadGroup::default(),
        });
        let started = spawn_waiter(&server, &mut lock(&server.state));
        started.map_err(|source| SimError::file("start a thread for", path, source))?;
        Ok(Self(server))
    }

    /// Stops serving and closes the guests' connections. An access in progress is not waited for.
    pub(super) fn stop(&self) {
        let mut state = lock(&self.0.state);
        state.stopped = true;
        // Shutting a socket down wakes the threads that wait in it; errors mean that it is down already.
        let _ = shutdown(&self.0.listener, Shutdown::Both);
        for connection in state.open.values() {
            let _ = shutdown(&**connection, Shutdown::Both);
        }
    }

    /// Waits until all threads of a stopped server have ended, but not beyond `deadline`. Returns whether
    /// they have.
    pub(super) fn wait(&self, deadline: Instant) -> bool {
        self.0.threads.wait(deadline)
    }
}

impl Drop for RegisterServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts one more thread that waits for guests.
fn spawn_waiter(server: &Arc<SharedServer>, state: &mut ServerState) -> io::Result<()> {
    let own = Arc::clone(server);
    server.threads.spawn("registers", move || serve(&own))?;
    state.waiting += 1;
    Ok(())
}

/// Serves guests one after the other, until the server stops or enough other threads wait.
fn serve(server: &Arc<SharedServer>) {
    loop {
        let connection = match accept_with(&server.listener, SocketFlags::CLOEXEC) {
            Ok(connection) => Arc::new(connection),
            Err(Errno::INTR | Errno::CONNABORTED) => continue,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                tracing::warn!(device = %server.bar.address(), "no descriptors or memory for another guest");
                // Other processes may hold the descriptors, and nothing signals when some are free again.
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
            // One thread must always wait for the next guest.
            if state.waiting == 0
                && let Err(error) = spawn_waiter(server, &mut state)
            {
                tracing::warn!("failed to start a thread for guests: {error}");
            }
            id
        };
        answer_all(&connection, &*server.bar);
        let mut state = lock(&server.state);
        state.open.remove(&id);
        if state.stopped {
            return;
        }
        if state.waiting > SPARE {
            return;
        }
        state.waiting += 1;
    }
}

/// Receives a packet. Polls for a while if that has paid off and there are processors to spare, then sleeps.
fn receive(connection: &OwnedFd, packet: &mut [u8], tries: &SpinBackoff) -> Result<usize, Errno> {
    if spin::has_spare_cpus(GUEST) && tries.spins() {
        let start = Instant::now();
        while spin::has_spare_cpus(GUEST) && start.elapsed() < LINGER {
            match recv(connection.as_fd(), &mut *packet, RecvFlags::DONTWAIT) {
                Ok((bytes, _)) => {
                    tries.learn(true);
                    return Ok(bytes);
                }
                Err(Errno::AGAIN | Errno::INTR) => std::hint::spin_loop(),
                Err(error) => return Err(error),
            }
        }
        tries.learn(false);
    }
    loop {
        match recv(connection.as_fd(), &mut *packet, RecvFlags::empty()) {
            Ok((bytes, _)) => return Ok(bytes),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

fn field(request: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([request[at], request[at + 1], request[at + 2], request[at + 3]])
}

/// Serves one guest until it disconnects or sends an invalid packet.
fn answer_all(connection: &OwnedFd, bar: &dyn Bar) {
    // One byte more than fits, so that a longer packet shows.
    let accesses = BATCH * REQUEST_BYTES;
    let room = if bar.block_bytes() == 0 { accesses } else { accesses.max(REQUEST_BYTES + BLOCK) };
    let mut packet = vec![0u8; room + 1];
    let mut answer = Vec::new();
    let tries = SpinBackoff::new();
    // The id of a process in another namespace is 0, which is no process's.
    let process =
        socket_peercred(connection).map_or(0, |peer| peer.pid.as_raw_nonzero().get().cast_unsigned());
    loop {
        let Ok(bytes) = receive(connection, &mut packet, &tries) else { return };
        let packet = &packet[..bytes];
        answer.clear();
        let understood = bytes <= room
            && (answer_block(packet, process, bar, &mut answer)
                || answer_accesses(packet, process, bar, &mut answer));
        if !understood || send(connection.as_fd(), &answer, SendFlags::NOSIGNAL) != Ok(answer.len()) {
            return;
        }
    }
}

/// Carries out a packet of accesses. Returns false if the packet is invalid, or its process is dead.
fn answer_accesses(packet: &[u8], process: u32, bar: &dyn Bar, answer: &mut Vec<u8>) -> bool {
    if packet.is_empty()
        || packet.len() > BATCH * REQUEST_BYTES
        || !packet.len().is_multiple_of(REQUEST_BYTES)
    {
        return false;
    }
    let _together = bar.packets().filter(|_| packet.len() > REQUEST_BYTES).map(lock);
    for request in packet.chunks_exact(REQUEST_BYTES) {
        let (operation, offset, value) = (field(request, 0), field(request, 4), field(request, 8));
        if !matches!(operation, READ | WRITE) || !bar.admits(process, offset, value, operation == WRITE) {
            return false;
        }
        bar.pay(1);
        let value = if operation == READ {
            bar.read(offset)
        } else {
            bar.write(offset, value);
            value
        };
        answer.extend_from_slice(&DONE.to_le_bytes());
        answer.extend_from_slice(&value.to_le_bytes());
    }
    true
}

/// Carries out a packet that holds a block. Returns false if the packet is invalid, or its process is dead.
fn answer_block(packet: &[u8], process: u32, bar: &dyn Bar, answer: &mut Vec<u8>) -> bool {
    let whole = bar.block_bytes();
    let Some((request, data)) = packet.split_at_checked(REQUEST_BYTES).filter(|_| whole > 0) else {
        return false;
    };
    let (operation, offset, bytes) = (field(request, 0), field(request, 4), field(request, 8));
    let length = bytes as usize;
    let expected = if operation == WRITE_BLOCK { length } else { 0 };
    if !matches!(operation, WRITE_BLOCK | READ_BLOCK) || length > BLOCK || data.len() != expected {
        return false;
    }
    if !bar.admits(process, offset, bytes, operation == WRITE_BLOCK) {
        return false;
    }
    let inside = (offset as usize).checked_add(length).is_some_and(|end| end <= whole);
    let status = if inside { DONE } else { OUTSIDE };
    answer.extend_from_slice(&status.to_le_bytes());
    answer.extend_from_slice(&bytes.to_le_bytes());
    if inside {
        bar.pay(length.div_ceil(size_of::<u64>()));
        if operation == WRITE_BLOCK {
            bar.write_block(offset, data);
        } else {
            answer.extend_from_slice(&bar.read_block(offset, length));
        }
    }
    true
}
