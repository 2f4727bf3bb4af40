//! A look at the device before the program starts: is there one, may it be opened, does its host speak as
//! this launcher's shims do. Everything is given back before exec; the shims open it for themselves.
//!
//! What is refused here has a cause of the catalogue ([`error::DeviceError`]), and `check` examines the device with
//! the same functions: one finding has one sentence, wherever it is met.

pub mod alive;
pub mod error;
pub mod prepare;
pub mod survey;

use std::path::Path;

use vgpu_transport::{OpenError, PciFunction, Probe, sysfs_root};
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION};

use crate::error::Failure;
pub use error::DeviceError;
pub use prepare::prepare;

/// The files of a function that a user needs. The second is the simulated bus's alone, the third version 1's, the last is there
/// only where BAR2 is prefetchable.
pub const FILES: [&str; 5] = ["resource0", "resource0_ro", "resource1", "resource2", "resource2_wc"];
/// Below sysfs: says which lockdown is in force, in brackets.
const LOCKDOWN: &str = "kernel/security/lockdown";

/// All functions of this guest; at least one.
pub fn find() -> Result<Vec<PciFunction>, DeviceError> {
    survey::find(&sysfs_root())
}

/// Opens each function, asks it who it is, and has its host answer. All must be usable, for CUDA fails with
/// the first that is not; where `chosen` says that the user chose among them, one that works is enough, and
/// the others are logged.
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
    survey::examine(function)?;
    alive::answers(function, root)
}

/// Why a function cannot be used.
pub fn refused(function: &PciFunction, root: &Path, source: OpenError) -> DeviceError {
    DeviceError::Open {
        name: function.address.to_string(),
        dir: function.dir.clone(),
        lockdown: locked_down(root),
        source,
    }
}

/// Whether its host speaks as the shims do.
pub fn agrees(name: String, probe: &Probe) -> Result<(), DeviceError> {
    let Probe { wire_version, digest, .. } = *probe;
    if wire_version != WIRE_VERSION || digest != TABLE_DIGEST {
        return Err(DeviceError::Speech { name, wire_version, digest });
    }
    Ok(())
}

/// Whether its host takes sessions.
pub fn ready(name: String, probe: &Probe) -> Result<(), DeviceError> {
    if probe.executor_ready { Ok(()) } else { Err(DeviceError::NotReady(name)) }
}

/// Whether the shims open one of a device's files for reading alone: the simulated bus's page of registers,
/// and the file of turns of version 1, which they lock.
pub fn is_only_read(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "resource0_ro" || name == "vgpu_transport.lock")
}

/// Whether the kernel is locked down: the file reads such as `none [integrity] confidentiality`.
pub fn locked_down(root: &Path) -> bool {
    std::fs::read_to_string(root.join(LOCKDOWN))
        .is_ok_and(|text| text.contains('[') && !text.contains("[none]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

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
        assert!(error.contains("speaks VGPU-STUB 3.1 (") && error.contains("this vgpu-run 2.1 ("), "{error}");
        assert!(matches!(
            agrees("x".into(), &Probe { digest: !TABLE_DIGEST, ..probe }),
            Err(DeviceError::Speech { .. })
        ));
        let unready = Probe { executor_ready: false, ..probe };
        assert!(matches!(ready("x".into(), &unready), Err(DeviceError::NotReady(_))));
    }

    #[test]
    fn lockdown_files() {
        let scratch = Scratch::new();
        let path = scratch.join(LOCKDOWN);
        assert!(!locked_down(scratch.path()));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        for (text, expected) in [
            ("[none] integrity confidentiality\n", false),
            ("none [integrity] confidentiality\n", true),
            ("none integrity [confidentiality]\n", true),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(locked_down(scratch.path()), expected, "{text}");
        }
    }
}
