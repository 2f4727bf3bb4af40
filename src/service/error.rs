//! Errors of setting a service up or removing it, as sentence and hint.

use std::io;
use std::path::PathBuf;

use super::command::CommandError;
use super::texts::GROUP;
use crate::diagnosis::{Fix, Remedy};
use crate::error::LauncherError;

const LAUNCHER: Remedy = Remedy::new("Put vgpu-run where only root writes, and start it from there.")
    .command("install -m 755 {path} /usr/local/bin/vgpu-run && vgpu-run service install")
    .as_root();
const CHANGED: Remedy =
    Remedy::new("Take back the change, or remove the file yourself, and start this again.")
        .command("rm {paths}")
        .as_root();
const ELSEWHERE: Remedy =
    Remedy::new("Do so there.").command("usermod --append --groups {group} {user}").as_root();

/// Reason why a service could not be changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum ServiceError {
    #[error("failed to set up a service: only root can")]
    NotRoot,
    #[error("failed to set up a service: systemd does not run here")]
    NoSystemd { hint: String },
    #[error("failed to set up {unit}")]
    Command { unit: String, source: CommandError, hint: String },
    #[error("failed to set up a service: {name:?} is no name of a service")]
    UnitName { name: String },
    #[error("failed to set up a service: {} is not root's alone, and what it does a service would do", path.display())]
    Launcher { path: PathBuf },
    #[error("failed to set up a service: the path of vgpu-run, {}, has letters that systemd reads as something else", .0.display())]
    LauncherName(PathBuf),
    #[error("failed to find out where this vgpu-run is")]
    Own(#[source] io::Error),
    #[error("failed to write {}: it is there, and vgpu-run did not write it", .0.display())]
    Foreign(PathBuf),
    #[error("{} was changed since vgpu-run wrote it", list(.0))]
    Changed(Vec<PathBuf>),
    #[error("failed to read or write {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("failed to find the user {0}")]
    User(String),
    #[error(
        "failed to put {0} into the group: a tree's users and groups are changed on the system that it becomes"
    )]
    Elsewhere(String),
    #[error("nothing was changed: there is nobody to ask, and no --yes")]
    Unasked,
    #[error("nothing was changed")]
    Declined,
    #[error("nothing was changed: systemd-analyze says: {0}")]
    Verify(String),
    #[error("{done}, and then failed to run {command}: {why}")]
    Tool { done: &'static str, command: String, why: String },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

impl LauncherError for ServiceError {
    fn fix(&self) -> Option<Fix> {
        Some(match self {
            Self::NotRoot => "Start it with sudo; --dry-run shows what it would do.".into(),
            Self::NoSystemd { hint } | Self::Command { hint, .. } => hint.as_str().into(),
            Self::UnitName { .. } => "Names are such as ollama or ollama.service.".into(),
            Self::Launcher { path } => Fix::from(LAUNCHER).with("path", path.display()),
            Self::LauncherName(_) => "Put vgpu-run into a folder such as /usr/local/bin.".into(),
            Self::Foreign(_) => "Look what it is for, and move it away.".into(),
            Self::Changed(paths) => Fix::from(CHANGED).with("paths", list(paths).replace(", ", " ")),
            Self::Elsewhere(name) => Fix::from(ELSEWHERE).with("group", GROUP).with("user", name),
            Self::Unasked => "Start it with --yes; --dry-run shows what it would do.".into(),
            Self::Tool { .. } => "Once that works, start this again: what is done is not done twice.".into(),
            Self::File { source, .. } => vgpu_paths::hint(source)?.into(),
            _ => return None,
        })
    }
}
