//! Finding and opening libraries.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::error::LlamaError;

/// Returns the first file in `folder`, by name, that `wanted` accepts. `name` describes it in the error.
pub(super) fn find(
    folder: &Path,
    name: &'static str,
    wanted: impl Fn(&str) -> bool,
) -> Result<PathBuf, LlamaError> {
    let found = list(folder, wanted)?.into_iter().next();
    found.ok_or_else(|| LlamaError::Missing { name, folder: folder.to_owned() })
}

/// Returns the files in `folder` whose names `wanted` accepts, sorted by name.
pub(super) fn list(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, LlamaError> {
    let failed = |source| LlamaError::List { path: folder.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_str().is_some_and(&wanted) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Loads the library at `path`.
pub(super) fn open(path: &Path) -> Result<Library, LlamaError> {
    // SAFETY: a library of llama.cpp, whose initialisers any program runs that uses it.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    library.map_err(|source| LlamaError::Load { path: path.to_owned(), source })
}

/// Returns `path` as a C string.
pub(super) fn c_path(path: &Path) -> Result<CString, LlamaError> {
    CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| LlamaError::Zero(path.display().to_string()))
}
