//! The answers of the bus's control socket: each line is a JSON object, answered by a line of JSON. It serves
//! tests and operators.

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

/// Line that a client sends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BusRequest {
    cmd: BusCommand,
}

/// Command that a client sends to the bus.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BusCommand {
    /// Reports the state of all devices.
    Status,
    /// Reports the profiles of all sessions.
    Profile,
    /// Holds all sessions, which then carry out no messages.
    Hold,
    /// Lets held sessions carry out messages again.
    Release,
    /// Asks the server to end.
    Exit,
}

/// Asks a bus to end. A signal handler's thread holds one.
#[derive(Clone, Debug, Default)]
pub struct ExitHandle(Arc<ExitState>);

#[derive(Debug, Default)]
struct ExitState {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl ExitHandle {
    /// Makes [`super::SimBus::wait_for_exit`] return, as the command `exit` of the control socket does.
    pub fn request(&self) {
        *lock(&self.0.asked) = true;
        self.0.changed.notify_all();
    }
}

/// The control socket of a bus.
#[derive(Debug)]
pub(super) struct BusControl {
    exit: ExitHandle,
    socket: ControlSocket,
}

/// Returns the state of all devices.
pub(super) fn status(devices: &[SimDevice]) -> BusStatus {
    BusStatus { devices: devices.iter().map(|device| device.served().status()).collect() }
}

impl BusControl {
    /// Listens at `path` and answers until stopped.
    pub(super) fn start(path: &Path, devices: &Arc<[SimDevice]>) -> Result<Self, SimError> {
        let exit = ExitHandle::default();
        let (own, devices) = (exit.clone(), Arc::clone(devices));
        let socket = ControlSocket::start(path, Arc::new(move |line| answer(line, &own, &devices)))?;
        Ok(Self { exit, socket })
    }

    /// Waits until a client sends `exit`, but at most for `limit`. Returns whether one did.
    pub(super) fn wait_for_exit(&self, limit: Option<Duration>) -> bool {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let ExitState { asked, changed } = &*self.exit.0;
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

    /// Returns a handle that asks the bus to end.
    pub(super) fn exit_handle(&self) -> ExitHandle {
        self.exit.clone()
    }

    /// Stops answering and removes the socket. A request that is being answered is not waited for.
    pub(super) fn stop(&self) {
        self.socket.stop();
    }

    /// Waits until all threads of the stopped socket have ended, but not beyond `deadline`. Returns whether
    /// they have.
    pub(super) fn wait(&self, deadline: Instant) -> bool {
        self.socket.wait(deadline)
    }
}

fn answer(line: &str, exit: &ExitHandle, devices: &[SimDevice]) -> Value {
    let ok = json!({ "ok": true });
    match serde_json::from_str(line).map(|request: BusRequest| request.cmd) {
        Ok(BusCommand::Status) => serde_json::to_value(status(devices))
            .unwrap_or_else(|error| json!({ "error": error.to_string() })),
        Ok(BusCommand::Profile) => {
            let sessions = devices.iter().flat_map(|device| device.served().profiles()).collect();
            serde_json::to_value(BusProfile { sessions })
                .unwrap_or_else(|error| json!({ "error": error.to_string() }))
        }
        Ok(BusCommand::Hold) => {
            for device in devices {
                device.served().hold();
            }
            ok
        }
        Ok(BusCommand::Release) => {
            for device in devices {
                device.served().release();
            }
            ok
        }
        Ok(BusCommand::Exit) => {
            exit.request();
            ok
        }
        Err(error) => json!({ "error": format!("no such command: {error}") }),
    }
}
