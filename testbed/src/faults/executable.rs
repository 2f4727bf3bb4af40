//! Puts programs in place that are started at once.
//!
//! A file that any process has open for writing cannot be executed (ETXTBSY). A file that this process writes
//! may be open in a child that another thread forks meanwhile, so a child writes it instead, and nobody can
//! inherit its descriptor.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Copies a program, with its mode. A program that is there already is replaced.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").args(["--remove-destination", "--"]).args([from, to]).status();
    let status = status.context("run cp")?;
    if !status.success() {
        bail!("copy {} to {}: {status}", from.display(), to.display());
    }
    Ok(())
}

/// Writes a program. A program that is there already is replaced, and never seen in part.
pub fn write(to: &Path, bytes: &[u8]) -> Result<()> {
    let new = to.with_extension("new");
    let mut child = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(&new)
        .stdin(Stdio::piped())
        .spawn()
        .context("run install")?;
    let mut stdin = child.stdin.take().context("install has no input")?;
    stdin.write_all(bytes).with_context(|| format!("write {}", new.display()))?;
    drop(stdin);
    let status = child.wait().context("wait for install")?;
    if !status.success() {
        bail!("write {}: {status}", new.display());
    }
    std::fs::rename(&new, to).with_context(|| format!("write {}", to.display()))
}
