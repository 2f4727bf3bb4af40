//! Options that all commands share.

use clap::Args;

use crate::inject::DeliveryMode;
use crate::launch::user::UserName;

/// Options that all commands share, parsed from the command line.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// If the GPU is not available, print one line of warning and start PROGRAM without it
    #[arg(long, global = true)]
    pub allow_cpu: bool,
    /// Run as root: grant this user access to the device, then drop privileges and start PROGRAM as this user
    #[arg(long, global = true, value_name = "NAME|UID[:GROUP|GID]")]
    pub user: Option<UserName>,
    /// How the libraries reach PROGRAM: `memory` (default; `folder` for Ollama 0.12.3 and older)
    #[arg(long, global = true, value_name = "memory|folder", hide_possible_values = true)]
    pub via: Option<DeliveryMode>,
    /// Log to stderr; VGPU_LOG=debug does the same and makes the libraries log, too
    #[arg(short, long, global = true)]
    pub verbose: bool,
}
