//! Facts that links gather for later links and for the report, as plain records.

use std::net::SocketAddr;

use serde::Serialize;
use vgpu_transport::{PciAddress, PciFunction};

use super::steps::Steps;
use crate::diagnosis::Finding;
use crate::ollama::Ollama;
use crate::ollama::fatbin::Architectures;
use crate::ollama::log::FoundDevice;
use crate::ollama::models::LoadedModel;
use crate::ollama::variant::Variant;
use crate::program::private::Asker;
use crate::program::{Program, Unfound};

/// Report of a worker that opened a function.
#[derive(Clone, Debug)]
pub struct OpenedFunction {
    /// PCI function that was opened.
    pub function: PciFunction,
    /// Steps that the worker reported.
    pub steps: Steps,
    /// Description of the worker's end, if it was unsuccessful.
    pub trouble: Option<String>,
}

/// The program that is to get the GPU, which may be an Ollama.
#[derive(Debug)]
pub struct TargetProgram {
    /// The program, or the reason why it was not found.
    pub program: Result<Program, Unfound>,
    /// Properties of the Ollama. `None` if the program is not an Ollama.
    pub ollama: Option<Ollama>,
}

/// Facts of a device that could be opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceReport {
    /// PCI address of the function.
    pub address: String,
    /// Name of the GPU.
    pub name: String,
    /// Driver version, as NVML reports it.
    pub driver: String,
    /// Driver version, as `cuDriverGetVersion` returns it: 12040 is CUDA 12.4.
    pub cuda: u32,
    /// Compute capability: major and minor number.
    pub capability: (u32, u32),
    /// Device memory in bytes.
    pub total: u64,
    /// Free device memory in bytes.
    pub free: u64,
    /// UUID of the GPU, as CUDA prints it: `GPU-…`.
    pub uuid: String,
}

/// Result of looking a library name up as the loader does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResolvedLibrary {
    /// SONAME that was looked up.
    pub soname: String,
    /// Path of the file that the loader selects. `None` if there is no such file.
    pub winner: Option<String>,
    /// Other files with that name, which the loader does not select.
    pub losers: Vec<Loser>,
}

/// A file that the loader does not select for a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loser {
    /// Path of the file.
    pub path: String,
    /// Reason why the loader does not select it.
    pub why: String,
}

/// Result of examining a backend.
#[derive(Clone, Debug)]
pub struct ExaminedBackend {
    /// Backend directory that was examined.
    pub variant: Variant,
    /// CUDA major version that the backend is linked with, if it is known.
    pub major: Option<u32>,
    /// Architectures that the backend has code for. `None` if they could not be read.
    pub architectures: Option<Architectures>,
    /// Finding if the backend cannot work. `None` if the backend can be tried.
    pub fault: Option<Box<Finding>>,
    /// First of the backend's libraries that requests NVIDIA's private export tables. The backend may still
    /// work without them.
    pub asker: Option<Asker>,
    /// Lines of evidence for the report.
    pub details: Vec<String>,
}

/// Facts about the server at the address in OLLAMA_HOST, as far as they are visible.
#[derive(Clone, Debug)]
pub struct RunningServer {
    /// Process id of the server.
    pub pid: u32,
    /// Ids of the processes that the server started.
    pub children: Vec<u32>,
    /// Address at which the server answers.
    pub address: SocketAddr,
    /// Whether vgpu-run started the server. `None` if its environment cannot be read.
    pub wrapped: Option<bool>,
    /// Devices that the server's log lists since its last start. `None` if the log is not available or no
    /// longer contains that start.
    pub found: Option<Vec<FoundDevice>>,
    /// Models that the server has loaded. `None` if it does not report them.
    pub models: Option<Vec<LoadedModel>>,
    /// Sessions of the server's processes on the devices whose sessions could be examined.
    pub sessions: Vec<HeldSession>,
}

/// A session that a process has on a device, or had before the device was restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSession {
    /// Id of the process that holds the session.
    pub process: u32,
    /// PCI address of the device's function.
    pub function: PciAddress,
    /// Whether the session still exists on the device. It is false if the device was restarted since, which
    /// the process does not know.
    pub alive: bool,
}

impl RunningServer {
    /// Returns whether the process is the server or one that it started.
    pub fn has(&self, process: u32) -> bool {
        self.pid == process || self.children.contains(&process)
    }

    /// Returns whether the server reports that it uses the GPU: it found CUDA when it started, or has a model
    /// on the GPU now.
    pub fn says_cuda(&self) -> bool {
        let found = self.found.as_ref().is_some_and(|found| found.iter().any(FoundDevice::is_cuda));
        found || self.models.as_ref().is_some_and(|models| models.iter().any(|model| model.on_gpu > 0))
    }

    /// Returns whether the server is known to work: vgpu-run started it, it answers, it reports that it uses
    /// the GPU, and all of its sessions still exist on the device.
    pub fn works(&self) -> bool {
        self.wrapped == Some(true)
            && self.models.is_some()
            && self.says_cuda()
            && self.sessions.iter().all(|session| session.alive)
    }

    /// Returns whether one of the server's processes has a session that still exists.
    pub fn has_session(&self) -> bool {
        self.sessions.iter().any(|session| session.alive)
    }
}
