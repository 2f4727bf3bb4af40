//! Options of `check`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use vgpu_findings::style::When;

use crate::diagnosis::LinkId;
use crate::diagnosis::catalogue::{self, LINKS};

/// Default time limit for a check.
const USUAL: Duration = Duration::from_secs(15);
/// Default time limit for a check that loads a model, whose file may be on a slow disk.
const WITH_MODEL: Duration = Duration::from_mins(1);

/// Options of `check`, parsed from the command line.
#[derive(Args, Clone, Debug, Default)]
pub struct CheckOptions {
    /// Print the links of the chain
    #[arg(long)]
    pub list: bool,
    /// Examine only these links and those that they need
    #[arg(long, value_name = "LINK,...", value_parser = link_id, value_delimiter = ',')]
    pub only: Vec<LinkId>,
    /// Print a page about a link: what it is, how it breaks, what mends it
    #[arg(long, value_name = "LINK", value_parser = link_id)]
    pub explain: Option<LinkId>,
    /// Write everything that was found to this file, for a bug report, without names of users and hosts and
    /// without secrets
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub bundle: Option<PathBuf>,
    /// Examine the system as this systemd service sees it
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "ollama")]
    pub service: Option<String>,
    /// A program to examine in place of Ollama: whether it asks for what only NVIDIA's own driver has
    #[arg(value_name = "PROGRAM", value_hint = ValueHint::CommandName, conflicts_with_all = ["ollama", "service"])]
    pub program: Option<PathBuf>,
    /// The Ollama to examine, if not the service's or the one on PATH
    #[arg(long, value_name = "PATH", value_hint = ValueHint::ExecutablePath)]
    pub ollama: Option<PathBuf>,
    /// Ask the running server for one token of this model, which it loads for that
    #[arg(long, value_name = "NAME", conflicts_with = "program")]
    pub model: Option<String>,
    /// Time limit for the whole check [default: 15; with --model 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Treat warnings as failures
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// When to print in colour
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub color: When,
    /// Leave out Ollama's own discovery and its server, which take the longest
    #[arg(long)]
    pub no_ollama: bool,
    /// Print only the sentence at the end
    #[arg(short, long)]
    pub quiet: bool,
    /// Hides the option of all commands, which means nothing here
    #[arg(long, hide = true)]
    pub allow_cpu: bool,
}

impl CheckOptions {
    /// Returns the time limit for the whole check, counted from its start.
    pub fn limit(&self) -> Duration {
        let usual = if self.model.is_some() { WITH_MODEL } else { USUAL };
        self.timeout.unwrap_or(usual)
    }
}

fn link_id(text: &str) -> Result<LinkId, String> {
    catalogue::link(text).map(|link| link.id).ok_or_else(|| {
        let all: Vec<_> = LINKS.iter().map(|link| link.id.as_str()).collect();
        format!("the links are {}", all.join(", "))
    })
}

/// Parses a number of seconds above 0, up to a day.
pub(super) fn seconds(text: &str) -> Result<Duration, &'static str> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && *number <= 86_400.0);
    number.map(Duration::from_secs_f64).ok_or("expected a number of seconds above 0")
}
