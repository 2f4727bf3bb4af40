//! Has the shims built (see `xtask`) and passes copies of them to `src/embedded.rs`.
//!
//! With `VGPU_RUN_SHIMS=DIRECTORY` nothing is built, and the finished shims of that directory are embedded.
//! This is how a release gets shims that were linked for older guests than this machine.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use xtask::shims::manifest::Manifest;
use xtask::shims::{self, Companion, Options};
use xtask::workspace::chain;

/// Environment variable that names a directory of finished shims, which are then embedded instead of being
/// built.
const FINISHED: &str = "VGPU_RUN_SHIMS";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error=failed to {}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    for (name, wanted) in [("CARGO_CFG_TARGET_ARCH", "x86_64"), ("CARGO_CFG_TARGET_OS", "linux")] {
        let found = variable(name)?;
        if found != wanted {
            return Err(format!("build for {}: shims exist for x86_64 Linux only", found.display()).into());
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={FINISHED}");
    println!("cargo::rerun-if-env-changed=CC");
    let (folder, manifest) = match env::var_os(FINISHED).filter(|folder| !folder.is_empty()) {
        Some(folder) => {
            let folder = PathBuf::from(folder);
            println!("cargo::rerun-if-changed={}", folder.join(shims::manifest::FILE).display());
            let manifest = shims::open(&folder)?;
            (folder, manifest)
        }
        None => build(&root)?,
    };
    let mut objects = String::from("[\n");
    let mut libraries = String::new();
    for entry in &manifest.shims {
        let name = &entry.soname;
        copy(&folder.join(name), &out.join(name))?;
        writeln!(objects, "EmbeddedObject {{ soname: {name:?}, bytes: on_pages!({name:?}) }},")?;
        let (all, own) = (entry.exports, entry.implemented.len());
        let glibc = entry.glibc.as_deref().unwrap_or("any");
        writeln!(libraries, "{name:<20} {all:>4} functions, {own:>3} of them implemented; glibc {glibc}")?;
    }
    objects.push_str("]\n");
    for companion in Companion::ALL {
        copy(&folder.join(companion.file()), &out.join(companion.file()))?;
    }
    let path = out.join("objects.rs");
    write(&path, &objects)?;
    write(&out.join("libraries.txt"), &libraries)
}

fn write(path: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    fs::write(path, text).map_err(|error| format!("write {}: {error}", path.display()).into())
}

/// Brings `embedded/` up to date and returns a copy of its objects with their manifest. Another build may
/// replace the originals at any time.
fn build(root: &Path) -> Result<(PathBuf, Manifest), Box<dyn Error>> {
    let options = Options::embedded(root);
    let report = shims::update(&options)?;
    for path in &report.watch {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    if let Some((soname, error)) = report.failed.first() {
        return Err(format!("build {soname}: failed to {}", chain(error)).into());
    }
    Ok((options.out, report.manifest))
}

fn variable(name: &str) -> Result<OsString, String> {
    env::var_os(name).ok_or_else(|| format!("find {name}, which cargo sets for build scripts"))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    // Removed first, because the old file may be a hard link or being read.
    let _ = fs::remove_file(to);
    fs::copy(from, to)
        .map(drop)
        .map_err(|error| format!("copy {} to {}: {error}", from.display(), to.display()))
}
