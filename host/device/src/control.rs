//! A control socket that answers each line with a line of JSON. It serves operators and tests, who are the
//! same user as the process.
//!
//! Nobody waits for a client: each has a thread, and a client that reads no answer or sends nothing is
//! disconnected. The number of clients is limited.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use serde_json::{Value, json};

use crate::sync::lock;
use crate::thread_group::ThreadGroup;
use crate::unix_socket::{ListenError, listen_for};

/// Maximum number of clients at a time. One more gets an error and is disconnected.
const CLIENTS_MOST: usize = 32;
/// Length in bytes of the longest line that is read.
const LINE_MOST: u64 = 4096;
/// Time that a client has to read an answer.
const WRITE_MOST: Duration = Duration::from_secs(5);
/// Pause before the next `accept` when the process is out of descriptors.
const PAUSE: Duration = Duration::from_millis(20);
/// Time after which a silent client is disconnected.
const SILENCE_MOST: Duration = Duration::from_mins(10);

/// Answers one line of a client. Threads call it concurrently.
pub type LineHandler = Arc<dyn Fn(&str) -> Value + Send + Sync>;

/// State that the threads share with the socket.
#[derive(Debug)]
struct SocketState {
    /// Open connections, which are shut down when the socket stops. `None` once it has stopped.
    open: Mutex<Option<HashMap<u64, UnixStream>>>,
    threads: ThreadGroup,
}

/// A control socket. It is removed when this is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    listener: Arc<UnixListener>,
    shared: Arc<SocketState>,
}

impl ControlSocket {
    /// Listens at `path`, for processes of this user alone, and calls `answer` for each line until stopped. A
    /// socket that a dead process left there is removed.
    ///
    /// # Errors
    /// The errors are those of [`listen_for`].
    pub fn start(path: &Path, answer: LineHandler) -> Result<Self, ListenError> {
        Self::continued(path, listen_for(path, None)?, answer)
    }

    /// Serves a socket that another process has bound to `path`, as [`ControlSocket::start`] serves its own.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn continued(path: &Path, listener: OwnedFd, answer: LineHandler) -> Result<Self, ListenError> {
        let listener = Arc::new(UnixListener::from(listener));
        let shared =
            Arc::new(SocketState { open: Mutex::new(Some(HashMap::new())), threads: ThreadGroup::default() });
        let (accepting, own) = (Arc::clone(&listener), Arc::clone(&shared));
        let failed = |source| ListenError::File { what: "start a thread for", path: path.to_owned(), source };
        shared.threads.spawn("control", move || own.accept_all(&accepting, &answer)).map_err(failed)?;
        Ok(Self { path: path.to_owned(), listener, shared })
    }

    /// Returns the listening socket, which a process that replaces this one passes to
    /// [`ControlSocket::continued`].
    #[must_use]
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Stops answering and removes the socket. Does not wait for a request that is being answered.
    pub fn stop(&self) {
        let Some(open) = lock(&self.shared.open).take() else { return };
        // Errors mean that the socket is down or gone already.
        let _ = shutdown(&*self.listener, Shutdown::Both);
        for connection in open.values() {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        let _ = std::fs::remove_file(&self.path);
    }

    /// Waits until all threads of the stopped socket have ended, but not beyond `deadline`. Returns whether
    /// they have.
    #[must_use]
    pub fn wait(&self, deadline: Instant) -> bool {
        self.shared.threads.wait(deadline)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.stop();
    }
}

