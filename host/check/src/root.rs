//! Facts from `/proc` and `/sys`, below a directory that stands for `/`. Tests use a directory of their own.

use std::fs;
use std::path::{Path, PathBuf};

use vgpu_abi::nvml::module_version;

/// A directory that stands for `/`.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

/// A process and its command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostProcess {
    /// Process id on this host.
    pub pid: u32,
    /// First 15 bytes of the process's name.
    pub name: String,
    /// Command line, starting with the program's name. Empty for a kernel thread.
    pub arguments: Vec<String>,
}

impl Root {
    /// Creates a directory that stands for `/`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Maps an absolute path into the tree.
    pub fn place(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// Returns the text of a file, without white space at its ends, or `None` if it cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.place(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Returns the version of NVIDIA's kernel module, such as `580.65.06`, or `None` if it is not loaded.
    pub fn module_version(&self) -> Option<String> {
        module_version(&self.0)
    }

    /// Returns all processes that run.
    pub fn processes(&self) -> Vec<HostProcess> {
        let entries = fs::read_dir(self.place("/proc")).into_iter().flatten().flatten();
        let mut found: Vec<HostProcess> = entries.filter_map(|entry| process(&entry.path())).collect();
        found.sort_by_key(|process| process.pid);
        found
    }

    /// Returns the soft limit of locked memory of this process in bytes, or `None` if there is none or it is
    /// unknown.
    pub fn locked_memory(&self) -> Option<u64> {
        let limits = self.text("/proc/self/limits")?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// Returns the CPUs on which this process may run.
    pub fn allowed_cpus(&self) -> Option<Vec<u32>> {
        let status = self.text("/proc/self/status")?;
        cpus(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
    }

    /// Returns the NUMA node of a PCI function such as `0000:01:00.0`, and the node's CPUs, or `None` if the
    /// host has no nodes or does not report them.
    pub fn node(&self, function: &str) -> Option<(u32, Vec<u32>)> {
        let function = function.to_ascii_lowercase();
        let node: u32 = self.text(&format!("/sys/bus/pci/devices/{function}/numa_node"))?.parse().ok()?;
        Some((node, cpus(&self.text(&format!("/sys/devices/system/node/node{node}/cpulist"))?)?))
    }
}

/// Reads the process of a directory below `/proc`.
fn process(folder: &Path) -> Option<HostProcess> {
    let pid = folder.file_name()?.to_str()?.parse().ok()?;
    let name = fs::read_to_string(folder.join("comm")).ok()?.trim().to_owned();
    let line = fs::read(folder.join("cmdline")).unwrap_or_default();
    let words = line.strip_suffix(&[0]).unwrap_or(&line).split(|&byte| byte == 0);
    let arguments = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    Some(HostProcess { pid, name, arguments: if line.is_empty() { Vec::new() } else { arguments } })
}

/// Reads a list of CPUs such as `0-3,8`.
fn cpus(list: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpus("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(cpus("\t5\n"), Some(vec![5]));
        assert_eq!(cpus(""), Some(vec![]));
        assert_eq!(cpus("a-b"), None);
    }

    #[test]
    fn this_process_is_found() {
        let root = Root::new("/");
        let own = root.processes().into_iter().find(|process| process.pid == std::process::id()).unwrap();
        assert_eq!(own.arguments.first(), std::env::args().next().as_ref());
        assert!(!root.allowed_cpus().unwrap().is_empty());
    }
}
