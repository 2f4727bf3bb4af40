//! The launcher's exit codes, those of `env(1)`. A program that was started answers with its own: exec keeps
//! the process, so the launcher is not there any more to translate anything.

use std::process::ExitCode;

/// Exit code of the launcher itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Nothing went wrong: help, version, or `env` was asked for.
    Success = 0,
    /// The launcher failed before it came to the program: wrong usage, no device, no way to inject.
    Launcher = 125,
    /// The program is there and cannot be started, or cannot be given the GPU (static, setuid, another
    /// loader).
    NotExecutable = 126,
    /// There is no such program.
    NotFound = 127,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
