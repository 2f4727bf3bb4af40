//! Installs programs that are executed immediately afterwards.
//!
//! A file that any process has open for writing cannot be executed (ETXTBSY). If this process wrote the file,
//! another thread could fork meanwhile and the child would inherit the descriptor. So a child process writes
//! the file, and nobody can inherit its descriptor.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Reasons why a program could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum ExecutableError {
    /// The program that writes the file could not be run.
    #[error("run {program} for {path}")]
    Run {
        /// Name of the program that writes the file.
        program: &'static str,
        /// Path of the file to be written.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// The program that writes the file failed. Its stderr contains the reason.
    #[error("{program} ended with {status} for {path}")]
    Failed {
        /// Name of the program that writes the file.
        program: &'static str,
        /// Path of the file to be written.
        path: PathBuf,
        /// Exit status of the program that writes the file.
        status: ExitStatus,
    },
    /// The new file is written but could not be renamed.
    #[error("put {path} in place")]
    Rename {
        /// Path of the file to be replaced.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
}

/// Copies a program with its mode and replaces an existing program.
///
/// # Errors
/// Fails if `cp` cannot be run or fails.
pub fn copy(from: &Path, to: &Path) -> Result<(), ExecutableError> {
    let program = "cp";
    let status = Command::new(program).args(["--remove-destination", "--"]).args([from, to]).status();
    ended(program, to, status)
}

/// Writes an executable file atomically. An existing program is replaced and never seen half written.
///
/// # Errors
/// Fails if `install` cannot be run or fails, or if its file cannot be renamed.
pub fn write(to: &Path, bytes: &[u8]) -> Result<(), ExecutableError> {
    let program = "install";
    let new = to.with_extension("new");
    let mut install = Command::new(program);
    install.args(["-m", "755", "/dev/stdin"]).arg(&new).stdin(Stdio::piped());
    let status = install.spawn().and_then(|mut child| {
        let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(bytes));
        let status = child.wait()?;
        // The child's exit status explains more than the broken pipe.
        if status.success() { written.map(|()| status) } else { Ok(status) }
    });
    ended(program, &new, status)?;
    std::fs::rename(&new, to).map_err(|source| ExecutableError::Rename { path: to.to_owned(), source })
}

fn ended(program: &'static str, path: &Path, status: io::Result<ExitStatus>) -> Result<(), ExecutableError> {
    let path = path.to_owned();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(ExecutableError::Failed { program, path, status }),
        Err(source) => Err(ExecutableError::Run { program, path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_replaced_and_run() {
        let folder = tempfile::tempdir().unwrap();
        let (script, copied) = (folder.path().join("script"), folder.path().join("copied"));
        for code in [3, 4] {
            write(&script, format!("#!/bin/sh\nexit {code}\n").as_bytes()).unwrap();
            copy(&script, &copied).unwrap();
            for path in [&script, &copied] {
                assert_eq!(Command::new(path).status().unwrap().code(), Some(code), "{}", path.display());
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let missing = Path::new("/does/not/exist");
        for error in [write(missing, b"").unwrap_err(), copy(missing, missing).unwrap_err()] {
            assert!(matches!(error, ExecutableError::Failed { .. }), "{error:?}");
            assert!(error.to_string().contains("/does/not/exist"), "{error}");
        }
    }
}
