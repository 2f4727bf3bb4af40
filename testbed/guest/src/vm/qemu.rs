//! The QEMU that runs a guest: its selection, its checks, and its command line.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::share::Daemon;
use crate::agent::message::PORT;

/// Reasons why QEMU cannot run a guest.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum QemuError {
    #[error("run {path}")]
    Run { path: PathBuf, source: io::Error },
    #[error(
        "use {path}: it has no device `vfio-user-pci`, by which a guest is shown VGPU-STUB; QEMU has it from 10.1 on, when it is built \
         with it (Debian 13's backports have such a one)"
    )]
    NoVfioUser { path: PathBuf },
    #[error("use KVM: {why}; `--tcg` works everywhere")]
    Kvm { why: String },
}

/// Accelerator that runs the guest's processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// Emulation in software by QEMU.
    Tcg,
    /// Execution by the host's processor, through KVM.
    Kvm,
}

/// Source of the QEMU program.
#[derive(Clone, Debug)]
pub enum Qemu {
    /// A QEMU that is installed on the host, by its path.
    Installed(PathBuf),
    /// Debian packages that were unpacked below a directory, including QEMU's libraries and their loader.
    Unpacked(PathBuf),
}

/// Directory of libraries in a Debian system.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

impl Qemu {
    /// Returns a command that runs a program of a Debian system unpacked below `folder`.
    pub fn unpacked_program(folder: &Path, program: &str) -> Command {
        let libraries = folder.join(LIBRARIES);
        let mut command = Command::new(folder.join("usr/lib64/ld-linux-x86-64.so.2"));
        command.arg("--argv0").arg(program).arg("--library-path").arg(libraries).arg(folder.join(program));
        // Libraries of the host are not compatible with another loader.
        command.env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH");
        command
    }

    /// Returns QEMU's command with the paths of its own data files and no other arguments.
    fn command(&self) -> Command {
        match self {
            Self::Installed(path) => Command::new(path),
            Self::Unpacked(folder) => {
                let mut command = Self::unpacked_program(folder, "usr/bin/qemu-system-x86_64");
                command.env("QEMU_MODULE_DIR", folder.join(LIBRARIES).join("qemu"));
                for data in ["usr/share/qemu", "usr/share/seabios"] {
                    command.arg("-L").arg(folder.join(data));
                }
                command
            }
        }
    }

    /// Returns the path of QEMU, for error messages.
    fn path(&self) -> PathBuf {
        match self {
            Self::Installed(path) => path.clone(),
            Self::Unpacked(folder) => folder.join("usr/bin/qemu-system-x86_64"),
        }
    }

    /// Checks that QEMU has the device `vfio-user-pci`.
    pub fn check(&self) -> Result<(), QemuError> {
        let mut command = self.command();
        command.args(["-machine", "none", "-device", "vfio-user-pci,help"]).stdin(Stdio::null());
        let output = command.output().map_err(|source| QemuError::Run { path: self.path(), source })?;
        if output.status.success() { Ok(()) } else { Err(QemuError::NoVfioUser { path: self.path() }) }
    }

    /// Returns the command that runs a machine. `device` contains the QEMU arguments that define its memory
    /// and the device.
    pub fn machine(
        &self,
        machine: &Settings,
        daemons: &[Daemon],
        agent: &Path,
        device: &[String],
    ) -> Command {
        let mut command = self.command();
        command.args(machine.arguments(daemons, agent, device));
        command
    }
}

/// Checks that the host's KVM can run a stock kernel.
pub fn check_kvm() -> Result<(), QemuError> {
    let kvm = |why: String| QemuError::Kvm { why };
    let opened = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    opened.map_err(|error| kvm(format!("/dev/kvm cannot be opened: {error}")))?;
    let info = fs::read_to_string("/proc/cpuinfo").map_err(|error| kvm(format!("/proc/cpuinfo: {error}")))?;
    if virtualises(&info) {
        return Ok(());
    }
    Err(kvm("this processor shows neither vmx nor svm, so the host's KVM virtualises in software and runs only kernels that \
         were built for that; a distribution's kernel stops in it"
        .to_owned()))
}

