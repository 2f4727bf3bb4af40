//! Fetches a package with the registry's own client, as the user has configured it, and checks its digest.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use std::{fs, io, thread};

use crate::hashing::digest;
use crate::progress::Progress;
use crate::spec::{Package, Registry};

/// Time between two updates of a progress bar.
const TICK: Duration = Duration::from_millis(100);

/// Description of the package that could not be downloaded, with the reason.
#[derive(Debug, thiserror::Error)]
#[error("fetch the package {name} {version} (SHA-256 {sha256})")]
pub struct FetchError {
    name: String,
    version: String,
    sha256: String,
    source: Cause,
}

/// Reasons why a download fails.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum Cause {
    #[error("run {program}, which has to be installed")]
    Run { program: &'static str, source: io::Error },
    #[error("{program} ended with {status}: {output}")]
    Client { program: &'static str, status: ExitStatus, output: String },
    #[error("read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("its SHA-256 is {0}")]
    Digest(String),
}

/// Fetches `package` into `folder`, which nothing else uses, and returns the archive.
pub fn download(package: &Package, folder: &Path) -> Result<PathBuf, FetchError> {
    let temporary = folder.join("client");
    let (program, command) = client(package, folder, &temporary);
    let archive = create(&temporary).and_then(|()| run_client(program, command, package, folder, &temporary));
    archive.map_err(|source| FetchError {
        name: package.name.clone(),
        version: package.version.clone(),
        sha256: package.sha256.clone(),
        source,
    })
}

fn create(folder: &Path) -> Result<(), Cause> {
    fs::create_dir_all(folder).map_err(|source| Cause::File { path: folder.to_owned(), source })
}

/// Runs a client that leaves the archive in `folder`, and checks what it left.
fn run_client(
    program: &'static str,
    mut command: Command,
    package: &Package,
    folder: &Path,
    temporary: &Path,
) -> Result<PathBuf, Cause> {
    let log = temporary.join("log");
    let output = File::create(&log).map_err(|source| Cause::File { path: log.clone(), source })?;
    let progress = Progress::begin(format!("fetching {} {}", package.name, package.version), package.bytes);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(output)
        .spawn()
        .map_err(|source| Cause::Run { program, source })?;
    let status = thread::scope(|scope| {
        let (done, ended) = mpsc::channel();
        scope.spawn(move || done.send(child.wait()));
        loop {
            match ended.recv_timeout(TICK) {
                Ok(status) => break status,
                Err(RecvTimeoutError::Timeout) => progress.at(largest(folder)),
                Err(RecvTimeoutError::Disconnected) => break Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    })
    .map_err(|source| Cause::Run { program, source })?;
    if !status.success() {
        let output = fs::read_to_string(&log).unwrap_or_default().trim().to_owned();
        return Err(Cause::Client { program, status, output });
    }
    drop(progress);
    let path = folder.join(&package.file);
    let digest = digest(&path).map_err(|source| Cause::File { path: path.clone(), source })?;
    if digest != package.sha256 {
        return Err(Cause::Digest(digest));
    }
    Ok(path)
}

/// Returns the registry client's program and command, which leaves the archive in `folder` and everything
/// else in `temporary`.
fn client(package: &Package, folder: &Path, temporary: &Path) -> (&'static str, Command) {
    match package.registry {
        Registry::Npm => {
            let mut command = Command::new("npm");
            command
                .args(["pack", "--silent", "--ignore-scripts"])
                .arg(format!("{}@{}", package.name, package.version))
                .arg("--pack-destination")
                .arg(folder)
                .arg("--cache")
                .arg(temporary);
            ("npm", command)
        }
        Registry::Pypi => {
            let mut command = Command::new("python3");
            command
                .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"])
                .args(["--no-deps", "--only-binary", ":all:", "--no-cache-dir"])
                .arg(format!("{}=={}", package.name, package.version))
                .arg("--dest")
                .arg(folder)
                .env("TMPDIR", temporary);
            ("python3 with pip", command)
        }
    }
}

/// Returns the size in bytes of the largest file below `folder`. Clients first write a download under a
/// temporary name, so its name is unknown.
fn largest(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some(if metadata.is_dir() { largest(&entry.path()) } else { metadata.len() })
        })
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell script in place of a client; it may write to `$0`.
    fn scripted(name: &str, script: &str) -> (Result<PathBuf, Cause>, PathBuf) {
        let folder = std::env::temp_dir().join(format!("vgpu-download-{name}-{}", std::process::id()));
        let package = Package {
            registry: Registry::Pypi,
            name: "some-package".into(),
            version: "1.2".into(),
            file: "archive.whl".into(),
            bytes: 5,
            sha256: crate::hashing::sha256(b"right"),
        };
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg(folder.join(&package.file));
        // Fails if the directory exists, because other users may write to the temporary directory.
        fs::create_dir(&folder).unwrap();
        create(&folder.join("client")).unwrap();
        (run_client("sh", command, &package, &folder, &folder.join("client")), folder)
    }

    #[test]
    fn only_the_right_archive_is_taken() {
        let (archive, folder) = scripted("right", "printf right > \"$0\"");
        assert_eq!(fs::read(archive.unwrap()).unwrap(), b"right");
        fs::remove_dir_all(folder).unwrap();

        let (archive, folder) = scripted("wrong", "printf wrong > \"$0\"");
        assert!(matches!(archive, Err(Cause::Digest(found)) if found == crate::hashing::sha256(b"wrong")));
        fs::remove_dir_all(folder).unwrap();

        let (archive, folder) = scripted("nothing", "true");
        assert!(matches!(archive, Err(Cause::File { path, .. }) if path.ends_with("archive.whl")));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_client_that_fails_is_quoted() {
        let (archive, folder) = scripted("failing", "echo no such version >&2; exit 3");
        let cause = archive.unwrap_err();
        assert!(matches!(&cause, Cause::Client { output, .. } if output == "no such version"));
        fs::remove_dir_all(folder).unwrap();
        let error =
            FetchError { name: "p".into(), version: "1.2".into(), sha256: "abcd".into(), source: cause };
        let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
        assert!(text.starts_with("fetch the package p 1.2 (SHA-256 abcd): sh ended with"), "{text}");
    }

    #[test]
    fn the_largest_file_is_found_in_any_folder() {
        let folder = std::env::temp_dir().join(format!("vgpu-largest-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::write(folder.join("a/b/part"), [0; 100]).unwrap();
        fs::write(folder.join("log"), [0; 10]).unwrap();
        assert_eq!(largest(&folder), 100);
        fs::remove_dir_all(&folder).unwrap();
    }
}
