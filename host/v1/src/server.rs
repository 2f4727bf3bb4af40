//! The mediator's socket: devices of other processes, such as patched hypervisors, connect to it.
//!
//! Each client has a thread, so that a client that sends half a frame, reads no answer, or submits work that
//! never ends keeps nobody else waiting. The thread that accepts clients also watches for clients that hang
//! up and for clients that ask for the cleanup of a call in progress, because the thread that executes that
//! call sees neither. Only processes of the mediator's user, or of one group, may connect.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown, sockopt::socket_peercred};
use vgpu_device::{ListenError, listen_for, lock, threads};
use vgpu_wire::v1::frame::{Call, Header};

use super::clients::{Admission, Client, admit};
use super::connection_turn::{ConnectionTurn, Turn};
use super::conversation::{ConversationEnd, serve};
use super::mediator::{Connection, Mediator};

/// Time that the server waits before it accepts again, when the process is out of descriptors.
const PAUSE: Duration = Duration::from_millis(20);
/// Interval at which calls in progress are checked for a request to end them. The start of a call is not
/// signalled, because that would cost every call a wake-up.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Number of bytes of a frame that identify the owner of its call.
const HEAD: usize = size_of::<Header>() + size_of::<Call>();
/// Number of clients accepted before the next check for clients that hung up.
const BURST: usize = 64;
/// Time for which an ending server waits for calls in progress. Calls that cannot be stopped end with the
/// process.
const STOP_LIMIT: Duration = Duration::from_millis(500);

/// A connected client of the mediator.
#[derive(Clone, Debug)]
struct Connected {
    stream: Arc<UnixStream>,
    connection: Arc<Connection>,
    turns: Arc<ConnectionTurn>,
    user: u32,
    /// Whether the client was seen to hang up. It is no longer polled then.
    over: bool,
}

#[derive(Debug, Default)]
struct ServerState {
    stopped: bool,
    next: u64,
    open: HashMap<u64, Connected>,
    /// Number of threads that serve a client.
    serving: usize,
}

#[derive(Debug)]
struct SharedServer {
    mediator: Arc<Mediator>,
    listener: UnixListener,
    state: Mutex<ServerState>,
    /// Condition that is notified when a thread has ended.
    ended: Condvar,
}

