//! The control socket of a running `serve`: its path and its answers.
//!
//! A request is one line of JSON. `{"cmd":"status"}` is answered by one line, an [`Instance`], and
//! `{"cmd":"end","session":NUMBER}` by an [`EndReply`]. `{"cmd":"reload"}` is answered only if there is no reload:
//! otherwise the connection ends, and the next one is the new program's.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vgpu_device::{ControlSocket, DeviceStatus, LineHandler, ListenError};

use crate::lifetime::{ReloadReport, Served};
use crate::takeover::Past;
use crate::values::Bus;

/// Name of the control socket in an instance's directory.
const SOCKET: &str = "control";
/// Name of the bus's file in an instance's directory.
const DEVICE: &str = "device";
/// Name of the directory of all instances, below `/run` or `XDG_RUNTIME_DIR`.
const FOLDER: &str = "vgpu-device";
/// Names of the directories beside those of instances, which no instance can have: systemd removes an
/// instance's directory with it.
pub(crate) const NOT_NAMES: [&str; 3] = ["gpus", "address-ranges", LIBVIRT];
/// Name of the directory with the files of libvirt's hook.
pub(crate) const LIBVIRT: &str = "libvirt";
/// Time for which the answer to `end` waits for the session's end. A worker in the middle of a call of the
/// driver is killed after 5 s.
pub(crate) const ENDING_MOST: Duration = Duration::from_secs(7);

/// A request to the control socket.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(tag = "cmd", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Request {
    /// Asks for the state.
    Status,
    /// Ends a session.
    End { session: u32 },
    /// Executes the program that is installed now. Only a refusal is answered.
    Reload,
}

/// Answer to the request to end a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EndReply {
    /// The session has ended, and holds nothing.
    Ended,
    /// The session was told to end, but its executor is in the middle of work.
    Ending,
    /// There is no such session.
    Absent,
}

/// State of a running `serve`, the answer to a `status` request.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Instance {
    /// Name of the instance, by which `status` finds it.
    pub(crate) name: String,
    /// Bus of the instance, in the form of the option `--bus`.
    pub(crate) bus: String,
    /// Process id of the program that serves.
    pub(crate) process: u32,
    /// Version of the program that serves.
    pub(crate) version: String,
    /// Time since the instance started to serve, in seconds.
    pub(crate) seconds: u64,
    /// Number of times that the device was reloaded, and the last of them.
    #[serde(default)]
    pub(crate) reloads: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reload: Option<ReloadReport>,
    /// Whether a VM is connected, or `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) connected: Option<bool>,
    /// What became of the VM when the process before this one died, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) restart: Option<Restart>,
    /// State of each device; empty for the bus `v1`.
    #[serde(default)]
    pub(crate) devices: Vec<DeviceStatus>,
    /// State of the owners of the bus `v1`, or `None` for other buses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mediator: Option<Value>,
}

/// What became of the VM when the process before this one died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Restart {
    /// Whether the VM has kept its device. Its programs have lost their sessions.
    pub(crate) kept: bool,
    /// Number of deaths that the VM's connection has outlived.
    pub(crate) crashes: u32,
}

impl Restart {
    fn of(past: &Past, connected: Option<bool>) -> Option<Self> {
        match past {
            Past::Kept(record) if connected == Some(true) => Some(record.image().crashes)
                .filter(|crashes| *crashes > 0)
                .map(|crashes| Self { kept: true, crashes }),
            Past::Lost if connected == Some(false) => Some(Self { kept: false, crashes: 0 }),
            _ => None,
        }
    }

    /// Returns what happened and what is to be done, for people. The process started `seconds` ago.
    pub(crate) fn sentence(self, seconds: u64) -> String {
        let ago = span(seconds);
        match self {
            Self { kept: true, crashes } => format!(
                "restarted after a crash {ago} ago ({crashes} since the VM connected): the VM was kept, and \
                 nothing need be restarted"
            ),
            Self { kept: false, .. } => format!(
                "restarted after a crash {ago} ago: the VM has lost its GPU until `vgpu-device replug`, or its \
                 restart"
            ),
        }
    }
}

/// Formats a duration for people: `45 s`, `3 min`, `2 h 5 min`, `4 d 2 h`.
pub(crate) fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {} min", minutes % 60),
        (days, hours, _) => format!("{days} d {} h", hours % 24),
    }
}

