//! Why the device cannot be had: sentence, fix, and the cause in the catalogue of `diagnosis` that it is.

use std::io;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::Uid;
use vgpu_transport::{GoneReason, OpenError, ScanError};
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION, pci};

use super::silence::Silence;
use crate::diagnosis::{Cause, Fix, LinkId, cause};
use crate::env::VGPU_SYSFS;
use crate::error::LauncherError;

/// Why the device cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// No thread could be started that asks the device.
    #[error("failed to start a thread that asks the device")]
    Thread(#[source] io::Error),
    /// sysfs, at this path, lists no function with VGPU-STUB's ids.
    #[error("failed to find a VGPU-STUB device in {}", .0.join("bus/pci/devices").display())]
    Absent(PathBuf),
    /// There is no sysfs at this path.
    #[error("failed to look for a VGPU-STUB device: there is no sysfs at {}", .0.display())]
    NoSysfs(PathBuf),
    /// The only functions with the ids are no VGPU-STUB.
    #[error("failed to find a VGPU-STUB device: {name} has its ids and is a real GPU ({size} of registers)")]
    RealGpu {
        /// PCI address of the function.
        name: String,
        /// Size of BAR0.
        size: String,
    },
    /// A function whose registers or window have no address.
    #[error("failed to use the device {name}: its {what} has no address")]
    Bars {
        /// PCI address of the function.
        name: String,
        /// Which BAR lacks an address: "registers" or "window".
        what: &'static str,
    },
    /// A kernel driver is bound to the function.
    #[error("failed to use the device {name}: the kernel driver {driver} is bound to it")]
    Driver {
        /// PCI address of the function.
        name: String,
        /// Its folder in sysfs.
        dir: PathBuf,
        /// Name of the kernel driver.
        driver: String,
    },
    /// sysfs cannot be read.
    #[error("failed to look for a VGPU-STUB device")]
    Scan(#[source] ScanError),
    /// A function is there, and cannot be used.
    #[error("failed to use the device {name}")]
    Open {
        /// PCI address of the function.
        name: String,
        /// Its folder in sysfs.
        dir: PathBuf,
        /// Kernel lockdown is in force.
        lockdown: bool,
        /// What the transport reports.
        #[source]
        source: OpenError,
    },
    /// The device, or its host, does not answer.
    #[error("failed to use the device {name}: {}", silence.found(name))]
    Mute {
        /// PCI address of the function.
        name: String,
        /// What does not answer.
        silence: Silence,
    },
    /// The host cannot open sessions.
    #[error("failed to use the device {0}: its host is not ready")]
    NotReady(String),
    /// The two ends are of different builds.
    #[error(
        "failed to use the device {name}: its host speaks VGPU-STUB {}, this vgpu-run {}",
        speech(*wire_version, *digest),
        speech(WIRE_VERSION, TABLE_DIGEST)
    )]
    Speech {
        /// PCI address of the function.
        name: String,
        /// The host's wire version.
        wire_version: u32,
        /// The host's table digest.
        digest: u64,
    },
    /// Memory decoding could not be turned on.
    #[error("failed to turn on memory decoding: failed to write {}", .0.display())]
    Enable(PathBuf, #[source] io::Error),
    /// A file could not be given away.
    #[error("failed to give {} to the user {user}", path.display())]
    Give {
        /// The file whose owner was to change.
        path: PathBuf,
        /// User id of the new owner.
        user: Uid,
        /// The error of the call.
        #[source]
        source: io::Error,
    },
}

/// A wire version with its table digest, as a person reads it.
pub fn speech(version: u32, digest: u64) -> String {
    format!("{}.{} (tables {digest:016x})", version >> 16, version & 0xffff)
}

impl LauncherError for DeviceError {
    fn diagnosis(&self) -> Option<Cause> {
        Some(match self {
            // Of this process, not of the device.
            Self::Thread(_) => return None,
            Self::Absent(_) => cause::pci::DEVICE_ABSENT,
            Self::NoSysfs(_) => cause::pci::SYSFS_MISSING,
            Self::Scan(_) => Cause::unknown(LinkId::Pci),
            Self::RealGpu { .. } => cause::pci::REAL_GPU,
            Self::Bars { .. } => cause::pci::BARS_MISSING,
            Self::Driver { .. } => cause::pci::DRIVER_BOUND,
            Self::Open { lockdown, source, .. } => cause_of(*lockdown, source),
            Self::Mute { silence, .. } => silence.cause(),
            Self::NotReady(_) => cause::host::EXECUTOR_NOT_READY,
            Self::Speech { .. } => cause::device::SPEECH_MISMATCH,
            Self::Enable(_, source) | Self::Give { source, .. } => {
                let read_only = source.kind() == io::ErrorKind::ReadOnlyFilesystem;
                if read_only {
                    cause::permission::SYSFS_READ_ONLY
                } else {
                    cause::permission::DEVICE_PERMISSION
                }
            }
        })
    }

