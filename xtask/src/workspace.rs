//! Finds the workspace, and formats sizes and errors.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

/// Directory by which the workspace is recognised.
const MARK: &str = "common/abi/symbols";

/// Error for a directory that no workspace of vgpu-run encloses.
#[derive(Debug, thiserror::Error)]
#[error("find the workspace of vgpu-run in {0} or above it")]
pub struct NotFound(PathBuf);

/// Returns the workspace of the crate that cargo runs, or else that of the current directory.
pub fn root() -> Result<PathBuf, NotFound> {
    let crate_folder = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let current = env::current_dir().unwrap_or_default();
    let folders = crate_folder.iter().chain([&current]).flat_map(|folder| folder.ancestors());
    let found = folders.into_iter().find(|folder| folder.join(MARK).is_dir()).map(Path::to_owned);
    found.ok_or(NotFound(current))
}

/// Formats a size in millions of bytes, with two decimals.
pub fn megabytes(bytes: u64) -> String {
    format!("{}.{:02} MB", bytes / 1_000_000, bytes % 1_000_000 / 10_000)
}

/// Formats an error and its causes as one line, to follow "failed to".
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
