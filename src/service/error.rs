//! Why a service cannot be set up, or not be undone: sentence and hint.

use std::io;
use std::path::PathBuf;

use super::command::CommandError;
use super::texts::GROUP;
use crate::diagnosis::Fix;
use crate::error::LauncherError;

/// Why a service could not be changed.
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
            Self::NotRoot => Fix::new("Start it with sudo; --dry-run shows what it would do."),
            Self::NoSystemd { hint } | Self::Command { hint, .. } => Fix::new(hint.clone()),
            Self::UnitName { .. } => Fix::new("Names are such as ollama or ollama.service."),
            Self::Launcher { path } => {
                Fix::new("Put vgpu-run where only root writes, and start it from there.")
                    .command(format!(
                        "install -m 755 {} /usr/local/bin/vgpu-run && vgpu-run service install",
                        path.display()
                    ))
                    .as_root()
            }
            Self::LauncherName(_) => Fix::new("Put vgpu-run into a folder such as /usr/local/bin."),
            Self::Foreign(_) => Fix::new("Look what it is for, and move it away."),
            Self::Changed(paths) => {
                Fix::new("Take back the change, or remove the file yourself, and start this again.")
                    .command(format!("rm {}", list(paths).replace(", ", " ")))
                    .as_root()
            }
            Self::Elsewhere(name) => Fix::new("Do so there.")
                .command(format!("usermod --append --groups {GROUP} {name}"))
                .as_root(),
            Self::Unasked => Fix::new("Start it with --yes; --dry-run shows what it would do."),
            Self::Tool { .. } => {
                Fix::new("Once that works, start this again: what is done is not done twice.")
            }
            Self::File { source, .. } => Fix::new(vgpu_paths::hint(source)?),
            _ => return None,
        })
    }
}
