//! A release: the shims linked for old guests, a static launcher that embeds them, and a tarball that is the same
//! wherever it is made from the same sources and tools.

mod tarball;

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::{fs, io};

use serde::Deserialize;

use crate::artifacts::{self, ArtifactError};
use crate::shims::inspect::{Glibc, Object};
use crate::shims::link::Linker;
use crate::shims::manifest::{Entry, Manifest};
use crate::shims::{self, Companion, Options, ShimError, compile};
use crate::workspace::chain;

/// The oldest glibc that a guest may have.
const OLDEST: Glibc = Glibc(2, 17);

/// What shims may need: every glibc has these, and libcuda is one of them.
const ALLOWED: &[&str] = &[
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libcuda.so.1",
    "libdl.so.2",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
];

/// What lies in the tarball beside the launcher.
const DOCUMENTS: &[&str] = &["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Why there is no release.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum DistError {
    #[error("read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("read the version in {path}")]
    Version { path: PathBuf, source: Box<toml::de::Error> },
    #[error("get the linker")]
    Linker(#[from] ArtifactError),
    #[error("build the shims")]
    Shims(#[from] ShimError),
    #[error("build {soname}: {problem}")]
    Shim { soname: String, problem: String },
    #[error("run cargo")]
    Cargo(#[source] io::Error),
    #[error("compile the launcher: cargo ended with {0}")]
    Compile(ExitStatus),
    #[error("link the launcher statically: {0}")]
    NotStatic(String),
}

/// A release.
#[derive(Debug)]
pub struct Release {
    /// The shims in it.
    pub shims: Manifest,
    /// Size of the launcher, with them.
    pub launcher_bytes: u64,
    /// The archive.
    pub tarball: PathBuf,
    /// Its SHA-256.
    pub sha256: String,
}

#[derive(Deserialize)]
struct Root {
    package: Package,
}

#[derive(Deserialize)]
struct Package {
    version: String,
}

/// Makes the release of the workspace at `root`, in its `target/dist`.
pub fn make(root: &Path) -> Result<Release, DistError> {
    let folder = root.join("target/dist");
    let version = version(&root.join("Cargo.toml"))?;
    let mut documents = Vec::new();
    for name in DOCUMENTS {
        documents.push((*name, read(&root.join(name))?));
    }
    let shims = build_shims(root, &folder)?;
    let launcher = build_launcher(root, &folder)?;
    let launcher_bytes = launcher.len() as u64;

    let name = format!("vgpu-run-{version}-x86_64-linux");
    let mut files: Vec<_> =
        documents.iter().map(|(name, content)| tarball::File { name, content, executable: false }).collect();
    files.push(tarball::File { name: "vgpu-run", content: &launcher, executable: true });
    let archive =
        tarball::pack(&name, files).map_err(|source| DistError::File { path: folder.join(&name), source })?;
    let tarball = folder.join(format!("{name}.tar.gz"));
    let sha256 = shims::sha256(&archive);
    write(&tarball, &archive)?;
    write(&folder.join("SHA256SUMS"), format!("{sha256}  {name}.tar.gz\n").as_bytes())?;
    Ok(Release { shims, launcher_bytes, tarball, sha256 })
}

fn build_shims(root: &Path, folder: &Path) -> Result<Manifest, DistError> {
    let zig = artifacts::fetch("zig")?.join("ziglang/zig");
    let options = Options {
        out: folder.join("shims"),
        linker: Linker::Zig { program: zig, cache: folder.join("zig-cache") },
        locked: true,
        ..Options::embedded(root)
    };
    let report = shims::update(&options)?;
    if let Some((soname, error)) = report.failed.first() {
        return Err(DistError::Shim { soname: (*soname).into(), problem: chain(error) });
    }
    for entry in &report.manifest.shims {
        if let Some(problem) = problem(entry) {
            return Err(DistError::Shim { soname: entry.soname.clone(), problem });
        }
    }
    for companion in Companion::ALL {
        if let Some(program) = companion.entry(&report.manifest)
            && let Some(problem) = misfit(program.glibc.as_deref(), &program.needed)
        {
            return Err(DistError::Shim { soname: companion.file().into(), problem });
        }
    }
    Ok(report.manifest)
}

/// Why a shim would not load in every guest.
fn problem(entry: &Entry) -> Option<String> {
    misfit(entry.glibc.as_deref(), &entry.needed)
}

fn misfit(glibc: Option<&str>, needed: &[String]) -> Option<String> {
    let glibc = glibc.and_then(Glibc::parse);
    if let Some(glibc) = glibc.filter(|glibc| *glibc > OLDEST) {
        return Some(format!("it needs glibc {glibc}, later than {OLDEST}"));
    }
    let other = needed.iter().find(|needed| !ALLOWED.contains(&needed.as_str()))?;
    Some(format!("it needs {other}, which a guest may lack"))
}

/// Compiles the launcher, which embeds the finished shims.
fn build_launcher(root: &Path, folder: &Path) -> Result<Vec<u8>, DistError> {
    let target = folder.join("cargo");
    let mut command = compile::cargo(root, &["-Ctarget-feature=+crt-static"]);
    command
        .args(["build", "--release", "--locked", "--package", "vgpu-run", "--bin", "vgpu-run"])
        .args(["--config", "profile.release.lto='fat'"])
        .args(["--config", "profile.release.codegen-units=1"])
        .args(["--config", "profile.release.strip='symbols'"])
        .args(["--target", compile::TARGET, "--target-dir"])
        .arg(&target)
        .env("VGPU_RUN_SHIMS", folder.join("shims"));
    let status = command.status().map_err(DistError::Cargo)?;
    if !status.success() {
        return Err(DistError::Compile(status));
    }
    let path = target.join(compile::TARGET).join("release/vgpu-run");
    let bytes = read(&path)?;
    let object = Object::parse(&bytes).map_err(|source| ShimError::Object { path, source })?;
    if object.interpreter || !object.needed.is_empty() {
        return Err(DistError::NotStatic(format!("it needs a loader and {:?}", object.needed)));
    }
    Ok(bytes)
}

fn version(path: &Path) -> Result<String, DistError> {
    let text =
        fs::read_to_string(path).map_err(|source| DistError::File { path: path.to_owned(), source })?;
    toml::from_str::<Root>(&text)
        .map(|root| root.package.version)
        .map_err(|source| DistError::Version { path: path.to_owned(), source: Box::new(source) })
}

fn read(path: &Path) -> Result<Vec<u8>, DistError> {
    fs::read(path).map_err(|source| DistError::File { path: path.to_owned(), source })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), DistError> {
    shims::replace(path, bytes).map_err(|source| DistError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(glibc: &str, needed: &[&str]) -> Entry {
        Entry {
            soname: "libcuda.so.1".into(),
            major: None,
            sha256: String::new(),
            bytes: 0,
            exports: 0,
            glibc: Some(glibc.into()),
            needed: needed.iter().map(|&name| name.to_owned()).collect(),
            rustc: String::new(),
            linker: String::new(),
            inputs: String::new(),
            implemented: Vec::new(),
        }
    }

    #[test]
    fn a_shim_for_newer_guests_is_refused() {
        assert_eq!(problem(&entry("2.14", &["libc.so.6", "libcuda.so.1"])), None);
        assert_eq!(problem(&entry("2.17", &[])), None);
        assert!(problem(&entry("2.18", &[])).is_some_and(|text| text.contains("2.18")));
        assert!(problem(&entry("2.9", &["libgcc_s.so.1"])).is_some_and(|text| text.contains("libgcc_s")));
    }
}
