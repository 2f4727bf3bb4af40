//! `embedded/MANIFEST.toml`: the properties of each built shim.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

/// File name of the manifest, which is stored beside the objects.
pub const FILE: &str = "MANIFEST.toml";

const HEAD: &str = "# What the shims beside this file are. Made with them, never edited.\n\n";

/// Content of `MANIFEST.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// One entry for each object, libcuda first.
    #[serde(default, rename = "shim")]
    pub shims: Vec<Entry>,
    /// Entry of the probe, the program that `check` starts.
    pub probe: Option<Program>,
    /// Entry of the library that `trace` preloads.
    pub trace: Option<Program>,
}

/// An object of the manifest that is no shim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// SHA-256 of the object, in hexadecimal.
    pub sha256: String,
    /// Size of the object in bytes.
    pub bytes: u64,
    /// Newest glibc version that the object requires.
    pub glibc: Option<String>,
    /// SONAMEs on which the object depends.
    pub needed: Vec<String>,
    /// First line of `rustc -vV`.
    pub rustc: String,
    /// First line of the linker's version.
    pub linker: String,
    /// Digest of all inputs of the object.
    pub inputs: String,
}

/// A shim of the manifest, with the properties of its object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// SONAME of the shim, which is also its file name.
    pub soname: String,
    /// CUDA major version, for libraries with one object per major.
    pub major: Option<u8>,
    /// SHA-256 of the object, in hexadecimal.
    pub sha256: String,
    /// Size of the object in bytes.
    pub bytes: u64,
    /// Number of exported names, which are exactly those of its symbol list.
    pub exports: usize,
    /// Newest glibc version that the object requires.
    pub glibc: Option<String>,
    /// SONAMEs on which the object depends.
    pub needed: Vec<String>,
    /// First line of `rustc -vV`.
    pub rustc: String,
    /// First line of the linker's version.
    pub linker: String,
    /// Digest of all inputs of the object.
    pub inputs: String,
    /// Exported names that are implemented; the others return the status not-supported.
    pub implemented: Vec<String>,
}

/// Reasons why a manifest cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum ManifestError {
    #[error("read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("understand {path}")]
    Parse { path: PathBuf, source: Box<toml::de::Error> },
    #[error("express the manifest")]
    Express(#[from] toml::ser::Error),
}

impl Manifest {
    /// Reads the manifest of `folder`; returns `None` if there is none.
    pub fn read(folder: &Path) -> Result<Option<Self>, ManifestError> {
        let path = folder.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(ManifestError::File { path, source }),
        };
        toml::from_str(&text)
            .map(Some)
            .map_err(|source| ManifestError::Parse { path, source: Box::new(source) })
    }

    /// Replaces the manifest of `folder` atomically.
    pub fn write(&self, folder: &Path) -> Result<(), ManifestError> {
        let path = folder.join(FILE);
        let text = format!("{HEAD}{}", toml::to_string(self)?);
        super::files::replace(&path, text.as_bytes()).map_err(|source| ManifestError::File { path, source })
    }

    /// Returns the entry with this SONAME.
    pub fn entry(&self, soname: &str) -> Option<&Entry> {
        self.shims.iter().find(|entry| entry.soname == soname)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_its_file() {
        let folder = std::env::temp_dir().join(format!("vgpu-manifest-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        assert_eq!(Manifest::read(&folder).unwrap(), None);
        let entry = |soname: &str, major| Entry {
            soname: soname.into(),
            major,
            sha256: "00".repeat(32),
            bytes: 1,
            exports: 2,
            glibc: Some("2.17".into()),
            needed: vec!["libc.so.6".into()],
            rustc: "rustc".into(),
            linker: "cc".into(),
            inputs: "11".repeat(32),
            implemented: vec!["cuInit".into()],
        };
        let probe = Program {
            sha256: "22".repeat(32),
            bytes: 3,
            glibc: None,
            needed: Vec::new(),
            rustc: "rustc".into(),
            linker: "cc".into(),
            inputs: "33".repeat(32),
        };
        let shims = vec![entry("libcuda.so.1", None), entry("libcudart.so.13", Some(13))];
        let manifest = Manifest { shims, probe: Some(probe.clone()), trace: Some(probe) };
        manifest.write(&folder).unwrap();
        assert_eq!(Manifest::read(&folder).unwrap(), Some(manifest));
        fs::write(folder.join(FILE), "shim = 3").unwrap();
        assert!(matches!(Manifest::read(&folder), Err(ManifestError::Parse { .. })));
        fs::remove_dir_all(&folder).unwrap();
    }
}
