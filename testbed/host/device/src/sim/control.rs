//! The control socket: a JSON object a line, a JSON line in answer. For tests and operators.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, SocketType, shutdown};
use serde::Deserialize;

use super::crew::Crew;

use super::device::SimDevice;
use super::error::SimError;
use crate::status::BusStatus;
use crate::sync::lock;
use crate::unix_socket::listen_at;

/// A line that a client sends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    cmd: Command,
}

/// What can be asked.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Command {
    /// What is allocated.
    Status,
    /// Sessions stop carrying out messages.
    Hold,
    /// Sessions go on.
    Release,
    /// The server should end.
    Exit,
}

/// Asks a bus to go: what a signal handler's thread holds.
#[derive(Clone, Debug, Default)]
pub struct ExitHandle(Arc<Exit>);

#[derive(Debug, Default)]
struct Exit {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl ExitHandle {
    /// As the control socket's `exit` does: [`super::SimBus::wait_for_exit`] returns.
    pub fn request(&self) {
        *lock(&self.0.asked) = true;
        self.0.changed.notify_all();
    }
}

/// What the socket's threads share with their owner.
#[derive(Debug)]
struct Shared {
    exit: ExitHandle,
    /// Connections, to be shut when the socket stops. None once stopped.
    open: Mutex<Option<HashMap<u64, UnixStream>>>,
    threads: Crew,
}

/// The control socket of a bus.
#[derive(Debug)]
pub(super) struct Control {
    path: PathBuf,
    listener: Arc<UnixListener>,
    shared: Arc<Shared>,
}

/// What is allocated on all devices.
pub(super) fn status(devices: &[SimDevice]) -> BusStatus {
    BusStatus { devices: devices.iter().map(SimDevice::status).collect() }
}

impl Control {
    /// Binds `path` and answers until stopped.
    pub(super) fn start(path: &Path, devices: &Arc<[SimDevice]>) -> Result<Self, SimError> {
        let failed = |error| SimError::file("listen at", path, error);
        if let Err(error) = std::fs::remove_file(path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(SimError::file("remove", path, error));
        }
        let listener = Arc::new(UnixListener::from(listen_at(path, SocketType::STREAM).map_err(failed)?));
        let shared = Arc::new(Shared {
            exit: ExitHandle::default(),
            open: Mutex::new(Some(HashMap::new())),
            threads: Crew::default(),
        });
        let accepting = (Arc::clone(&listener), Arc::clone(&shared), Arc::clone(devices));
        shared
            .threads
            .spawn("control", move || accept_all(&accepting.0, &accepting.1, &accepting.2))
            .map_err(failed)?;
        Ok(Self { path: path.to_owned(), listener, shared })
    }

    /// Waits until somebody sent `exit`, or for `limit`.
    pub(super) fn wait_for_exit(&self, limit: Option<Duration>) -> bool {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let Exit { asked, changed } = &*self.shared.exit.0;
        let mut exit = lock(asked);
        while !*exit {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            exit = match left {
                Some(Duration::ZERO) => return false,
                Some(left) => match changed.wait_timeout(exit, left) {
                    Ok((guard, _)) => guard,
                    Err(poisoned) => poisoned.into_inner().0,
                },
                None => changed.wait(exit).unwrap_or_else(std::sync::PoisonError::into_inner),
            };
        }
        true
    }

    /// What asks the owner to go.
    pub(super) fn exit_handle(&self) -> ExitHandle {
        self.shared.exit.clone()
    }

    /// Stops answering and removes the socket. A question that is being answered is not waited for.
    pub(super) fn stop(&self) {
        let Some(open) = lock(&self.shared.open).take() else { return };
        // Errors mean that the socket is down or gone already.
        let _ = shutdown(&*self.listener, Shutdown::Both);
        for connection in open.values() {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        let _ = std::fs::remove_file(&self.path);
    }

    /// Waits until no thread of the stopped socket is left, but not beyond `deadline`; whether none is.
    pub(super) fn wait(&self, deadline: Instant) -> bool {
        self.shared.threads.wait(deadline)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept_all(listener: &UnixListener, shared: &Arc<Shared>, devices: &Arc<[SimDevice]>) {
    for id in 0.. {
        let Ok((connection, _)) = listener.accept() else { break };
        let Ok(kept) = connection.try_clone() else { continue };
        match lock(&shared.open).as_mut() {
            Some(open) => drop(open.insert(id, kept)),
            None => break,
        }
        let (own, devices) = (Arc::clone(shared), Arc::clone(devices));
        let spawned = shared.threads.spawn("control", move || {
            // The connection's end is the client's affair.
            let _ = answer_all(&connection, &own, &devices);
            if let Some(open) = lock(&own.open).as_mut() {
                open.remove(&id);
            }
        });
        if let Err(error) = spawned {
            tracing::warn!("failed to start a thread for a question: {error}");
            if let Some(open) = lock(&shared.open).as_mut() {
                open.remove(&id);
            }
        }
    }
}

fn answer_all(connection: &UnixStream, shared: &Shared, devices: &[SimDevice]) -> std::io::Result<()> {
    for line in BufReader::new(connection).lines() {
        let answer = answer(&line?, shared, devices);
        let mut connection = connection;
        connection.write_all(format!("{answer}\n").as_bytes())?;
    }
    Ok(())
}

fn answer(line: &str, shared: &Shared, devices: &[SimDevice]) -> serde_json::Value {
    let ok = serde_json::json!({ "ok": true });
    match serde_json::from_str(line).map(|request: Request| request.cmd) {
        Ok(Command::Status) => serde_json::to_value(status(devices))
            .unwrap_or_else(|error| serde_json::json!({ "error": error.to_string() })),
        Ok(Command::Hold) => {
            for device in devices {
                device.hold();
            }
            ok
        }
        Ok(Command::Release) => {
            for device in devices {
                device.release();
            }
            ok
        }
        Ok(Command::Exit) => {
            shared.exit.request();
            ok
        }
        Err(error) => serde_json::json!({ "error": format!("no such command: {error}") }),
    }
}
