//! Decides whether an opened function can be used: its host must be of this build and accept sessions.

use std::path::Path;

use vgpu_transport::{OpenError, PciFunction, Probe};
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION};

use super::error::DeviceError;

/// Path below sysfs of the file that names the lockdown mode in force, in brackets.
const LOCKDOWN: &str = "kernel/security/lockdown";
/// Maximum number of bytes that are read of a sysfs file: a page.
const MOST: u64 = 4096;

/// Creates the error for a function that cannot be opened or used.
pub fn refused(function: &PciFunction, root: &Path, source: OpenError) -> DeviceError {
    DeviceError::Open {
        name: function.address.to_string(),
        dir: function.dir.clone(),
        lockdown: locked_down(root),
        source,
    }
}

/// Checks that the host of a device is of the same build as the shims.
pub fn agrees(name: String, probe: &Probe) -> Result<(), DeviceError> {
    let Probe { wire_version, digest, .. } = *probe;
    if wire_version != WIRE_VERSION || digest != TABLE_DIGEST {
        return Err(DeviceError::Speech { name, wire_version, digest });
    }
    Ok(())
}

/// Checks that the host of a device accepts sessions.
pub fn ready(name: String, probe: &Probe) -> Result<(), DeviceError> {
    if probe.executor_ready { Ok(()) } else { Err(DeviceError::NotReady(name)) }
}

/// Returns whether kernel lockdown is in force. The file reads such as `none [integrity] confidentiality`.
pub fn locked_down(root: &Path) -> bool {
    vgpu_paths::read_to_string(&root.join(LOCKDOWN), MOST)
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
