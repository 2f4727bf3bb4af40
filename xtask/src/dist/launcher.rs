//! The launcher of a release: one static file that embeds the finished shims.

use std::path::{Path, PathBuf};

use super::error::DistError;
use super::files::{read, write};
use crate::shims::inspect::Object;
use crate::shims::{self, ShimError, compile, first};

/// Functions that run at start-up, as a list of symbol name patterns, one per line.
const FIRST: &str = include_str!("first.list");

/// Returns the path to which cargo builds the launcher.
pub fn path(folder: &Path) -> PathBuf {
    folder.join("cargo").join(compile::TARGET).join("release/vgpu-run")
}

/// Compiles the launcher, which embeds the finished shims, and returns its bytes.
pub fn build(root: &Path, folder: &Path) -> Result<Vec<u8>, DistError> {
    let target = folder.join("cargo");
    let script = first::script(first::patterns(FIRST).map(Into::into));
    // Cargo links again where the arguments change, not where the file does.
    let name = folder.join(format!("first-{}.ld", &shims::sha256(script.as_bytes())[..8]));
    write(&name, script.as_bytes())?;
    let mut command = compile::cargo(root, &["-Ctarget-feature=+crt-static"]);
    command
        .args(["rustc", "--release", "--locked", "--package", "vgpu-run", "--bin", "vgpu-run"])
        .args(["--config", "profile.release.lto='fat'"])
        .args(["--config", "profile.release.codegen-units=1"])
        .args(["--config", "profile.release.strip='symbols'"])
        .args(["--target", compile::TARGET, "--target-dir"])
        .arg(&target)
        // The linker runs in `root`; a release does not depend on where that is.
        .args(["--", "-Clink-arg=-T"])
        .arg(format!("-Clink-arg={}", name.strip_prefix(root).unwrap_or(&name).display()))
        .env("VGPU_RUN_SHIMS", folder.join("shims"));
    let status = command.status().map_err(DistError::Cargo)?;
    if !status.success() {
        return Err(DistError::Compile { program: "the launcher", status });
    }
    let path = path(folder);
    let bytes = read(&path)?;
    let object = Object::parse(&bytes).map_err(|source| ShimError::Object { path, source })?;
    if object.interpreter || !object.needed.is_empty() {
        return Err(DistError::NotStatic(format!("it needs a loader and {:?}", object.needed)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn patterns_are_names_and_stars() {
        crate::shims::first::tests::are_names_and_stars(super::FIRST);
    }
}
