//! Finds VGPU-STUB functions in sysfs, or in a directory that looks like it.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use vgpu_wire::pci::{self, PciAddress};

use crate::folder::{Folder, Name};

/// Returns the root of sysfs: `$VGPU_SYSFS`, or `/sys`.
pub fn sysfs_root() -> PathBuf {
    let named = std::env::var_os("VGPU_SYSFS").filter(|dir| !dir.is_empty());
    named.map_or_else(|| PathBuf::from("/sys"), PathBuf::from)
}

/// A base address register, as the `resource` file states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bar {
    /// First physical address; 0 if none is assigned.
    pub start: u64,
    /// Size in bytes; 0 if the function has no such BAR.
    pub bytes: u64,
    /// Linux's `IORESOURCE_*` flags of the BAR.
    pub flags: u64,
}

/// A PCI function that looks like VGPU-STUB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciFunction {
    /// PCI address of the function.
    pub address: PciAddress,
    /// Directory of the function in sysfs.
    pub dir: PathBuf,
    /// Subsystem id: device in the high half, vendor in the low, as NVML reports it.
    pub subsystem: u32,
    /// Base address registers BAR0 to BAR5.
    pub bars: [Bar; 6],
}

impl PciFunction {
    /// Returns whether the function is on the simulated bus, where registers are behind a socket.
    pub(crate) fn is_simulated(&self) -> bool {
        use std::os::unix::fs::FileTypeExt;
        let metadata = std::fs::metadata(self.dir.join("resource0"));
        metadata.is_ok_and(|metadata| metadata.file_type().is_socket())
    }
}

/// Why sysfs cannot be read.
#[derive(Debug, Error)]
#[error("failed to read {}", path.display())]
pub struct ScanError {
    /// File or directory that cannot be read.
    pub path: PathBuf,
    /// The error of the read.
    #[source]
    pub source: io::Error,
}

/// Finds all VGPU-STUB functions below `root`: vendor, device and class as in `vgpu_wire::pci`, and a BAR0 of
/// VGPU-STUB's size, version 1 or 2 (a real GPU with the same ids has another). They are sorted by address. A
/// system without PCI has none; a function that disappears meanwhile is omitted.
///
/// # Errors
/// Fails if an existing file cannot be read, or does not have the contents that sysfs defines.
pub fn scan(root: &Path) -> Result<Vec<PciFunction>, ScanError> {
    // A session may have to open files again after the program has changed its working directory.
    let devices = std::path::absolute(root).unwrap_or_else(|_| root.to_owned()).join("bus/pci/devices");
    let error = |source| ScanError { path: devices.clone(), source };
    let folder = match Folder::open(&devices) {
        Ok(folder) => folder,
        Err(source) if absent(&source) => return Ok(Vec::new()),
        Err(source) => return Err(error(source)),
    };
    let mut functions = Vec::new();
    let mut failed = None;
    let looked = folder.each(|name| {
        let Some(address) = name.to_str().ok().and_then(|name| name.parse().ok()) else { return };
        match function(address, &folder, name, &devices) {
            Ok(function) => functions.extend(function),
            Err(error) if absent(&error.source) => {}
            Err(error) => failed = Some(error),
        }
    });
    looked.map_err(error)?;
    if let Some(error) = failed {
        return Err(error);
    }
    functions.sort_by_key(|function: &PciFunction| function.address);
    Ok(functions)
}

/// Returns whether an error means that the file does not exist: `ENODEV` is the answer of sysfs when a
/// function disappears.
fn absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ENODEV | libc::ENXIO))
}

fn function(
    address: PciAddress,
    folder: &Folder,
    name: &Name,
    devices: &Path,
) -> Result<Option<PciFunction>, ScanError> {
    let files = Files { folder, name, devices };
    let identity = match files.modalias()? {
        Some(identity) => identity,
        // The files are read only without `modalias`, and of a function with other ids only two.
        None => match files.identity()? {
            Some(identity) => identity,
            None => return Ok(None),
        },
    };
    let Identity { vendor, device, subsystem, class } = identity;
    if vendor != u32::from(pci::VENDOR) || device != u32::from(pci::DEVICE) {
        return Ok(None);
    }
    if class & pci::CLASS_MASK != pci::CLASS {
        return Ok(None);
    }
    let bars = files.read("resource", bars)?;
    if ![pci::V1_BAR0_BYTES, pci::V2_BAR0_BYTES].contains(&bars[0].bytes) {
        return Ok(None);
    }
    Ok(Some(PciFunction { address, dir: files.dir(), subsystem, bars }))
}