/// Reason for which an instance has no control socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    /// The directory cannot be created.
    #[error("make the directory {path} of the control socket")]
    Directory {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// Another process listens at the socket.
    #[error(
        "serve a device by the name `{name}`: another process has its control socket at {socket}; \
         give this one another, such as --control {other}"
    )]
    Taken {
        /// Name of the instance.
        name: String,
        /// Path of the control socket.
        socket: PathBuf,
        /// Path of another socket that the instance could use, judged by its name.
        other: PathBuf,
    },
    /// The socket cannot be created.
    #[error("make the control socket")]
    Listen(#[source] ListenError),
}

/// Name and control socket of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlPath {
    /// Name of the instance.
    pub(crate) name: String,
    /// Path of the control socket.
    pub(crate) socket: PathBuf,
}

impl ControlPath {
    /// Returns the control socket of an instance that serves `bus`. `given` takes precedence. Otherwise the
    /// socket is in the directory that systemd made for the service (`RUNTIME_DIRECTORY`), or in the first of
    /// [`folders`], or beside the bus if none can be written to.
    pub(crate) fn for_bus(bus: &Bus, given: Option<&Path>) -> Self {
        let variable = std::env::var_os("RUNTIME_DIRECTORY").filter(|value| !value.is_empty());
        let own = given.map(Path::to_owned).or_else(|| Some(PathBuf::from(variable?).join(SOCKET)));
        let Some(socket) = own else {
            let name = name_of(bus);
            let socket = match folders().into_iter().next() {
                Some(folder) => folder.join(&name).join(SOCKET),
                None => bus.path().with_extension(SOCKET),
            };
            return Self { name, socket };
        };
        let name = name_in(&socket).unwrap_or_else(|| name_of(bus));
        Self { name, socket }
    }

    /// Returns an instance by its socket. The name is empty if the socket does not tell it.
    pub(crate) fn at(socket: &Path) -> Self {
        Self { name: name_in(socket).unwrap_or_default(), socket: socket.to_owned() }
    }

    /// Refuses a name whose directory all devices share.
    pub(crate) fn check_name(&self) -> Result<()> {
        let Self { name, socket } = self;
        if NOT_NAMES.contains(&name.as_str()) {
            bail!(
                "a device cannot have the name `{name}`: --control {} gives it another",
                other(socket).display()
            );
        }
        Ok(())
    }

    /// Starts to answer requests, and makes the socket's directory if there is none.
    /// `continued` is the socket of the program before this one, and `start` the device's start.
    pub(crate) fn serve(
        &self,
        bus: &Bus,
        served: Served,
        continued: Option<OwnedFd>,
        start: Instant,
    ) -> Result<ControlSocket, ControlError> {
        if let Some(folder) = self.socket.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let failed = |source| ControlError::Directory { path: folder.to_owned(), source };
            vgpu_paths::Dir::make(folder).map_err(failed)?;
        }
        let (name, bus) = (self.name.clone(), bus.clone());
        let answer = move |line: &str| match serde_json::from_str(line) {
            Ok(Request::Status) => {
                let connected = served.figures.as_ref().map(|read| read().connected);
                let mut instance = instance(&name, &bus, start.elapsed(), connected, &(served.status)());
                (instance.reloads, instance.reload) = (served.reloaded.reloads, served.reloaded.last.clone());
                // Who connected later was not there then.
                instance.restart = Restart::of(&served.past, connected);
                serde_json::to_value(instance).unwrap_or_else(|error| json!({ "error": error.to_string() }))
            }
            Ok(Request::End { session }) => {
                let ended = (served.end_session)(session, Instant::now() + ENDING_MOST);
                json!(ended.map_or(EndReply::Absent, |ended| if ended {
                    EndReply::Ended
                } else {
                    EndReply::Ending
                }))
            }
            Ok(Request::Reload) => json!({ "error": (served.reload)() }),
            Err(error) => json!({ "error": format!("no such command: {error}") }),
        };
        let answer: LineHandler = Arc::new(answer);
        let socket = match continued {
            Some(listener) => ControlSocket::continued(&self.socket, listener, answer),
            None => ControlSocket::start(&self.socket, answer),
        };
        socket.map_err(|error| match error {
            ListenError::Served { path } => {
                ControlError::Taken { name: self.name.clone(), other: other(&path), socket: path }
            }
            error => ControlError::Listen(error),
        })
    }
}

/// Returns the control socket of an instance: `given`, or that of its name in one of the usual directories.
pub(crate) fn socket_of(name: &str, given: Option<&Path>) -> Result<PathBuf> {
    let found = || places().into_iter().find(|place| place.name == name).map(|place| place.socket);
    let Some(socket) = given.map(Path::to_owned).or_else(found) else {
        bail!("no device of the name {name} is served that this user may ask; vgpu-device status lists them");
    };
    Ok(socket)
}

