//! Queries of a library: what the child process does, and how it is started.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::process::Command;
use vgpu_findings::child::{self, ChildEnd};

use super::answers::{Asked, HostGpu, MigInstance, Said, Trouble};
use super::ffi::{Driver, Library, Nvml, Refused};

/// Question for a library, passed to the child as JSON in its argument.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// Asks whether libcuda starts, and for its version.
    Cuda(PathBuf),
    /// Asks for the host's GPUs through NVML.
    Nvml(PathBuf),
    /// Asks whether a library can be loaded and has a function.
    Loads(PathBuf),
}

/// Name of the function by which a cuBLAS is recognized.
const CUBLAS: &str = "cublasCreate_v2";

/// Starts a child process that answers a question. `program` is this program with the arguments that make it
/// such a child.
///
/// # Errors
/// The child cannot be started.
pub async fn ask(program: &[PathBuf], question: &Question, limit: Duration) -> Result<Asked, String> {
    let [file, words @ ..] = program else { return Err("no program is named that asks".to_owned()) };
    let mut command = Command::new(file);
    command.args(words).arg(serde_json::to_string(question).map_err(|error| error.to_string())?);
    let outcome = child::run_bounded(command, limit)
        .await
        .map_err(|error| format!("start {}: {error}", file.display()))?;
    let hung = matches!(outcome.end, ChildEnd::TimedOut(_));
    let trouble = outcome.trouble().map(|words| Trouble { words, hung });
    Ok(Asked::read(&outcome.stdout, trouble))
}

/// Answers the question in a child's argument.
pub fn answer(question: &str) -> ExitCode {
    let Ok(question) = serde_json::from_str::<Question>(question) else { return ExitCode::from(2) };
    let outcome = match &question {
        Question::Cuda(path) => open(path).and_then(|library| cuda(&Driver(library))),
        Question::Nvml(path) => open(path).and_then(|library| nvml(&Nvml(library))),
        Question::Loads(path) => open(path).and_then(|library| {
            let refused = Said::Refused { function: CUBLAS.to_owned(), code: None };
            if library.has(CUBLAS) { Ok(()) } else { Err(refused) }
        }),
    };
    if let Err(said) = outcome {
        say(&said);
    }
    ExitCode::SUCCESS
}

fn say(said: &Said) {
    // The process that asked has ended, and nobody reads the output any more.
    let _ = writeln!(std::io::stdout(), "{}", serde_json::to_string(said).unwrap_or_default());
}

fn open(path: &Path) -> Result<Library, Said> {
    let library = path.display().to_string();
    match Library::open(path) {
        Ok(opened) => {
            say(&Said::Loaded { library });
            Ok(opened)
        }
        Err(error) => Err(Said::Unloadable { library, error }),
    }
}

impl From<Refused> for Said {
    fn from(refused: Refused) -> Self {
        Self::Refused { function: refused.function.to_owned(), code: refused.code }
    }
}

fn cuda(driver: &Driver) -> Result<(), Said> {
    driver.init()?;
    say(&Said::Cuda { version: driver.version()? });
    Ok(())
}

fn nvml(nvml: &Nvml) -> Result<(), Said> {
    nvml.init()?;
    say(&Said::Driver { version: nvml.driver_version()? });
    for index in 0..nvml.count()? {
        let device = nvml.device(index)?;
        let mut gpu = HostGpu {
            uuid: nvml.uuid(device)?,
            name: nvml.name(device)?,
            pci: nvml.pci(device).ok(),
            memory: nvml.memory(device).ok(),
            compute_mode: nvml.compute_mode(device).ok(),
            persistence: nvml.persistence(device).ok(),
            // A GPU without MIG refuses the query.
            mig: nvml.mig(device).ok(),
            instances: Vec::new(),
        };
        if gpu.mig == Some(true) {
            let places = 0..nvml.instances(device).unwrap_or(0);
            let present = places.filter_map(|place| nvml.instance(device, place).ok());
            let described = present.filter_map(|instance| {
                Some(MigInstance { uuid: nvml.uuid(instance).ok()?, memory: nvml.memory(instance).ok() })
            });
            gpu.instances = described.collect();
        }
        say(&Said::Gpu(Box::new(gpu)));
    }
    Ok(())
}
