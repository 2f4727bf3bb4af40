//! A single discovery: start a program that loads the backend, read the devices that it found, and compare
//! them with those that are served.

use std::fmt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use vgpu_serve::Facts;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::bed::Bed;
use vgpu_testbed::programs;

/// Shims that must be mapped in every process.
const SHIMS: [&str; 8] = [
    "libcuda.so.1",
    "libcudart.so.12",
    "libcudart.so.13",
    "libcublas.so.12",
    "libcublas.so.13",
    "libcublasLt.so.12",
    "libcublasLt.so.13",
    "libnvidia-ml.so.1",
];

/// Position of the program in the process tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The launcher executes the program itself.
    Direct,
    /// The launcher starts a parent whose child calls close_range(3, ~0) before it executes the program.
    Grandchild,
    /// Like `Direct`, but with NVIDIA's own libcudart and libcublas in the backend's directory.
    BesideNvidia,
}

impl Position {
    /// All positions, in the order in which they are tried.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Grandchild, Self::BesideNvidia];

    const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Grandchild => "grandchild",
            Self::BesideNvidia => "beside-nvidia",
        }
    }
}

/// A device with the properties that GGML reports.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Device {
    name: Option<String>,
    cc: Option<String>,
    total_mib: u64,
    pci_id: Option<String>,
    uuid: String,
}

/// Output of the stand-in that loads the backend.
#[derive(Deserialize)]
struct LoaderOutput {
    devices: Vec<Device>,
    ms: f64,
    maps: Vec<String>,
}

/// Result of one discovery.
#[derive(Serialize)]
pub struct Discovery {
    backend: &'static str,
    position: &'static str,
    devices: Vec<Device>,
    ms: Option<f64>,
    /// Descriptions of mismatches; empty on success.
    wrong: Vec<String>,
}

impl Discovery {
    /// Returns whether the discovery found no mismatch.
    pub fn ok(&self) -> bool {
        self.wrong.is_empty()
    }
}

impl fmt::Display for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:", self.backend, self.position)?;
        for device in &self.devices {
            let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
            write!(
                f,
                " {} cc {} {} MiB {} GPU-{}",
                or(&device.name),
                or(&device.cc),
                device.total_mib,
                or(&device.pci_id),
                device.uuid
            )?;
        }
        if let Some(ms) = self.ms {
            write!(f, " in {ms:.2} ms")?;
        }
        for wrong in &self.wrong {
            write!(f, "\n  WRONG: {wrong}")?;
        }
        Ok(())
    }
}

/// Returns the command that runs the program under the launcher. Its working directory is the root, because
/// the empty entry of the backend's RUNPATH means the working directory.
fn command(bed: &Bed, position: Position, backend: &std::path::Path) -> Result<Command> {
    let standin = programs::standin()?;
    let mut command = Command::new(programs::launcher()?);
    command.arg("--");
    if position == Position::Grandchild {
        command.arg(&standin).arg("close-all");
    }
    command.arg(&standin).arg("ggml").arg(backend);
    command.env("VGPU_SYSFS", bed.sysfs()).env_remove("CUDA_VISIBLE_DEVICES").current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Starts `processes` programs at once and compares what each saw with `expected`.
pub fn discover_in(
    bed: &Bed,
    backend: Backend,
    position: Position,
    expected: &[Facts],
    processes: usize,
) -> Result<Vec<Discovery>> {
    let beside = if position == Position::BesideNvidia { Some(backend.beside_nvidia()?) } else { None };
    let folder = match &beside {
        Some(folder) => folder.path().to_owned(),
        None => backend.folder()?,
    };
    let path = folder.join("libggml-cuda.so");
    let children = (0..processes)
        .map(|_| command(bed, position, &path)?.spawn().context("start the launcher"))
        .collect::<Result<Vec<Child>>>()?;
    let wanted: Vec<_> = expected.iter().map(expect).collect();
    children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output()?;
            let mut run = Discovery {
                backend: backend.name(),
                position: position.name(),
                devices: Vec::new(),
                ms: None,
                wrong: Vec::new(),
            };
            if !output.status.success() {
                let errors = String::from_utf8_lossy(&output.stderr);
                run.wrong.push(format!("{}: {}", output.status, errors.trim()));
                return Ok(run);
            }
            let seen: LoaderOutput =
                serde_json::from_slice(&output.stdout).context("read what the program printed")?;
            if !output.stderr.is_empty() {
                run.wrong.push(format!("stderr: {}", String::from_utf8_lossy(&output.stderr).trim()));
            }
            if seen.devices != wanted {
                run.wrong.push(format!("expected {wanted:?}"));
            }
            run.wrong.extend(check_maps(&seen.maps));
            run.devices = seen.devices;
            run.ms = Some(seen.ms);
            Ok(run)
        })
        .collect()
}

/// Returns the device that GGML must report for these facts.
fn expect(facts: &Facts) -> Device {
    Device {
        name: Some(facts.name.clone()),
        cc: Some(facts.cc.clone()),
        total_mib: facts.memory_mib,
        pci_id: Some(facts.address.clone()),
        uuid: facts.uuid.clone(),
    }
}

/// Checks that every shim is mapped from memory and none of NVIDIA's libraries from a file, and returns the
/// mismatches.
fn check_maps(maps: &[String]) -> Vec<String> {
    let (ours, theirs): (Vec<_>, Vec<_>) = maps.iter().partition(|path| path.starts_with("/memfd:"));
    let missing =
        SHIMS.iter().filter(|shim| !ours.iter().any(|path| **path == format!("/memfd:{shim} (deleted)")));
    missing
        .map(|shim| format!("{shim} is not mapped"))
        .chain(theirs.iter().map(|path| format!("{path} is mapped")))
        .collect()
}

/// Runs a discovery while the device process is gone: the launcher must refuse, and a program started without
/// it must find nothing.
pub fn look_at_nothing(bed: &Bed, backend: Backend) -> Result<Discovery> {
    let path = backend.folder()?.join("libggml-cuda.so");
    let output = command(bed, Position::Direct, &path)?.output().context("start the launcher")?;
    let mut run = Discovery {
        backend: backend.name(),
        position: "device stopped",
        devices: Vec::new(),
        ms: None,
        wrong: Vec::new(),
    };
    if output.status.code() != Some(125) {
        run.wrong.push(format!("the launcher ended with {} instead of exit code 125", output.status));
    }
    if output.stderr.is_empty() {
        run.wrong.push("the launcher did not say why".to_owned());
    }
    Ok(run)
}
