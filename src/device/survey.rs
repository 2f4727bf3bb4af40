//! Surveys the PCI bus: the functions with VGPU-STUB's ids, which of them are VGPU-STUB, and what prevents
//! their use. Only sysfs is read; no function is opened.

use std::io;
use std::path::{Path, PathBuf};

use vgpu_transport::{PciFunction, scan};
use vgpu_wire::pci;

use super::error::DeviceError;
use crate::env::VGPU_SYSFS;
pub use vgpu_findings::size;

/// Kernel drivers that do not touch a function. They are bound to it to keep other drivers away.
const HARMLESS: [&str; 2] = ["pci-stub", "pcieport"];
/// Resource flag `IORESOURCE_UNSET`: the kernel assigned no address.
const UNSET: u64 = 0x2000_0000;

/// A function with VGPU-STUB's ids, which may be a real GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// PCI address of the function.
    pub name: String,
    /// Directory of the function in sysfs.
    pub dir: PathBuf,
    /// PCI class code.
    pub class: u32,
    /// Start address and size in bytes of BAR0 to BAR5.
    pub bars: Vec<(u64, u64)>,
    /// Whether the kernel could not assign an address to one of the BARs.
    pub unset: bool,
}

/// Finds all VGPU-STUB functions. Fails if there is none.
pub fn find(root: &Path) -> Result<Vec<PciFunction>, DeviceError> {
    match scan(root) {
        Ok(functions) if functions.is_empty() => Err(absence(root)),
        Ok(functions) => Ok(functions),
        Err(error) => Err(DeviceError::Scan(error)),
    }
}

/// Determines why no function was found.
fn absence(root: &Path) -> DeviceError {
    // An empty folder is what /sys is before it is mounted, and what a simulated bus is before a device was
    // started there.
    let named = std::env::var_os(VGPU_SYSFS).is_some_and(|name| !name.is_empty());
    let there = if named { root.is_dir() } else { root.join("bus").is_dir() };
    if !there {
        return DeviceError::NoSysfs(root.to_owned());
    }
    let candidates = candidates(root);
    let without = candidates.iter().find(|candidate| candidate.bars.first().is_none_or(|bar| bar.1 == 0));
    if let Some(candidate) = without {
        return DeviceError::Bars { name: candidate.name.clone(), what: "BAR0 (registers)" };
    }
    match candidates.first() {
        Some(Candidate { name, bars, .. }) => {
            DeviceError::RealGpu { name: name.clone(), size: size(bars.first().map_or(0, |bar| bar.1)) }
        }
        None => DeviceError::Absent(root.to_owned()),
    }
}

/// Checks for obstacles to using a function, before it is opened.
pub fn examine(function: &PciFunction) -> Result<(), DeviceError> {
    let name = || function.address.to_string();
    let missing = |at: usize| {
        let bar = function.bars[at];
        bar.bytes == 0 || bar.start == 0 || bar.flags & UNSET != 0
    };
    if missing(0) {
        return Err(DeviceError::Bars { name: name(), what: "BAR0 (registers)" });
    }
    // A version 1 device has its window elsewhere. The size of its registers identifies it.
    if version(function) == 2 && missing(2) {
        return Err(DeviceError::Bars { name: name(), what: "BAR2 (the shared window)" });
    }
    match driver(&function.dir) {
        Some(driver) if !HARMLESS.contains(&driver.as_str()) => {
            Err(DeviceError::Driver { name: name(), dir: function.dir.clone(), driver })
        }
        _ => Ok(()),
    }
}

/// Returns the protocol version of a function, which follows from the size of its registers.
pub fn version(function: &PciFunction) -> u32 {
    if function.bars[0].bytes < pci::V2_BAR0_BYTES { 1 } else { 2 }
}

