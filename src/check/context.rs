//! What the links know of each other: the options, and the facts that earlier links gathered for later ones.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use vgpu_transport::{PciFunction, sysfs_root};

use crate::cli::{CheckOptions, Options};
use crate::env::Environment;
use crate::inject::Injection;
use crate::ollama::Ollama;
use crate::program::Program;

/// The state of a walk.
#[derive(Debug)]
pub struct Context {
    /// What holds for all commands: `--user`, `--via`.
    pub launch: Options,
    /// What was asked for.
    pub options: CheckOptions,
    /// What PROGRAM gets: what was inherited (with `--service`, what the unit sets), and once the libraries are in place
    /// what names them. Children that stand for PROGRAM are started with exactly this.
    pub environment: Environment,
    /// Stands for `/sys`.
    pub root: PathBuf,
    /// When all must be over.
    pub deadline: Instant,
    /// Something could not be looked at for lack of time or because of a failure of check itself: what.
    pub incomplete: Vec<String>,

    /// Link `pci`: the functions that are there.
    pub functions: Vec<PciFunction>,
    /// Link `device` and those after it: what is known of the first usable function.
    pub device: Option<DeviceReport>,
    /// The program that is to get the GPU, once it was looked for: see [`Context::target`].
    pub target: Option<Target>,
    /// Link `shims`: the libraries, in place for children of this process as long as this is kept.
    pub injection: Option<Injection>,
    /// Link `loader`: which file won for each name.
    pub libraries: Vec<Library>,
    /// Versions of everything that has one, by name.
    pub versions: BTreeMap<&'static str, String>,
}

/// A program that may be an Ollama.
#[derive(Debug)]
pub struct Target {
    /// The program; or why there is none.
    pub program: Result<Program, crate::program::Unfound>,
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

impl Context {
    /// The state at the beginning.
    pub fn new(launch: Options, options: CheckOptions) -> Self {
        let deadline = Instant::now() + options.timeout;
        Self {
            launch,
            options,
            environment: Environment::inherited(),
            root: sysfs_root(),
            deadline,
            incomplete: Vec::new(),
            functions: Vec::new(),
            device: None,
            target: None,
            injection: None,
            libraries: Vec::new(),
            versions: BTreeMap::from([("vgpu-run", env!("CARGO_PKG_VERSION").to_owned())]),
        }
    }

    /// How much time there is for something that would like to have `wanted`.
    pub fn time(&self, wanted: Duration) -> Duration {
        wanted.min(self.deadline.saturating_duration_since(Instant::now()))
    }

    /// The program that is to get the GPU, looked for once: `--ollama`, else `ollama` on PATH.
    pub fn target(&mut self) -> &Target {
        let target = match self.target.take() {
            Some(target) => target,
            None => self.find_target(),
        };
        self.target.insert(target)
    }

    fn find_target(&self) -> Target {
        let name = self.options.ollama.clone().unwrap_or_else(|| "ollama".into());
        let program = Program::find(name.as_os_str(), self.environment.get(crate::env::PATH));
        let ollama = program.as_ref().ok().and_then(crate::ollama::recognise);
        Target { program, ollama }
    }
}