    fn fix(&self) -> Option<Fix> {
        let named = std::env::var_os(VGPU_SYSFS).is_some_and(|name| !name.is_empty());
        Some(match self {
            Self::Thread(_) => {
                Fix::new("Lift the limit on processes (ulimit -u; LimitNPROC= and TasksMax= in a unit).")
            }
            Self::Absent(_) | Self::NoSysfs(_) if named => Fix::new(format!(
                "{VGPU_SYSFS} names the folder to look in; start the device there, or unset it."
            )),
            Self::Absent(_) => {
                Fix::new("Have the host add the device to this VM. This lists it once it is there.")
                    .command(format!("lspci -d {:04x}:{:04x}", pci::VENDOR, pci::DEVICE))
            }
            Self::NoSysfs(_) => Fix::new("Mount sysfs.").command("mount -t sysfs sysfs /sys").as_root(),
            Self::RealGpu { .. } => {
                Fix::new("A real GPU needs NVIDIA's driver and no vgpu-run: start the program without it.")
            }
            Self::Bars { .. } => Fix::new(
                "Give the VM a firmware or a machine type that has room for the device's memory (with QEMU: \
                 OVMF, q35), or have the host give it a smaller window.",
            ),
            Self::Driver { name, dir, .. } => Fix::new("Unbind the driver from the device.")
                .command(format!("echo {name} > {}", dir.join("driver/unbind").display()))
                .as_root(),
            Self::Scan(_) => Fix::new("Is sysfs mounted, and may you read it?"),
            Self::Open { dir, lockdown, source, .. } => opening(dir, *lockdown, source)?,
            Self::Mute { silence, .. } => Fix::new(silence.fix()),
            Self::NotReady(_) => {
                Fix::new("Look at the device's host: its GPU, driver or executor is missing.")
            }
            Self::Speech { .. } => Fix::new("Install the vgpu-run of the host's release."),
            Self::Enable(_, source) if vgpu_paths::hint(source).is_some() => Fix::new(format!(
                "{VGPU_SYSFS} must name a folder to which nobody else may write, because root gives the files in it to the user."
            )),
            Self::Enable(..) | Self::Give { .. } => Fix::new(
                "A service must leave sysfs writable: ProtectKernelTunables=no, and no ReadOnlyPaths=.",
            ),
        })
    }
}

/// What it means that a function cannot be opened.
pub fn cause_of(lockdown: bool, error: &OpenError) -> Cause {
    match error {
        OpenError::Open { path, source } | OpenError::Map { path, source } => {
            file_cause(lockdown, path, source, matches!(error, OpenError::Map { .. }))
        }
        OpenError::Disabled { .. } => cause::pci::MEMORY_DECODING_OFF,
        OpenError::Gone { .. } => cause::device::HOST_GONE,
        OpenError::Turn { .. } => cause::permission::TURN_FILE,
        OpenError::NoHost { reason: GoneReason::Quarantined, .. } => cause::host::SESSION_REFUSED,
        OpenError::NoHost { reason: GoneReason::Context, .. } => cause::host::CONTEXT_LOST,
        OpenError::NoHost { reason: GoneReason::Owners, .. } => cause::host::OWNERS_TAKEN,
        OpenError::NoHost { .. } => cause::host::EXECUTOR_NOT_READY,
        OpenError::Version1 { .. } => cause::device::VERSION_1,
        // The window's file has less than the registers say: they are fine.
        OpenError::ShortWindow { .. } => cause::window::WINDOW_UNMAPPABLE,
        OpenError::NoFacts { .. } => cause::host::BAD_FACTS,
        OpenError::Strange { .. } => cause::device::NOT_A_STUB,
        OpenError::Forked { .. } => Cause::unknown(LinkId::Device),
    }
}

