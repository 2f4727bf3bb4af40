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

/// What a child found that opened a function.
#[derive(Clone, Debug)]
pub struct Looked {
    /// The function.
    pub function: PciFunction,
    /// What it did.
    pub steps: Steps,
    /// How it ended, if not as it should.
    pub trouble: Option<String>,
}

/// A program that may be an Ollama.
#[derive(Debug)]
pub struct Target {
    /// The program; or why there is none.
    pub program: Result<Program, Unfound>,
    /// What Ollama it is, if it is one.
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
    /// `cuDriverGetVersion`.
    pub cuda: u32,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Device memory in bytes.
    pub total: u64,
    /// Of this, free.
    pub free: u64,
    /// As CUDA prints it: `GPU-…`.
    pub uuid: String,
}

/// Which file a process loads for a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Library {
    /// The name.
    pub soname: String,
    /// The file; none if there is none.
    pub winner: Option<String>,
    /// Other files of that name.
    pub losers: Vec<Loser>,
}

/// A file that is not loaded for a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loser {
    /// The file.
    pub path: String,
    /// Why it is not loaded.
    pub why: String,
}

/// A backend that was looked at.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Where it is.
    pub variant: Variant,
    /// The CUDA major that it is linked with.
    pub major: Option<u32>,
    /// What it has code for; none if it could not be told.
    pub architectures: Option<Architectures>,
    /// What is wrong with it; nothing: it can be tried.
    pub fault: Option<Fault>,
    /// The first library of it that asks for NVIDIA's private export tables: it may do without, and may not.
    pub asker: Option<Asker>,
    /// What was seen.
    pub details: Vec<String>,
}

/// Why a backend cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Of the catalogue.
    pub cause: Cause,
    /// In words.
    pub words: String,
    /// What mends it.
    pub fix: &'static str,
}

impl Fault {
    /// A fault with the sentence that tells it and what mends it.
    pub fn new(cause: Cause, words: impl Into<String>, fix: &'static str) -> Self {
        Self { cause, words: words.into(), fix }
    }
}
