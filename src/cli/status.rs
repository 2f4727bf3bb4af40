//! Options of `status`.

use std::time::Duration;

use clap::Args;
use vgpu_findings::style::When;

use super::check::seconds;

/// Options of `status`, parsed from the command line.
#[derive(Args, Clone, Debug, Default)]
pub struct StatusOptions {
    /// Print again every second, or as often as this says, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = seconds)]
    pub watch: Option<Duration>,
    /// Print one JSON object; with --watch one a line
    #[arg(long)]
    pub json: bool,
    /// When to print in colour
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub color: When,
}
