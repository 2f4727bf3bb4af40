//! What the bus's control socket answers: a JSON object a line, a JSON line in answer. For tests and
//! operators.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::device::SimDevice;
use super::error::SimError;
use crate::control::ControlSocket;
use crate::profile::BusProfile;
use crate::status::BusStatus;
use crate::sync::lock;

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
    /// Where the time of the sessions' work went.
    Profile,
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

/// The control socket of a bus.
#[derive(Debug)]
pub(super) struct Control {
    exit: ExitHandle,
    socket: ControlSocket,
}

/// What is allocated on all devices.
pub(super) fn status(devices: &[SimDevice]) -> BusStatus {
    BusStatus { devices: devices.iter().map(|device| device.served().status()).collect() }
}

impl Control {
    /// Binds `path` and answers until stopped.
    pub(super) fn start(path: &Path, devices: &Arc<[SimDevice]>) -> Result<Self, SimError> {
        let exit = ExitHandle::default();
        let (own, devices) = (exit.clone(), Arc::clone(devices));
        let socket = ControlSocket::start(path, Arc::new(move |line| answer(line, &own, &devices)))?;
        Ok(Self { exit, socket })
    }

    /// Waits until somebody sent `exit`, or for `limit`.
    pub(super) fn wait_for_exit(&self, limit: Option<Duration>) -> bool {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let Exit { asked, changed } = &*self.exit.0;
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
        self.exit.clone()
    }

    /// Stops answering and removes the socket. A question that is being answered is not waited for.
    pub(super) fn stop(&self) {
        self.socket.stop();
    }

    /// Waits until no thread of the stopped socket is left, but not beyond `deadline`; whether none is.
    pub(super) fn wait(&self, deadline: Instant) -> bool {
        self.socket.wait(deadline)
    }
}

fn answer(line: &str, exit: &ExitHandle, devices: &[SimDevice]) -> Value {
    let ok = json!({ "ok": true });
    match serde_json::from_str(line).map(|request: Request| request.cmd) {
        Ok(Command::Status) => serde_json::to_value(status(devices))
            .unwrap_or_else(|error| json!({ "error": error.to_string() })),
        Ok(Command::Profile) => {
            let sessions = devices.iter().flat_map(|device| device.served().profiles()).collect();
            serde_json::to_value(BusProfile { sessions })
                .unwrap_or_else(|error| json!({ "error": error.to_string() }))
        }
        Ok(Command::Hold) => {
            for device in devices {
                device.served().hold();
            }
            ok
        }
        Ok(Command::Release) => {
            for device in devices {
                device.served().release();
            }
            ok
        }
        Ok(Command::Exit) => {
            exit.request();
            ok
        }
        Err(error) => json!({ "error": format!("no such command: {error}") }),
    }
}