/// What it means that a file of a function cannot be opened, or mapped.
pub fn file_cause(lockdown: bool, path: &Path, error: &io::Error, map: bool) -> Cause {
    let window = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"resource2"));
    match error.kind() {
        _ if lockdown && error.raw_os_error() == Some(libc::EPERM) => cause::permission::LOCKDOWN,
        io::ErrorKind::PermissionDenied => cause::permission::DEVICE_PERMISSION,
        io::ErrorKind::ReadOnlyFilesystem => cause::permission::SYSFS_READ_ONLY,
        io::ErrorKind::NotFound if window => cause::window::WINDOW_UNMAPPABLE,
        _ if map && window => cause::window::WINDOW_UNMAPPABLE,
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => cause::device::HOST_GONE,
        _ if map => Cause::unknown(LinkId::Device),
        _ => Cause::unknown(LinkId::Permission),
    }
}

/// What to do when a function cannot be opened.
fn opening(dir: &Path, lockdown: bool, error: &OpenError) -> Option<Fix> {
    Some(match error {
        OpenError::Open { path, source } => return file_fix(dir, path, lockdown, source),
        OpenError::Map { source, .. } if lockdown && source.raw_os_error() == Some(libc::EPERM) => {
            no_lockdown()
        }
        OpenError::Map { source, .. } if source.raw_os_error() == Some(libc::ENOMEM) => {
            Fix::new("Is there a limit on address space? A service has LimitAS=.").command("ulimit -v")
        }
        OpenError::Disabled { .. } => decoding(dir),
        OpenError::Gone { .. } => Fix::new("The host's end is gone: restart it, then this VM."),
        OpenError::Turn { path, .. } => Fix::new("Let every user of the device read and write the file.")
            .command(format!("chmod 666 {}", path.display()))
            .as_root(),
        OpenError::NoHost { reason: GoneReason::Quarantined, .. } => {
            Fix::new("Ask the host's administrator why this virtual machine is in quarantine.")
        }
        OpenError::NoHost { reason: GoneReason::Context, .. } => context_lost(),
        OpenError::NoHost { reason: GoneReason::Owners, .. } => owners_taken(),
        OpenError::NoHost { .. } => Fix::new("Start the mediator on the device's host."),
        OpenError::Version1 { .. } => Fix::new("Update the device's host."),
        OpenError::ShortWindow { .. } => {
            Fix::new("Have the host give the device a window of the size that it announces.")
        }
        OpenError::NoFacts { .. } => {
            Fix::new("Look at the device's host: its GPU, or what it says of it, is missing.")
        }
        OpenError::Strange { .. } => {
            Fix::new("Compare what the bus says of the function with what the host says of its device.")
                .command(format!("lspci -vv -d {:04x}:{:04x}", pci::VENDOR, pci::DEVICE))
        }
        OpenError::Map { .. } | OpenError::Forked { .. } => return None,
    })
}

/// What to do about a host of version 1 whose GPU context a fault has ended.
pub fn context_lost() -> Fix {
    Fix::new(
        "Restart the mediator on the device's host: until then it refuses every process of every virtual machine.",
    )
}

/// What to do about a host of version 1 that has no room for one more owner.
pub fn owners_taken() -> Fix {
    Fix::new(
        "End GPU programs, in this virtual machine or in others of the host. If there are not so many, the host still keeps what dead ones \
         had: restart its mediator.",
    )
}

/// What to do when a file of a function cannot be opened.
pub fn file_fix(dir: &Path, path: &Path, lockdown: bool, error: &io::Error) -> Option<Fix> {
    Some(match error.kind() {
        _ if lockdown && error.raw_os_error() == Some(libc::EPERM) => no_lockdown(),
        io::ErrorKind::PermissionDenied => Fix::new(format!(
            "Have a udev rule give {} to a group of yours, or start vgpu-run as root with --user NAME, which gives that \
             user the device.",
            dir.join("resource*").display()
        ))
        .command("sudo vgpu-run --user \"$USER\" ollama serve")
        .as_root(),
        io::ErrorKind::ReadOnlyFilesystem => {
            Fix::new("In a service, set ProtectKernelTunables=no: it makes sysfs read-only.")
        }
        io::ErrorKind::NotFound if path.ends_with("resource2") => {
            Fix::new("The function has no window: look at how the host's device is set up.")
        }
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            Fix::new("Its device process is not running: start it again.")
        }
        _ => return None,
    })
}

