//! A shim's static library, by a cargo of its own: the shims have their own profile, and their features
//! must not be mixed with those of the launcher's dependencies.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

/// Target triple of the shims, whatever the launcher's is.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Error of a failed compilation, of which cargo has printed the details on stderr.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum CompileError {
    #[error("run {program}")]
    Run { program: String, source: io::Error },
    #[error("compile {package}, see cargo's messages")]
    Failed { package: &'static str },
    #[error("find the static library {path}, which cargo should have made")]
    NoArchive { path: PathBuf, source: io::Error },
}

/// Returns the command of the `rustc` that cargo uses.
pub fn rustc() -> Command {
    Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

/// Name of the crate that contains all shims.
pub const CORE: &str = "vgpu-core";

/// Compiles the crate `package` of the workspace at `root` to a static library, and returns its path.
///
/// `target` must be a target directory that no other cargo uses, so that this works inside a build script
/// while the outer cargo holds the lock on its own.
pub fn compile(
    root: &Path,
    target: &Path,
    package: &'static str,
    locked: bool,
) -> Result<PathBuf, CompileError> {
    // See shim-src/core. The same for all, so that they share what they depend on.
    let mut command = cargo(root, &["--cfg", "vgpu_core"]);
    command
        .args(["rustc", "--profile", "shim", "--target", TARGET, "--lib", "--crate-type", "staticlib"])
        .args(["--package", package, "--target-dir"])
        .arg(target);
    if locked {
        command.arg("--locked");
    }
    let status = command.status().map_err(|source| CompileError::Run {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    if !status.success() {
        return Err(CompileError::Failed { package });
    }
    let name = format!("lib{}.a", package.replace('-', "_"));
    let path = target.join(TARGET).join("shim").join(name);
    match path.metadata() {
        Ok(_) => Ok(path),
        Err(source) => Err(CompileError::NoArchive { path, source }),
    }
}

/// Returns a cargo command in `root` that ignores the environment of a build script and the user's flags, and
/// passes `flags` to rustc.
pub(crate) fn cargo(root: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    clean(&mut command);
    let mut all = remappings(root);
    all.extend(flags.iter().map(|&flag| flag.to_owned()));
    // Setting this, to whatever, also turns off the flags of the user's configuration files.
    command.current_dir(root).env("CARGO_ENCODED_RUSTFLAGS", all.join("\x1f"));
    command
}

/// Returns options that keep directory names of this machine out of the objects, since panic messages name
/// source files.
fn remappings(root: &Path) -> Vec<String> {
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| {
        let home = env::var_os("HOME")?;
        Some(Path::new(&home).join(".cargo"))
    });
    let registry = cargo_home.map(|home| home.join("registry/src"));
    [Some((root, "vgpu-run")), registry.as_deref().map(|path| (path, "registry"))]
        .into_iter()
        .flatten()
        .map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display()))
        .collect()
}

/// Removes variables that a build script, clippy, an analyzer or a user's flags would pass on.
fn clean(command: &mut Command) {
    for (name, _) in env::vars_os() {
        if !passes(&name) {
            command.env_remove(name);
        }
    }
}

fn passes(name: &OsStr) -> bool {
    /// Cargo's own variables that are kept, because they locate tools and registries without affecting the
    /// build.
    const KEPT: &[&str] = &[
        "CARGO_HOME",
        "CARGO_HTTP_",
        "CARGO_LOG",
        "CARGO_MAKEFLAGS",
        "CARGO_NET_",
        "CARGO_REGISTR",
        "CARGO_SOURCE_",
        "CARGO_TERM_",
    ];
    const DROPPED: &[&str] = &[
        "CARGO",
        "CLIPPY_",
        "DEP_",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "RUSTDOCFLAGS",
        "RUSTFLAGS",
    ];
    /// Variables that cargo sets for build scripts and whose names could also be set for other purposes.
    const OF_BUILD_SCRIPTS: &[&str] = &[
        "DEBUG",
        "HOST",
        "NUM_JOBS",
        "OPT_LEVEL",
        "OUT_DIR",
        "PROFILE",
        "RUSTDOC",
        "TARGET",
        "RUSTC_LINKER",
    ];
    let Some(name) = name.to_str() else { return true };
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    starts(KEPT) || !starts(DROPPED) && !OF_BUILD_SCRIPTS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_build_script_goes_on() {
        for name in [
            "CARGO",
            "CARGO_TARGET_DIR",
            "CARGO_FEATURE_X",
            "CARGO_CFG_UNIX",
            "OUT_DIR",
            "RUSTFLAGS",
            "CARGO_PROFILE_RELEASE_LTO",
        ] {
            assert!(!passes(OsStr::new(name)), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "CARGO_HOME",
            "CARGO_NET_OFFLINE",
            "RUSTUP_TOOLCHAIN",
            "CARGO_MAKEFLAGS",
            "RUSTC",
        ] {
            assert!(passes(OsStr::new(name)), "{name}");
        }
    }
}
