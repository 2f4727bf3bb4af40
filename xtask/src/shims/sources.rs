//! Reads symbol lists from the source tree, and built objects.

use std::fs;
use std::path::Path;

use super::error::ShimError;
use super::inspect::Object;
use super::library::Library;
use super::symbols::{self, Symbol};

/// Reads the symbol list of a library.
pub fn listed(root: &Path, library: &Library) -> Result<Vec<Symbol>, ShimError> {
    let path = root.join("common/abi/symbols").join(format!("{}.list", library.soname));
    let text = fs::read_to_string(&path).map_err(|source| ShimError::File { path: path.clone(), source })?;
    symbols::parse(&text).map_err(|source| ShimError::List { path, source })
}

/// Reads and parses a shared object.
pub fn object(path: &Path) -> Result<Object, ShimError> {
    let bytes = fs::read(path).map_err(|source| ShimError::File { path: path.to_owned(), source })?;
    Object::parse(&bytes).map_err(|source| ShimError::Object { path: path.to_owned(), source })
}
