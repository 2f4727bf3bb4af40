//! A parent process whose children inherit none of its descriptors, as with Python's `subprocess` by default.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

fn close_range() -> io::Result<()> {
    // SAFETY: the kernel closes descriptors by number. This runs between fork and exec, where only
    // the exec itself follows; it needs none of them.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs `command` as a child that calls `close_range(3, ~0)` before exec, and returns its exit code.
pub fn close_all(command: &[OsString]) -> Result<ExitCode> {
    let (program, arguments) = command.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(close_range) };
    let status = command.status().with_context(|| format!("start {}", program.display()))?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}