/// Ids of a function, as sysfs states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    vendor: u32,
    device: u32,
    /// Subsystem id, as in [`PciFunction::subsystem`].
    subsystem: u32,
    class: u32,
}

/// Parses the line by which the kernel finds a driver,
/// `pci:v000010DEd00002331sv000010DEsd000016C1bc03sc02i00`. It has all ids of a function, and reading it does
/// not wake a suspended one.
fn alias(text: &str) -> Option<Identity> {
    let mut rest = text.trim_end();
    let mut field = |name: &str, digits: usize| {
        let (number, behind) = rest.strip_prefix(name)?.split_at_checked(digits)?;
        rest = behind;
        hexadecimal(number).map(|number| number as u32)
    };
    let (vendor, device) = (field("pci:v", 8)?, field("d", 8)?);
    let (subvendor, subdevice) = (field("sv", 8)?, field("sd", 8)?);
    let (base, sub, interface) = (field("bc", 2)?, field("sc", 2)?, field("i", 2)?);
    let subsystem = subdevice << 16 | subvendor;
    Some(Identity { vendor, device, subsystem, class: base << 16 | sub << 8 | interface })
}

/// Files of a function in sysfs.
struct Files<'a> {
    folder: &'a Folder,
    name: &'a Name,
    devices: &'a Path,
}

