//! Finds VGPU-STUB functions in sysfs, or in a folder that looks like it.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;
use vgpu_wire::pci;

/// Where sysfs is: `$VGPU_SYSFS`, or `/sys`.
pub fn sysfs_root() -> PathBuf {
    let named = std::env::var_os("VGPU_SYSFS").filter(|dir| !dir.is_empty());
    named.map_or_else(|| PathBuf::from("/sys"), PathBuf::from)
}

/// Address of a PCI function, displayed as `0000:00:05.0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PciAddress {
    /// Domain (segment).
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, 0 to 31.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

/// Text that is not a PCI address.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("not a PCI address such as 0000:00:05.0")]
pub struct AddressError;

impl FromStr for PciAddress {
    type Err = AddressError;

    /// Reads `domain:bus:device.function`, in hexadecimal digits: 4 to 8, 2, 2 and 1 of them.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let mut parts = text.split(':');
        let (Some(domain), Some(bus), Some(rest), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(AddressError);
        };
        let (device, function) = rest.split_once('.').ok_or(AddressError)?;
        let address = Self {
            domain: digits(domain, 4..=8)?,
            bus: digits(bus, 2..=2)? as u8,
            device: digits(device, 2..=2)? as u8,
            function: digits(function, 1..=1)? as u8,
        };
        if address.device < 32 && address.function < 8 { Ok(address) } else { Err(AddressError) }
    }
}

fn digits(text: &str, length: std::ops::RangeInclusive<usize>) -> Result<u32, AddressError> {
    if !length.contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(AddressError);
    }
    u32::from_str_radix(text, 16).map_err(|_| AddressError)
}

/// A base address register as the `resource` file tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bar {
    /// First address.
    pub start: u64,
    /// Bytes; 0: there is none.
    pub bytes: u64,
    /// `IORESOURCE_*` flags.
    pub flags: u64,
}

/// A function that looks like VGPU-STUB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciFunction {
    /// Its address.
    pub address: PciAddress,
    /// Its folder in sysfs.
    pub dir: PathBuf,
    /// Subsystem: device in the high half, vendor in the low, as NVML reports it.
    pub subsystem: u32,
    /// Revision.
    pub revision: u8,
    /// BAR0 to BAR5.
    pub bars: [Bar; 6],
}

/// Why sysfs cannot be read.
#[derive(Debug, Error)]
#[error("failed to read {}", path.display())]
pub struct ScanError {
    /// The file or folder.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: io::Error,
}

/// Finds all VGPU-STUB functions below `root`: vendor, device and class as `vgpu_wire::pci` has them, and a
/// BAR0 of VGPU-STUB's size, version 1 or 2 (a real GPU with the same ids has another). Sorted by address. A
/// system without PCI has none; a function that goes away meanwhile is left out.
///
/// # Errors
/// A file that is there but cannot be read, or does not hold what sysfs says it does.
pub fn scan(root: &Path) -> Result<Vec<PciFunction>, ScanError> {
    // A session may have to open files again after the program has changed its folder.
    let devices = std::path::absolute(root).unwrap_or_else(|_| root.to_owned()).join("bus/pci/devices");
    let entries = match std::fs::read_dir(&devices) {
        Ok(entries) => entries,
        Err(source) if absent(&source) => return Ok(Vec::new()),
        Err(source) => return Err(ScanError { path: devices, source }),
    };
    let mut functions = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| ScanError { path: devices.clone(), source })?;
        let name = entry.file_name();
        let Some(address) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        match function(address, entry.path()) {
            Ok(function) => functions.extend(function),
            Err(error) if absent(&error.source) => {}
            Err(error) => return Err(error),
        }
    }
    functions.sort_by_key(|function: &PciFunction| function.address);
    Ok(functions)
}

/// Errors that mean that something is not there: `ENODEV` is what sysfs answers when a function goes away.
fn absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ENODEV | libc::ENXIO))
}

fn function(address: PciAddress, dir: PathBuf) -> Result<Option<PciFunction>, ScanError> {
    let hex = |name: &str| number(&dir.join(name));
    if hex("vendor")? != u64::from(pci::VENDOR) || hex("device")? != u64::from(pci::DEVICE) {
        return Ok(None);
    }
    // Not before: to read the configuration space wakes a function that is suspended.
    let identity = Identity::of(&dir)?;
    if identity.class & pci::CLASS_MASK != pci::CLASS {
        return Ok(None);
    }
    let path = dir.join("resource");
    let text = read(&path)?;
    let bars = bars(&text).ok_or_else(|| ScanError { path, source: io::ErrorKind::InvalidData.into() })?;
    if ![pci::V1_BAR0_BYTES, pci::V2_BAR0_BYTES].contains(&bars[0].bytes) {
        return Ok(None);
    }
    let Identity { subsystem, revision, .. } = identity;
    Ok(Some(PciFunction { address, dir, subsystem, revision, bars }))
}

