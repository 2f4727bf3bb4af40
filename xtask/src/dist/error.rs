//! Errors of building a release.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::shims::ShimError;

/// Reasons why a release cannot be built.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum DistError {
    #[error("read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("read the version in {path}")]
    Version { path: PathBuf, source: Box<toml::de::Error> },
    #[error("get the linker")]
    Linker(#[from] vgpu_artifacts::ArtifactError),
    #[error("build the shims")]
    Shims(#[from] ShimError),
    #[error("build {soname}: {problem}")]
    Shim { soname: String, problem: String },
    #[error("run cargo")]
    Cargo(#[source] io::Error),
    #[error("compile {program}: cargo ended with {status}")]
    Compile { program: &'static str, status: ExitStatus },
    #[error("have {program} write its manual pages: it ended with {status}")]
    Pages { program: PathBuf, status: ExitStatus },
    #[error("link the launcher statically: {0}")]
    NotStatic(String),
    #[error("link {program} for every host: {problem}")]
    Host { program: String, problem: String },
    #[error("make the package {name}: {said}")]
    Package { name: String, said: String },
    #[error("fill in install.sh: it has not one line {0:?}")]
    Installer(&'static str),
    #[error("fill in install.sh: {0} is no https:// address of plain letters")]
    Url(String),
}