impl Files<'_> {
    fn dir(&self) -> PathBuf {
        self.devices.join(self.name.to_str().unwrap_or_default())
    }

    /// Reads a file of sysfs and parses it.
    fn read<T>(&self, file: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, ScanError> {
        let error = |source| ScanError { path: self.dir().join(file), source };
        // A file of sysfs is returned whole by one read, and none of those read here is longer than the
        // buffer.
        let mut buffer = [0; 2048];
        let bytes = self.folder.read(self.name, file, &mut buffer).map_err(error)?;
        let text = std::str::from_utf8(&buffer[..bytes]).ok();
        text.and_then(parse).ok_or_else(|| error(io::ErrorKind::InvalidData.into()))
    }

    /// Reads a file that holds one number, such as `0x10de`.
    fn number(&self, file: &str) -> Result<u32, ScanError> {
        self.read(file, |text| hexadecimal(text.trim()).map(|number| number as u32))
    }

    /// Reads the identity from the file `modalias`. Returns `None` if there is no such file.
    fn modalias(&self) -> Result<Option<Identity>, ScanError> {
        match self.read("modalias", alias) {
            Ok(identity) => Ok(Some(identity)),
            Err(error) if absent(&error.source) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the identity from five files. Returns `None` if it is not that of VGPU-STUB.
    fn identity(&self) -> Result<Option<Identity>, ScanError> {
        let (vendor, device) = (self.number("vendor")?, self.number("device")?);
        if vendor != u32::from(pci::VENDOR) || device != u32::from(pci::DEVICE) {
            return Ok(None);
        }
        let subsystem = self.number("subsystem_device")? << 16 | self.number("subsystem_vendor")?;
        Ok(Some(Identity { vendor, device, subsystem, class: self.number("class")? }))
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    // `from_str_radix` would accept a sign.
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

/// Parses the first six lines of `resource`: `0xSTART 0xEND 0xFLAGS`, all zero if there is no such BAR.
fn bars(text: &str) -> Option<[Bar; 6]> {
    let mut bars = [Bar::default(); 6];
    let mut lines = text.lines();
    for bar in &mut bars {
        let mut numbers = lines.next()?.split_ascii_whitespace().map(hexadecimal);
        let (start, end, flags) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let bytes = if end == 0 { 0 } else { end.checked_sub(start)?.checked_add(1)? };
        *bar = Bar { start, bytes, flags };
    }
    Some(bars)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put(root: &Path, address: &str, files: &[(&str, &str)]) {
        let dir = root.join("bus/pci/devices").join(address);
        std::fs::create_dir_all(&dir).unwrap();
        for (name, text) in files {
            std::fs::write(dir.join(name), text).unwrap();
        }
    }

    const RESOURCE: &str = "0x00000000fe000000 0x00000000fe001fff 0x0000000000040200\n\
        0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
        0x0000380000000000 0x000038000fffffff 0x000000000014220c\n\
        0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
        0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
        0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
        0x0000000000000000 0x0000000000000000 0x0000000000000000\n";

    fn stub<'a>(resource: &'a str, class: &'a str) -> [(&'a str, &'a str); 6] {
        [
            ("vendor", "0x10de\n"),
            ("device", "0x2331\n"),
            ("class", class),
            ("subsystem_vendor", "0x10de\n"),
            ("subsystem_device", "0x16c1\n"),
            ("resource", resource),
        ]
    }

    #[test]
    fn finds_functions_in_the_order_of_their_addresses() {
        let dir = tempfile::tempdir().unwrap();
        let real = RESOURCE.replace("fe001fff", "feffffff");
        put(dir.path(), "0001:00:00.0", &stub(RESOURCE, "0x030200\n"));
        put(dir.path(), "0000:0a:05.1", &stub(RESOURCE, "0x030200\n"));
        put(dir.path(), "0000:00:06.0", &stub(&real, "0x030200\n"));
        put(dir.path(), "0000:00:07.0", &stub(RESOURCE, "0x030000\n"));
        put(dir.path(), "0000:00:08.0", &[("vendor", "0x8086\n")]);
        put(
            dir.path(),
            "0000:00:1f.7",
            &[("vendor", "0x8086\n"), ("device", "0x1234"), ("class", "0x060000")],
        );
        put(dir.path(), "junk", &stub(RESOURCE, "0x030200\n"));
        let found = scan(dir.path()).unwrap();
        let addresses: Vec<String> = found.iter().map(|function| function.address.to_string()).collect();
        assert_eq!(addresses, ["0000:0a:05.1", "0001:00:00.0"]);
        assert_eq!(found[0].subsystem, 0x16c1_10de);
        assert_eq!(found[0].bars[0], Bar { start: 0xfe00_0000, bytes: 0x2000, flags: 0x4_0200 });
        assert_eq!(found[0].bars[1].bytes, 0);
        assert_eq!(found[0].bars[2].bytes, 256 << 20);
    }

    #[test]
    fn one_file_says_what_the_five_say() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "0000:00:05.0", &stub(RESOURCE, "0x030200\n"));
        let by_files = scan(dir.path()).unwrap();
        assert_eq!(by_files.len(), 1);
        let function = dir.path().join("bus/pci/devices/0000:00:05.0");
        for name in ["vendor", "device", "class", "subsystem_vendor", "subsystem_device"] {
            std::fs::remove_file(function.join(name)).unwrap();
        }
        assert_eq!(scan(dir.path()).unwrap(), [], "files that are not there");
        let line = "pci:v000010DEd00002331sv000010DEsd000016C1bc03sc02i00\n";
        std::fs::write(function.join("modalias"), line).unwrap();
        assert_eq!(scan(dir.path()).unwrap(), by_files);
        for other in
            [line.replace("2331", "2330"), line.replace("sc02", "sc00"), line.replace("10DEd", "8086d")]
        {
            std::fs::write(function.join("modalias"), other).unwrap();
            assert_eq!(scan(dir.path()).unwrap(), []);
        }
        std::fs::write(function.join("modalias"), "pci:v000010DE").unwrap();
        assert!(scan(dir.path()).unwrap_err().to_string().ends_with("/modalias"));
    }

    #[test]
    fn a_system_without_pci_has_none() {
        assert_eq!(scan(tempfile::tempdir().unwrap().path()).unwrap(), []);
    }

    #[test]
    fn nonsense_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "0000:00:05.0", &stub("0x1 0x0 0x0\n", "0x030200\n"));
        let error = scan(dir.path()).unwrap_err();
        assert!(error.to_string().ends_with("0000:00:05.0/resource"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_readers(text in "[0-9a-fx:. +\n-]{0,40}") {
            let _ = bars(&text);
            let _ = alias(&text);
            let _ = hexadecimal(&text);
        }
    }
}
