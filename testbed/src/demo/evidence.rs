//! Evidence about a process from the system: its program, the CUDA libraries it has mapped and their origin,
//! and whether it has files of a real GPU open.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Prefixes of the file names of NVIDIA's interfaces, whether ours or NVIDIA's.
const INTERFACES: [&str; 5] = ["libcuda.", "libcudart.", "libcublas.", "libcublasLt.", "libnvidia-"];
/// Prefix of an in-memory file in a process's mappings.
const MEMORY: &str = "/memfd:";
/// Directory whose existence shows a loaded NVIDIA driver.
const DRIVER: &str = "/proc/driver/nvidia";

/// Facts about a process that uses the device.
#[derive(Debug)]
pub struct Evidence {
    pid: u32,
    /// Command line of the process.
    command: String,
    /// Mapped files of libggml-cuda.so.
    backends: Vec<PathBuf>,
    /// SONAMEs of the mapped interfaces that are in-memory files, as those of the launcher are.
    shims: Vec<String>,
    /// Paths of the mapped interfaces that are ordinary files, as NVIDIA's are.
    files: Vec<String>,
    /// Open device files of an NVIDIA driver.
    devices: Vec<String>,
    /// Whether this machine has an NVIDIA driver.
    driver: bool,
}

/// Returns the paths that a process has mapped, from the text of its `maps` file.
fn mapped(maps: &str) -> BTreeSet<&str> {
    maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).collect()
}

fn file_name(path: &str) -> &str {
    path.trim_end_matches(" (deleted)").rsplit(['/', ':']).next().unwrap_or(path)
}

impl Evidence {
    /// Collects the facts of a living process of this user.
    pub fn collect(pid: u32) -> Result<Self> {
        let process = Path::new("/proc").join(pid.to_string());
        let failed = || format!("look at the process {pid}");
        let maps = fs::read_to_string(process.join("maps")).with_context(failed)?;
        let paths = mapped(&maps);
        let interfaces =
            paths.iter().filter(|path| INTERFACES.iter().any(|start| file_name(path).starts_with(start)));
        let (memory, files): (Vec<&str>, Vec<&str>) =
            interfaces.copied().partition(|path| path.starts_with(MEMORY));
        let command = fs::read(process.join("cmdline")).with_context(failed)?;
        let program = command.split(|&byte| byte == 0).next().unwrap_or_default();
        let mut devices = Vec::new();
        for entry in fs::read_dir(process.join("fd")).with_context(failed)? {
            // A descriptor may have been closed in the meantime.
            let target = fs::read_link(entry.with_context(failed)?.path()).unwrap_or_default();
            let target = target.display().to_string();
            if target.starts_with("/dev/nvidia") {
                devices.push(target);
            }
        }
        Ok(Self {
            pid,
            command: String::from_utf8_lossy(program).into_owned(),
            backends: paths
                .iter()
                .filter(|path| file_name(path).starts_with("libggml-cuda"))
                .map(PathBuf::from)
                .collect(),
            shims: memory.into_iter().map(|path| file_name(path).to_owned()).collect(),
            files: files.into_iter().map(str::to_owned).collect(),
            devices,
            driver: Path::new(DRIVER).exists(),
        })
    }

    /// Returns sentences that describe the evidence.
    pub fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        for backend in &self.backends {
            said.push(format!(
                "Process {} (`{}`) computed the answer with the stock GGML CUDA backend {}.",
                self.pid,
                self.command,
                backend.display()
            ));
        }
        if !self.shims.is_empty() {
            said.push(format!(
                "Its CUDA libraries are vgpu-run's, in memory and in no folder: {}.",
                self.shims.join(", ")
            ));
        }
        if self.files.is_empty() && self.devices.is_empty() {
            said.push("It has no library file of NVIDIA's mapped, and no NVIDIA device open.".to_owned());
        }
        said.push(if self.driver {
            format!("This machine has an NVIDIA driver ({DRIVER}), which took no part.")
        } else {
            format!("This machine has no NVIDIA driver: {DRIVER} is not there.")
        });
        said
    }

    /// Returns the facts that contradict the claim that no GPU is in use.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.backends.is_empty() {
            wrong.push(format!("process {} (`{}`) has no libggml-cuda mapped", self.pid, self.command));
        }
        if self.shims.is_empty() {
            wrong.push("it has none of vgpu-run's libraries mapped".to_owned());
        }
        wrong.extend(self.files.iter().map(|path| format!("{path} is mapped")));
        wrong.extend(self.devices.iter().map(|path| format!("{path} is open")));
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_mappings() {
        let maps = "7f00-7f01 r-xp 00000000 00:01 5 /memfd:libcuda.so.1 (deleted)\n\
                    7f01-7f02 r-xp 00000000 08:01 9 /opt/a b/libcudart.so.12\n\
                    7f02-7f03 rw-p 00000000 00:00 0 [heap]\n";
        let paths: Vec<_> = mapped(maps).into_iter().collect();
        assert_eq!(paths, ["/memfd:libcuda.so.1 (deleted)", "/opt/a b/libcudart.so.12"]);
        let names: Vec<_> = paths.iter().map(|path| file_name(path)).collect();
        assert_eq!(names, ["libcuda.so.1", "libcudart.so.12"]);
    }

    #[test]
    fn a_process_without_cuda_shows_nothing() {
        let own = Evidence::collect(std::process::id()).unwrap();
        assert_eq!(own.wrong().len(), 2, "{own:?}");
    }
}
