//! Reads the state of a device once: its own figures, and the processes that use its channels.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vgpu_transport::{Device, Holder, PciFunction, holders};
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::share::VmShare;

use crate::device::DeviceError;
use crate::device::judge::refused;

/// Maximum length in characters that is kept of a process's command line.
const COMMAND: usize = 512;

/// An open device that is read repeatedly.
pub struct Opened {
    function: PciFunction,
    device: Device,
    facts: Box<DeviceFacts>,
    root: PathBuf,
}

/// One reading of a device.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Time at which the usage was read.
    pub at: Instant,
    /// PCI address of the function.
    pub address: String,
    /// Static facts that the device announces.
    pub facts: Box<DeviceFacts>,
    /// Free device memory in bytes.
    pub free: u64,
    /// Sessions of this guest's processes.
    pub sessions: Vec<Session>,
    /// This guest's share of the GPU's time. `None` if the host does not report one.
    pub share: Option<VmShare>,
}

/// A session of a process of this guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Index of the session's channel.
    pub channel: u32,
    /// Id of the session's process. `None` if neither the kernel nor the host reports it.
    pub process: Option<u32>,
    /// Command line of the process. `None` if the process has ended or is in another namespace.
    pub command: Option<String>,
    /// Device memory of the session in bytes. `None` if the host does not report it.
    pub memory: Option<u64>,
    /// GPU time of the session so far. `None` if the host does not report it.
    pub busy: Option<Duration>,
}

impl Opened {
    /// Opens a function without taking a channel.
    pub fn new(function: PciFunction, root: &Path) -> Result<Self, DeviceError> {
        let wrong = |error| refused(&function, root, error);
        let device = Device::identify(&function, Some(vgpu_transport_v1::open)).map_err(wrong)?;
        let facts = device.facts().map_err(wrong)?;
        Ok(Self { device, facts, root: root.to_owned(), function })
    }

    /// Reads the device's current usage and the processes of its sessions.
    pub fn read(&self) -> Result<Reading, DeviceError> {
        let usage = self.device.usage().map_err(|error| refused(&self.function, &self.root, error))?;
        let at = Instant::now();
        // A device of version 1 has no such file; there the host's word is all there is.
        let holders = holders(&self.function.dir).unwrap_or_else(|error| {
            tracing::debug!(function = %self.function.address, %error, "who holds channels is not known");
            Vec::new()
        });
        let sessions = usage.sessions.iter().map(|session| {
            let holder = holders.iter().find(|holder| holder.channel == session.channel);
            let told = session.told.map(|told| told.process).filter(|&process| process != 0);
            let process = holder.map(|&Holder { process, .. }| process).or(told);
            Session {
                channel: session.channel,
                process,
                // A process reports its id in its own namespace, which may differ from this one.
                command: holder.and_then(|holder| command(Path::new("/proc"), holder.process)),
                memory: session.told.map(|told| told.memory),
                busy: session.told.map(|told| told.busy),
            }
        });
        Ok(Reading {
            at,
            address: self.function.address.to_string(),
            facts: self.facts.clone(),
            free: usage.free,
            sessions: sessions.collect(),
            share: usage.share,
        })
    }
}

/// Returns the command line of a process, with the program's name instead of its path. Without a command
/// line, returns the name of the process.
fn command(proc: &Path, process: u32) -> Option<String> {
    let folder = proc.join(process.to_string());
    let line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let Some(program) = words.next() else {
        let name = std::fs::read(folder.join("comm")).ok()?;
        return Some(String::from_utf8_lossy(&name).trim().to_owned()).filter(|name| !name.is_empty());
    };
    let program = program.rsplit(|byte| *byte == b'/').next().unwrap_or(program);
    let words = std::iter::once(program).chain(words).map(String::from_utf8_lossy);
    Some(words.collect::<Vec<_>>().join(" ").chars().take(COMMAND).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn processes_have_their_command_lines() {
        let scratch = Scratch::new();
        let folder = scratch.join("7");
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(command(scratch.path(), 7), None);
        std::fs::write(folder.join("comm"), "ollama\n").unwrap();
        assert_eq!(command(scratch.path(), 7).as_deref(), Some("ollama"));
        std::fs::write(folder.join("cmdline"), "/usr/bin/ollama\0runner\0--port\x005\0").unwrap();
        assert_eq!(command(scratch.path(), 7).as_deref(), Some("ollama runner --port 5"));
        std::fs::write(folder.join("cmdline"), "x".repeat(COMMAND + 9)).unwrap();
        assert_eq!(command(scratch.path(), 7).unwrap().len(), COMMAND);
        assert_eq!(command(scratch.path(), 8), None);
    }
}
