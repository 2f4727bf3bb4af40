//! The guest-physical addresses of large pages, as `/proc/self/pagemap` states them.

use std::fs::File;
use std::os::unix::fs::FileExt;

use vgpu_wire::body::pages::PageRun;

use super::large::LARGE_PAGE;
use crate::mapping::Mapping;

/// Size in bytes of the pages that `/proc/self/pagemap` counts in.
const PAGE: usize = 4096;

/// Returns the guest-physical addresses of a mapping's large pages, in their order, or `None` if not all are
/// present, if this process may not know them, or if they are not large pages.
pub fn addresses(mapping: &Mapping) -> Option<Vec<u64>> {
    let start = mapping.pointer(0, 1)?.as_ptr().addr();
    let map = File::open("/proc/self/pagemap").ok()?;
    (0..mapping.bytes() as usize / LARGE_PAGE)
        .map(|page| {
            let mut entry = [0; 8];
            map.read_exact_at(&mut entry, ((start + page * LARGE_PAGE) / PAGE * 8) as u64).ok()?;
            let address = frame(u64::from_le_bytes(entry))? * PAGE as u64;
            address.is_multiple_of(LARGE_PAGE as u64).then_some(address)
        })
        .collect()
}

/// Returns the frame number in an entry of `pagemap`. Returns `None` if the page is not present, or if this
/// process may not read the number.
fn frame(entry: u64) -> Option<u64> {
    let frame = entry & ((1 << 55) - 1);
    (entry >> 63 == 1 && frame != 0).then_some(frame)
}

/// Returns pages as runs, in their order, without the first `skip` bytes of the first page.
pub(super) fn runs(addresses: &[u64], skip: u64) -> Vec<PageRun> {
    let mut runs: Vec<PageRun> = Vec::new();
    for (index, &address) in addresses.iter().enumerate() {
        let skip = if index == 0 { skip } else { 0 };
        let (address, bytes) = (address + skip, LARGE_PAGE as u64 - skip);
        match runs.last_mut() {
            Some(last) if last.address + last.bytes == address => last.bytes += bytes,
            _ => runs.push(PageRun { address, bytes }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn page(number: u64) -> u64 {
        number * LARGE_PAGE as u64
    }

    #[test]
    fn frames_are_told_to_root_alone() {
        assert_eq!(frame(1 << 63 | 7), Some(7));
        assert_eq!(frame(1 << 63), None, "not root");
        assert_eq!(frame(7), None, "not present");
    }

    #[test]
    fn pages_that_follow_each_other_are_one_run() {
        let of = |pages: &[u64], skip| {
            let addresses: Vec<u64> = pages.iter().copied().map(page).collect();
            runs(&addresses, skip).iter().map(|run| (run.address, run.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[4, 5, 6], 0), [(page(4), page(3))]);
        assert_eq!(of(&[4, 5], 0x2_0000), [(page(4) + 0x2_0000, page(2) - 0x2_0000)]);
        assert_eq!(of(&[5, 4], 0x2_0000), [(page(5) + 0x2_0000, page(1) - 0x2_0000), (page(4), page(1))]);
    }
}
