//! A parent of the careful kind: it closes all descriptors that it did not open itself.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

/// Closes descriptors 3 and up as `close_range(3, ~0)`, then runs `command` as a child.
pub fn close_all(command: &[OsString]) -> Result<ExitCode> {
    // SAFETY: the kernel closes descriptors by number; nothing of this program uses one above 2 yet.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    if closed != 0 {
        return Err(std::io::Error::last_os_error()).context("close_range(3, ~0)");
    }
    let (program, arguments) = command.split_first().context("no command")?;
    let status = Command::new(program)
        .args(arguments)
        .status()
        .with_context(|| format!("start {}", program.display()))?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}
