//! `vgpu-testbed guest`: boots a virtual machine with a device, runs a command in it, and exits with the
//! command's code.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use vgpu_testbed::machine::{Accelerator, GuestMachine, Options};

/// Version of the guest-host contract that a device speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Contract {
    /// Version 1, the contract of existing hosts.
    V1,
    /// Version 2, the contract of this project's device.
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
    /// Emulate the guest's processor, which works everywhere; the default.
    #[arg(long, conflicts_with = "kvm")]
    tcg: bool,
    /// Use the host's processor through KVM.
    #[arg(long)]
    kvm: bool,
    /// Run the command as the guest's root instead of an unprivileged user.
    #[arg(long, conflicts_with = "user")]
    root: bool,
    /// Run the command as this user, who may open the device; `nobody` may not.
    #[arg(long, default_value = "guest")]
    user: String,
    /// Version of the contract that the device speaks.
    #[arg(long, value_enum, default_value_t = Contract::V2)]
    device: Contract,
    /// Executor of the device: `soft` or `null`.
    #[arg(long, default_value = "soft")]
    executor: String,
    /// Compute capability of the device.
    #[arg(long, default_value = "6.1")]
    cc: String,
    /// A directory of this host that the guest sees under the same path, read-only. Can be given several
    /// times.
    #[arg(long, value_name = "DIR")]
    share: Vec<PathBuf>,
    /// Number of the guest's processors.
    #[arg(long, default_value_t = 1)]
    cpus: u32,
    /// Memory of the guest in MiB.
    #[arg(long, default_value_t = 1024)]
    memory: u64,
    /// Number of 2 MiB pages that the guest reserves at boot; a window of guest memory needs them.
    #[arg(long, default_value_t = 0)]
    huge_pages: u32,
    /// An installed qemu-system-x86_64, 10.1 or later; by default the pinned one is fetched.
    #[arg(long)]
    qemu: Option<PathBuf>,
    /// Limit of the command in seconds.
    #[arg(long)]
    timeout: Option<u64>,
    /// Write the guest's console output to this file.
    #[arg(long, value_name = "FILE")]
    console: Option<PathBuf>,
    /// Print durations on stderr.
    #[arg(long, short)]
    verbose: bool,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Boots a guest, runs the command in it, and exits with the command's code.
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
