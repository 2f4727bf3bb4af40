//! Errors of fetching an artifact.

use std::io;
use std::path::PathBuf;

use crate::debian::DebianError;
use crate::download::FetchError;
use crate::spec::SpecError;
use crate::unpack::UnpackError;

/// Reasons why an artifact cannot be fetched.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum ArtifactError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("find a folder for the cache: neither XDG_CACHE_HOME nor HOME is set")]
    NoHome,
    #[error("read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("get the artifact")]
    Fetch(#[from] FetchError),
    #[error("get the artifact")]
    Debian(#[from] DebianError),
    #[error("unpack the artifact")]
    Unpack(#[from] UnpackError),
    #[error("join the parts of {name}: its SHA-256 is {found}")]
    Join { name: String, found: String },
}
