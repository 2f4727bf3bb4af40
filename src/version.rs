//! Implements `vgpu-run --version`: the version of the launcher and its libraries, the supported devices, and
//! the devices of this system. No device is opened.

use vgpu_transport::{PciFunction, scan, sysfs_root};
use vgpu_wire::pci;

use crate::device::survey;

/// Version text after the program's name: the launcher's version and its libraries. `-V` prints the first
/// line alone.
pub const LONG: &str =
    concat!(env!("CARGO_PKG_VERSION"), "\n\n", include_str!(concat!(env!("OUT_DIR"), "/libraries.txt")));

/// Returns the lines about supported and present devices that follow the version.
pub fn device() -> String {
    let kind = format!("VGPU-STUB {:04x}:{:04x}, register protocols 1 and 2", pci::VENDOR, pci::DEVICE);
    let here = match scan(&sysfs_root()) {
        Ok(functions) if functions.is_empty() => "none".to_owned(),
        Ok(functions) => functions.iter().map(describe).collect::<Vec<_>>().join(", "),
        Err(error) => format!("unknown: {error}"),
    };
    format!("{:<20} {kind}\n{:<20} {here}\n", "device", "on this machine")
}

fn describe(function: &PciFunction) -> String {
    format!("{} (version {})", function.address, survey::version(function))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_every_library() {
        let mut lines = LONG.lines();
        assert_eq!(lines.next(), Some(env!("CARGO_PKG_VERSION")));
        for object in crate::embedded::OBJECTS {
            assert!(LONG.contains(object.soname), "{LONG}");
        }
    }
}
