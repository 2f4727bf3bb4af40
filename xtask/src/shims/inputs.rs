//! Digest of a shim's inputs: equal digests mean that nothing must be built.
//!
//! It covers the sources of the shim's crate and of the workspace crates on which that depends, their pinned
//! versions in `Cargo.lock`, the profile, the symbol lists, this crate's linking code, the versions of rustc
//! and linker, and the linker's options. Paths of the machine are not part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// Files and directories of a crate that do not affect a shim.
const NOT_INPUTS: &[&str] = &["tests", "benches", "examples", "fuzz", "target", "README.md"];

/// Directories whose crates can be part of a shim.
const PARTS: [&str; 2] = ["shim-src/", "common/"];

/// Directory of the linking code, relative to the workspace.
const OWN_SOURCES: &str = "xtask/src/shims";

/// Reasons why an input cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum InputError {
    #[error("read {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("understand {path}")]
    Toml { path: PathBuf, source: Box<toml::de::Error> },
    #[error("find the crate {0} in the workspace")]
    NoCrate(String),
}

/// Manifests of the workspace, and the digests computed so far.
pub struct Inputs {
    root: PathBuf,
    workspace: Manifest,
    lock: BTreeMap<String, Vec<Locked>>,
    members: BTreeMap<String, Member>,
    folders: BTreeMap<PathBuf, [u8; 32]>,
}

struct Member {
    folder: PathBuf,
    manifest: Manifest,
}

