//! Options for building the shims.

use std::path::{Path, PathBuf};

use super::link::Linker;

/// Settings of a build of the shims.
#[derive(Clone, Debug)]
pub struct Options {
    /// Root directory of the workspace.
    pub root: PathBuf,
    /// Directory for the objects and their manifest.
    pub out: PathBuf,
    /// Cargo's target directory for the shims, which must not be used otherwise.
    pub target: PathBuf,
    /// The program that links the shims.
    pub linker: Linker,
    /// Whether cargo must leave `Cargo.lock` unchanged.
    pub locked: bool,
    /// File names of the objects to build; all if empty.
    pub only: Vec<String>,
}

impl Options {
    /// Returns the options for `embedded/`, linked for this machine's glibc.
    pub fn embedded(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            out: root.join("embedded"),
            target: root.join("target/shims"),
            linker: Linker::from_env(),
            locked: false,
            only: Vec::new(),
        }
    }
}
