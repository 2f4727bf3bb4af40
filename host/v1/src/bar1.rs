//! BAR1: 16 MiB that the guest writes with stores of up to 8 bytes; the first half is payload for the host,
//! the second payload for the guest. Its last four bytes show the status and hide the payload there (Q3). An
//! 8-byte load that ends in the status returns only the status: its low half is 0, although payload is stored
//! there (Q28).

use vgpu_wire::pci::V1_BAR1_BYTES;
use vgpu_wire::v1::registers::BAR1_STATUS;

use super::access::mask;

/// Offset of the 8-byte load whose high half is the status.
const LAST_WORD: u32 = BAR1_STATUS - 4;

/// The 16 MiB of BAR1, with the status in the last four bytes.
pub(super) struct Bar1(Box<[u8]>);

impl std::fmt::Debug for Bar1 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Bar1").field(&self.0.len()).finish()
    }
}

impl Bar1 {
    /// Makes the memory, in which every byte is 0.
    pub(super) fn new() -> Self {
        Self(vec![0; V1_BAR1_BYTES as usize].into_boxed_slice())
    }

    /// Returns `bytes` from `offset` on, or fewer if BAR1 ends before. The status is included.
    pub(super) fn get(&self, offset: u32, bytes: usize) -> &[u8] {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        &rest[..bytes.min(rest.len())]
    }

    /// Returns the value that a guest loads: 1 to 8 bytes, aligned to the size. A load that starts within the
    /// status returns the status from its first byte on.
    pub(super) fn load(&self, offset: u32, size: usize) -> u64 {
        if (BAR1_STATUS..BAR1_STATUS + 4).contains(&offset) {
            return u64::from(self.status()) & mask(size);
        }
        if offset == LAST_WORD && size == 8 {
            return u64::from(self.status()) << 32;
        }
        let mut bytes = [0; 8];
        let there = self.get(offset, size);
        bytes[..there.len()].copy_from_slice(there);
        u64::from_le_bytes(bytes)
    }

    /// Returns what a guest reads that loads a range 8 bytes at a time. The result is shorter if BAR1 ends
    /// within the range.
    pub(super) fn load_block(&self, offset: u32, bytes: usize) -> Vec<u8> {
        let mut block = self.get(offset, bytes).to_vec();
        let lost = LAST_WORD.saturating_sub(offset)..BAR1_STATUS.saturating_sub(offset);
        let end = block.len();
        block[(lost.start as usize).min(end)..(lost.end as usize).min(end)].fill(0);
        block
    }

    /// Stores bytes as a guest does. Bytes beyond the end are dropped, and so are those of the status, which
    /// is read-only.
    pub(super) fn store(&mut self, offset: u32, bytes: &[u8]) {
        self.put(offset, bytes, BAR1_STATUS as usize);
    }

    /// Stores the host's payload. A payload that is long enough overwrites the status until [`Bar1::show`] is
    /// called again.
    pub(super) fn answer(&mut self, offset: u32, bytes: &[u8]) {
        self.put(offset, bytes, self.0.len());
    }

    fn put(&mut self, offset: u32, bytes: &[u8], end: usize) {
        let start = (offset as usize).min(end);
        let length = bytes.len().min(end - start);
        self.0[start..start + length].copy_from_slice(&bytes[..length]);
    }

    /// Returns the status that BAR1 shows, which may differ from the register's (Q5).
    pub(super) fn status(&self) -> u32 {
        self.get(BAR1_STATUS, 4).try_into().map_or(0, u32::from_le_bytes)
    }

    /// Makes BAR1 show this status.
    pub(super) fn show(&mut self, status: u32) {
        self.answer(BAR1_STATUS, &status.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_not_the_guests_to_write() {
        let mut bar1 = Bar1::new();
        bar1.show(2);
        bar1.store(BAR1_STATUS - 4, &[0xff; 8]);
        assert_eq!(bar1.get(BAR1_STATUS - 4, 8), [0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0]);
        assert_eq!(bar1.load(LAST_WORD, 4), 0xffff_ffff);
        bar1.store(u32::MAX, &[1; 8]);
        assert!(bar1.get(u32::MAX, 8).is_empty());
        assert_eq!(bar1.get(BAR1_STATUS + 2, 8), [0, 0], "what is beyond the end is not there");
    }

    #[test]
    fn q28_the_last_load_of_eight_bytes_has_no_low_half() {
        let mut bar1 = Bar1::new();
        bar1.answer(BAR1_STATUS - 12, &[0xff; 16]);
        bar1.show(2);
        assert_eq!(bar1.load(LAST_WORD, 8), 2 << 32);
        assert_eq!(bar1.load(LAST_WORD - 8, 8), u64::MAX);
        assert_eq!(bar1.load_block(LAST_WORD - 8, 16), [[0xff; 8], [0, 0, 0, 0, 2, 0, 0, 0]].concat());
        assert_eq!(bar1.load_block(LAST_WORD - 1, 3), [0xff, 0, 0]);
        assert_eq!(bar1.load_block(BAR1_STATUS, 4), [2, 0, 0, 0]);
        assert_eq!(bar1.load_block(0, 4), [0; 4]);
    }
}
