//! `artifacts.toml` and `debian.toml`: the list of artifacts, with the digests of all their files.

use std::collections::BTreeMap;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// Reasons why an artifact's description cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The text of `artifacts.toml` or `debian.toml` is invalid.
    #[error("understand artifacts.toml")]
    Text(#[source] Box<toml::de::Error>),
    /// There is no artifact, set or package of this name.
    #[error("find `{0}` in artifacts.toml")]
    Unknown(String),
}

/// The content of `artifacts.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Archives of the registries, by a short name.
    #[serde(rename = "package")]
    pub packages: BTreeMap<String, Package>,
    /// Sets of files to extract from the packages, by name.
    #[serde(rename = "set")]
    pub sets: BTreeMap<String, Set>,
    /// Artifacts, each a directory of the cache, by name.
    #[serde(rename = "artifact")]
    pub artifacts: BTreeMap<String, Artifact>,
}

/// Package registry, which decides the client that fetches a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Registry {
    /// The npm registry, whose packages are gzipped tar archives.
    Npm,
    /// The Python Package Index, whose packages are wheels (zip archives).
    Pypi,
}

/// An archive of a registry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Registry that publishes the package.
    pub registry: Registry,
    /// Name of the package in the registry.
    pub name: String,
    /// Version of the package in the registry.
    pub version: String,
    /// File name that the registry's client gives the archive.
    pub file: String,
    /// Size of the archive in bytes.
    pub bytes: u64,
    /// SHA-256 of the archive, in hexadecimal.
    pub sha256: String,
}

/// Files to extract from one directory of a package.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// Short name of the package that contains the files.
    pub package: String,
    /// Path of the directory inside the package.
    pub folder: String,
    /// File names, each with its SHA-256.
    pub files: BTreeMap<String, String>,
}

/// An artifact, which is one directory of the cache.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// One line that describes the artifact.
    pub about: String,
    /// Whether the artifact is fetched only when it is named.
    #[serde(default)]
    pub optional: bool,
    /// Names of the sets whose files the artifact contains.
    #[serde(default)]
    pub sets: Vec<String>,
    /// File into which the sets' files are concatenated, if the artifact is a single file.
    pub join: Option<Join>,
    /// Short name of a package that is unpacked completely, in place of sets.
    pub whole: Option<String>,
    /// Debian packages that the artifact contains instead of sets.
    #[serde(default)]
    pub debian: Vec<Deb>,
}

/// A package of Debian's archive.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deb {
    /// Path of the package in the archive, which includes its name and version.
    pub pool: String,
    /// Size of the package in bytes.
    pub bytes: u64,
    /// SHA-256 of the package, in hexadecimal.
    pub sha256: String,
}

/// Content of `debian.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Debian {
    artifact: BTreeMap<String, Artifact>,
}

/// A file that is concatenated from parts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// Name of the concatenated file.
    pub name: String,
    /// SHA-256 of the whole file, in hexadecimal.
    pub sha256: String,
}

impl Spec {
    /// Reads the `artifacts.toml` of this source tree.
    pub fn own() -> Result<Self, SpecError> {
        let error = |source| SpecError::Text(Box::new(source));
        let mut spec: Self = toml::from_str(include_str!("../artifacts.toml")).map_err(error)?;
        let debian: Debian = toml::from_str(include_str!("../debian.toml")).map_err(error)?;
        spec.artifacts.extend(debian.artifact);
        Ok(spec)
    }

    /// Returns the artifact called `name`, or an error if there is none.
    pub fn artifact(&self, name: &str) -> Result<&Artifact, SpecError> {
        self.artifacts.get(name).ok_or_else(|| SpecError::Unknown(name.to_owned()))
    }

    /// Returns the set called `name`, or an error if there is none.
    pub fn set(&self, name: &str) -> Result<&Set, SpecError> {
        self.sets.get(name).ok_or_else(|| SpecError::Unknown(name.to_owned()))
    }

    /// Returns the package with the short name `name`, or an error if there is none.
    pub fn package(&self, name: &str) -> Result<&Package, SpecError> {
        self.packages.get(name).ok_or_else(|| SpecError::Unknown(name.to_owned()))
    }

    /// Returns the short names of the packages that provide an artifact's files.
    pub fn packages_of<'a>(&'a self, artifact: &'a Artifact) -> Result<Vec<&'a str>, SpecError> {
        let mut names: Vec<&str> = artifact.whole.iter().map(String::as_str).collect();
        for set in &artifact.sets {
            names.push(&self.set(set)?.package);
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Returns the number of bytes to download for an artifact.
    pub fn bytes_of(&self, artifact: &Artifact) -> Result<u64, SpecError> {
        let mut bytes = artifact.debian.iter().map(|deb| deb.bytes).sum();
        for name in self.packages_of(artifact)? {
            bytes += self.package(name)?.bytes;
        }
        Ok(bytes)
    }

    /// Returns a digest of an artifact's content, which is part of its directory's name: different content
    /// gets a different directory.
    pub fn identity(&self, artifact: &Artifact) -> Result<String, SpecError> {
        let mut hash = Sha256::new();
        for set in &artifact.sets {
            for (name, digest) in &self.set(set)?.files {
                hash.update(format!("{name} {digest}\n"));
            }
        }
        if let Some(join) = &artifact.join {
            hash.update(format!("join {} {}\n", join.name, join.sha256));
        }
        if let Some(package) = &artifact.whole {
            hash.update(format!("whole {}\n", self.package(package)?.sha256));
        }
        for deb in &artifact.debian {
            hash.update(format!("debian {}\n", deb.sha256));
        }
        Ok(hex::encode(&hash.finalize()[..4]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_named_exists_and_every_digest_is_one() {
        let spec = Spec::own().unwrap();
        let digest = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        for package in spec.packages.values() {
            assert!(digest(&package.sha256) && package.bytes > 0, "{}", package.name);
        }
        for (name, set) in &spec.sets {
            spec.package(&set.package).unwrap();
            assert!(!set.files.is_empty() && set.files.values().all(|text| digest(text)), "{name}");
            assert!(!set.folder.starts_with('/') && !set.folder.ends_with('/'), "{name}");
        }
        for (name, artifact) in &spec.artifacts {
            let kinds = [!artifact.sets.is_empty(), artifact.whole.is_some(), !artifact.debian.is_empty()];
            assert_eq!(kinds.iter().filter(|kind| **kind).count(), 1, "{name}");
            assert!(spec.bytes_of(artifact).unwrap() > 0);
            for deb in &artifact.debian {
                assert!(digest(&deb.sha256) && deb.pool.starts_with("pool/main/"), "{}", deb.pool);
            }
            assert_eq!(spec.identity(artifact).unwrap().len(), 8);
        }
    }

    #[test]
    fn other_content_is_another_folder() {
        let spec = Spec::own().unwrap();
        let of = |name| spec.identity(spec.artifact(name).unwrap()).unwrap();
        assert_ne!(of("ggml-cuda12"), of("ggml-cuda13"));
    }
}
