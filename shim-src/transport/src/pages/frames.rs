//! Where large pages lie: what `/proc/self/pagemap` says, and runs of pages that follow each other.

use std::fs::File;
use std::os::unix::fs::FileExt;

use vgpu_wire::body::pages::PageRun;

use super::large::LARGE;
use crate::mapping::Mapping;

/// Bytes of the pages that `/proc/self/pagemap` counts in.
const PAGE: usize = 4096;

/// Guest-physical addresses of a mapping's large pages, in their order. `None`: not all are present, or it is
/// not for this process to know, or they are no large pages.
pub(super) fn addresses(mapping: &Mapping) -> Option<Vec<u64>> {
    let start = mapping.pointer(0, 1)?.as_ptr().addr();
    let map = File::open("/proc/self/pagemap").ok()?;
    (0..mapping.bytes() as usize / LARGE)
        .map(|page| {
            let mut entry = [0; 8];
            map.read_exact_at(&mut entry, ((start + page * LARGE) / PAGE * 8) as u64).ok()?;
            let address = frame(u64::from_le_bytes(entry))? * PAGE as u64;
            address.is_multiple_of(LARGE as u64).then_some(address)
        })
        .collect()
}

/// The frame number in an entry of `pagemap`; `None`: not present, or not for this process to know.
fn frame(entry: u64) -> Option<u64> {
    let frame = entry & ((1 << 55) - 1);
    (entry >> 63 == 1 && frame != 0).then_some(frame)
}

/// The longest run of pages that follow each other in memory, however they are ordered, at most `most` of
/// them: their indices, by rising address. Of two the lower one.
pub(super) fn longest_run(addresses: &[u64], most: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..addresses.len()).collect();
    order.sort_unstable_by_key(|&index| addresses[index]);
    let follows = |&before: &usize, &after: &usize| {
        addresses[before].checked_add(LARGE as u64) == Some(addresses[after])
    };
    let mut best: &[usize] = &[];
    for run in order.chunk_by(follows) {
        if run.len() > best.len() {
            best = run;
        }
    }
    best[..best.len().min(most)].to_vec()
}

/// Pages as runs, in the order in which they are; `skip` bytes of the first are left out.
pub(super) fn runs(addresses: &[u64], skip: u64) -> Vec<PageRun> {
    let mut runs: Vec<PageRun> = Vec::new();
    for (index, &address) in addresses.iter().enumerate() {
        let skip = if index == 0 { skip } else { 0 };
        let (address, bytes) = (address + skip, LARGE as u64 - skip);
        match runs.last_mut() {
            Some(last) if last.address + last.bytes == address => last.bytes += bytes,
            _ => runs.push(PageRun { address, bytes }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn page(number: u64) -> u64 {
        number * LARGE as u64
    }

    fn run_of(pages: &[u64], most: usize) -> Vec<usize> {
        let addresses: Vec<u64> = pages.iter().copied().map(page).collect();
        longest_run(&addresses, most)
    }

    #[test]
    fn runs_are_found_in_any_order() {
        assert_eq!(run_of(&[1], 8), [0]);
        assert_eq!(run_of(&[0, 1, 2, 8], 8), [0, 1, 2]);
        assert_eq!(run_of(&[5, 4, 3, 9], 8), [2, 1, 0], "as kernels often give them");
        assert_eq!(run_of(&[12, 3, 10, 4, 11, 13], 8), [2, 4, 0, 5]);
        assert_eq!(run_of(&[12, 3, 10, 4, 11, 13], 3), [2, 4, 0]);
        assert_eq!(run_of(&[7, 3, 9], 8), [1], "the lowest of equals");
        assert_eq!(run_of(&[], 8), [0; 0]);
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

    proptest! {
        #[test]
        fn a_run_is_contiguous_and_none_is_longer(pages in prop::collection::hash_set(0u64..40, 1..30), most in 1usize..12) {
            let pages: Vec<u64> = pages.into_iter().collect();
            let run = run_of(&pages, most);
            prop_assert!(run.windows(2).all(|pair| pages[pair[1]] == pages[pair[0]] + 1));
            let longest = (0..40).map(|start| (start..40).take_while(|page| pages.contains(page)).count()).max();
            prop_assert_eq!(run.len(), longest.unwrap().min(most));
        }
    }
}
