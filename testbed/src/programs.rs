//! Where the workspace's programs are: built by cargo into the folder of the running program.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// The folder that cargo builds programs of this profile into.
fn folder() -> Result<PathBuf> {
    let own = std::env::current_exe().context("find the running program")?;
    let folder = own.parent().context("the running program has no folder")?;
    // Tests run from the `deps` folder below it.
    let folder =
        if folder.ends_with("deps") { folder.parent().context("deps has no parent")? } else { folder };
    Ok(folder.to_owned())
}

/// Builds the workspace's programs once a process, where cargo started it: they may be older than
/// the sources, or not there. Without cargo (an installed test bed) they are taken as they are.
fn up_to_date() -> Result<()> {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    let build = || -> Result<()> {
        let Some(cargo) = std::env::var_os("CARGO") else { return Ok(()) };
        let folder = folder()?;
        let mut command = Command::new(cargo);
        command.args([
            "build",
            "--quiet",
            "-p",
            "vgpu-run",
            "-p",
            "vgpu-ggml",
            "-p",
            "vgpu-guest",
            "-p",
            "vgpu-llama",
            "-p",
            "vgpu-standins",
            "-p",
            "vgpu-testbed",
            "--bins",
        ]);
        if folder.ends_with("release") {
            command.arg("--release");
        }
        command.arg("--target-dir").arg(folder.parent().context("the target folder has no parent")?);
        command.current_dir(env!("CARGO_MANIFEST_DIR"));
        let status = command.status().context("run cargo build")?;
        if !status.success() {
            bail!("cargo build: {status}");
        }
        Ok(())
    };
    match BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}"))) {
        Ok(()) => Ok(()),
        Err(error) => bail!("failed to build the programs: {error}"),
    }
}

fn program(name: &str) -> Result<PathBuf> {
    up_to_date()?;
    let path = folder()?.join(name);
    if !path.is_file() {
        bail!("{} is not there; build it with: cargo build --release --workspace --bins", path.display());
    }
    Ok(path)
}

/// The launcher.
pub fn launcher() -> Result<PathBuf> {
    program("vgpu-run")
}

/// The program that plays users' programs.
pub fn standin() -> Result<PathBuf> {
    program("vgpu-standin")
}

/// The program that plays a guest's inference server.
pub fn llama() -> Result<PathBuf> {
    program("vgpu-llama")
}

/// The program that computes GGML's operations.
pub fn ops() -> Result<PathBuf> {
    program("vgpu-ops")
}

/// The first process of a guest.
pub fn agent() -> Result<PathBuf> {
    program("vgpu-guest-agent")
}

/// The test bed's own command line.
pub fn testbed() -> Result<PathBuf> {
    program("vgpu-testbed")
}
