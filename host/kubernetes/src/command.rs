//! Commands of the host: `systemctl`, `journalctl` and `vgpu-device`. In a container a prefix such as
//! `nsenter` has them run in the host's file system; each has a limit of time.

use std::io;
use std::time::Duration;

use tokio::process::Command;
use vgpu_findings::child::{ChildEnd, run_bounded};

/// Failure of a command of the host.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command cannot be started.
    #[error("run `{line}`")]
    Start {
        /// The command.
        line: String,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// The command failed.
    #[error("`{line}` {trouble}: {words}")]
    Failed {
        /// The command.
        line: String,
        /// How it ended.
        trouble: String,
        /// Last line that it wrote to standard error.
        words: String,
        /// Whether it exceeded its time.
        late: bool,
    },
}

/// Runs commands of the host.
#[derive(Clone, Debug)]
pub(crate) struct HostCommands {
    prefix: Vec<String>,
}

impl HostCommands {
    /// Runs commands behind a prefix, which may be empty.
    pub(crate) const fn new(prefix: Vec<String>) -> Self {
        Self { prefix }
    }

    /// Runs a command for at most `limit` and returns its standard output.
    pub(crate) async fn run(&self, words: &[&str], limit: Duration) -> Result<String, CommandError> {
        let all: Vec<&str> = self.prefix.iter().map(String::as_str).chain(words.iter().copied()).collect();
        let line = words.join(" ");
        let mut command = Command::new(all[0]);
        command.args(&all[1..]);
        let ended = run_bounded(command, limit)
            .await
            .map_err(|source| CommandError::Start { line: line.clone(), source })?;
        match ended.trouble() {
            None => Ok(ended.stdout),
            Some(trouble) => {
                let words = ended.stderr.lines().rfind(|line| !line.is_empty()).unwrap_or("it said nothing");
                let late = matches!(ended.end, ChildEnd::TimedOut(_));
                Err(CommandError::Failed { line, trouble, words: words.to_owned(), late })
            }
        }
    }
}