/// Returns the name by which [`places`] finds a socket: that of its directory.
fn name_in(socket: &Path) -> Option<String> {
    let name = socket.parent().and_then(Path::file_name).filter(|_| socket.ends_with(SOCKET));
    name.map(|name| name.to_string_lossy().into_owned())
}

/// Returns the name of an instance that serves `bus`: the name of the bus's file without its last extension.
/// A file called `device`, as in the directories of the systemd unit, does not identify the VM, so the name
/// of its directory is used.
fn name_of(bus: &Bus) -> String {
    let path = std::path::absolute(bus.path()).unwrap_or_else(|_| bus.path().clone());
    let stem = path.file_stem().filter(|stem| *stem != DEVICE);
    let name = stem.or_else(|| path.parent()?.file_name());
    name.map_or_else(|| DEVICE.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Proposes a control socket for another instance than the one at `socket`: in a directory of another name,
/// if the name is the directory's.
fn other(socket: &Path) -> PathBuf {
    let folder = socket.parent().and_then(Path::parent).filter(|_| socket.ends_with(SOCKET));
    match folder {
        Some(folder) => folder.join("NAME").join(SOCKET),
        None => socket.with_file_name("NAME.control"),
    }
}

fn instance(name: &str, bus: &Bus, uptime: Duration, connected: Option<bool>, status: &Value) -> Instance {
    let (devices, mediator) = match bus {
        Bus::VfioUser(_) => (vec![status.clone()], None),
        Bus::Sim(_) => (status["devices"].as_array().cloned().unwrap_or_default(), None),
        Bus::V1(_) => (Vec::new(), Some(status.clone())),
    };
    Instance {
        name: name.to_owned(),
        bus: bus.to_string(),
        process: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seconds: uptime.as_secs(),
        reloads: 0,
        reload: None,
        connected,
        restart: None,
        // These values were serialized from `DeviceStatus` just now, so none is lost.
        devices: devices.into_iter().filter_map(|device| serde_json::from_value(device).ok()).collect(),
        mediator,
    }
}

/// Returns the directories for instances that this user can write to, the preferred one first: below `/run`
/// for root, below `XDG_RUNTIME_DIR` for others.
fn folders() -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()).map(PathBuf::from);
    let system = Some(PathBuf::from("/run"));
    let order = if rustix::process::geteuid().is_root() { [system, user] } else { [user, system] };
    let usable = |folder: &PathBuf| rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok();
    order.into_iter().flatten().filter(usable).map(|folder| folder.join(FOLDER)).collect()
}

/// Returns the instances with a control socket in one of the usual directories, ordered by name.
pub(crate) fn places() -> Vec<ControlPath> {
    let all = [Some(PathBuf::from("/run")), std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)];
    let mut places = Vec::new();
    for folder in all.into_iter().flatten().map(|folder| folder.join(FOLDER)) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let socket = entry.path().join(SOCKET);
            if socket.exists() {
                places.push(ControlPath { name: entry.file_name().to_string_lossy().into_owned(), socket });
            }
        }
    }
    places.sort_by(|one, other| one.name.cmp(&other.name));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(bus: &str) -> String {
        name_of(&bus.parse().unwrap())
    }

    #[test]
    fn documented_sockets_have_names_of_their_own() {
        // Started by hand as in the guide, and as in the unit's configuration file.
        assert_eq!(name("vfio-user:/run/vgpu/vm1.sock"), "vm1");
        assert_eq!(name("vfio-user:/run/vgpu-device/vm1/device"), "vm1");
        assert_eq!(name("vfio-user:/run/vgpu-device/vm2/device"), "vm2");
        assert_eq!(name("vfio-user:/srv/vm.3/device.sock"), "vm.3");
        assert_eq!(name("sim:/dev/shm/vgpu"), "vgpu");
        assert_eq!(name("vfio-user:/device"), "device", "there is no other");
        let here = std::env::current_dir().unwrap();
        let here = here.file_name().unwrap().to_str().unwrap();
        assert_eq!(name("vfio-user:device"), here);
    }

    #[test]
    fn a_given_socket_has_the_name_that_status_finds_it_by() {
        let bus: Bus = "vfio-user:/run/vgpu/vm1.sock".parse().unwrap();
        let place = |socket: &str| ControlPath::for_bus(&bus, Some(Path::new(socket)));
        assert_eq!(place("/run/vgpu-device/other/control").name, "other");
        assert_eq!(place("/tmp/vm1.control").name, "vm1", "it is in none of the usual places");
        assert_eq!(place("control").name, "vm1");
        assert_eq!(place("/tmp/a").socket, Path::new("/tmp/a"));
    }
}
