//! What links find out for later links and for the report: records without behaviour.

use serde::Serialize;
use vgpu_transport::PciFunction;

use super::steps::Steps;
use crate::diagnosis::Cause;
use crate::ollama::Ollama;
use crate::ollama::fatbin::Architectures;
use crate::ollama::variant::Variant;
use crate::program::private::Asker;
use crate::program::{Program, Unfound};

/// What a worker found that opened a function.
#[derive(Clone, Debug)]
pub struct Looked {
    /// The PCI function that was opened.
    pub function: PciFunction,
    /// The steps that it reported.
    pub steps: Steps,
    /// How it ended, if it did not end well.
    pub trouble: Option<String>,
}

/// A program that may be an Ollama.
#[derive(Debug)]
pub struct Target {
    /// The program, or why there is none.
    pub program: Result<Program, Unfound>,
    /// The Ollama that it is. None: it is another program.
    pub ollama: Option<Ollama>,
}

/// What is known of the device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceReport {
    /// The function's address.
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
pub struct Library {
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
    /// Why it is not loaded.
    pub why: String,
}

/// A backend that was examined.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The folder that it is in.
    pub variant: Variant,
    /// The CUDA major that it is linked with.
    pub major: Option<u32>,
    /// The architectures that it has code for, as far as they could be read.
    pub architectures: Option<Architectures>,
    /// Why it cannot work. None: it can be tried.
    pub fault: Option<Fault>,
    /// The first of its libraries that asks for NVIDIA's private export tables. It may or may not work
    /// without them.
    pub asker: Option<Asker>,
    /// Evidence for the report.
    pub details: Vec<String>,
}

/// Why a backend cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which of the catalogue's causes it is.
    pub cause: Cause,
    /// The sentence that tells it.
    pub words: String,
    /// What mends it.
    pub fix: &'static str,
}

impl Fault {
    /// A fault with its sentence and what mends it.
    pub fn new(cause: Cause, words: impl Into<String>, fix: &'static str) -> Self {
        Self { cause, words: words.into(), fix }
    }
}
