//! A PCI address as sysfs writes it.

use std::fmt;
use std::str::FromStr;

/// Domain, bus, device and function: "0000:00:05.0". Ordered as a bus scan orders them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain, 16 bits on most machines.
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

/// A text that is no PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read {0:?} as a PCI address: it should look like 0000:00:05.0")]
pub struct AddressError(String);

impl FromStr for PciAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        parse(text).ok_or_else(|| AddressError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.split_once('.')?;
    let mut parts = rest.rsplit(':');
    let (device, bus) = (hex(parts.next()?)?, hex(parts.next()?)?);
    let domain = parts.next().map_or(Some(0), hex)?;
    let function = hex(function)?;
    if parts.next().is_some() || device > 31 || function > 7 {
        return None;
    }
    Some(PciAddress { domain, bus: bus.try_into().ok()?, device: device as u8, function: function as u8 })
}

fn hex(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if plain { u32::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(domain in 0u32..=0xffff_ffff, bus: u8, device in 0u8..32, function in 0u8..8) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,20}") {
            let _ = text.parse::<PciAddress>();
        }
    }

    #[test]
    fn short_forms_have_domain_zero_and_nonsense_is_refused() {
        assert_eq!("00:05.0".parse::<PciAddress>().unwrap().to_string(), "0000:00:05.0");
        for bad in [
            "",
            "0000:00:05",
            "0000:00:20.0",
            "0000:00:05.8",
            "0:0:0:0.0",
            "0000:100:05.0",
            "+0:00:05.0",
            "::.",
        ] {
            assert!(bad.parse::<PciAddress>().is_err(), "{bad}");
        }
    }
}
