//! A scene: a real system with an installed Ollama, a device and a service. [`make`] builds it as planned and
//! runs `vgpu-run check` in it.

pub mod install;
mod make;
pub mod process;
mod service;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use vgpu_testbed::bed::Bed;
use vgpu_testbed::programs;

use process::Process;

use super::settings::Era;

/// Returns a port of this machine at which nobody listens.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("find a port")?;
    Ok(listener.local_addr().context("find a port")?.port())
}

/// The built scene of a fault: directories, processes and device.
pub struct Scene {
    /// Processes other than the device, which end before the directories are removed.
    pub processes: Vec<Process>,
    /// Bus with the device.
    bed: Option<Bed>,
    /// Device processes whose functions are linked into that bus.
    others: Vec<Bed>,
    empty_bus: Option<TempDir>,
    folder: TempDir,
    era: Era,
    port: u16,
    running: Option<Process>,
    /// Connections of other programs, which close with the scene.
    pub connections: Vec<UnixStream>,
    /// Shell commands that undo changes which prevent the removal of directories.
    pub undo: Vec<String>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        for line in std::mem::take(&mut self.undo) {
            // Commands that fail are left to the next start of the machine.
            let _ = Command::new("sh").arg("-c").arg(line).status();
        }
    }
}

impl Scene {
    /// Returns a path in the scene's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path of Ollama's program.
    pub fn ollama(&self) -> PathBuf {
        self.path("usr/bin/ollama")
    }

    /// Returns a path in Ollama's library directory.
    pub fn library(&self, name: &str) -> PathBuf {
        self.path("usr/lib/ollama").join(name)
    }

    /// Returns the directory that imitates sysfs.
    pub fn bus(&self) -> &Path {
        match (&self.bed, &self.empty_bus) {
            (Some(bed), _) => bed.sysfs(),
            (None, Some(bus)) => bus.path(),
            (None, None) => self.folder.path(),
        }
    }

    /// Returns the path of a sysfs file of the first function.
    pub fn function(&self, name: &str) -> PathBuf {
        self.bus().join("bus/pci/devices/0000:00:05.0").join(name)
    }

    /// Returns the bus with its device process, or an error if the scene has none.
    pub fn bed(&mut self) -> Result<&mut Bed> {
        self.bed.as_mut().context("there is no device")
    }

    /// Adds the functions of another device process to the bus.
    pub fn add_bed(&mut self, other: Bed) -> Result<()> {
        fs::set_permissions(other.sysfs(), fs::Permissions::from_mode(0o755))?;
        self.bed()?.show(&other)?;
        self.others.push(other);
        Ok(())
    }

    /// Starts another guest process that holds a session, and waits for its line `ready`.
    pub fn hold_session(&mut self, state: &str) -> Result<()> {
        let mut command = Command::new(programs::launcher()?);
        command.arg("--").arg(programs::standin()?).args(["state", state]).env("VGPU_SYSFS", self.bus());
        self.start_until(&mut command, "ready").context("give another process its session")
    }

    /// Starts another process and checks that its first line starts with `word`.
    pub fn start_until(&mut self, command: &mut Command, word: &str) -> Result<()> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command)?;
        let line = process.first_line()?;
        self.processes.push(process);
        if !line.starts_with(word) {
            bail!("{} said {line:?}, not {word}", command.get_program().display());
        }
        Ok(())
    }
}
