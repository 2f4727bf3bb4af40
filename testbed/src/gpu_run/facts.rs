//! Facts about the machine, gathered before any test: everything that decides whether a driver, a device
//! process and its workers run here, and the directories of NVIDIA's libraries.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{MemfdFlags, memfd_create, statvfs};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};
use serde_json::{Map, Value, json};

use super::limit::{self, Limits};

/// Prefixes of the environment variables that affect CUDA and the loader.
const VARIABLES: [&str; 5] = ["CUDA_", "LD_", "NVIDIA_", "GGML_", "VGPU_"];
/// Python program that prints the directory of packages, some of which may contain NVIDIA's libraries.
const PACKAGES: &str = "import sysconfig; print(sysconfig.get_paths()['purelib'])";
/// Fields to query with nvidia-smi.
const SMI: &str = "name,uuid,driver_version,pci.bus_id,memory.total,compute_mode,mig.mode.current,\
    persistence_mode,clocks.max.sm,clocks.max.mem,power.limit";

/// Returns the directory of a Python environment that contains cuBLAS of CUDA 13, which no loader finds by
/// itself.
pub fn python_libraries(limits: Limits) -> Option<PathBuf> {
    let printed = limit::run_limited(Command::new("python3").args(["-c", PACKAGES]), limits, true).ok()?;
    let packages = PathBuf::from(String::from_utf8(printed).ok()?.trim());
    let folder = packages.join("nvidia/cu13/lib");
    folder.join("libcublas.so.13").exists().then_some(folder)
}

/// Returns facts about the machine apart from its GPU.
pub fn machine(limits: Limits) -> Value {
    json!({
        "kernel": kernel(),
        "processor": processor(),
        "memory": memory(),
        "limits": resource_limits(),
        "calls": calls(),
        "environment": environment(),
        "nodes": nodes(Path::new("/dev")),
        "module": read("/sys/module/nvidia/version").or_else(|| read("/proc/driver/nvidia/version")),
        "smi": smi(limits),
        "python_libraries": python_libraries(limits),
    })
}

/// Returns the trimmed content of a text file.
fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn kernel() -> Value {
    let name = rustix::system::uname();
    json!({
        "release": name.release().to_string_lossy(),
        "version": name.version().to_string_lossy(),
        "machine": name.machine().to_string_lossy(),
    })
}

fn processor() -> Value {
    let text = read("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(": ")).map(|(_, value)| value.to_owned())
    };
    let flags = field("flags").unwrap_or_default();
    let has: Vec<&str> =
        flags.split(' ').filter(|flag| ["avx2", "avx512f", "hypervisor"].contains(flag)).collect();
    json!({
        "model": field("model name"),
        "usable": std::thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get),
        "has": has,
    })
}

/// Returns the machine's memory and the free space of directories that devices and programs use.
fn memory() -> Value {
    let text = read("/proc/meminfo").unwrap_or_default();
    let of = |name: &str| text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
    let room = |path: &Path| statvfs(path).map(|about| (about.f_bavail * about.f_frsize) >> 20).ok();
    json!({
        "total": of("MemTotal:"),
        "available": of("MemAvailable:"),
        "shm_free_mib": room(Path::new("/dev/shm")),
        "temporary_free_mib": room(&std::env::temp_dir()),
    })
}

fn resource_limits() -> Value {
    let of = |resource| getrlimit(resource).current.map_or_else(|| json!("unlimited"), Value::from);
    json!({
        "user": rustix::process::geteuid().as_raw(),
        "locked_memory": of(Resource::Memlock),
        "open_files": of(Resource::Nofile),
        "address_space": of(Resource::As),
        "processes": of(Resource::Nproc),
    })
}

/// Returns whether the kernel supports the system calls that the device and the launcher use; gVisor's lacks
/// some.
fn calls() -> Value {
    let said =
        |result: Result<(), Errno>| result.map_or_else(|error| error.to_string(), |()| "yes".to_owned());
    let memory_file = memfd_create("vgpu-facts", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    // Programs and libraries are run and loaded from memory files by their paths.
    let reopened = memory_file.as_ref().map_err(|&error| error).and_then(|file| {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::File::open(path).map(drop).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    });
    json!({
        "pidfd_open": said(pidfd_open(getpid(), PidfdFlags::empty()).map(drop)),
        "memfd_create": said(memory_file.as_ref().map(drop).map_err(|&error| error)),
        "open_memfd_by_path": said(reopened),
    })
}

fn environment() -> Map<String, Value> {
    let wanted = |name: &str| VARIABLES.iter().any(|start| name.starts_with(start));
    let all = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| wanted(name))?;
        Some((name, Value::from(value.to_string_lossy())))
    });
    all.collect()
}

/// Returns NVIDIA's device nodes with their modes, owners and numbers.
fn nodes(folder: &Path) -> Vec<Value> {
    let mut found: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
    found.retain(|entry| entry.file_name().to_string_lossy().starts_with("nvidia"));
    found.sort_by_key(fs::DirEntry::file_name);
    let node = |entry: &fs::DirEntry| {
        let path = entry.path();
        match entry.metadata() {
            Ok(about) => json!({
                "path": path,
                "mode": format!("{:o}", about.mode()),
                "owner": format!("{}:{}", about.uid(), about.gid()),
                "device": format!("{}:{}", rustix::fs::major(about.rdev()), rustix::fs::minor(about.rdev())),
            }),
            Err(error) => json!({ "path": path, "error": error.to_string() }),
        }
    };
    found.iter().map(node).collect()
}

/// Returns the output of nvidia-smi, if it is installed.
fn smi(limits: Limits) -> Value {
    let query = format!("--query-gpu={SMI}");
    match limit::run_limited(Command::new("nvidia-smi").args([&query, "--format=csv"]), limits, true) {
        Ok(printed) => limit::last_lines(&printed, 16).into(),
        Err(error) => json!({ "error": format!("{error:#}") }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_machine_without_a_gpu_is_described_too() {
        let limits = Limits::new(Duration::from_secs(20), Duration::from_secs(20));
        let machine = machine(limits);
        assert_eq!(machine["calls"]["pidfd_open"], "yes", "{machine:#}");
        assert_eq!(machine["calls"]["open_memfd_by_path"], "yes", "{machine:#}");
        assert!(machine["limits"]["open_files"].as_u64().is_some_and(|most| most > 2), "{machine:#}");
        assert!(machine["memory"]["shm_free_mib"].as_u64().is_some_and(|room| room > 0), "{machine:#}");
    }
}
