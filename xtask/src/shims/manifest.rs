//! `embedded/MANIFEST.toml`: what each built shim is.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

/// Name of the file, beside the objects.
pub const FILE: &str = "MANIFEST.toml";

const HEAD: &str = "# What the shims beside this file are. Made with them, never edited.\n\n";

/// Content of `MANIFEST.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// One entry for each object, libcuda first.
    #[serde(default, rename = "shim")]
    pub shims: Vec<Entry>,
    /// The helper program of `check`.
    pub probe: Option<Program>,
    /// The object that `trace` preloads.
    pub trace: Option<Program>,
}

/// What is no shim: a program, or an object that stands in for none of NVIDIA's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// SHA-256, in hexadecimal.
    pub sha256: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// The newest glibc version that it asks for.
    pub glibc: Option<String>,
    /// SONAMEs of the objects that it needs.
    pub needed: Vec<String>,
    /// First line of `rustc -vV`.
    pub rustc: String,
    /// First line of what the linker says of its version.
    pub linker: String,
    /// Digest of everything that it was made from.
    pub inputs: String,
}

/// A shim of the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// SONAME and file name.
    pub soname: String,
    /// The CUDA major that it belongs to, where there is one object for each.
    pub major: Option<u8>,
    /// SHA-256 of the object, in hexadecimal.
    pub sha256: String,
    /// Size of the object.
    pub bytes: u64,
    /// How many names it exports: all of its symbol list, no more.
    pub exports: usize,
    /// The newest glibc version that it asks for.
    pub glibc: Option<String>,
    /// SONAMEs of the objects that it needs.
    pub needed: Vec<String>,
    /// First line of `rustc -vV`.
    pub rustc: String,
    /// First line of what the linker says of its version.
    pub linker: String,
    /// Digest of everything that it was made from.
    pub inputs: String,
    /// The exported names that are implemented; the others answer not-supported.
    pub implemented: Vec<String>,
}

/// A manifest that cannot be read or written.
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
    /// Reads the manifest of `folder`; `None` where there is none.
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

    /// Replaces the manifest of `folder`, in one step.
    pub fn write(&self, folder: &Path) -> Result<(), ManifestError> {
        let path = folder.join(FILE);
        let text = format!("{HEAD}{}", toml::to_string(self)?);
        super::files::replace(&path, text.as_bytes()).map_err(|source| ManifestError::File { path, source })
    }

    /// Returns the entry of a SONAME.
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
