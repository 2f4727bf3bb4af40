//! Reads the log of a server: a service's journal, or the file that its stderr is redirected to.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use crate::check::child;
use crate::check::context::CheckContext;
use crate::check::refusals;
use crate::check::unit::Unit;
use crate::env::Environment;
use crate::ollama::evidence;
use crate::ollama::log::{self, FoundDevice};
use crate::ollama::processes::OllamaServer;

/// Time limit for reading the journal, which can be large and uncached.
const JOURNAL_LIMIT: Duration = Duration::from_secs(3);
/// Number of the journal's last lines that are read.
const JOURNAL_LINES: &str = "3000";
/// Maximum number of bytes that are read of a log file, from its end.
const TAIL: u64 = 16 << 20;

/// Content of a server's log since its last start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerLog {
    /// Devices that the server found at its start. Empty if the log does not list them.
    pub found: Vec<FoundDevice>,
    /// Latest refusal by the host. The libraries log it with VGPU_LOG=error and without VGPU_LOG_FILE.
    pub refused: Option<String>,
    /// Most significant lines about GPUs.
    pub about_gpus: Vec<String>,
}

impl ServerLog {
    /// Parses the text of a log.
    pub fn read(text: &str) -> Self {
        let since = log::last_start(text);
        Self {
            found: log::found(text),
            refused: refusals::latest(since),
            about_gpus: evidence::about_gpus(since),
        }
    }
}

/// Reads a server's log: the journal of its unit, otherwise the file that it writes to.
///
/// # Errors
///
/// Returns a sentence that explains why there is no log, or why it cannot be read.
pub async fn read_log(
    context: &CheckContext,
    unit: Option<&Unit>,
    server: &OllamaServer,
) -> Result<ServerLog, String> {
    match unit {
        Some(unit) => journal(unit, &context.environment, context.time(JOURNAL_LIMIT)).await,
        None => file(server.process.pid),
    }
}

/// Reads the log of a service from its journal.
async fn journal(unit: &Unit, environment: &Environment, limit: Duration) -> Result<ServerLog, String> {
    let mut command = Command::new("journalctl");
    command.args([
        "--unit",
        &unit.name,
        "--lines",
        JOURNAL_LINES,
        "--no-pager",
        "--output",
        "cat",
        "--quiet",
    ]);
    let outcome = child::run_limited(command, environment, limit)
        .await
        .map_err(|error| format!("its log cannot be read: journalctl: {error}"))?;
    match outcome.trouble() {
        Some(trouble) => Err(format!("its log cannot be read: journalctl {trouble}")),
        None => Ok(ServerLog::read(&outcome.stdout)),
    }
}

/// Reads the file that a process's stderr is redirected to.
fn file(pid: u32) -> Result<ServerLog, String> {
    let path = PathBuf::from(format!("/proc/{pid}/fd/2"));
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => "its log may not be read by this user".to_owned(),
        io::ErrorKind::InvalidInput => {
            "its log is not known: its stderr is no file, and it was not named with --service".to_owned()
        }
        _ => format!("its log cannot be read: {error}"),
    };
    tail(&path).map(|text| ServerLog::read(&text)).map_err(failed)
}

/// Reads the last [`TAIL`] bytes of a file as text.
fn tail(path: &Path) -> io::Result<String> {
    let mut file = vgpu_paths::open_regular(path)?;
    let bytes = file.metadata()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(TAIL)))?;
    let mut text = Vec::new();
    file.take(TAIL).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_file_that_a_process_writes_to() {
        let scratch = Scratch::new();
        let path = scratch.join("log");
        std::fs::write(
            &path,
            "a msg=\"Listening on 127.0.0.1:1\"\nb msg=\"inference compute\" library=CUDA\n",
        )
        .unwrap();
        let start =
            |stderr: Stdio| Command::new("sleep").arg("60").stderr(stderr).spawn().expect("start a process");
        let mut logs = start(File::options().append(true).open(&path).unwrap().into());
        let log = file(logs.id());
        let mut silent = start(Stdio::null());
        let none = file(silent.id());
        for child in [&mut logs, &mut silent] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(log.unwrap().found[0].library, "CUDA");
        assert!(none.unwrap_err().contains("is no file"));
        assert!(file(u32::MAX).unwrap_err().contains("cannot be read"));
    }
}
