//! Configuration space of a function with a plain header: ids, command, BARs. There are no capabilities,
//! because VGPU-STUB has no interrupts. The key of guest pages follows the header, where only the guest's
//! administrator can read it.

use vgpu_wire::pci::PAGES_KEY;

use crate::function::{Bar, Decode, Identity};

/// Size in bytes of the configuration space of a conventional function.
pub const BYTES: usize = 256;

/// Offsets of registers, from `linux/pci_regs.h`.
mod at {
    pub(super) const VENDOR: usize = 0x00;
    pub(super) const DEVICE: usize = 0x02;
    pub(super) const COMMAND: usize = 0x04;
    pub(super) const REVISION: usize = 0x08;
    pub(super) const CLASS: usize = 0x09;
    pub(super) const CACHE_LINE: usize = 0x0c;
    pub(super) const LATENCY: usize = 0x0d;
    pub(super) const BARS: usize = 0x10;
    pub(super) const SUBSYSTEM_VENDOR: usize = 0x2c;
    pub(super) const SUBSYSTEM_DEVICE: usize = 0x2e;
    pub(super) const INTERRUPT_LINE: usize = 0x3c;
}

/// Command bits that can be set: memory decoding, bus mastering, SERR#, interrupts off.
const COMMAND_BITS: u16 = 1 << 1 | 1 << 2 | 1 << 8 | 1 << 10;
/// Bit of a BAR for memory at any 64-bit address.
const BAR_64: u32 = 1 << 2;
const BAR_PREFETCHABLE: u32 = 1 << 3;

/// The configuration space, and which of its bits a guest can change.
#[derive(Debug)]
pub struct Config {
    initial: [u8; BYTES],
    bytes: [u8; BYTES],
    writable: [u8; BYTES],
}

impl Config {
    /// Makes the configuration space of a function, as after power-on.
    pub fn new(identity: &Identity, bars: &[Option<Bar>; 6], pages_key: u64) -> Self {
        let mut config = Self { initial: [0; BYTES], bytes: [0; BYTES], writable: [0; BYTES] };
        config.set(at::VENDOR, &identity.vendor.to_le_bytes());
        config.set(at::DEVICE, &identity.device.to_le_bytes());
        config.set(at::REVISION, &[identity.revision]);
        config.set(at::CLASS, &identity.class.to_le_bytes()[..3]);
        config.set(at::SUBSYSTEM_VENDOR, &identity.subsystem_vendor.to_le_bytes());
        config.set(at::SUBSYSTEM_DEVICE, &identity.subsystem_device.to_le_bytes());
        config.allow(at::COMMAND, &COMMAND_BITS.to_le_bytes());
        for whole in [at::CACHE_LINE, at::LATENCY, at::INTERRUPT_LINE] {
            config.allow(whole, &[0xff]);
        }
        for (index, bar) in bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            let register = at::BARS + 4 * index;
            // The address bits below the size are zero, which tells the guest the size.
            let address = !(bar.bytes - 1);
            config.allow(register, &(address as u32).to_le_bytes());
            if bar.decode == Decode::Memory64Prefetchable {
                config.set(register, &(BAR_64 | BAR_PREFETCHABLE).to_le_bytes());
                config.allow(register + 4, &((address >> 32) as u32).to_le_bytes());
            }
        }
        config.set(PAGES_KEY as usize, &pages_key.to_le_bytes());
        config.initial = config.bytes;
        config
    }

    fn set(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, offset: usize, bits: &[u8]) {
        self.writable[offset..offset + bits.len()].copy_from_slice(bits);
    }

    /// Reads at `offset`. Bytes beyond the end read zero.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        let found = usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..));
        let found = found.unwrap_or_default();
        let (within, beyond) = data.split_at_mut(found.len().min(data.len()));
        within.copy_from_slice(&found[..within.len()]);
        beyond.fill(0);
    }

    /// Writes the bits that can be written, and ignores the others.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let Some(offset) = usize::try_from(offset).ok().filter(|offset| *offset < BYTES) else { return };
        for (at, new) in (offset..BYTES).zip(data) {
            let bits = self.writable[at];
            self.bytes[at] = self.bytes[at] & !bits | new & bits;
        }
    }

    /// Returns the bytes as they are, for [`Config::restore`].
    pub fn bytes(&self) -> &[u8; BYTES] {
        &self.bytes
    }

    /// Takes the bytes over from another process. Returns whether they are this function's: they differ from
    /// those after power-on only where a guest can write.
    pub fn restore(&mut self, bytes: &[u8; BYTES]) -> bool {
        let fixed = |at: usize| (bytes[at] ^ self.initial[at]) & !self.writable[at] == 0;
        let good = (0..BYTES).all(fixed);
        if good {
            self.bytes = *bytes;
        }
        good
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn config() -> Config {
        let identity = Identity {
            vendor: 0x10de,
            device: 0x2331,
            subsystem_vendor: 0x1234,
            subsystem_device: 0x5678,
            class: 0x03_0200,
            revision: 0xa1,
        };
        let bar0 = Bar { bytes: 0x2000, decode: Decode::Memory32 };
        let bar2 = Bar { bytes: 1 << 33, decode: Decode::Memory64Prefetchable };
        Config::new(&identity, &[Some(bar0), None, Some(bar2), None, None, None], 0x0123_4567_89ab_cdef)
    }

    fn word(config: &Config, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        config.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn ids_are_where_a_kernel_reads_them() {
        let config = config();
        assert_eq!(word(&config, 0), 0x2331_10de);
        assert_eq!(word(&config, 8), 0x0302_00a1);
        assert_eq!(word(&config, 0x2c), 0x5678_1234);
        assert_eq!(word(&config, 0x34) & 0xff, 0, "no capabilities");
        assert_eq!(word(&config, 0x3c) >> 8 & 0xff, 0, "no interrupt pin");
        assert_eq!([word(&config, PAGES_KEY), word(&config, PAGES_KEY + 4)], [0x89ab_cdef, 0x0123_4567]);
    }

    #[test]
    fn a_bar_of_all_ones_reads_its_size_and_type() {
        let mut config = config();
        for at in 0..6 {
            config.write(0x10 + 4 * at, &[0xff; 4]);
        }
        let bars: Vec<u32> = (0..6).map(|at| word(&config, 0x10 + 4 * at)).collect();
        assert_eq!(bars, [0xffff_e000, 0, 0x0000_000c, 0xffff_fffe, 0, 0]);
    }

    #[test]
    fn bytes_of_the_same_function_are_restored() {
        let mut first = config();
        first.write(4, &[6]);
        first.write(0x10, &[0, 0, 0xb0, 0xfe]);
        let mut second = config();
        assert!(second.restore(first.bytes()));
        assert_eq!(second.bytes(), first.bytes());
        let mut other = *first.bytes();
        other[2] ^= 1;
        assert!(!second.restore(&other), "another device id");
        assert_eq!(second.bytes(), first.bytes());
    }

    proptest! {
        #[test]
        fn ids_stay_whatever_is_written(offset in any::<u64>(), near in 0u64..300, data in proptest::collection::vec(any::<u8>(), 0..20)) {
            let mut config = config();
            config.write(offset, &data);
            config.write(near, &data);
            prop_assert_eq!(word(&config, 0), 0x2331_10de);
            prop_assert_eq!(word(&config, 8), 0x0302_00a1);
            config.read(offset, &mut vec![0; data.len()]);
        }
    }
}
