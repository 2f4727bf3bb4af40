//! The address of a PCI function and its text in the form of sysfs, such as `0000:00:05.0`.

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

/// Address of a PCI function, displayed as `0000:00:05.0`. Addresses are ordered as a bus scan meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain (segment). Most machines have 16 bits of it; hypervisors and VMD controllers use more.
    pub domain: u32,
    /// Bus number within the domain.
    pub bus: u8,
    /// Device number on the bus, 0 to 31.
    pub device: u8,
    /// Function number of the device, 0 to 7.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

/// Error for a text that is not a PCI address in the form of sysfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressError;

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a PCI address such as 0000:00:05.0")
    }
}

impl core::error::Error for AddressError {}

impl FromStr for PciAddress {
    type Err = AddressError;

    /// Reads `domain:bus:device.function` in hexadecimal digits: 4 to 8 of them for the domain, then 2, 2 and
    /// 1.
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

/// Reads hexadecimal digits, as many as `length` allows. `from_str_radix` alone would accept a sign.
fn digits(text: &str, length: RangeInclusive<usize>) -> Result<u32, AddressError> {
    if !length.contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(AddressError);
    }
    u32::from_str_radix(text, 16).map_err(|_| AddressError)
}