/// A mediator's socket. Dropping this closes and removes it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<SharedServer>,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `path` for processes of this user. The socket file of a dead mediator is removed.
    ///
    /// # Errors
    /// Another mediator listens at the path, or a system call failed.
    pub fn start(path: &Path, mediator: &Arc<Mediator>) -> Result<Self, ListenError> {
        Self::start_for(path, mediator, None)
    }

    /// Listens as [`Server::start`] does, and for processes of a group's users as well, because hypervisors
    /// often run as a user of their own.
    ///
    /// # Errors
    /// The errors are those of [`Server::start`].
    pub fn start_for(path: &Path, mediator: &Arc<Mediator>, group: Option<u32>) -> Result<Self, ListenError> {
        let failed = |what| move |source| ListenError::File { what, path: path.to_owned(), source };
        let listener = UnixListener::from(listen_for(path, group)?);
        listener.set_nonblocking(true).map_err(failed("listen at"))?;
        let shared = Arc::new(SharedServer {
            mediator: Arc::clone(mediator),
            listener,
            state: Mutex::default(),
            ended: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        let acceptor = threads::spawn("mediator", move || own.look_after_all());
        let thread = Some(acceptor.map_err(failed("start a thread for"))?);
        Ok(Self { shared, path: path.to_owned(), thread })
    }
}

impl Server {
    /// Ends several servers at once, within the time that a single one waits for its calls in progress.
    pub fn end_all(mut servers: Vec<Self>) {
        for server in &mut servers {
            server.leave();
        }
        drop(servers);
    }

    /// Stops accepting, disconnects all clients, and makes the mediator stop the work in progress. Does not
    /// wait for any call.
    fn leave(&mut self) {
        {
            let mut state = lock(&self.shared.state);
            state.stopped = true;
            // The error means that the listener is shut down already.
            let _ = shutdown(&self.shared.listener, Shutdown::Both);
            for client in state.open.values() {
                let _ = client.stream.shutdown(std::net::Shutdown::Both);
            }
        }
        self.shared.mediator.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.leave();
        let limit = self.shared.mediator.left_of(STOP_LIMIT);
        let state = lock(&self.shared.state);
        let waited = self.shared.ended.wait_timeout_while(state, limit, |state| state.serving > 0);
        let left = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0.serving;
        if left > 0 {
            tracing::warn!("{left} calls cannot be interrupted and end with this process");
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

impl SharedServer {
    /// Accepts clients, and watches them for hang-ups and for cleanups of calls in progress. This is the body
    /// of the server's thread.
    fn look_after_all(self: &Arc<Self>) {
        loop {
            let watched: Vec<(u64, Arc<UnixStream>)> = {
                let state = lock(&self.state);
                if state.stopped {
                    return;
                }
                let open = state.open.iter().filter(|(_, client)| !client.over);
                open.map(|(id, client)| (*id, Arc::clone(&client.stream))).collect()
            };
            let mut files = vec![PollFd::new(&self.listener, PollFlags::IN)];
            files.extend(watched.iter().map(|(_, stream)| PollFd::new(stream.as_ref(), PollFlags::RDHUP)));
            let limit = (!watched.is_empty()).then_some(&LOOK);
            match poll(&mut files, limit) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!("wait for connections: {error}");
                    thread::sleep(PAUSE);
                    continue;
                }
            }
            let news: Vec<bool> = files.iter().map(|file| !file.revents().is_empty()).collect();
            drop(files);
            for ((id, _), news) in watched.iter().zip(&news[1..]) {
                if *news {
                    self.see_off(*id);
                } else {
                    self.relieve(*id);
                }
            }
            if news[0] {
                // A burst of clients is accepted before the listen queue overflows.
                let _taken = (0..BURST).take_while(|_| self.accept()).count();
            }
        }
    }

    /// Handles a client that hung up, even while its thread executes a call.
    fn see_off(&self, id: u64) {
        let connection = lock(&self.state).open.get_mut(&id).map(|client| {
            client.over = true;
            Arc::clone(&client.connection)
        });
        if let Some(connection) = connection {
            connection.hang_up();
        }
    }

    /// Lets another thread take over a client that asks for the cleanup of the owner of its call in progress.
    fn relieve(self: &Arc<Self>, id: u64) {
        let Some(client) = lock(&self.state).open.get(&id).cloned() else { return };
        if let Some((turn, received)) = client.turns.leave_behind(|| peek(&client.stream)) {
            tracing::info!(user = client.user, "call abandoned: its owner is being cleaned up");
            self.serve(id, &client, turn, received);
        }
    }

    /// Accepts one client. Returns false if none waits or none can be accepted now.
    fn accept(self: &Arc<Self>) -> bool {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => Arc::new(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) if lock(&self.state).stopped => return false,
            Err(error) => {
                tracing::warn!("accept a connection: {error}");
                // Other parts of the process hold descriptors too, and nothing signals when some are free
                // again.
                thread::sleep(PAUSE);
                return false;
            }
        };
        let user = match socket_peercred(&stream) {
            Ok(peer) => peer.uid.as_raw(),
            Err(error) => {
                tracing::warn!("connection refused: cannot read the peer's credentials: {error}");
                return true;
            }
        };
        if !self.make_room(user) {
            tracing::warn!(user, "connection refused: client limit reached");
            return true;
        }
        let (turns, turn) = ConnectionTurn::new();
        let client = Connected {
            stream,
            connection: Arc::new(self.mediator.connect_as(user)),
            turns: Arc::new(turns),
            user,
            over: false,
        };
        let id = {
            let mut state = lock(&self.state);
            if state.stopped {
                return false;
            }
            let id = state.next;
            state.next += 1;
            state.open.insert(id, client.clone());
            id
        };
        self.serve(id, &client, turn, Vec::new());
        true
    }

    /// Makes room for one more client of a user, by disconnecting an idle one if need be. Returns whether
    /// there is room.
    fn make_room(&self, user: u32) -> bool {
        let mut state = lock(&self.state);
        let known = state.open.iter().map(|(id, client)| {
            // The machine's objects would end if it did not reconnect in time.
            let loses_nothing = || !client.connection.has_owners();
            let idle_since = client.turns.idle_since().filter(|_| loses_nothing());
            (*id, Client { user: client.user, idle_since })
        });
        match admit(&known.collect(), user) {
            Admission::Room => true,
            Admission::None => false,
            Admission::InPlaceOf(id) => {
                if let Some(client) = state.open.remove(&id) {
                    tracing::info!(user = client.user, "idle connection closed to make room for another");
                    // The error means that the client has hung up already.
                    let _ = client.stream.shutdown(std::net::Shutdown::Both);
                }
                true
            }
        }
    }

    /// Starts a thread that serves a client. If it cannot be started, disconnects the client.
    fn serve(self: &Arc<Self>, id: u64, client: &Connected, turn: Turn, received: Vec<u8>) {
        lock(&self.state).serving += 1;
        let (own, served) = (Arc::clone(self), client.clone());
        let talk = move || {
            let end = serve(&served.stream, &served.connection, &served.turns, turn, &received);
            if let Err(error) = &end {
                tracing::debug!("connection ended: {error}");
            }
            if !matches!(end, Ok(ConversationEnd::LeftBehind)) {
                own.end(id, &served);
            }
            drop(served);
            lock(&own.state).serving -= 1;
            own.ended.notify_all();
        };
        if let Err(error) = threads::spawn(format!("device-{id}"), talk) {
            tracing::warn!("start a thread for a connection: {error}");
            self.end(id, client);
            lock(&self.state).serving -= 1;
        }
    }

    /// Removes a client whose thread has ended.
    fn end(&self, id: u64, client: &Connected) {
        // The client's own objects are freed before the client is removed from the table.
        client.connection.hang_up();
        // The error means that the socket is shut down already.
        let _ = client.stream.shutdown(std::net::Shutdown::Both);
        lock(&self.state).open.remove(&id);
    }
}

/// Peeks at the next bytes from a client, up to the number that identifies the owner of a call. Returns none
/// if none have been received.
fn peek(stream: &UnixStream) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    let came = recv(stream, &mut bytes[..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    // A client that has hung up is handled elsewhere.
    bytes.truncate(came.map_or(0, |(_, came)| came));
    bytes
}
