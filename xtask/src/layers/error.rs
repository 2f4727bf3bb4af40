//! Why the layers of a crate cannot be told.

use std::path::PathBuf;

/// What keeps the layers of a workspace from being told.
#[derive(Debug, thiserror::Error)]
pub enum LayersError {
    /// Cargo does not tell what there is.
    #[error("ask cargo for the workspace's crates: {0}")]
    Cargo(String),
    /// A file cannot be read.
    #[error("read {path}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file is no Rust.
    #[error("understand {path}")]
    Parse {
        /// Path of the file.
        path: PathBuf,
        /// Where it stops to be Rust, and what was expected there.
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
