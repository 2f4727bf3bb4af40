//! The control socket of a running `serve`: where it is, what it answers, and who asks.
//!
//! One line of JSON goes in, `{"cmd":"status"}`, and one comes out: an [`Instance`].

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vgpu_device::{ControlSocket, DeviceStatus};

use crate::lifetime::Status;
use crate::values::Bus;

/// Name of the socket in an instance's directory.
const SOCKET: &str = "control";
/// Name of the directory of all instances in the directories for what runs.
const FOLDER: &str = "vgpu-device";
/// How long an instance may take to answer.
const ANSWER_MOST: Duration = Duration::from_secs(5);
/// Bytes of the longest answer that is read: 64 channels take a hundredth of it.
const ANSWER_BYTES: u64 = 16 << 20;

/// What is asked.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Request {
    cmd: Command,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Command {
    Status,
}

/// A running `serve`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Instance {
    /// Its name.
    pub(crate) name: String,
    /// The bus, as it was given.
    pub(crate) bus: String,
    /// Process id.
    pub(crate) process: u32,
    /// Version of the program.
    pub(crate) version: String,
    /// For how long it has served, in seconds.
    pub(crate) seconds: u64,
    /// Its devices; empty for the bus `v1`.
    #[serde(default)]
    pub(crate) devices: Vec<DeviceStatus>,
    /// What the owners of the bus `v1` have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mediator: Option<Value>,
}

/// Where an instance has its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Name of the instance.
    pub(crate) name: String,
    /// Path of the socket.
    pub(crate) socket: PathBuf,
}

impl Place {
    /// The place of an instance. `given`: a path that was asked for. Else it is in the directory that systemd
    /// made for the service, or in one for what runs: `/run` for root, `XDG_RUNTIME_DIR` for others. Where
    /// there is none, it is beside the bus.
    pub(crate) fn of(bus: &Bus, given: Option<&Path>) -> Self {
        let variable =
            |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let stem = bus
            .path()
            .file_stem()
            .map_or_else(|| "device".to_owned(), |stem| stem.to_string_lossy().into_owned());
        if let Some(socket) = given {
            return Self { name: stem, socket: socket.to_owned() };
        }
        if let Some(folder) = variable("RUNTIME_DIRECTORY") {
            let name = folder.file_name().map_or(stem, |name| name.to_string_lossy().into_owned());
            return Self { name, socket: folder.join(SOCKET) };
        }
        let socket = match folders().into_iter().next() {
            Some(folder) => folder.join(&stem).join(SOCKET),
            None => bus.path().with_extension(SOCKET),
        };
        Self { name: stem, socket }
    }

    /// Starts to answer. The directory is made where it is one of [`folders`].
    pub(crate) fn serve(&self, bus: &Bus, status: Status) -> Result<ControlSocket> {
        if let Some(folder) = self.socket.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            vgpu_paths::Dir::make(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        let start = Instant::now();
        let (name, bus) = (self.name.clone(), bus.clone());
        let answer = move |line: &str| match serde_json::from_str(line) {
            Ok(Request { cmd: Command::Status }) => {
                let instance = instance(&name, &bus, start.elapsed(), &status());
                serde_json::to_value(instance).unwrap_or_else(|error| json!({ "error": error.to_string() }))
            }
            Err(error) => json!({ "error": format!("no such command: {error}") }),
        };
        Ok(ControlSocket::start(&self.socket, Arc::new(answer))?)
    }
}

fn instance(name: &str, bus: &Bus, uptime: Duration, status: &Value) -> Instance {
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
        // They were made of the same type a moment ago.
        devices: devices.into_iter().filter_map(|device| serde_json::from_value(device).ok()).collect(),
        mediator,
    }
}

/// The directories in which instances are looked for, and the first of which a new one uses.
fn folders() -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()).map(PathBuf::from);
    let system = Some(PathBuf::from("/run"));
    let order = if rustix::process::geteuid().is_root() { [system, user] } else { [user, system] };
    let usable = |folder: &PathBuf| rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok();
    order.into_iter().flatten().filter(usable).map(|folder| folder.join(FOLDER)).collect()
}

/// The instances whose sockets are in the usual places, by name.
pub(crate) fn places() -> Vec<Place> {
    let all = [Some(PathBuf::from("/run")), std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)];
    let mut places = Vec::new();
    for folder in all.into_iter().flatten().map(|folder| folder.join(FOLDER)) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let socket = entry.path().join(SOCKET);
            if socket.exists() {
                places.push(Place { name: entry.file_name().to_string_lossy().into_owned(), socket });
            }
        }
    }
    places.sort_by(|one, other| one.name.cmp(&other.name));
    places
}

/// Asks the instance whose socket is at `socket`.
pub(crate) fn ask(socket: &Path) -> Result<Instance> {
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("connect to {}", socket.display()))?;
    stream.set_read_timeout(Some(ANSWER_MOST))?;
    stream.set_write_timeout(Some(ANSWER_MOST))?;
    writeln!(stream, "{}", serde_json::to_string(&Request { cmd: Command::Status })?)?;
    let mut line = String::new();
    BufReader::new(stream)
        .take(ANSWER_BYTES)
        .read_line(&mut line)
        .with_context(|| format!("read the answer of {}", socket.display()))?;
    let answer: Value = serde_json::from_str(&line).context("understand the answer")?;
    if let Some(error) = answer["error"].as_str() {
        bail!("{} answers: {error}", socket.display());
    }
    serde_json::from_value(answer).context("understand the answer")
}
