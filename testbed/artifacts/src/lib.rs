//! The real libraries and models that tests use: fetched by name, version and digest with the clients of the
//! public registries, unpacked, and kept in `$XDG_CACHE_HOME/vgpu-run` ([`Cache`]). `artifacts.toml` and
//! `debian.toml` say what there is. [`executable`] puts programs in place for tests that start them.

mod cache;
mod debian;
mod download;
mod error;
pub mod executable;
mod hashing;
mod progress;
mod spec;
mod unpack;

use std::path::PathBuf;

pub use cache::Cache;
pub use error::ArtifactError;

/// Returns the directory of an artifact and fetches the artifact first if it is missing.
pub fn fetch(name: &str) -> Result<PathBuf, ArtifactError> {
    Cache::open()?.fetch(name)
}
