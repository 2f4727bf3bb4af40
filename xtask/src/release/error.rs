//! Errors of preparing a release.

use std::io;
use std::path::PathBuf;

use crate::dist::DistError;

/// Reasons why a release cannot be prepared.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum ReleaseError {
    #[error("read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("build the release")]
    Dist(#[from] DistError),
    #[error("read `workspace.package.repository` in {path}")]
    Manifest { path: PathBuf, source: Box<toml::de::Error> },
    #[error(
        "find where releases are published: `repository` in Cargo.toml is {0}, not https://github.com/OWNER/REPO"
    )]
    Repository(String),
    #[error(
        "find where releases are published: {0} in Cargo.toml is a placeholder \
         (to rehearse with it: --allow-placeholder)"
    )]
    Placeholder(String),
    #[error("publish from {found}: `repository` in Cargo.toml is {address}")]
    OtherRepository { found: String, address: String },
    #[error("release {version}, which Cargo.toml says, for the tag {tag}")]
    Tag { tag: String, version: String },
    #[error("find the changes of {version} in CHANGELOG.md: {problem}")]
    Changes { version: String, problem: String },
    #[error("keep one address: `repository` in Cargo.toml is {address}, but {}", .others.join(", "))]
    Documents { address: String, others: Vec<String> },
    #[error("read SHA256SUMS: {line:?} is no digest with a name")]
    Sums { line: String },
    #[error("publish {name}: its SHA-256 is {found}, not that in SHA256SUMS")]
    Digest { name: String, found: String },
}