/// What turns memory decoding on: for good, or, where the device is set up already, now.
pub fn decoding(dir: &Path) -> Fix {
    Fix::new(format!(
        "Have vgpu-run set the device up, which turns it on at each start of this system (--device-only: without a service); or turn it on \
         now, by 1 in {}.",
        dir.join("enable").display()
    ))
    .command("vgpu-run service install")
    .as_root()
}

fn no_lockdown() -> Fix {
    Fix::new("Kernel lockdown refuses device memory even to root: turn Secure Boot off in this VM.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Failure;
    use crate::exit::Exit;

    fn open_error(errno: i32, lockdown: bool) -> DeviceError {
        let dir = PathBuf::from("/sys/bus/pci/devices/0000:00:05.0");
        let source = io::Error::from_raw_os_error(errno);
        let source = OpenError::Open { path: dir.join("resource0"), source };
        DeviceError::Open { name: "0000:00:05.0".into(), dir, lockdown, source }
    }

    fn hint(error: &DeviceError) -> String {
        error.hint().unwrap()
    }

    #[test]
    fn each_reason_has_its_fix() {
        assert!(hint(&open_error(libc::EACCES, false)).contains("--user"));
        assert!(hint(&open_error(libc::EACCES, true)).contains("--user"), "lockdown answers EPERM");
        assert!(hint(&open_error(libc::EPERM, true)).contains("Secure Boot"));
        assert!(hint(&open_error(libc::EPERM, false)).contains("--user"));
        assert!(hint(&open_error(libc::EROFS, false)).contains("ProtectKernelTunables=no"));
        assert!(hint(&open_error(libc::ECONNREFUSED, false)).contains("not running"));
        let (name, dir) = ("0000:00:05.0".to_owned(), PathBuf::from("/d"));
        let source = OpenError::Disabled { function: name.clone() };
        assert!(hint(&DeviceError::Open { name, dir, lockdown: false, source }).contains("/d/enable"));
    }

    /// A version 1 host that has no context, or no room, is reported as such.
    #[test]
    fn a_host_without_a_context_or_room_is_told_as_such() {
        let dir = PathBuf::from("/d");
        for (reason, cause, fix) in [
            (GoneReason::Context, cause::host::CONTEXT_LOST, "Restart the mediator"),
            (GoneReason::Owners, cause::host::OWNERS_TAKEN, "End GPU programs"),
            (GoneReason::Mediator, cause::host::EXECUTOR_NOT_READY, "Start the mediator"),
        ] {
            let source = OpenError::NoHost { function: "x".into(), reason };
            let error = DeviceError::Open { name: "x".into(), dir: dir.clone(), lockdown: false, source };
            assert_eq!(error.diagnosis(), Some(cause));
            assert!(hint(&error).starts_with(fix), "{cause:?}");
        }
    }

    #[test]
    fn the_sentence_names_the_file_and_the_cause() {
        let failure = Failure::from(open_error(libc::EACCES, false));
        assert_eq!(
            failure.sentence(),
            "failed to use the device 0000:00:05.0: failed to open /sys/bus/pci/devices/0000:00:05.0/resource0: \
             Permission denied (os error 13)"
        );
        assert_eq!(failure.exit(), Exit::Launcher);
    }

    #[test]
    fn each_reason_is_a_cause_of_the_catalogue() {
        let found = |errno, lockdown| open_error(errno, lockdown).diagnosis().unwrap();
        assert_eq!(found(libc::EACCES, true), cause::permission::DEVICE_PERMISSION);
        assert_eq!(found(libc::EPERM, true), cause::permission::LOCKDOWN);
        assert_eq!(found(libc::EPERM, false), cause::permission::DEVICE_PERMISSION);
        assert_eq!(found(libc::EROFS, false), cause::permission::SYSFS_READ_ONLY);
        assert_eq!(found(libc::ECONNREFUSED, false), cause::device::HOST_GONE);
        assert_eq!(found(libc::ELOOP, false), Cause::unknown(LinkId::Permission));
        let window = |errno, map| {
            file_cause(false, Path::new("/d/resource2_wc"), &io::Error::from_raw_os_error(errno), map)
        };
        assert_eq!(window(libc::ENOENT, false), cause::window::WINDOW_UNMAPPABLE);
        assert_eq!(window(libc::ENOMEM, true), cause::window::WINDOW_UNMAPPABLE);
        assert_eq!(window(libc::EACCES, false), cause::permission::DEVICE_PERMISSION);
    }
}
