//! The options that hold for all commands.

use clap::Args;

use crate::inject::DeliveryMode;
use crate::launch::user::UserName;

/// Options.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Where the GPU cannot be had, start PROGRAM without it, with one line of warning
    #[arg(long, global = true)]
    pub allow_cpu: bool,
    /// As root: give the device to this user, and start PROGRAM as this user
    #[arg(long, global = true, value_name = "NAME|UID[:GROUP|GID]")]
    pub user: Option<UserName>,
    /// How the libraries are handed over, if not as PROGRAM needs it: memory, but a folder for Ollama to
    /// 0.12.3
    #[arg(long, global = true, value_name = "memory|folder", hide_possible_values = true)]
    pub via: Option<DeliveryMode>,
    /// Say on stderr what is done; VGPU_LOG=debug does so too, and makes the libraries talk
    #[arg(short, long, global = true)]
    pub verbose: bool,
}
