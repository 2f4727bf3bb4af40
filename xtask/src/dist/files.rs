//! Files of a release: those of the workspace, and those that a program generates.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use serde::Deserialize;

use super::error::DistError;
use crate::shims;

#[derive(Deserialize)]
struct Root {
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Workspace {
    package: Package,
}

#[derive(Deserialize)]
struct Package {
    version: String,
}

/// Returns the version of the workspace at `root`.
pub fn version(root: &Path) -> Result<String, DistError> {
    let path = root.join("Cargo.toml");
    let text = fs::read_to_string(&path).map_err(|source| DistError::File { path: path.clone(), source })?;
    toml::from_str::<Root>(&text)
        .map(|root| root.workspace.package.version)
        .map_err(|source| DistError::Version { path, source: Box::new(source) })
}

/// Reads a file; the error names its path.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, DistError> {
    fs::read(path).map_err(|source| DistError::File { path: path.to_owned(), source })
}

/// Writes a file under a temporary name and renames it.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), DistError> {
    shims::replace(path, bytes).map_err(|source| DistError::File { path: path.to_owned(), source })
}

/// Returns the manual pages and completions that a program generates, by their paths in the archive. `prefix`
/// is a directory for them, which is emptied first.
pub(super) fn pages(program: &Path, prefix: &Path) -> Result<Vec<(String, Vec<u8>)>, DistError> {
    // What an earlier release had is not in this one.
    match fs::remove_dir_all(prefix) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(DistError::File { path: prefix.to_owned(), source });
        }
        _ => {}
    }
    let status = Command::new(program).arg("__pages").arg(prefix).status();
    let status = status.map_err(|source| DistError::File { path: program.to_owned(), source })?;
    if !status.success() {
        return Err(DistError::Pages { program: program.to_owned(), status });
    }
    let mut found = Vec::new();
    collect(prefix, "", &mut found)?;
    Ok(found)
}

/// Collects all files below `folder` by their paths relative to it, with `prefix` in front.
fn collect(folder: &Path, prefix: &str, found: &mut Vec<(String, Vec<u8>)>) -> Result<(), DistError> {
    let failed = |source| DistError::File { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().map_err(failed)?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), found)?;
        } else {
            found.push((name, read(&entry.path())?));
        }
    }
    Ok(())
}