/// Returns the name of the kernel driver that is bound to a function.
pub fn driver(dir: &Path) -> Option<String> {
    let target = std::fs::read_link(dir.join("driver")).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// Reads a file of a function's directory. At most a page is read, because VGPU_SYSFS may name a directory
/// with any files.
pub fn attribute(dir: &Path, name: &str) -> io::Result<String> {
    vgpu_paths::read_to_string(&dir.join(name), 4096)
}

/// Returns whether memory decoding is off. It counts as on if the state cannot be read.
pub fn decoding_off(dir: &Path) -> bool {
    attribute(dir, "enable").is_ok_and(|text| text.trim() == "0")
}

/// Returns every function with VGPU-STUB's vendor and device ids, real GPUs included, ordered by address.
pub fn candidates(root: &Path) -> Vec<Candidate> {
    let Ok(entries) = std::fs::read_dir(root.join("bus/pci/devices")) else { return Vec::new() };
    let mut found: Vec<Candidate> = entries.filter_map(|entry| candidate(&entry.ok()?.path())).collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

fn candidate(dir: &Path) -> Option<Candidate> {
    let number = |name: &str| hexadecimal(attribute(dir, name).ok()?.trim());
    if number("vendor")? != u64::from(pci::VENDOR) || number("device")? != u64::from(pci::DEVICE) {
        return None;
    }
    let resource = read_bars(&attribute(dir, "resource").unwrap_or_default());
    Some(Candidate {
        name: dir.file_name()?.to_string_lossy().into_owned(),
        dir: dir.to_owned(),
        class: number("class").unwrap_or_default() as u32,
        unset: resource.iter().any(|bar| bar.2 & UNSET != 0),
        bars: resource.into_iter().map(|(start, bytes, _)| (start, bytes)).collect(),
    })
}

/// Parses lines of `0xSTART 0xEND 0xFLAGS` into start, size and flags. Any other line gives an empty BAR.
fn read_bars(text: &str) -> Vec<(u64, u64, u64)> {
    text.lines()
        .take(6)
        .map(|line| {
            let mut numbers = line.split_ascii_whitespace().map(hexadecimal);
            let mut next = || numbers.next().flatten().unwrap_or_default();
            let (start, end, flags) = (next(), next(), next());
            let bytes = if end == 0 { 0 } else { end.saturating_sub(start).saturating_add(1) };
            (start, bytes, flags)
        })
        .collect()
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// Returns the number of functions on the bus, for a message. Fails if the bus is not visible.
pub fn functions(root: &Path) -> io::Result<usize> {
    Ok(std::fs::read_dir(root.join("bus/pci/devices"))?.count())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scratch::Scratch;

    fn put(root: &Path, address: &str, files: &[(&str, &str)]) -> PathBuf {
        let dir = root.join("bus/pci/devices").join(address);
        std::fs::create_dir_all(&dir).unwrap();
        for (name, text) in files {
            std::fs::write(dir.join(name), text).unwrap();
        }
        dir
    }

    const NONE: &str = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
    const STUB: &str = "0x00000000fe000000 0x00000000fe001fff 0x0000000000040200\n";
    const GPU: &str = "0x00000000fe000000 0x00000000feffffff 0x0000000000040200\n";
    const WINDOW: &str = "0x0000380000000000 0x000038000fffffff 0x000000000014220c\n";

    fn function(root: &Path, address: &str, bars: [&str; 3]) -> PathBuf {
        let resource = format!("{}{}", bars.concat(), NONE.repeat(4));
        put(
            root,
            address,
            &[
                ("vendor", "0x10de\n"),
                ("device", "0x2331\n"),
                ("class", "0x030200\n"),
                ("subsystem_vendor", "0x10de\n"),
                ("subsystem_device", "0x16c1\n"),
                ("revision", "0xa1\n"),
                ("resource", &resource),
            ],
        )
    }

    #[test]
    fn an_empty_bus_a_real_gpu_and_a_device() {
        let scratch = Scratch::new();
        let root = scratch.path();
        std::fs::create_dir_all(root.join("bus/pci/devices")).unwrap();
        assert!(matches!(find(root), Err(DeviceError::Absent(_))));
        assert!(matches!(find(&root.join("no")), Err(DeviceError::NoSysfs(_))));
        function(root, "0000:01:00.0", [GPU, NONE, WINDOW]);
        let error = find(root).unwrap_err();
        assert!(
            matches!(&error, DeviceError::RealGpu { name, size } if name == "0000:01:00.0" && size == "16 MiB")
        );
        function(root, "0000:02:00.0", [NONE, NONE, WINDOW]);
        assert!(matches!(find(root), Err(DeviceError::Bars { name, .. }) if name == "0000:02:00.0"));
        function(root, "0000:03:00.0", [STUB, NONE, WINDOW]);
        let found = find(root).unwrap();
        assert_eq!(found.len(), 1);
        examine(&found[0]).unwrap();
        assert_eq!(candidates(root).len(), 3);
        assert_eq!(functions(root).unwrap(), 3);
    }

    #[test]
    fn windows_without_an_address_and_drivers() {
        let scratch = Scratch::new();
        let dir = function(scratch.path(), "0000:03:00.0", [STUB, NONE, NONE]);
        let found = find(scratch.path()).unwrap();
        assert!(
            matches!(examine(&found[0]), Err(DeviceError::Bars { what, .. }) if what.starts_with("BAR2"))
        );
        function(scratch.path(), "0000:03:00.0", [STUB, NONE, WINDOW]);
        let found = find(scratch.path()).unwrap();
        std::os::unix::fs::symlink("../../../bus/pci/drivers/pci-stub", dir.join("driver")).unwrap();
        examine(&found[0]).unwrap();
        std::fs::remove_file(dir.join("driver")).unwrap();
        std::os::unix::fs::symlink("../../../bus/pci/drivers/nouveau", dir.join("driver")).unwrap();
        assert!(matches!(examine(&found[0]), Err(DeviceError::Driver { driver, .. }) if driver == "nouveau"));
    }

    #[test]
    fn decoding_is_off_where_enable_says_so() {
        let scratch = Scratch::new();
        assert!(!decoding_off(scratch.path()));
        std::fs::write(scratch.join("enable"), "0\n").unwrap();
        assert!(decoding_off(scratch.path()));
    }

    proptest! {
        #[test]
        fn no_resource_file_breaks_the_reader(text in "[0-9a-fx \\n]{0,200}", noise in "\\PC{0,40}") {
            prop_assert!(read_bars(&text).len() <= 6);
            let _ = (read_bars(&noise), hexadecimal(&noise));
        }
    }
}
