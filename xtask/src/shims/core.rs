//! The static library of all shims, and what it implements of each library.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::archive::{self, ArchiveError};
use super::library::Library;
use super::stub;
use super::symbols::Symbol;

/// The compiled static library of all shims.
#[derive(Debug)]
pub struct Core {
    /// Path of the static library.
    pub archive: PathBuf,
    /// Symbols that the static library defines.
    defined: BTreeSet<String>,
}

/// Reasons why a static library cannot be read or does not match the symbol lists.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum CoreError {
    #[error("read {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("examine {path}")]
    Archive { path: PathBuf, source: ArchiveError },
    #[error("find `{name}` in {archive}: the shims must use vgpu-abi")]
    NoAnswers { name: &'static str, archive: PathBuf },
    #[error("find {names} in the symbol list of {soname}, though the shim defines it")]
    Unlisted { names: String, soname: String },
}

impl Core {
    /// Reads the static library at `path`.
    pub fn read(path: &Path) -> Result<Self, CoreError> {
        let bytes = fs::read(path).map_err(|source| CoreError::File { path: path.to_owned(), source })?;
        let defined = archive::defined(&bytes)
            .map_err(|source| CoreError::Archive { path: path.to_owned(), source })?;
        for name in [stub::STATUS, stub::ZERO] {
            if !defined.contains(name) {
                return Err(CoreError::NoAnswers { name, archive: path.to_owned() });
            }
        }
        Ok(Self { archive: path.to_owned(), defined })
    }

    /// Returns the names among `symbols`, which are all of `library`, that are implemented. An implemented
    /// name that is not listed is an error.
    pub fn implemented(&self, library: &Library, symbols: &[Symbol]) -> Result<BTreeSet<String>, CoreError> {
        let prefix = format!("{}_", library.implementation);
        let own: BTreeSet<String> =
            self.defined.iter().filter_map(|name| name.strip_prefix(&prefix)).map(str::to_owned).collect();
        let listed: BTreeSet<&str> = symbols.iter().map(|symbol| symbol.name.as_str()).collect();
        let unlisted: Vec<&str> =
            own.iter().map(String::as_str).filter(|name| !listed.contains(name)).collect();
        if unlisted.is_empty() {
            return Ok(own);
        }
        let (names, soname) = (unlisted.join(", "), library.soname.to_owned());
        Err(CoreError::Unlisted { names, soname })
    }
}
