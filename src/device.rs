//! A look at the device before the program starts: is there one, may it be opened, does its host speak as
//! this launcher's shims do. Everything is given back before exec; the shims open it for themselves.
//!
//! As root it also turns memory decoding on, and for `--user` gives the function's files away. Both last
//! until the function is removed or the guest restarts.

use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::Uid;
use vgpu_transport::{Device, OpenError, PciFunction, Probe, ScanError, scan, sysfs_root};
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION, pci};

use crate::env::VGPU_SYSFS;
use crate::error::{Failure, Refusal};

/// The files of a function that a user needs. The second is the simulated bus's alone, the last is there only where
/// BAR2 is prefetchable.
const FILES: [&str; 4] = ["resource0", "resource0_ro", "resource2", "resource2_wc"];
/// Below sysfs: says which lockdown is in force, in brackets.
const LOCKDOWN: &str = "kernel/security/lockdown";

/// Why the device cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// No function.
    #[error("failed to find a VGPU-STUB device in {}", .0.join("bus/pci/devices").display())]
    Absent(PathBuf),
    /// sysfs itself.
    #[error("failed to look for a VGPU-STUB device")]
    Scan(#[source] ScanError),
    /// A function is there, and cannot be used.
    #[error("failed to use the device {name}")]
    Open {
        /// Its address.
        name: String,
        /// Its folder in sysfs.
        dir: PathBuf,
        /// Kernel lockdown is in force.
        lockdown: bool,
        /// The cause.
        #[source]
        source: OpenError,
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
        /// Its address.
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
        /// The file.
        path: PathBuf,
        /// The user.
        user: Uid,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// A wire version with its table digest, as a person reads it.
fn speech(version: u32, digest: u64) -> String {
    format!("{}.{} (tables {digest:016x})", version >> 16, version & 0xffff)
}

impl Refusal for DeviceError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Absent(_) if std::env::var_os(VGPU_SYSFS).is_some() => {
                format!("{VGPU_SYSFS} names the folder to look in; start the device there, or unset it.")
            }
            Self::Absent(_) => format!(
                "Have the host add the device to this VM; lspci -d {:04x}:{:04x} shows it then.",
                pci::VENDOR,
                pci::DEVICE
            ),
            Self::Scan(_) => "Is sysfs mounted, and may you read it?".into(),
            Self::Open { dir, lockdown, source, .. } => opening(dir, *lockdown, source)?,
            Self::NotReady(_) => "Look at the device's host: its GPU, driver or executor is missing.".into(),
            Self::Speech { .. } => "Install the vgpu-run of the host's release.".into(),
            Self::Enable(..) | Self::Give { .. } => {
                "A service must leave sysfs writable: ProtectKernelTunables=no, and no ReadOnlyPaths=.".into()
            }
        })
    }
}

