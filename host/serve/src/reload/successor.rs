//! The execution of the program that takes over, in this process, and the descriptors that survive it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use rustix::io::{FdFlags, fcntl_setfd};
use signal_hook::consts::SIGPIPE;
use vgpu_device::{KeptDescriptors, RaisedPriority};

use crate::inherited::{HANDED_OVER, HURRIED, named_numbers};

/// Returns the path of the program, as it was when this was first called, which is at the start: an upgrade
/// replaces the file, and the system then names the one that was removed.
pub(crate) fn program() -> io::Result<PathBuf> {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    if let Some(program) = PROGRAM.get() {
        return Ok(program.clone());
    }
    let program = std::env::current_exe()?;
    Ok(PROGRAM.get_or_init(|| program).clone())
}

/// Returns the arguments of this process, which are those of its successor.
pub(crate) fn arguments() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}

/// Executes `program` in this process with these descriptors. They are duplicates: those that this process uses
/// are closed with it, so that nothing survives by mistake. Returns only if that fails. The program is told
/// of the priority, and is to end it.
pub(crate) fn execute(
    program: &Path,
    arguments: &[OsString],
    kept: &KeptDescriptors,
    priority: Option<&RaisedPriority>,
) -> io::Error {
    let survive = |flags| kept.iter().try_for_each(|(_, descriptor)| fcntl_setfd(descriptor, flags));
    let error = match survive(FdFlags::empty()) {
        Ok(()) => {
            let mut command = Command::new(program);
            command.args(arguments).env(HANDED_OVER, named_numbers(kept.iter()));
            command.envs(priority.map(|_| (HURRIED, "1"))).exec()
        }
        Err(error) => error.into(),
    };
    // The descriptors are closed with their table. Until then no child may inherit them.
    let _ = survive(FdFlags::CLOEXEC);
    // The attempt has taken back that this signal is ignored. A client that hangs up must not end the
    // process.
    let _ = signal_hook::flag::register(SIGPIPE, Arc::default());
    error
}
