//! Decides whether an object is up to date with its inputs.

use std::fs;
use std::path::Path;

use super::files::sha256;
use super::manifest::{Entry, Program};
use super::tools::Tools;

/// Properties of a built object that the manifest records.
pub struct Built<'a> {
    rustc: &'a str,
    linker: &'a str,
    inputs: &'a str,
    sha256: &'a str,
}

impl<'a> From<&'a Entry> for Built<'a> {
    fn from(entry: &'a Entry) -> Self {
        let Entry { rustc, linker, inputs, sha256, .. } = entry;
        Self { rustc, linker, inputs, sha256 }
    }
}

impl<'a> From<&'a Program> for Built<'a> {
    fn from(program: &'a Program) -> Self {
        let Program { rustc, linker, inputs, sha256, .. } = program;
        Self { rustc, linker, inputs, sha256 }
    }
}

/// Returns the reason why an object must be built, if there is one.
pub fn reason(path: &Path, entry: Option<Built<'_>>, digest: &str, tools: &Tools) -> Option<String> {
    let Some(entry) = entry else { return Some("it has not been built".into()) };
    if entry.rustc != tools.rustc {
        Some(format!("it was made by {}, this is {}", entry.rustc, tools.rustc))
    } else if entry.linker != tools.linker {
        Some(format!("it was linked by {}, this is {}", entry.linker, tools.linker))
    } else if entry.inputs != digest {
        Some("its sources have changed".into())
    } else {
        match fs::read(path) {
            Ok(bytes) if sha256(&bytes) == entry.sha256 => None,
            Ok(_) => Some("the object is not the one that was built".into()),
            Err(error) => Some(format!("the object cannot be read: {error}")),
        }
    }
}
