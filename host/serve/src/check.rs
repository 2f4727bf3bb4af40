//! The command `check`: examines whether this host can give its GPU to a virtual machine.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use vgpu_executor_cuda::cublas_files;
use vgpu_findings::style::{Style, When};
use vgpu_host_check::{Root, Subject, answer, list};

use crate::ask;
use crate::control::ControlPath;
use crate::executor::{ExecutorKind, ExecutorOptions};
use crate::settings::Settings;
use crate::values::{Bus, Limit};

/// Names under which cuBLAS is looked for, the newest version first.
const CUBLAS: [&str; 2] = ["libcublas.so.13", "libcublas.so.12"];
/// Hidden command in which this program calls NVIDIA's libraries, because such a process may crash or hang.
pub const ASK: &str = "__ask";

/// Options of the command `check`.
#[derive(Debug, clap::Args)]
pub struct CheckArguments {
    /// Configuration file of `serve`; options given here take precedence.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// QEMU that VMs are started with, by path or name.
    #[arg(long, value_name = "PROGRAM", default_value = "qemu-system-x86_64")]
    qemu: PathBuf,
    /// Management library of the driver (NVML), by path or name.
    #[arg(long, value_name = "LIBRARY", default_value = "libnvidia-ml.so.1")]
    libnvidia_ml: PathBuf,
    /// Maximum time that one of NVIDIA's libraries may take to answer.
    #[arg(long, value_name = "TIME", default_value = "30s")]
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
    let file = arguments.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
    let subject = arguments.subject(&arguments.settings.clone().or(file))?;
    let report = vgpu_host_check::check(&subject, env!("CARGO_PKG_VERSION"))?;
    let text = if arguments.json {
        report.json() + "\n"
    } else {
        report.human(Style::of_stdout(arguments.color), arguments.verbose)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::from(report.exit(arguments.strict)))
}

impl CheckArguments {
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
            library_limit: self.library_limit.0,
            asker: ["/proc/self/exe", ASK].map(PathBuf::from).to_vec(),
            root: Root::new(&self.root),
        })
    }
}
