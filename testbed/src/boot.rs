//! `vgpu-testbed guest`: boots a virtual machine with a device, runs a command in it, and ends as the command
//! does.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use vgpu_testbed::machine::{Accelerator, GuestMachine, Options};

/// Version of the contract that the device speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Contract {
    /// Version 1: that of existing hosts.
    V1,
    /// Version 2: that of this project's device.
    V2,
}

impl Contract {
    const fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

/// Options of `guest`.
#[derive(clap::Args)]
pub struct GuestArgs {
    /// Emulate the guest's processor: works everywhere, and is the default.
    #[arg(long, conflicts_with = "kvm")]
    tcg: bool,
    /// Use the host's processor.
    #[arg(long)]
    kvm: bool,
    /// Run the command as root.
    #[arg(long, conflicts_with = "user")]
    root: bool,
    /// Run the command as this user, who may open the device; `nobody` may not.
    #[arg(long, default_value = "guest")]
    user: String,
    /// Which version of the contract the device has.
    #[arg(long, value_enum, default_value_t = Contract::V2)]
    device: Contract,
    /// What stands behind the device: soft, null.
    #[arg(long, default_value = "soft")]
    executor: String,
    /// Compute capability of the device.
    #[arg(long, default_value = "6.1")]
    cc: String,
    /// A folder of this host that the guest sees under the same path, read-only. Can be given several times.
    #[arg(long, value_name = "DIR")]
    share: Vec<PathBuf>,
    /// The guest's processors.
    #[arg(long, default_value_t = 1)]
    cpus: u32,
    /// The guest's memory in MiB.
    #[arg(long, default_value_t = 1024)]
    memory: u64,
    /// Pages of 2 MiB that the guest sets aside when it boots: a window of guest memory needs them.
    #[arg(long, default_value_t = 0)]
    huge_pages: u32,
    /// An installed qemu-system-x86_64, 10.1 or later; the pinned one is fetched, if not given.
    #[arg(long)]
    qemu: Option<PathBuf>,
    /// How long the command may take, in seconds.
    #[arg(long)]
    timeout: Option<u64>,
    /// Write what the guest's console showed to this file.
    #[arg(long, value_name = "FILE")]
    console: Option<PathBuf>,
    /// Say how long things took, on stderr.
    #[arg(long, short)]
    verbose: bool,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Boots a guest, runs the command in it and ends with the command's code.
pub fn run_boot(arguments: &GuestArgs) -> Result<ExitCode> {
    let start = Instant::now();
    let usual = Options::default();
    let known = ["root", "nobody"].contains(&arguments.user.as_str());
    let options = Options {
        accelerator: if arguments.kvm { Accelerator::Kvm } else { Accelerator::Tcg },
        cpus: arguments.cpus,
        memory_mib: arguments.memory,
        qemu: arguments.qemu.clone(),
        user: if known { usual.user } else { arguments.user.clone() },
        executor: arguments.executor.clone(),
        device: ["--cc", &arguments.cc, "--protocol", arguments.device.name()].map(str::to_owned).to_vec(),
        huge_pages: arguments.huge_pages,
        shares: arguments.share.clone(),
        quiet_device: false,
    };
    let mut guest = GuestMachine::boot(&options)?;
    if arguments.verbose {
        eprintln!(
            "ready after {:.1} s, {} s of them the kernel's",
            start.elapsed().as_secs_f64(),
            guest.ready()
        );
    }
    let user = if arguments.root { "root" } else { &arguments.user };
    let limit = arguments.timeout.map(Duration::from_secs);
    let began = Instant::now();
    let ended =
        guest.run_command(user, &arguments.command, limit, &mut std::io::stdout(), &mut std::io::stderr());
    if arguments.verbose {
        eprintln!("the command took {:.1} s", began.elapsed().as_secs_f64());
    }
    if let Some(path) = &arguments.console {
        std::fs::write(path, guest.console()).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(ExitCode::from(ended?.code()))
}
