//! Tasks of `service` and their options.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::launch::user::UserName;

/// Tasks of `service`.
#[derive(Clone, Debug, Subcommand)]
pub enum ServiceTask {
    /// Makes a systemd service start its program with vgpu-run, as the user that it has
    ///
    /// Shows what it will write, then writes a drop-in for the unit and a udev rule that gives the device to
    /// the group vgpu, which the service joins. Ollama's own upgrades leave both alone. Run it again to bring
    /// them up to date.
    #[command(
        after_help = "Examples:\n  vgpu-run service install --dry-run\n  sudo vgpu-run service install\n  \
                      sudo vgpu-run service install --user \"$USER\"    # to start Ollama by hand, too"
    )]
    Install(InstallOptions),
    /// Reports what is set up, whether it has changed since, and whether the unit starts something else now
    #[command(after_help = "Exit codes: 0 set up and unchanged, 1 something needs attention, 3 not set up.")]
    Status(ServiceOptions),
    /// Removes everything that install wrote
    ///
    /// If a file was changed since, its name is printed and nothing is removed.
    Remove(ChangeOptions),
}

/// Selects a service and the system that it belongs to.
#[derive(Args, Clone, Debug)]
pub struct ServiceOptions {
    /// The service
    #[arg(long, value_name = "NAME", default_value = "ollama.service")]
    pub unit: String,
    /// The directory tree of another system; only files in it are read and written
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub root: PathBuf,
}

/// Options of the tasks that change a service.
#[derive(Args, Clone, Debug)]
pub struct ChangeOptions {
    /// Service to change.
    #[command(flatten)]
    pub service: ServiceOptions,
    /// Show what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Do not restart the service
    #[arg(long)]
    pub no_restart: bool,
}

/// Options of `service install`, parsed from the command line.
#[derive(Args, Clone, Debug)]
pub struct InstallOptions {
    /// Service to change, and how the change is made.
    #[command(flatten)]
    pub change: ChangeOptions,
    /// Set up only the device and no service, to start Ollama by hand
    #[arg(long, conflicts_with = "unit")]
    pub device_only: bool,
    /// The vgpu-run that the service starts with [default: this one]
    #[arg(long, value_name = "PATH")]
    pub launcher: Option<PathBuf>,
    /// Add this user to the group, too, to start Ollama by hand
    #[arg(long, value_name = "NAME")]
    pub user: Option<UserName>,
}
