//! Exit codes of the launcher, which follow `env(1)`. A program that was started returns its own exit code,
//! because exec replaces the launcher.

use std::process::ExitCode;

/// Exit code of the launcher itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success: help, version, or `env` was requested.
    Success = 0,
    /// The launcher failed before it started the program: wrong usage, no device, or no method of injection.
    Launcher = 125,
    /// The program exists and cannot be started, or cannot be given the GPU (static, setuid, another loader).
    NotExecutable = 126,
    /// The program does not exist.
    NotFound = 127,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
