//! Why the layers of a crate cannot be told.

use std::path::PathBuf;

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum LayersError {
    /// Cargo does not tell what there is.
    #[error("ask cargo for the workspace's crates: {0}")]
    Cargo(String),
    /// A file cannot be read.
    #[error("read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file is no Rust.
    #[error("understand {path}")]
    Parse {
        /// Which.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: syn::Error,
    },
    /// A module has no file.
    #[error("find the file of mod {name} in {path}")]
    NoFile {
        /// Which.
        name: String,
        /// Where it is declared.
        path: PathBuf,
    },
}