impl SocketState {
    fn accept_all(self: &Arc<Self>, listener: &UnixListener, answer: &LineHandler) {
        for id in 0.. {
            let connection = match listener.accept() {
                Ok((connection, _)) => connection,
                // The listener is shut down.
                Err(_) if lock(&self.open).is_none() => break,
                Err(error) => {
                    tracing::warn!("accept a client of the control socket: {error}");
                    // Other parts of the process hold descriptors too, and nothing signals when some are free
                    // again.
                    thread::sleep(PAUSE);
                    continue;
                }
            };
            let Ok(kept) = connection.try_clone() else { continue };
            match lock(&self.open).as_mut() {
                Some(open) if open.len() >= CLIENTS_MOST => {
                    // A client that does not read this has room for it in its socket. Otherwise it learns of
                    // it by the end of the connection.
                    let _ = connection.set_nonblocking(true);
                    let _ = say(&connection, &json!({ "error": "too many clients are connected" }));
                    continue;
                }
                Some(open) => drop(open.insert(id, kept)),
                None => break,
            }
            let (own, answer) = (Arc::clone(self), Arc::clone(answer));
            let spawned = self.threads.spawn("control", move || {
                // The reason for the connection's end does not matter here.
                let _ = answer_all(&connection, &answer);
                own.forget(id);
            });
            if let Err(error) = spawned {
                tracing::warn!("failed to start a thread for a client of the control socket: {error}");
                self.forget(id);
            }
        }
    }

    fn forget(&self, id: u64) {
        if let Some(open) = lock(&self.open).as_mut() {
            open.remove(&id);
        }
    }
}

fn answer_all(connection: &UnixStream, answer: &LineHandler) -> std::io::Result<()> {
    connection.set_write_timeout(Some(WRITE_MOST))?;
    connection.set_read_timeout(Some(SILENCE_MOST))?;
    let mut lines = BufReader::new(connection);
    let mut line = String::new();
    loop {
        line.clear();
        let bytes = (&mut lines).take(LINE_MOST).read_line(&mut line)?;
        if bytes == 0 {
            return Ok(());
        }
        if bytes as u64 == LINE_MOST && !line.ends_with('\n') {
            return say(connection, &json!({ "error": format!("a line has more than {LINE_MOST} bytes") }));
        }
        say(connection, &answer(line.trim_end_matches(['\r', '\n'])))?;
    }
}

fn say(mut connection: &UnixStream, answer: &Value) -> std::io::Result<()> {
    connection.write_all(format!("{answer}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> (tempfile::TempDir, ControlSocket) {
        let folder = tempfile::tempdir().unwrap();
        let echo: LineHandler = Arc::new(|line| json!({ "line": line }));
        let socket = ControlSocket::start(&folder.path().join("control"), echo).unwrap();
        (folder, socket)
    }

    fn ask(stream: &UnixStream, line: &str) -> String {
        writeln!(&mut &*stream, "{line}").unwrap();
        read(stream)
    }

    fn read(stream: &UnixStream) -> String {
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer
    }

    #[test]
    fn lines_are_answered_and_long_ones_are_not() {
        let (_folder, socket) = socket();
        let stream = UnixStream::connect(&socket.path).unwrap();
        assert_eq!(ask(&stream, "a"), "{\"line\":\"a\"}\n");
        assert_eq!(ask(&stream, ""), "{\"line\":\"\"}\n");
        let long = "x".repeat(LINE_MOST as usize - 1);
        assert!(ask(&stream, &long).starts_with("{\"line\":\"xx"));
        // As many bytes as are read: nothing is left unread, which would reset the connection.
        (&stream).write_all("x".repeat(LINE_MOST as usize).as_bytes()).unwrap();
        assert!(read(&stream).contains("more than"));
        assert_eq!(read(&stream), "", "the end");
    }

    #[test]
    fn one_client_too_many_is_told_so_and_the_others_go_on() {
        let (_folder, socket) = socket();
        let connect = || UnixStream::connect(&socket.path).unwrap();
        let clients: Vec<_> = (0..CLIENTS_MOST).map(|_| connect()).collect();
        // Once each is answered, each is counted.
        assert!(clients.iter().all(|client| ask(client, "a").contains('a')));
        let late = connect();
        assert!(read(&late).contains("too many"));
        assert!(ask(&clients[0], "b").contains('b'));
        socket.stop();
        assert_eq!(read(&clients[0]), "", "the end");
        drop(clients);
        assert!(socket.wait(Instant::now() + Duration::from_mins(1)));
        assert!(!socket.path.exists());
    }
}
