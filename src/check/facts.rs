//! What links find out for later links and for the report: records without behaviour.

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
    /// The PCI function that was opened.
    pub function: PciFunction,
    /// The steps that it reported.
    pub steps: Steps,
    /// Description of the worker's end, if it was unsuccessful.
    pub trouble: Option<String>,
}

/// A program that may be an Ollama.
#[derive(Debug)]
pub struct TargetProgram {
    /// The program, or why there is none.
    pub program: Result<Program, Unfound>,
    /// The Ollama that it is. None: it is another program.
    pub ollama: Option<Ollama>,
}

/// Facts of a device that could be opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceReport {
    /// PCI address of the function.
    pub address: String,
    /// Name of the GPU.
    pub name: String,
    /// The driver's version, as NVML reports it.
    pub driver: String,
    /// The driver's version, as `cuDriverGetVersion` returns it: 12040 is CUDA 12.4.
    pub cuda: u32,
    /// Compute capability: major and minor number.
    pub capability: (u32, u32),
    /// Device memory in bytes.
    pub total: u64,
    /// Free device memory in bytes.
    pub free: u64,
    /// The UUID, as CUDA prints it: `GPU-…`.
    pub uuid: String,
}

/// The file that a process loads for a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResolvedLibrary {
    /// SONAME that was asked for.
    pub soname: String,
    /// The file that is loaded. None: there is no such file.
    pub winner: Option<String>,
    /// Other files with that name.
    pub losers: Vec<Loser>,
}

/// A file that is not loaded for a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loser {
    /// Path of the file.
    pub path: String,
    /// Reason for which the loader does not take it.
    pub why: String,
}

/// A backend that was examined.
#[derive(Clone, Debug)]
pub struct ExaminedBackend {
    /// Directory that holds the backend.
    pub variant: Variant,
    /// The CUDA major that it is linked with.
    pub major: Option<u32>,
    /// The architectures that it has code for, as far as they could be read.
    pub architectures: Option<Architectures>,
    /// The finding if the backend cannot work. None: it can be tried.
    pub fault: Option<Box<Finding>>,
    /// The first of its libraries that asks for NVIDIA's private export tables. It may or may not work
    /// without them.
    pub asker: Option<Asker>,
    /// Evidence for the report.
    pub details: Vec<String>,
}

/// The server that answers at the address that OLLAMA_HOST names, as far as it could be seen.
#[derive(Clone, Debug)]
pub struct RunningServer {
    /// Id of its process.
    pub pid: u32,
    /// Ids of the processes that it started.
    pub children: Vec<u32>,
    /// Address at which the server is asked.
    pub address: SocketAddr,
    /// Whether vgpu-run started it. None: its environment may not be seen.
    pub wrapped: Option<bool>,
    /// Devices that its log lists since its last start. None: the log is unknown or no longer goes back that
    /// far.
    pub found: Option<Vec<FoundDevice>>,
    /// The models that it has loaded. None: it does not say.
    pub models: Option<Vec<LoadedModel>>,
    /// The sessions that its processes have, of the devices whose sessions could be examined.
    pub sessions: Vec<HeldSession>,
}

/// A session of a device that a process has, or had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSession {
    /// Id of the process.
    pub process: u32,
    /// PCI address of the device's function.
    pub function: PciAddress,
    /// Whether the device still has it. False: the device was restarted since, and the process does not know.
    pub alive: bool,
}

impl RunningServer {
    /// Whether the process is the server, or one that it started.
    pub fn has(&self, process: u32) -> bool {
        self.pid == process || self.children.contains(&process)
    }

    /// Whether it says that it uses the GPU: it found CUDA when it started, or has a model there now.
    pub fn says_cuda(&self) -> bool {
        let found = self.found.as_ref().is_some_and(|found| found.iter().any(FoundDevice::is_cuda));
        found || self.models.as_ref().is_some_and(|models| models.iter().any(|model| model.on_gpu > 0))
    }

    /// Whether it is known to work: vgpu-run started it, it answers, says that it uses the GPU, and none of its
    /// processes has a session that the device has not.
    pub fn works(&self) -> bool {
        self.wrapped == Some(true)
            && self.models.is_some()
            && self.says_cuda()
            && self.sessions.iter().all(|session| session.alive)
    }

    /// Whether one of its processes has a session that stands.
    pub fn has_session(&self) -> bool {
        self.sessions.iter().any(|session| session.alive)
    }
}
