//! How shims are built.

use std::path::{Path, PathBuf};

use super::link::Linker;

/// Settings of a build of the shims.
#[derive(Clone, Debug)]
pub struct Options {
    /// Root folder of the workspace.
    pub root: PathBuf,
    /// Where the objects and their manifest go.
    pub out: PathBuf,
    /// cargo's target folder for the shims, which nothing else uses.
    pub target: PathBuf,
    /// The program that links the shims.
    pub linker: Linker,
    /// Whether cargo must leave `Cargo.lock` unchanged.
    pub locked: bool,
    /// The objects to build, by file name; all if empty.
    pub only: Vec<String>,
}

impl Options {
    /// Into `embedded/`, for this machine's glibc.
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
