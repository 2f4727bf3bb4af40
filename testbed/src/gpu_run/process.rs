//! The tested device's process, and its log.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use vgpu_testbed::programs;

use super::limit::{last_lines, within};

/// Name of the log of a device process and its workers, in the bus's directory.
const LOG: &str = "vgpu-device.log";
/// Maximum number of final log lines in a report.
const LOG_LINES: usize = 200;

/// Description of a device process to start.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Options of `vgpu-device serve`.
    pub options: Vec<String>,
    /// Bus of the device that the process uses as a GPU, if there is one.
    pub behind: Option<PathBuf>,
    /// Directories searched for NVIDIA's libraries before the loader's own ones.
    pub libraries: Vec<PathBuf>,
}

/// A device process, which is stopped when the value is dropped.
pub struct Device {
    folder: TempDir,
    child: Child,
    /// Pipe to the process, whose closing ends it.
    _stdin: ChildStdin,
    /// Time until the device was served.
    pub ready: Duration,
}

impl Device {
    /// Starts the process and waits until it serves, at most for `limit`.
    pub fn start(how: &Start, limit: Duration) -> Result<Self> {
        // Shared memory, so that the window's pages are never written back to a disk.
        let folder = TempDir::with_prefix_in("vgpu-gpu-", "/dev/shm").context("make a folder in /dev/shm")?;
        let mut command = Command::new(programs::device()?);
        command.arg("serve").arg("--bus").arg(format!("sim:{}", folder.path().display()));
        command.arg("--control").arg(folder.path().join("asked"));
        command.args(&how.options).arg("--until-stdin-closes").stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env_remove("VGPU_SYSFS");
        if let Some(behind) = &how.behind {
            command.env("VGPU_SYSFS", behind);
        }
        programs::prepend_libraries(&mut command, how.libraries.iter().map(PathBuf::as_path));
        command.stderr(File::create(folder.path().join(LOG)).context("make a file for a log")?);
        let begin = Instant::now();
        let mut child = command.spawn().context("start vgpu-device")?;
        let stdin = child.stdin.take().context("no stdin")?;
        let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let mut device = Self { folder, child, _stdin: stdin, ready: Duration::ZERO };
        match within(limit, move || lines.any(|line| line.is_ok_and(|line| line == "ready"))) {
            Some(true) => {
                device.ready = begin.elapsed();
                Ok(device)
            }
            Some(false) => bail!("vgpu-device serves nothing: {}", device.log(0).pop().unwrap_or_default()),
            None => bail!("vgpu-device does not serve within {limit:.1?}: {}", device.log(0).join("; ")),
        }
    }

    /// Returns a description of the process's end, or `None` while it runs.
    pub fn ended(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("vgpu-device ended with {status}")),
            Err(error) => Some(format!("vgpu-device cannot be waited for: {error}")),
        }
    }

    /// Returns the number of bytes in its log.
    pub fn logged(&self) -> usize {
        let length = fs::metadata(self.folder.path().join(LOG)).map_or(0, |about| about.len());
        usize::try_from(length).unwrap_or(usize::MAX)
    }

    /// Returns the last lines of its log after the first `from` bytes.
    pub fn log(&self, from: usize) -> Vec<String> {
        let text = fs::read(self.folder.path().join(LOG)).unwrap_or_default();
        last_lines(text.get(from..).unwrap_or_default(), LOG_LINES)
    }

    /// Returns the directory of its bus.
    pub fn sysfs(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // The process may already have ended; failures are ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