/// Digest of all inputs of a shim.
#[derive(Debug)]
pub struct Digest {
    /// SHA-256 of the inputs, in 64 lower-case hexadecimal digits.
    pub hex: String,
    /// Directories and files on which the digest depends.
    pub watch: BTreeSet<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Manifest {
    package: Option<toml::Table>,
    workspace: Workspace,
    profile: toml::Table,
    dependencies: toml::Table,
    build_dependencies: toml::Table,
    target: BTreeMap<String, Targeted>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Workspace {
    members: Vec<String>,
    dependencies: toml::Table,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Targeted {
    dependencies: toml::Table,
    build_dependencies: toml::Table,
}

#[derive(Deserialize)]
struct Lock {
    #[serde(default)]
    package: Vec<Locked>,
}

#[derive(Clone, Deserialize)]
struct Locked {
    name: String,
    version: String,
    source: Option<String>,
    checksum: Option<String>,
    #[serde(default)]
    dependencies: Vec<String>,
}

impl Inputs {
    /// Reads the manifests of the workspace at `root`.
    pub fn open(root: &Path) -> Result<Self, InputError> {
        let workspace: Manifest = read_toml(&root.join("Cargo.toml"))?;
        let mut lock: BTreeMap<String, Vec<Locked>> = BTreeMap::new();
        for package in read_toml::<Lock>(&root.join("Cargo.lock"))?.package {
            lock.entry(package.name.clone()).or_default().push(package);
        }
        let mut members = BTreeMap::new();
        let is_part = |member: &&String| PARTS.iter().any(|part| member.starts_with(part));
        for member in workspace.workspace.members.iter().filter(is_part) {
            let manifest: Manifest = read_toml(&root.join(member).join("Cargo.toml"))?;
            let name = manifest.package.as_ref().and_then(|package| package.get("name")?.as_str());
            if let Some(name) = name.map(str::to_owned) {
                members.insert(name, Member { folder: member.into(), manifest });
            }
        }
        Ok(Self { root: root.to_owned(), workspace, lock, members, folders: BTreeMap::new() })
    }

    /// Returns the digest of everything that affects an object of `package`. `about` describes inputs other
    /// than sources and tools.
    pub fn digest(&mut self, package: &str, about: &str, tools: &[String]) -> Result<Digest, InputError> {
        let mut hash = Records::new();
        hash.add(about);
        for tool in tools {
            hash.add(tool);
        }
        hash.add(&self.workspace.profile.to_string());
        let mut watch = BTreeSet::from(["Cargo.toml".into(), "Cargo.lock".into()]);
        let mut external = BTreeSet::new();
        let mut folders = BTreeSet::from([PathBuf::from(OWN_SOURCES)]);
        for name in self.closure(package)? {
            let Some(member) = self.members.get(&name) else { continue };
            folders.insert(member.folder.clone());
            for (key, value) in dependencies(&member.manifest) {
                let value = self.resolved(key, value);
                hash.add(&format!("{name} {key} {value}"));
                let package = package_name(key, &value);
                if !self.members.contains_key(&package) {
                    external.insert(package);
                }
            }
        }
        for folder in folders {
            hash.add_bytes(&self.folder(&folder)?);
            watch.insert(folder);
        }
        for line in self.locked(external) {
            hash.add(&line);
        }
        let watch = watch.into_iter().map(|path: PathBuf| self.root.join(path)).collect();
        Ok(Digest { hex: hash.finish(), watch })
    }

    /// Returns the names of the workspace crates from which `package` is built, including itself.
    fn closure(&self, package: &str) -> Result<BTreeSet<String>, InputError> {
        if !self.members.contains_key(package) {
            return Err(InputError::NoCrate(package.to_owned()));
        }
        let mut found = BTreeSet::new();
        let mut open = vec![package.to_owned()];
        while let Some(name) = open.pop() {
            let Some(member) = self.members.get(&name) else { continue };
            if found.insert(name) {
                open.extend(
                    dependencies(&member.manifest)
                        .map(|(key, value)| package_name(key, &self.resolved(key, value))),
                );
            }
        }
        Ok(found)
    }

    /// Returns a dependency with the settings of both its crate and the workspace.
    fn resolved(&self, key: &str, value: &toml::Value) -> toml::Value {
        let inherits = value.get("workspace").and_then(toml::Value::as_bool).unwrap_or_default();
        let inherited = self.workspace.workspace.dependencies.get(key);
        match inherited {
            Some(inherited) if inherits => toml::Value::Array(vec![inherited.clone(), value.clone()]),
            _ => value.clone(),
        }
    }

    /// Returns the entries of Cargo.lock for the named packages and all their dependencies.
    fn locked(&self, names: BTreeSet<String>) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        let mut open: Vec<String> = names.into_iter().collect();
        while let Some(name) = open.pop() {
            for package in self.lock.get(&name).into_iter().flatten() {
                let line = format!(
                    "{} {} {:?} {:?}",
                    package.name, package.version, package.source, package.checksum
                );
                if lines.insert(line) {
                    // Entries are `name`, or `name version` where there are several.
                    open.extend(
                        package
                            .dependencies
                            .iter()
                            .filter_map(|entry| entry.split_ascii_whitespace().next().map(str::to_owned)),
                    );
                }
            }
        }
        lines
    }

    /// Returns the digest of a directory's files, by their names and contents.
    fn folder(&mut self, folder: &Path) -> Result<[u8; 32], InputError> {
        if let Some(digest) = self.folders.get(folder) {
            return Ok(*digest);
        }
        let mut files = Vec::new();
        let top = self.root.join(folder);
        list(&top, &mut files, true)?;
        files.sort();
        let mut hash = Records::new();
        for file in files {
            let content =
                fs::read(&file).map_err(|source| InputError::File { path: file.clone(), source })?;
            hash.add(&file.strip_prefix(&top).unwrap_or(&file).to_string_lossy());
            hash.add_bytes(&content);
        }
        let digest = hash.0.finalize().into();
        self.folders.insert(folder.to_owned(), digest);
        Ok(digest)
    }
}

fn dependencies(manifest: &Manifest) -> impl Iterator<Item = (&String, &toml::Value)> {
    manifest.dependencies.iter().chain(&manifest.build_dependencies).chain(
        manifest.target.values().flat_map(|table| table.dependencies.iter().chain(&table.build_dependencies)),
    )
}

/// Returns the name of the package to which a dependency refers, which may be renamed.
fn package_name(key: &str, value: &toml::Value) -> String {
    let tables = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    tables.iter().find_map(|table| table.get("package")?.as_str()).unwrap_or(key).to_owned()
}

fn list(folder: &Path, files: &mut Vec<PathBuf>, top: bool) -> Result<(), InputError> {
    let fail = |source| InputError::File { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name();
        let hidden = name.as_encoded_bytes().starts_with(b".");
        if hidden || top && NOT_INPUTS.iter().any(|other| name == *other) {
            continue;
        }
        if entry.file_type().map_err(fail)?.is_dir() {
            list(&entry.path(), files, false)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn read_toml<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, InputError> {
    let text =
        fs::read_to_string(path).map_err(|source| InputError::File { path: path.to_owned(), source })?;
    toml::from_str(&text)
        .map_err(|source| InputError::Toml { path: path.to_owned(), source: Box::new(source) })
}

/// Hash of records. Each is preceded by its length, so that no part of one can be mistaken for another.
struct Records(Sha256);

impl Records {
    fn new() -> Self {
        Self(Sha256::new())
    }

    fn add(&mut self, text: &str) {
        self.add_bytes(text.as_bytes());
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn finish(self) -> String {
        hex::encode(self.0.finalize())
    }
}
