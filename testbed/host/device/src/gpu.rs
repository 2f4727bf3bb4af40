//! What a GPU in software says of itself: the configuration of an executor, and the facts made
//! from it.

use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_wire::facts::DeviceFacts;

use crate::gpu_attributes::{Family, attributes};

/// Why a configuration is no GPU.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// A compute capability that no GPU of this interface has.
    #[error("make a GPU of compute capability {}.{}: there is none", .0.0, .0.1)]
    ComputeCapability((u32, u32)),
    /// A text that is too long for its field.
    #[error("make a GPU with a {field} of {bytes} bytes: there is room for {room}")]
    Text {
        /// Which text.
        field: &'static str,
        /// Its length.
        bytes: usize,
        /// What fits.
        room: usize,
    },
    /// Too little memory to be a GPU, or too much for its addresses.
    #[error("make a GPU with {0} bytes of memory: it has 1 MiB at least and half a TiB at most")]
    Memory(u64),
    /// The system has no random numbers.
    #[error("draw a random UUID")]
    Random(#[source] std::io::Error),
}

/// A GPU in software. Every field can be set; [`GpuConfig::new`] gives the usual ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuConfig {
    /// Product name.
    pub name: String,
    /// UUID.
    pub uuid: [u8; 16],
    /// Compute capability, major and minor: what chooses among a program's kernels.
    pub compute_capability: (u32, u32),
    /// Device memory in bytes. Occupied on the host only as far as it is used.
    pub memory_bytes: u64,
    /// `cuDriverGetVersion`: 1000 * major + 10 * minor.
    pub driver_version: u32,
    /// Version text of the driver.
    pub driver_text: String,
    /// Multiprocessors. Programs size their grids by it.
    pub multiprocessors: u32,
    /// Clock of the multiprocessors, kHz.
    pub clock_khz: u32,
    /// Clock of the memory, kHz.
    pub memory_clock_khz: u32,
    /// Width of the memory bus, bits.
    pub bus_bits: u32,
    /// Second-level cache, bytes.
    pub l2_bytes: u32,
    /// Where device addresses begin; they end [`ADDRESS_SPAN`] later. Devices that one guest sees must
    /// not share addresses.
    pub address_base: u64,
}

/// How much address space a device has.
pub const ADDRESS_SPAN: u64 = 1 << 40;
/// Where the first device's addresses begin: like a GPU's within 47 bits, below what the kernel gives a
/// process that maps less than 14 TiB, above its heap.
const FIRST_ADDRESS: u64 = 0x7000_0000_0000;
/// How many devices have addresses of their own.
const SLOTS: u64 = 14;

/// A range of addresses for another device of this process.
fn next_address_base() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    FIRST_ADDRESS + NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS * ADDRESS_SPAN
}

impl GpuConfig {
    /// Compute capability 6.1, 8 GiB, driver 13.0, a UUID drawn at random. 6.1 is the least that
    /// programs ask of a GPU with integer dot products and without tensor cores. Addresses are no
    /// other's in this process, up to 14 devices.
    pub fn new(name: &str) -> Result<Self, GpuError> {
        Ok(Self {
            name: name.to_owned(),
            uuid: random_uuid()?,
            compute_capability: (6, 1),
            memory_bytes: 8 << 30,
            driver_version: 13_000,
            driver_text: "580.65.06".to_owned(),
            multiprocessors: 4,
            clock_khz: 1_000_000,
            memory_clock_khz: 1_000_000,
            bus_bits: 128,
            l2_bytes: 1 << 20,
            address_base: next_address_base(),
        })
    }

    /// The facts, with the [`vgpu_wire::facts::exec`] abilities of the executor.
    pub fn facts(&self, abilities: u32) -> Result<DeviceFacts, GpuError> {
        let (cc_major, cc_minor) = self.compute_capability;
        let family = Family::of(self.compute_capability)
            .ok_or(GpuError::ComputeCapability(self.compute_capability))?;
        if !(1 << 20..=ADDRESS_SPAN / 2).contains(&self.memory_bytes) {
            return Err(GpuError::Memory(self.memory_bytes));
        }
        Ok(DeviceFacts {
            name: text("name", &self.name)?,
            driver_text: text("driver version", &self.driver_text)?,
            uuid: self.uuid,
            total_bytes: self.memory_bytes,
            driver_version: self.driver_version,
            cc_major,
            cc_minor,
            granularity: 2 << 20,
            abilities,
            reserved: [0; 13],
            attributes: attributes(self, family),
        })
    }
}

/// A text in a field that ends with at least one zero.
fn text<const ROOM: usize>(field: &'static str, text: &str) -> Result<[u8; ROOM], GpuError> {
    let mut bytes = [0; ROOM];
    if text.len() >= ROOM {
        return Err(GpuError::Text { field, bytes: text.len(), room: ROOM - 1 });
    }
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    Ok(bytes)
}

/// A random UUID of version 4.
fn random_uuid() -> Result<[u8; 16], GpuError> {
    let mut uuid = [0; 16];
    rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| GpuError::Random(error.into()))?;
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}

/// Reads a size as command lines have it: "8G", "512M", "65536".
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_suffix("iB").or_else(|| text.strip_suffix('B')).unwrap_or(text);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Reads a compute capability: "6.1".
#[must_use]
pub fn parse_compute_capability(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Reads a UUID, with or without "GPU-" and hyphens.
#[must_use]
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u32> = text
        .strip_prefix("GPU-")
        .unwrap_or(text)
        .chars()
        .filter(|&c| c != '-')
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> =
        digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8)).collect();
    if digits.len() == 32 { bytes.try_into().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        assert_eq!(parse_bytes("8G"), Some(8 << 30));
        assert_eq!(parse_bytes("512MiB"), Some(512 << 20));
        assert_eq!(parse_bytes("64kB"), Some(64 << 10));
        assert_eq!(parse_bytes("65536"), Some(65536));
        for bad in ["", "G", "8X", "-1", "8GG", "99999999999999999999", "99999999T"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn uuids_and_capabilities_are_read() {
        let uuid = parse_uuid("GPU-00112233-4455-6677-8899-aabbccddeeff").unwrap();
        assert_eq!(uuid[..4], [0, 0x11, 0x22, 0x33]);
        assert_eq!(uuid[15], 0xff);
        assert_eq!(parse_uuid("0011"), None);
        assert_eq!(parse_uuid("GPU-zz112233-4455-6677-8899-aabbccddeeff"), None);
        assert_eq!(parse_compute_capability("12.0"), Some((12, 0)));
        assert_eq!(parse_compute_capability("12"), None);
    }

    #[test]
    fn facts_hold_what_was_configured() {
        let config = GpuConfig { compute_capability: (8, 6), ..GpuConfig::new("a name").unwrap() };
        let facts = config.facts(3).unwrap();
        assert_eq!(&facts.name[..7], b"a name\0");
        assert_eq!((facts.cc_major, facts.cc_minor, facts.abilities), (8, 6, 3));
        assert_eq!(facts.uuid[6] >> 4, 4);
        assert_eq!((facts.attributes[75], facts.attributes[76]), (8, 6));
        let bad = GpuConfig { compute_capability: (4, 0), ..config.clone() };
        assert!(bad.facts(0).is_err());
        let bad = GpuConfig { name: "x".repeat(256), ..config };
        assert!(bad.facts(0).is_err());
    }
}
