//! Errors of using the device, each with its sentence, its fix, and its cause in the catalogue of
//! `diagnosis`.

use std::io;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::Uid;
use vgpu_transport::{GoneReason, OpenError, ScanError};
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION};

use super::silence::Silence;
use crate::diagnosis::{Cause, Fix, LinkId, Remedy, cause, fix};
use crate::env::VGPU_SYSFS;
use crate::error::LauncherError;
use crate::program::find;

/// Reason why the device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The thread that tests the device could not be started.
    #[error("failed to start a thread that asks the device")]
    Thread(#[source] io::Error),
    /// sysfs at this path lists no function with VGPU-STUB's ids.
    #[error("failed to find a VGPU-STUB device in {}", .0.join("bus/pci/devices").display())]
    Absent(PathBuf),
    /// No sysfs is mounted at this path.
    #[error("failed to look for a VGPU-STUB device: there is no sysfs at {}", .0.display())]
    NoSysfs(PathBuf),
    /// The only functions with VGPU-STUB's ids are real GPUs.
    #[error("failed to find a VGPU-STUB device: {name} has its ids and is a real GPU ({size} of registers)")]
    RealGpu {
        /// PCI address of the function.
        name: String,
        /// Size of BAR0, formatted with its unit.
        size: String,
    },
    /// A function's registers or window have no address.
    #[error("failed to use the device {name}: its {what} has no address")]
    Bars {
        /// PCI address of the function.
        name: String,
        /// Name of the BAR that has no address: "registers" or "window".
        what: &'static str,
    },
    /// A kernel driver is bound to the function.
    #[error("failed to use the device {name}: the kernel driver {driver} is bound to it")]
    Driver {
        /// PCI address of the function.
        name: String,
        /// Directory of the function in sysfs.
        dir: PathBuf,
        /// Name of the kernel driver.
        driver: String,
    },
    /// sysfs cannot be read.
    #[error("failed to look for a VGPU-STUB device")]
    Scan(#[source] ScanError),
    /// The function exists and cannot be opened.
    #[error("failed to use the device {name}")]
    Open {
        /// PCI address of the function.
        name: String,
        /// Directory of the function in sysfs.
        dir: PathBuf,
        /// Whether kernel lockdown is in force.
        lockdown: bool,
        /// Error that the transport reported.
        #[source]
        source: OpenError,
    },
    /// The device, or its host, does not answer.
    #[error("failed to use the device: {}", silence.found(name))]
    Mute {
        /// PCI address of the function.
        name: String,
        /// Part of the device that does not answer.
        silence: Silence,
    },
    /// The host cannot open sessions.
    #[error("failed to use the device {0}: its host is not ready")]
    NotReady(String),
    /// Guest and host are of different builds.
    #[error(
        "failed to use the device {name}: its host speaks VGPU-STUB {}, this vgpu-run {}",
        speech(*wire_version, *digest),
        speech(WIRE_VERSION, TABLE_DIGEST)
    )]
    Speech {
        /// PCI address of the function.
        name: String,
        /// Wire version of the host.
        wire_version: u32,
        /// Digest of the host's tables.
        digest: u64,
    },
    /// Memory decoding could not be turned on.
    #[error("failed to turn on memory decoding: failed to write {}", .0.display())]
    Enable(PathBuf, #[source] io::Error),
    /// The owner of a file could not be changed.
    #[error("failed to give {} to the user {user}", path.display())]
    Give {
        /// Path of the file whose owner was to change.
        path: PathBuf,
        /// User id of the new owner.
        user: Uid,
        /// Error that the system reported.
        #[source]
        source: io::Error,
    },
}

/// Formats a wire version and the digest of its tables for people.
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
        let other = match self {
            Self::Thread(_) => {
                let lift = "Lift the limit on processes (ulimit -u; LimitNPROC= and TasksMax= in a unit).";
                return Some(lift.into());
            }
            Self::Absent(_) | Self::NoSysfs(_) if named => Some(fix::pci::OTHER_FOLDER),
            Self::Scan(error) if is_of_function(error) => return Some(unread(error)),
            Self::Scan(_) => Some(fix::pci::UNREADABLE),
            Self::Mute { silence: Silence::Mediator, .. } => Some(fix::device::MEDIATOR),
            Self::Enable(_, source) if vgpu_paths::hint(source).is_some() => {
                Some(fix::permission::FOREIGN_FOLDER)
            }
            Self::Enable(..) | Self::Give { .. } => Some(fix::permission::WRITABLE),
            Self::Open { source, .. } => open_remedy(source),
            _ => None,
        };
        let fix = other.map(Fix::from).or_else(|| self.diagnosis()?.remedy().map(Fix::from))?;
        Some(match self {
            Self::Driver { name, dir, .. } => fix.with("device", name).with("folder", dir.display()),
            Self::Open { source: OpenError::Turn { path, .. }, .. } => fix.with("path", path.display()),
            Self::Open { dir, .. } => fix.with("folder", dir.display()),
            Self::Scan(error) => fix.with("path", error.path.display()),
            _ => fix,
        })
    }
}