/// What a function's configuration space says of it, besides vendor and device.
struct Identity {
    class: u32,
    /// As [`PciFunction::subsystem`].
    subsystem: u32,
    revision: u8,
}

impl Identity {
    /// Reads the head of `config`, which every user may, or four files where there is no `config`.
    fn of(dir: &Path) -> Result<Self, ScanError> {
        let path = dir.join("config");
        let mut head = [0; 64];
        match std::fs::File::open(&path).and_then(|mut file| file.read_exact(&mut head)) {
            Ok(()) => Ok(Self::of_head(&head)),
            Err(source) if absent(&source) => Self::of_files(dir),
            Err(source) => Err(ScanError { path, source }),
        }
    }

    /// Offsets of the PCI Local Bus Specification 3.0, figure 6-1.
    fn of_head(head: &[u8; 64]) -> Self {
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Self { class: word(0x08) >> 8, subsystem: word(0x2c), revision: head[0x08] }
    }

    fn of_files(dir: &Path) -> Result<Self, ScanError> {
        let hex = |name: &str| number(&dir.join(name));
        Ok(Self {
            class: hex("class")? as u32,
            subsystem: (hex("subsystem_device")? as u32) << 16 | hex("subsystem_vendor")? as u32,
            revision: hex("revision")? as u8,
        })
    }
}

/// A file of sysfs: it comes whole in one read, and none of those read here is longer than this buffer.
fn read(path: &Path) -> Result<String, ScanError> {
    let error = |source| ScanError { path: path.to_owned(), source };
    let mut text = vec![0; 2048];
    let bytes = std::fs::File::open(path).and_then(|mut file| file.read(&mut text)).map_err(error)?;
    text.truncate(bytes);
    String::from_utf8(text).map_err(|_| error(io::ErrorKind::InvalidData.into()))
}

/// A file that holds one number, such as `0x10de`.
fn number(path: &Path) -> Result<u64, ScanError> {
    hexadecimal(read(path)?.trim())
        .ok_or_else(|| ScanError { path: path.to_owned(), source: io::ErrorKind::InvalidData.into() })
}

fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    // `from_str_radix` would take a sign.
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

/// The first six lines of `resource`: `0xSTART 0xEND 0xFLAGS`, all zero where there is no such BAR.
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

    fn stub<'a>(resource: &'a str, class: &'a str) -> [(&'a str, &'a str); 7] {
        [
            ("vendor", "0x10de\n"),
            ("device", "0x2331\n"),
            ("class", class),
            ("subsystem_vendor", "0x10de\n"),
            ("subsystem_device", "0x16c1\n"),
            ("revision", "0xa1\n"),
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
        assert_eq!(found[0].revision, 0xa1);
        assert_eq!(found[0].bars[0], Bar { start: 0xfe00_0000, bytes: 0x2000, flags: 0x4_0200 });
        assert_eq!(found[0].bars[1].bytes, 0);
        assert_eq!(found[0].bars[2].bytes, 256 << 20);
    }

    #[test]
    fn the_configuration_space_says_what_the_files_say() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "0000:00:05.0", &stub(RESOURCE, "0x030200\n"));
        let by_files = scan(dir.path()).unwrap();
        let function = dir.path().join("bus/pci/devices/0000:00:05.0");
        for name in ["class", "subsystem_vendor", "subsystem_device", "revision"] {
            std::fs::remove_file(function.join(name)).unwrap();
        }
        assert_eq!(scan(dir.path()).unwrap(), [], "files that are not there");
        let mut config = [0u8; 256];
        config[0x08..0x0c].copy_from_slice(&0x0302_00a1u32.to_le_bytes());
        config[0x2c..0x30].copy_from_slice(&0x16c1_10deu32.to_le_bytes());
        std::fs::write(function.join("config"), config).unwrap();
        assert_eq!(scan(dir.path()).unwrap(), by_files);
        std::fs::write(function.join("config"), [0; 10]).unwrap();
        assert!(scan(dir.path()).unwrap_err().to_string().ends_with("/config"));
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
        fn addresses_are_read_as_they_are_shown(domain: u32, bus: u8, device in 0u8..32, function in 0u8..8) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn no_text_breaks_the_readers(text in "[0-9a-fx:. +\n-]{0,40}") {
            if let Ok(address) = text.parse::<PciAddress>() {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
            let _ = bars(&text);
            let _ = hexadecimal(&text);
        }
    }
}
