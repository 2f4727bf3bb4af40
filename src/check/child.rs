//! Runs operations that may hang or crash in child processes with a given environment.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;
use vgpu_findings::child;
pub use vgpu_findings::child::{ChildEnd, ChildOutcome, lead_group};

use super::identity::Become;
use super::obstacles;
use crate::env::{Environment, LD_DEBUG, LD_DEBUG_OUTPUT};
use crate::waits;

/// Variables that make the loader of each process write logs; `LD_DEBUG=all` writes megabytes. They are
/// removed, and the link `environment` reports them.
const FLOODS: [&str; 2] = [LD_DEBUG, LD_DEBUG_OUTPUT];
/// Maximum number of words of a command in its name, and of characters of that name.
const NAMED: (usize, usize) = (3, 80);

/// Runs `command` with `environment` and kills it after `limit`.
pub async fn run_limited(
    command: Command,
    environment: &Environment,
    limit: Duration,
) -> io::Result<ChildOutcome> {
    let _waits = waits::on(name(&command));
    run_unnamed(command, environment, limit).await
}

/// Runs `command` as [`run_limited`] does, for a child that the caller names while it waits.
pub async fn run_unnamed(
    command: Command,
    environment: &Environment,
    limit: Duration,
) -> io::Result<ChildOutcome> {
    let name = name(&command);
    started(&name, child::run_bounded(with(command, environment), limit).await)
}

/// Runs `command` as [`run_limited`] does, but ends the child once `done` returns true for its stderr and its
/// process id. A child that is ended this way counts as successful.
pub async fn run_until(
    command: Command,
    environment: &Environment,
    limit: Duration,
    done: &mut (dyn FnMut(&str, Option<u32>) -> bool + Send),
) -> io::Result<ChildOutcome> {
    let name = name(&command);
    let _waits = waits::on(name.clone());
    started(&name, child::run_until(with(command, environment), limit, done).await)
}

/// Runs a worker that cleans up when its stdin ends. That happens at `limit`, when the returned future is
/// dropped, and when this process ends for any reason.
pub async fn run_until_closed(
    command: Command,
    environment: &Environment,
    limit: Duration,
    grace: Duration,
) -> io::Result<ChildOutcome> {
    let name = name(&command);
    let _waits = waits::on(name.clone());
    started(&name, child::run_until_closed(with(command, environment), limit, grace).await)
}

/// Remembers a child that could not be started.
fn started(name: &str, outcome: io::Result<ChildOutcome>) -> io::Result<ChildOutcome> {
    outcome.inspect_err(|error| obstacles::unstarted(name, error))
}

/// Returns a name for a pending command: its program and first words, such as `llama-server --list-devices`.
/// If this program only starts another one, after `--`, the name is that of the other.
fn name(command: &Command) -> String {
    let command = command.as_std();
    let words: Vec<&OsStr> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    let mut words = &words[..];
    while words.first().is_some_and(|word| *word == OURSELVES)
        && let Some(at) = words.iter().position(|word| *word == "--")
    {
        words = &words[at + 1..];
    }
    let first = match words.first() {
        Some(word) if *word == OURSELVES => OsStr::new("vgpu-run"),
        Some(word) => Path::new(word).file_name().unwrap_or_default(),
        None => OsStr::new(""),
    };
    let shown: Vec<_> = std::iter::once(first)
        .chain(words.iter().skip(1).copied())
        .take(NAMED.0)
        .map(OsStr::to_string_lossy)
        .collect();
    shown.join(" ").chars().take(NAMED.1).collect()
}

/// Sets the environment of a child, without the variables of [`FLOODS`], whose output would hide the child's
/// own.
fn with(mut command: Command, environment: &Environment) -> Command {
    let kept = environment.iter().filter(|(name, _)| !FLOODS.iter().any(|flood| name == flood));
    command.env_clear().envs(kept);
    command
}

/// Path of this program's file.
pub const OURSELVES: &str = "/proc/self/exe";

/// Creates a command for this program as a worker, which becomes `user` if one is given.
pub fn ourselves(user: Option<&Become>) -> Command {
    let mut command = Command::new(OURSELVES);
    command.arg0("vgpu-run");
    if let Some(Become { user, .. }) = user {
        command.args(["--user", user]);
    }
    command.arg("__worker");
    for group in user.iter().flat_map(|user| &user.groups) {
        command.args(["--group", &group.to_string()]);
    }
    command
}

/// Creates the outcome of a child that took no time.
#[cfg(test)]
pub fn ended(end: ChildEnd, stdout: &str, stderr: &str) -> ChildOutcome {
    ChildOutcome { end, stdout: stdout.into(), stderr: stderr.into(), elapsed: Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_is_called() {
        let mut plain = Command::new("/opt/ollama/llama-server");
        plain.args(["--port", "7", "--host", "127.0.0.1"]);
        assert_eq!(name(&plain), "llama-server --port 7");
        let mut worker = ourselves(None);
        worker.args(["device", "0000:00:05.0"]);
        assert_eq!(name(&worker), "vgpu-run __worker device");
        let mut server = ourselves(None);
        server.args(["serve", "--", "/proc/self/exe", "--", "/usr/bin/ollama", "serve"]);
        assert_eq!(name(&server), "ollama serve");
        let mut other = ourselves(Some(&Become::user("nobody")));
        other.args(["run", "--", "/usr/bin/ollama", "-v"]);
        assert_eq!(name(&other), "ollama -v");
        let mut named = ourselves(None);
        named.args(["run", "--", "/usr/bin/tool", "serve", "--", "x"]);
        assert_eq!(name(&named), "tool serve --");
    }
}