/// Returns whether what could not be read is of one function, not the bus.
fn is_of_function(error: &ScanError) -> bool {
    !error.path.ends_with("bus/pci/devices")
}

/// Returns the remedy for a file of a function that could not be read.
fn unread(error: &ScanError) -> Fix {
    if error.source.raw_os_error() != Some(libc::EACCES) {
        return fix::pci::FILE_FAILS.into();
    }
    let at = find::refusing(&error.path);
    let remedy = if at.is_dir() { fix::pci::CLOSED } else { fix::pci::FILE_UNREADABLE };
    Fix::from(remedy).with("path", at.display())
}

/// Returns the cause for a function that cannot be opened.
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
        // The window's file is smaller than the registers announce, which are correct.
        OpenError::ShortWindow { .. } => cause::window::WINDOW_UNMAPPABLE,
        OpenError::NoFacts { .. } => cause::host::BAD_FACTS,
        OpenError::Strange { .. } => cause::device::NOT_A_STUB,
        OpenError::Forked { .. } => Cause::unknown(LinkId::Device),
    }
}

/// Returns the cause for a file of a function that cannot be opened or mapped.
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

/// Returns the remedy for a function that cannot be opened, if it differs from the remedy of [`cause_of`].
fn open_remedy(error: &OpenError) -> Option<Remedy> {
    Some(match error {
        OpenError::Open { path, source } => match source.kind() {
            io::ErrorKind::NotFound if path.ends_with("resource2") => fix::window::NO_WINDOW,
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => fix::device::DEVICE_PROCESS,
            _ => return None,
        },
        OpenError::Map { source, .. } if source.raw_os_error() == Some(libc::ENOMEM) => {
            fix::host::ADDRESS_SPACE
        }
        OpenError::NoHost { reason: GoneReason::Quarantined, .. } => fix::host::QUARANTINE,
        OpenError::NoHost { reason: GoneReason::Context | GoneReason::Owners, .. } => return None,
        OpenError::NoHost { .. } => fix::host::MEDIATOR,
        OpenError::ShortWindow { .. } => fix::window::SHORT_WINDOW,
        OpenError::NoFacts { .. } => fix::host::NO_FACTS,
        _ => return None,
    })
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

    /// A version 1 host that lacks a context or memory is reported with that cause.
    #[test]
    fn a_host_without_a_context_or_room_is_told_as_such() {
        let dir = PathBuf::from("/d");
        for (reason, cause, remedy) in [
            (GoneReason::Context, cause::host::CONTEXT_LOST, "Restart the mediator"),
            (GoneReason::Owners, cause::host::OWNERS_TAKEN, "End GPU programs"),
            (GoneReason::Mediator, cause::host::EXECUTOR_NOT_READY, "Start the mediator"),
        ] {
            let source = OpenError::NoHost { function: "x".into(), reason };
            let error = DeviceError::Open { name: "x".into(), dir: dir.clone(), lockdown: false, source };
            assert_eq!(error.diagnosis(), Some(cause));
            assert!(hint(&error).starts_with(remedy), "{cause:?}");
        }
    }

    #[test]
    fn a_file_that_may_not_be_read_is_no_sysfs_that_is_not_mounted() {
        let scan = |path: &str, errno| {
            let source = io::Error::from_raw_os_error(errno);
            hint(&DeviceError::Scan(ScanError { path: path.into(), source }))
        };
        let file = scan("/sys/bus/pci/devices/0000:00:05.0/resource", libc::EACCES);
        assert!(file.ends_with("chmod a+r /sys/bus/pci/devices/0000:00:05.0/resource"), "{file}");
        assert!(scan("/sys/bus/pci/devices", libc::EACCES).starts_with("Mount sysfs"));
        let fails = scan("/sys/bus/pci/devices/0000:00:05.0/resource", libc::EIO);
        assert!(fails.ends_with("dmesg"), "sysfs is mounted: {fails}");
        assert!(scan("/proc/self", libc::EACCES).contains("search the directory /proc/"), "what refuses it");
    }

    #[test]
    fn a_silent_device_is_named_once() {
        for silence in [Silence::Registers, Silence::Mediator, Silence::Greeting, Silence::Echo] {
            let sentence = DeviceError::Mute { name: "0000:00:05.0".into(), silence }.to_string();
            assert_eq!(sentence.matches("0000:00:05.0").count(), 1, "{sentence}");
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