/// What to do when a function cannot be opened.
fn opening(dir: &Path, lockdown: bool, error: &OpenError) -> Option<String> {
    Some(match error {
        OpenError::Open { source, .. } | OpenError::Map { source, .. }
            if lockdown && source.raw_os_error() == Some(libc::EPERM) =>
        {
            "Kernel lockdown refuses device memory even to root: turn Secure Boot off in this VM.".into()
        }
        OpenError::Open { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => format!(
            "Start vgpu-run as root with --user NAME, which gives that user the device; or have a udev rule \
             give {} to a group of yours.",
            dir.join("resource*").display()
        ),
        OpenError::Open { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            "In a service, set ProtectKernelTunables=no: it makes sysfs read-only.".into()
        }
        OpenError::Open { source, .. }
            if matches!(source.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) =>
        {
            "Its device process is not running: start it again.".into()
        }
        OpenError::Disabled { .. } => format!(
            "Start vgpu-run as root with --user NAME, or turn it on: echo 1 > {}.",
            dir.join("enable").display()
        ),
        OpenError::Gone { .. } => "The host's end is gone: restart it, then this VM.".into(),
        OpenError::Version1 { .. } => "Update the device's host.".into(),
        _ => return None,
    })
}

/// All functions of this guest; at least one.
pub fn find() -> Result<Vec<PciFunction>, DeviceError> {
    let root = sysfs_root();
    match scan(&root) {
        Ok(functions) if functions.is_empty() => Err(DeviceError::Absent(root)),
        Ok(functions) => Ok(functions),
        Err(error) => Err(DeviceError::Scan(error)),
    }
}

/// As root: turns on memory decoding of all functions, and gives their files to `user`.
pub fn prepare(functions: &[PciFunction], user: Option<Uid>) -> Result<(), DeviceError> {
    for function in functions {
        enable(&function.dir)?;
        if let Some(user) = user {
            give(&function.dir, user)?;
        }
    }
    Ok(())
}

/// Writes 1 to `enable`, where it reads 0: each 1 written is counted.
fn enable(dir: &Path) -> Result<(), DeviceError> {
    let path = dir.join("enable");
    match std::fs::read_to_string(&path) {
        Ok(text) if text.trim() == "0" => {
            std::fs::write(&path, "1\n").map_err(|error| DeviceError::Enable(path, error))
        }
        // On, or not known here: opening the function tells.
        _ => Ok(()),
    }
}

/// The group stays: a udev rule may have given it.
fn give(dir: &Path, user: Uid) -> Result<(), DeviceError> {
    for name in FILES {
        let path = dir.join(name);
        match chown(&path, Some(user.as_raw()), None) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(DeviceError::Give { path, user, source });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Opens each function and asks it who it is. All must be usable, for CUDA fails with the first that is not;
/// where `chosen` says that the user chose among them, one that works is enough, and the others are logged.
pub fn look(functions: &[PciFunction], chosen: bool) -> Result<(), DeviceError> {
    let root = sysfs_root();
    let mut refused = Vec::new();
    for function in functions {
        refused.extend(usable_function(function, &root).err());
    }
    let enough = chosen && refused.len() < functions.len();
    for error in refused {
        if !enough {
            return Err(error);
        }
        tracing::warn!(reason = Failure::from(error).sentence(), "a device cannot be used");
    }
    Ok(())
}

fn usable_function(function: &PciFunction, root: &Path) -> Result<(), DeviceError> {
    let name = function.address.to_string();
    let probe =
        Device::open(function).and_then(|device| device.probe()).map_err(|source| DeviceError::Open {
            name: name.clone(),
            dir: function.dir.clone(),
            lockdown: locked_down(&root.join(LOCKDOWN)),
            source,
        })?;
    tracing::debug!(function = name, ?probe, "opened");
    agrees(name, &probe)
}

/// What else must hold before a session can be opened.
fn agrees(name: String, probe: &Probe) -> Result<(), DeviceError> {
    let Probe { wire_version, digest, .. } = *probe;
    if wire_version != WIRE_VERSION || digest != TABLE_DIGEST {
        return Err(DeviceError::Speech { name, wire_version, digest });
    }
    if !probe.executor_ready {
        return Err(DeviceError::NotReady(name));
    }
    Ok(())
}

/// Whether the kernel is locked down: the file reads such as `none [integrity] confidentiality`.
fn locked_down(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.contains('[') && !text.contains("[none]"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::exit::Exit;
    use crate::scratch::Scratch;

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
        assert!(
            hint(&DeviceError::Open { name, dir, lockdown: false, source }).contains("echo 1 > /d/enable")
        );
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
    fn hosts_of_another_build_are_told_with_both_sides() {
        let probe = Probe {
            protocol: 0x2_0000,
            capabilities: 0x100,
            wire_version: WIRE_VERSION,
            digest: TABLE_DIGEST,
            generation: 1,
            executor_ready: true,
            window_mib: 256,
            channels: 64,
            attached: 0,
            wake_futex: true,
            vm_id: 0,
        };
        assert!(agrees("x".into(), &probe).is_ok());
        let error = agrees("x".into(), &Probe { wire_version: 0x3_0001, ..probe }).unwrap_err().to_string();
        assert!(error.contains("speaks VGPU-STUB 3.1 (") && error.contains("this vgpu-run 2.0 ("), "{error}");
        assert!(matches!(
            agrees("x".into(), &Probe { digest: !TABLE_DIGEST, ..probe }),
            Err(DeviceError::Speech { .. })
        ));
        let unready = Probe { executor_ready: false, ..probe };
        assert!(matches!(agrees("x".into(), &unready), Err(DeviceError::NotReady(_))));
    }

    #[test]
    fn memory_decoding_is_turned_on_once() {
        let scratch = Scratch::new();
        let path = scratch.join("enable");
        enable(scratch.path()).unwrap();
        assert!(!path.exists());
        std::fs::write(&path, "0\n").unwrap();
        enable(scratch.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n");
        std::fs::write(&path, "2\n").unwrap();
        enable(scratch.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "2\n");
    }

    #[test]
    fn files_are_given_and_what_is_not_there_is_passed_over() {
        let scratch = Scratch::new();
        std::fs::write(scratch.join("resource0"), "").unwrap();
        std::fs::write(scratch.join("resource0_ro"), "").unwrap();
        std::fs::write(scratch.join("resource1"), "").unwrap();
        let before = std::fs::metadata(scratch.join("resource1")).unwrap();
        let user = if Uid::effective().is_root() { Uid::from_raw(12345) } else { Uid::effective() };
        give(scratch.path(), user).unwrap();
        for name in ["resource0", "resource0_ro"] {
            let given = std::fs::metadata(scratch.join(name)).unwrap();
            assert_eq!((given.uid(), given.gid()), (user.as_raw(), before.gid()));
        }
        assert_eq!(std::fs::metadata(scratch.join("resource1")).unwrap().uid(), before.uid());
    }

    #[test]
    fn lockdown_files() {
        let scratch = Scratch::new();
        let path = scratch.join("lockdown");
        assert!(!locked_down(&path));
        for (text, expected) in [
            ("[none] integrity confidentiality\n", false),
            ("none [integrity] confidentiality\n", true),
            ("none integrity [confidentiality]\n", true),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(locked_down(&path), expected, "{text}");
        }
    }
}
