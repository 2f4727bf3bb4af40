//! The command `check`: examines whether this host can give its GPU to a virtual machine.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use vgpu_device::parse_uuid;
use vgpu_executor_cuda::cublas_files;
use vgpu_findings::style::{Style, When};
use vgpu_host_check::{HostReport, Room, Root, Subject, answer, list};
use vgpu_share::GpuUuid;

use crate::ask;
use crate::config::ConfigFiles;
use crate::control::ControlPath;
use crate::executor::{ExecutorKind, ExecutorOptions};
use crate::room::refusal;
use crate::settings::Settings;
use crate::values::{Bus, Limit};

/// Names under which cuBLAS is looked for, the newest version first.
const CUBLAS: [&str; 2] = ["libcublas.so.13", "libcublas.so.12"];
/// QEMU that VMs are started with by default.
const QEMU: &str = "qemu-system-x86_64";
/// Management library of the driver by default.
const NVML: &str = "libnvidia-ml.so.1";
/// Maximum time that a library may take to answer by default.
const ANSWER_MOST: Limit = Limit(Duration::from_secs(30));
/// Hidden command in which this program calls NVIDIA's libraries, because such a process may crash or hang.
pub const ASK: &str = "__ask";

/// Options of the command `check`.
#[derive(Debug, clap::Args)]
pub struct CheckArguments {
    #[command(flatten)]
    config: ConfigFiles,
    #[command(flatten)]
    settings: Settings,
    /// QEMU that VMs are started with, by path or name.
    #[arg(long, value_name = "PROGRAM", default_value = QEMU)]
    qemu: PathBuf,
    /// Management library of the driver (NVML), by path or name.
    #[arg(long, value_name = "LIBRARY", default_value = NVML)]
    libnvidia_ml: PathBuf,
    /// Maximum time that one of NVIDIA's libraries may take to answer.
    #[arg(long, value_name = "TIME", default_value_t = ANSWER_MOST)]
    library_limit: Limit,
    /// Print the links of the chain, with --verbose also the causes of each.
    #[arg(long)]
    list: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Show evidence also for links that hold.
    #[arg(long, short)]
    verbose: bool,
    /// Treat warnings as failures.
    #[arg(long)]
    strict: bool,
    /// Whether output is coloured.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    color: When,
    /// Directory that is used in place of /, from which /proc and /sys are read, for tests.
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

/// Options of the hidden command [`ASK`].
#[derive(Debug, clap::Args)]
pub struct Question {
    question: String,
}

/// Answers one question, in the process that was started for it.
pub fn ask(question: &Question) -> ExitCode {
    answer(&question.question)
}

/// Examines the host and prints the report. Returns exit code 0 if it works, 1 if it is broken.
pub fn check_host(arguments: &CheckArguments) -> Result<ExitCode> {
    if arguments.list {
        std::io::stdout().write_all(list(arguments.verbose).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = arguments.settings.clone().or(arguments.config.read()?);
    let report = arguments.host().report(&settings)?;
    let text = if arguments.json {
        report.json() + "\n"
    } else {
        report.human(Style::of_stdout(arguments.color), arguments.verbose)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::from(report.exit(arguments.strict)))
}

impl CheckArguments {
    fn host(&self) -> Host {
        Host {
            qemu: self.qemu.clone(),
            libnvidia_ml: self.libnvidia_ml.clone(),
            library_limit: self.library_limit.0,
            root: self.root.clone(),
        }
    }
}

/// The host that is examined, apart from a VM's settings.
#[derive(Debug)]
pub(crate) struct Host {
    qemu: PathBuf,
    libnvidia_ml: PathBuf,
    library_limit: Duration,
    root: PathBuf,
}

impl Host {
    /// Returns this host, with the QEMU of a VM.
    pub(crate) fn with_qemu(qemu: Option<PathBuf>) -> Self {
        Self {
            qemu: qemu.unwrap_or_else(|| QEMU.into()),
            libnvidia_ml: NVML.into(),
            library_limit: ANSWER_MOST.0,
            root: "/".into(),
        }
    }

    /// Examines the host for a VM with these settings.
    pub(crate) fn report(&self, settings: &Settings) -> Result<HostReport> {
        Ok(vgpu_host_check::check(&self.subject(settings)?, env!("CARGO_PKG_VERSION"))?)
    }

    /// Returns what became of the VM when the device's process died, if this host's device says that it did.
    fn restart(&self, settings: &Settings) -> Option<String> {
        let bus = settings.bus.as_ref().filter(|_| self.root == Path::new("/"))?;
        let control = ControlPath::for_bus(bus, settings.control.as_deref());
        // Without a device, or one that answers, there is nothing to say.
        let instance = ask::status(&control.socket).ok()?;
        Some(instance.restart?.sentence(instance.seconds))
    }

    fn subject(&self, settings: &Settings) -> Result<Subject> {
        let socket = match &settings.bus {
            Some(Bus::VfioUser(path)) => Some(std::path::absolute(path)?),
            _ => None,
        };
        let usual = ExecutorOptions::default();
        Ok(Subject {
            cuda: settings.executor() == ExecutorKind::Cuda,
            gpu: settings.gpu.map(|gpu| gpu.0),
            memory: settings.memory.unwrap_or(usual.memory).0,
            has_qemu: socket.is_some() || settings.bus.is_none(),
            room: room(settings),
            socket,
            restart: self.restart(settings),
            group: settings.group.map(|group| group.0),
            qemu: self.qemu.clone(),
            libcuda: settings.libcuda.clone().unwrap_or_else(|| "libcuda.so.1".into()),
            libnvidia_ml: self.libnvidia_ml.clone(),
            libcublas: match &settings.libcublas {
                Some(library) => vec![library.clone()],
                // First as the loader finds it, and then where the executor searches it as well.
                None => CUBLAS
                    .iter()
                    .flat_map(|name| [name.into()].into_iter().chain(cublas_files(name)))
                    .collect(),
            },
            library_limit: self.library_limit,
            asker: ["/proc/self/exe", ASK].map(PathBuf::from).to_vec(),
            root: Root::new(&self.root),
        })
    }
}

/// Returns what knows the promises of this host's devices.
fn room(settings: &Settings) -> Room {
    let settings = settings.clone();
    // Without a bus the name is none that a device can have.
    let name = settings
        .bus
        .as_ref()
        .map_or_else(String::new, |bus| ControlPath::for_bus(bus, settings.control.as_deref()).name);
    Room::new(move |uuid, bytes| {
        let bytes_of = |text: &str| parse_uuid(text.strip_prefix("MIG-").unwrap_or(text));
        let Some(gpu) = bytes_of(uuid) else { return Err(format!("{uuid} is no UUID")) };
        refusal(&name, &settings, GpuUuid(gpu), bytes).map_err(|error| error.to_string())
    })
}
