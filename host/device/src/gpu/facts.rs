//! The facts that a guest reads about a GPU in software, derived from its configuration.

use vgpu_wire::facts::DeviceFacts;

use super::addresses::ADDRESS_SPAN;
use super::attributes::{Family, attributes};
use super::config::{GpuConfig, GpuError};

impl GpuConfig {
    /// Returns the facts of the GPU, with the [`vgpu_wire::facts::exec`] abilities of the executor.
    pub fn facts(&self, abilities: u32) -> Result<DeviceFacts, GpuError> {
        let (cc_major, cc_minor) = self.compute_capability;
        let family = Family::for_compute_capability(self.compute_capability)
            .ok_or(GpuError::ComputeCapability(self.compute_capability))?;
        if !(1 << 20..=ADDRESS_SPAN / 2).contains(&self.memory_bytes) {
            return Err(GpuError::Memory(self.memory_bytes));
        }
        let mut facts = DeviceFacts {
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
        };
        facts.set_addresses(self.addresses.range());
        Ok(facts)
    }
}

/// Copies a text into a field, which must have room for a terminating zero.
fn text<const ROOM: usize>(field: &'static str, text: &str) -> Result<[u8; ROOM], GpuError> {
    let mut bytes = [0; ROOM];
    if text.len() >= ROOM {
        return Err(GpuError::Text { field, bytes: text.len(), room: ROOM - 1 });
    }
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_hold_what_was_configured() {
        let config = GpuConfig { compute_capability: (8, 6), ..GpuConfig::new("a name").unwrap() };
        let facts = config.facts(3).unwrap();
        assert_eq!(&facts.name[..7], b"a name\0");
        assert_eq!((facts.cc_major, facts.cc_minor, facts.abilities), (8, 6, 3));
        assert_eq!(facts.uuid[6] >> 4, 4);
        assert_eq!(facts.addresses(), Some(config.addresses.range()));
        assert_eq!((facts.attributes[75], facts.attributes[76]), (8, 6));
        let bad = GpuConfig { compute_capability: (4, 0), ..config.clone() };
        assert!(bad.facts(0).is_err());
        let bad = GpuConfig { name: "x".repeat(256), ..config };
        assert!(bad.facts(0).is_err());
    }
}
