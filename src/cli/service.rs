//! The tasks of `service` and their options.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::launch::user::UserName;

/// What `service` does.
#[derive(Clone, Debug, Subcommand)]
pub enum ServiceTask {
    /// Has a service of systemd start what it starts by vgpu-run, as the user it has
    ///
    /// Writes a drop-in for the unit, and a udev rule that gives the device to the group vgpu, in which the service then is; and shows
    /// both before. Ollama's own upgrades leave them alone. Started again, it brings them up to date.
    #[command(
        after_help = "Examples:\n  vgpu-run service install --dry-run\n  sudo vgpu-run service install\n  \
                      sudo vgpu-run service install --user \"$USER\"    # to start Ollama by hand, too"
    )]
    Install(InstallOptions),
    /// Says what is set up, whether it is as it was written, and whether the unit starts something else by now
    #[command(
        after_help = "Exit codes: 0 it is set up and as it should be, 1 it is not as it should be, 3 it is not set up."
    )]
    Status(ServiceOptions),
    /// Takes away all that install wrote
    ///
    /// A file that was changed since is named, and then nothing is taken away.
    Remove(ChangeOptions),
}

/// Which service, of which system.
#[derive(Args, Clone, Debug)]
pub struct ServiceOptions {
    /// The service
    #[arg(long, value_name = "NAME", default_value = "ollama.service")]
    pub unit: String,
    /// The folder tree of another system, in which alone files are read and written
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub root: PathBuf,
}

/// How a change is made.
#[derive(Args, Clone, Debug)]
pub struct ChangeOptions {
    /// Which service.
    #[command(flatten)]
    pub service: ServiceOptions,
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Leave the service running as it is until it is started anew
    #[arg(long)]
    pub no_restart: bool,
}

/// Options of `service install`.
#[derive(Args, Clone, Debug)]
pub struct InstallOptions {
    /// How.
    #[command(flatten)]
    pub change: ChangeOptions,
    /// Set up the device and no service, to start Ollama by hand
    #[arg(long, conflicts_with = "unit")]
    pub device_only: bool,
    /// The vgpu-run that the service is to start by [default: this one]
    #[arg(long, value_name = "PATH")]
    pub launcher: Option<PathBuf>,
    /// Put this user into the group, too, who may then start Ollama by hand
    #[arg(long, value_name = "NAME")]
    pub user: Option<UserName>,
}
