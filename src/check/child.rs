//! Runs what may hang or crash in a process of its own, with an environment that is given in full.

use std::io;
use std::time::Duration;

use tokio::process::Command;
use vgpu_findings::child;
pub use vgpu_findings::child::{End, Outcome};

use super::identity::Become;
use crate::env::Environment;

/// Runs `command` with exactly `environment`, no longer than `limit`.
pub async fn run(command: Command, environment: &Environment, limit: Duration) -> io::Result<Outcome> {
    child::run(with(command, environment), limit).await
}

/// The same, but ends the child when `done` says so of its stderr and its process id. A child that is ended
/// this way counts as one that succeeded.
pub async fn run_until(
    command: Command,
    environment: &Environment,
    limit: Duration,
    done: &mut (dyn FnMut(&str, Option<u32>) -> bool + Send),
) -> io::Result<Outcome> {
    child::run_until(with(command, environment), limit, done).await
}

/// Runs a worker that clears up after itself when its stdin ends, which happens at `limit`, when this is
/// dropped, and when this process ends, however it does.
pub async fn run_until_closed(
    command: Command,
    environment: &Environment,
    limit: Duration,
    grace: Duration,
) -> io::Result<Outcome> {
    child::run_until_closed(with(command, environment), limit, grace).await
}

fn with(mut command: Command, environment: &Environment) -> Command {
    command.env_clear().envs(environment.iter());
    command
}

/// This program as a worker, which becomes `user` if one is given.
pub fn ourselves(user: Option<&Become>) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("vgpu-run");
    if let Some(Become { user, .. }) = user {
        command.args(["--user", user]);
    }
    command.arg("__look");
    for group in user.iter().flat_map(|user| &user.groups) {
        command.args(["--group", &group.to_string()]);
    }
    command
}
