//! A host that `check` examines: stand-ins for NVIDIA's libraries, a script in place of QEMU, and a directory
//! in place of `/`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use vgpu_share::{Claim, GpuMemory, GpuUuid, Gpus, Slot};

use crate::program::program;

/// Returns the directory of the libraries, which are compiled once for all tests.
fn libraries() -> &'static Path {
    static LIBRARIES: OnceLock<TempDir> = OnceLock::new();
    LIBRARIES
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/main/fake.c");
            for (name, part) in
                [("libcuda.so", "CUDA"), ("libnvidia-ml.so", "NVML"), ("libcublas.so", "CUBLAS")]
            {
                let built = Command::new("cc")
                    .args([
                        "-shared",
                        "-fPIC",
                        "-O1",
                        "-Wall",
                        "-Wno-unused-function",
                        &format!("-D{part}"),
                        source,
                    ])
                    .arg("-o")
                    .arg(folder.path().join(name))
                    .status()
                    .unwrap();
                assert!(built.success(), "{name}");
            }
            folder
        })
        .path()
}

/// A host to be checked. Initially it passes every check, with one GPU.
pub struct Host {
    folder: TempDir,
    /// Memory that another VM has been promised.
    slots: Vec<Slot>,
    pub environment: Vec<(&'static str, &'static str)>,
    pub options: Vec<(&'static str, OsString)>,
}

impl Host {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut host = Self { folder, slots: Vec::new(), environment: Vec::new(), options: Vec::new() };
        host.file(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:09:38 UTC 2025\n",
        );
        host.file(
            "proc/self/limits",
            "Limit Soft Limit\nMax locked memory         unlimited            unlimited            bytes\n",
        );
        host.file("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-3\n");
        host.file("sys/bus/pci/devices/0000:a1:00.0/numa_node", "1\n");
        host.file("sys/devices/system/node/node1/cpulist", "2-5\n");
        host.file(
            "sys/kernel/mm/transparent_hugepage/shmem_enabled",
            "always within_size [advise] never deny force\n",
        );
        host.file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n");
        fs::create_dir(host.path("run")).unwrap();
        fs::set_permissions(host.path("run"), fs::Permissions::from_mode(0o755)).unwrap();
        host.qemu("10.1.2", true);
        let library = |name: &str| libraries().join(name).into_os_string();
        let socket = format!("vfio-user:{}", host.socket().display()).into();
        host.options = vec![
            ("--bus", socket),
            ("--libcuda", library("libcuda.so")),
            ("--libnvidia-ml", library("libnvidia-ml.so")),
            ("--libcublas", library("libcublas.so")),
            ("--qemu", host.path("qemu").into()),
            ("--root", host.path("").into()),
            ("--shares", host.path("shares").into()),
        ];
        host
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("run/device.sock")
    }

    /// Writes a file below the directory that is the host's `/`.
    pub fn file(&mut self, name: &str, text: &str) -> &mut Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub fn remove(&mut self, name: &str) -> &mut Self {
        fs::remove_file(self.path(name)).unwrap();
        self
    }

    /// Sets an option of `check`, in place of an earlier value.
    pub fn option(&mut self, name: &'static str, value: impl Into<OsString>) -> &mut Self {
        self.options.retain(|(have, _)| *have != name);
        self.options.push((name, value.into()));
        self
    }

    /// Promises memory of the first GPU to another VM.
    pub fn promise(&mut self, bytes: u64) -> &mut Self {
        let uuid = GpuUuid(0x0011_2233_4455_6677_8899_aabb_ccdd_0001_u128.to_be_bytes());
        let share = Gpus::open(&self.path("shares")).unwrap().gpu(uuid).unwrap();
        let claim = Claim {
            name: "another",
            promised: Some(bytes),
            overhead: 0,
            context_bytes: 0,
            weight: 1,
            memory: GpuMemory { bytes: 80 << 30, reserve: 0 },
            patience: Duration::ZERO,
        };
        self.slots.push(share.claim(&claim).unwrap());
        self
    }

    /// Sets an environment variable that the libraries read.
    pub fn variable(&mut self, name: &'static str, value: &'static str) -> &mut Self {
        self.environment.push((name, value));
        self
    }

    /// Writes a script in the place of QEMU. Another process writes it, so that no thread of this one holds
    /// it open while it is started.
    pub fn qemu(&mut self, version: &str, vfio_user: bool) -> &mut Self {
        let end = i32::from(!vfio_user);
        let script = format!(
            "#!/bin/sh\ncase $1 in\n--version) echo 'QEMU emulator version {version} (Test)' ;;\n\
             *) exit {end} ;;\nesac\n"
        );
        let written = Command::new("sh")
            .args(["-c", "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", &script])
            .arg(self.path("qemu"))
            .status()
            .unwrap();
        assert!(written.success());
        self
    }

    /// Adds a process to the host's `/proc`.
    pub fn process(&mut self, pid: u32, name: &str, arguments: &[&str]) -> &mut Self {
        self.file(&format!("proc/{pid}/comm"), &format!("{name}\n"));
        let mut line = arguments.join("\0");
        line.push('\0');
        self.file(&format!("proc/{pid}/cmdline"), &line)
    }

    /// Adds a VM with the device, started with these arguments as well.
    pub fn vm(&mut self, arguments: &[&str]) -> &mut Self {
        let device = format!(
            r#"{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{}"}}}}"#,
            self.socket().display()
        );
        let mut line = vec!["qemu-system-x86_64", "-device", &device];
        line.extend(arguments);
        self.process(4711, "qemu-system-x86", &line)
    }

    /// Runs `check` with these options as well.
    pub fn check(&self, more: &[&str]) -> Output {
        let mut command = program();
        command.arg("check").args(more).env("LC_ALL", "C.UTF-8");
        for (option, value) in &self.options {
            command.arg(option).arg(value);
        }
        command.envs(self.environment.iter().copied());
        command.output().unwrap()
    }

    /// Parses the object that `check --json` prints.
    pub fn report(&self) -> Value {
        let output = self.check(&["--json"]);
        let error = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        let broken = report["verdict"] == "broken";
        assert_eq!(output.status.code(), Some(i32::from(broken)), "{error} {report:#}");
        report
    }
}
