//! Errors of building a shim.

use std::io;
use std::path::PathBuf;

use super::{compile, core, inputs, link, manifest, symbols};

/// Reasons why a shim cannot be built.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum ShimError {
    #[error("read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("read the symbol list {path}")]
    List { path: PathBuf, source: symbols::ParseError },
    #[error("hash what the shims are made from")]
    Inputs(#[from] inputs::InputError),
    #[error("compile the shim")]
    Compile(#[from] compile::CompileError),
    #[error(transparent)]
    Core(#[from] core::CoreError),
    #[error("link the shim")]
    Link(#[from] link::LinkError),
    #[error("examine {path}")]
    Object { path: PathBuf, source: goblin::error::Error },
    #[error("make {soname} as it should be: {problems}")]
    Wrong { soname: String, problems: String },
    #[error("handle the manifest of the shims")]
    Manifest(#[from] manifest::ManifestError),
    #[error("ask {program} for its version")]
    Tool { program: String, source: io::Error },
    #[error("ask {program} for its version: {status}")]
    ToolStatus { program: String, status: std::process::ExitStatus },
    #[error("find a shim named {0}")]
    Unknown(String),
    #[error("use {0}, which is not what its manifest says; build the shims anew")]
    Differs(PathBuf),
    #[error("build shims on this machine: stubs and linking are for x86-64 Linux")]
    Machine,
    #[error("find {soname} in {folder}")]
    Absent { soname: String, folder: PathBuf },
}
