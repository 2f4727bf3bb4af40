//! Errors of determining the layers of a crate.

use std::path::PathBuf;

/// Reasons why the dependencies between a workspace's files cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum LayersError {
    /// `cargo metadata` fails.
    #[error("ask cargo for the workspace's crates: {0}")]
    Cargo(String),
    /// A file cannot be read.
    #[error("read {path}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// A file cannot be parsed as Rust.
    #[error("understand {path}")]
    Parse {
        /// Path of the file.
        path: PathBuf,
        /// Position and description of the syntax error.
        #[source]
        source: syn::Error,
    },
    /// A module has no file.
    #[error("find the file of mod {name} in {path}")]
    NoFile {
        /// Name of the module.
        name: String,
        /// Path of the file that declares it.
        path: PathBuf,
    },
}
