//! Executes the program with the same process state that the launcher was started with.

use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::execve;

use super::file_size;
use crate::diagnosis::Fix;
use crate::env::Environment;
use crate::error::LauncherError;
use crate::exit::Exit;
use crate::program::Program;
use crate::program::script::SHELL;

/// Reason why the program did not start.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// `execve` of this program failed.
    #[error("failed to execute {}", .0.display())]
    Exec(PathBuf, #[source] Errno),
    /// A name, argument or variable contains a zero byte, which no shell passes.
    #[error("failed to hand over a text with a zero byte in it")]
    Zero,
}

impl LauncherError for ExecError {
    fn exit(&self) -> Exit {
        match self {
            Self::Exec(_, Errno::ENOENT) => Exit::NotFound,
            _ => Exit::NotExecutable,
        }
    }

    fn fix(&self) -> Option<Fix> {
        match self {
            // It was there a moment ago: what is missing is what it needs.
            Self::Exec(..) if self.exit() == Exit::NotFound => {
                Some("The file is there: its loader or its interpreter is not.".into())
            }
            _ => None,
        }
    }
}

/// Replaces this process by the program. `command` is the program's name, as the user gave it, followed by
/// its arguments. Returns only on failure, with the error.
pub fn exec(program: &Program, command: &[OsString], environment: &Environment) -> ExecError {
    match try_exec(program, command, environment) {
        Err(error) => error,
        Ok(never) => match never {},
    }
}

fn try_exec(
    program: &Program,
    command: &[OsString],
    environment: &Environment,
) -> Result<Infallible, ExecError> {
    let mut arguments = command.iter().map(|text| c_string(text.clone())).collect::<Result<Vec<_>, _>>()?;
    let variables = environment
        .iter()
        .map(|(name, value)| c_string([name, value].join("=".as_ref())))
        .collect::<Result<Vec<_>, _>>()?;
    restore_sigpipe();
    file_size::release();
    let errno = match try_execve(&program.path, &arguments, &variables)? {
        Errno::ENOEXEC => {
            // As execvp(3): what no loader takes is the shell's.
            arguments[0] = c_string(program.path.clone().into_os_string())?;
            arguments.insert(0, c_string(SHELL.into())?);
            try_execve(Path::new(SHELL), &arguments, &variables)?
        }
        errno => errno,
    };
    Err(ExecError::Exec(program.path.clone(), errno))
}

/// Calls execve and returns its error number.
fn try_execve(path: &Path, arguments: &[CString], variables: &[CString]) -> Result<Errno, ExecError> {
    let path = c_string(path.as_os_str().to_owned())?;
    match execve(&path, arguments, variables) {
        Err(errno) => Ok(errno),
        Ok(never) => match never {},
    }
}

fn c_string(text: OsString) -> Result<CString, ExecError> {
    CString::new(text.into_vec()).map_err(|_| ExecError::Zero)
}

/// Whether SIGPIPE was ignored when this process started. Rust's runtime ignores it before `main`, and exec
/// keeps ignored signals, so the original state is restored for the program.
static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Entry that makes the loader call [`note_sigpipe`] before Rust's runtime starts.
#[used]
// SAFETY: the section holds pointers to functions that the loader calls with arguments which this one leaves
// alone.
#[unsafe(link_section = ".init_array")]
static NOTE_SIGPIPE: extern "C" fn() = note_sigpipe;

extern "C" fn note_sigpipe() {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only writes the current one to the given place, which is large
    // enough.
    let done = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all zeros is a valid action, and the call has written one if it succeeded.
    let action = unsafe { action.assume_init() };
    SIGPIPE_WAS_IGNORED.store(done == 0 && action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
}

fn restore_sigpipe() {
    if !SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed) {
        // SAFETY: the default action is no handler of ours, so nothing can run in an unexpected place.
        let restored = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
        debug_assert!(restored.is_ok(), "SIGPIPE exists");
    }
}