/// Returns whether `/proc/cpuinfo` lists hardware virtualisation.
fn virtualises(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
    flags.split_ascii_whitespace().any(|flag| flag == "vmx" || flag == "svm")
}

/// Settings of a virtual machine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Accelerator of the processors.
    pub accelerator: Accelerator,
    /// Number of processors of the guest.
    pub cpus: u32,
    /// Path of the kernel image.
    pub kernel: PathBuf,
    /// Path of the initramfs, which the kernel unpacks as its root.
    pub initramfs: PathBuf,
    /// Options that are appended to the kernel's command line.
    pub append: String,
}

impl Settings {
    /// Returns QEMU's arguments. `agent` is the listening socket for the agent's port; `device` contains the
    /// arguments that define the machine's memory, which the daemons also map, and the device.
    pub fn arguments(&self, daemons: &[Daemon], agent: &Path, device: &[String]) -> Vec<OsString> {
        let mut list: Vec<OsString> = Vec::new();
        let mut add = |option: &str, value: &dyn AsRef<OsStr>| {
            list.push(option.into());
            list.push(value.as_ref().to_owned());
        };
        add("-machine", &"q35,vmport=off");
        add("-smp", &self.cpus.to_string());
        let (accelerator, processor) = match self.accelerator {
            Accelerator::Tcg => ("tcg", "max"),
            Accelerator::Kvm => ("kvm", "host"),
        };
        add("-accel", &accelerator);
        add("-cpu", &processor);
        add("-kernel", &self.kernel);
        add("-initrd", &self.initramfs);
        // A panic ends the machine: it restarts at once, and QEMU does not. The kernel's check of the timer
        // counts interrupts in a loop of fixed length, which fails where QEMU runs by turns with others.
        add("-append", &format!("console=ttyS0 quiet panic=-1 no_timer_check {}", self.append).trim_end());
        add("-serial", &"stdio");
        add("-monitor", &"none");
        add("-chardev", &escaped("socket,id=agent,path=", agent));
        add("-device", &"virtio-serial-pci,addr=2");
        add("-device", &format!("virtserialport,chardev=agent,name={PORT}"));
        for (number, daemon) in daemons.iter().enumerate() {
            add("-chardev", &escaped(&format!("socket,id=share{number},path="), daemon.socket()));
            add(
                "-device",
                &format!(
                    "vhost-user-fs-pci,chardev=share{number},tag={},addr={:#x}",
                    daemon.tag(),
                    0x10 + number
                ),
            );
        }
        list.extend(device.iter().map(OsString::from));
        list.extend(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"].map(OsString::from));
        list
    }
}

/// Returns an option that ends in a path, whose commas are doubled as QEMU requires.
fn escaped(option: &str, path: &Path) -> String {
    format!("{option}{}", path.to_string_lossy().replace(',', ",,"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            accelerator: Accelerator::Tcg,
            cpus: 2,
            kernel: "/k".into(),
            initramfs: "/i".into(),
            append: String::new(),
        }
    }

    #[test]
    fn a_machine_has_the_agents_port_and_the_device() {
        let device = ["-device", "the-device"].map(str::to_owned);
        let arguments = settings().arguments(&[], Path::new("/a,b"), &device);
        let text: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
        let value = |option: &str| text[text.iter().position(|have| have == option).unwrap() + 1].clone();
        assert_eq!(value("-chardev"), "socket,id=agent,path=/a,,b");
        assert_eq!(value("-append"), "console=ttyS0 quiet panic=-1 no_timer_check");
        assert!(text.windows(2).any(|pair| pair == device), "{text:?}");
    }

    #[test]
    fn processors_that_virtualise_say_so() {
        assert!(virtualises("processor : 0\nflags\t\t: fpu vmx sse\n"));
        assert!(!virtualises("flags : fpu vmxish\n") && !virtualises(""));
    }

    #[test]
    fn a_qemu_without_the_device_is_named() {
        let error = Qemu::Installed("/bin/false".into()).check().unwrap_err();
        assert!(error.to_string().contains("vfio-user-pci") && error.to_string().contains("/bin/false"));
        let error = Qemu::Installed("/does/not/exist".into()).check().unwrap_err();
        assert!(matches!(error, QemuError::Run { .. }));
    }
}
