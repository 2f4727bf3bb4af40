//! The options of `check`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use crate::diagnosis::LinkId;
use crate::diagnosis::catalogue::{self, LINKS};

/// Options of `check`.
#[derive(Args, Clone, Debug, Default)]
pub struct CheckOptions {
    /// Print the links of the chain
    #[arg(long)]
    pub list: bool,
    /// Look at these links, and at those that they need
    #[arg(long, value_name = "LINK,...", value_parser = link_id, value_delimiter = ',')]
    pub only: Vec<LinkId>,
    /// Print the page about a link: what it is, how it breaks, what mends it
    #[arg(long, value_name = "LINK", value_parser = link_id)]
    pub explain: Option<LinkId>,
    /// Write all that was found to this file, for a bug report; names of users and hosts, and secrets, are left out
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub bundle: Option<PathBuf>,
    /// Look at things as this systemd service sees them
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "ollama")]
    pub service: Option<String>,
    /// Any program to look at in place of Ollama; of one that is no Ollama it is said whether it asks for what only NVIDIA's own driver has
    #[arg(value_name = "PROGRAM", value_hint = ValueHint::CommandName, conflicts_with_all = ["ollama", "service"])]
    pub program: Option<PathBuf>,
    /// The Ollama to look at, if not the service's or the one on PATH
    #[arg(long, value_name = "PATH", value_hint = ValueHint::ExecutablePath)]
    pub ollama: Option<PathBuf>,
    /// How long all of it may take
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub timeout: Duration,
    /// Take warnings for failures
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// When to print in colour
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub color: When,
    /// Leave out Ollama's own discovery, which takes the longest
    #[arg(long)]
    pub no_ollama: bool,
    /// Print the sentence at the end alone
    #[arg(short, long)]
    pub quiet: bool,
    /// In place of the option of all commands, which means nothing here: to keep it off this one's page
    #[arg(long, hide = true)]
    pub allow_cpu: bool,
}

/// When to do something that suits terminals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set; or if CLICOLOR_FORCE is.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

fn link_id(text: &str) -> Result<LinkId, String> {
    catalogue::link(text).map(|link| link.id).ok_or_else(|| {
        let all: Vec<_> = LINKS.iter().map(|link| link.id.as_str()).collect();
        format!("the links are {}", all.join(", "))
    })
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && *number <= 86_400.0);
    number.map(Duration::from_secs_f64).ok_or("expected a number of seconds above 0")
}
