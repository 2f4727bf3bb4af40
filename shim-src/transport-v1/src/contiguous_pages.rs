//! A contiguous range of guest-physical memory that belongs to this process.
//!
//! A kernel allocates large pages in any order, often from the highest address down. So this process
//! allocates more than it needs, if more are free, maps the longest run in the order of its addresses, and
//! frees the others.
//!
//! A host may still write its answer to the pages of a process that was killed during a call. So the pages
//! are a named file in a file system of large pages, which outlives the process. The next process that needs
//! pages takes the file over ([`page_files`]).

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use vgpu_transport::parts::{Descriptor, LARGE_PAGE, Mapping, MemoryType, lock_range, page_addresses};

use crate::page_files::{self, AbandonedFile, NewPageFile};

/// Number of large pages with which each half of the range holds the longest payload of a call.
const WANTED_PAGES: usize = 8;
/// Number of large pages to allocate for a longer run, if the first ones do not contain one of the wanted
/// length.
const EXAMINED_PAGES: usize = 64;
/// Sizes to try on a simulated bus, in this order.
const SIZES: [usize; 4] = [16 << 20, 8 << 20, 4 << 20, 2 << 20];

/// A contiguous range of guest-physical memory.
#[derive(Debug)]
pub(crate) struct ContiguousPages {
    pub(crate) mapping: Mapping,
    /// Guest-physical address of the first byte.
    pub(crate) address: u64,
    /// Size in bytes.
    pub(crate) bytes: u32,
    /// File whose lock keeps other processes from using the pages.
    _file: Descriptor,
}

impl ContiguousPages {
    /// Allocates the largest available range, up to 16 MiB. `memory` is the guest's memory on a simulated
    /// bus. Returns `None` if there is no range, as for most users but root.
    pub(crate) fn find(memory: Option<&Path>) -> Option<Self> {
        match memory {
            Some(file) => SIZES.iter().find_map(|&bytes| Self::from_simulated_memory(file, bytes)),
            None => Self::from_huge_pages(),
        }
    }

    /// Takes over the pages of a dead process, or allocates new ones.
    fn from_huge_pages() -> Option<Self> {
        let folder = page_files::hugetlbfs_mount()?;
        for AbandonedFile { file, order, path } in page_files::abandoned(&folder) {
            if let Some(left) = Self::map_in_order(file, &order) {
                return Some(left);
            }
            // Their addresses do not ascend, so they were never a window and no host writes to them.
            let _ = std::fs::remove_file(path);
        }
        let (first, path) = Self::longest_run_of(&folder, WANTED_PAGES.min(free_pages()))?;
        if first.bytes as usize == WANTED_PAGES * LARGE_PAGE || free_pages() == 0 {
            return Some(first);
        }
        // This frees the pages for the larger attempt. No host was told of them.
        drop(first);
        let _ = std::fs::remove_file(path);
        Self::longest_run_of(&folder, EXAMINED_PAGES.min(free_pages())).map(|(run, _)| run)
    }

    /// Allocates as many pages as are available, `count` at most, and keeps their longest run. Returns it
    /// with the path of its file.
    fn longest_run_of(folder: &Path, count: usize) -> Option<(Self, PathBuf)> {
        let (new, all) =
            (0..).map(|halved| count >> halved).take_while(|&count| count > 0).find_map(|count| {
                let new = NewPageFile::create(folder, count).ok()?;
                let order: Vec<usize> = (0..count).collect();
                // This fails if another process has allocated the pages meanwhile.
                let all = Mapping::of_large(new.file().ok()?.as_raw_fd(), &order, LARGE_PAGE).ok()?;
                Some((new, all))
            })?;
        let addresses = page_addresses(&all)?;
        let run = longest_run(&addresses, WANTED_PAGES);
        drop(all);
        for unused in (0..addresses.len()).filter(|page| !run.contains(page)) {
            punch_hole(new.file().ok()?, unused);
        }
        let (file, path) = new.finish(&run).ok()?;
        Some((Self::map_in_order(file, &run)?, path))
    }

    /// Maps pages of a file in the given order. Returns `None` if their addresses do not ascend in it.
    fn map_in_order(file: File, order: &[usize]) -> Option<Self> {
        let mapping = Mapping::of_large(file.as_raw_fd(), order, LARGE_PAGE).ok()?;
        let addresses = page_addresses(&mapping)?;
        let ascending = longest_run(&addresses, order.len()) == (0..order.len()).collect::<Vec<_>>();
        if !ascending {
            return None;
        }
        Some(Self {
            mapping,
            address: *addresses.first()?,
            bytes: u32::try_from(addresses.len() * LARGE_PAGE).ok()?,
            _file: Descriptor::adopt(file.into()).ok()?,
        })
    }

    /// Locks and maps a free part of a simulated machine's memory.
    fn from_simulated_memory(path: &Path, bytes: usize) -> Option<Self> {
        let file = File::options().read(true).write(true).open(path).ok()?;
        let room = file.metadata().ok()?.len();
        let address = (0..room / bytes as u64)
            .map(|part| part * bytes as u64)
            .find(|&address| lock_range(&file, address, bytes as u64))?;
        let mapping = Mapping::of_part(file.as_raw_fd(), address, bytes, MemoryType::WriteBack).ok()?;
        // The lock belongs to the open file, so the descriptor may be moved.
        let file = Descriptor::adopt(file.into()).ok()?;
        Some(Self { mapping, address, bytes: bytes as u32, _file: file })
    }
}

/// Returns the number of large pages that are neither allocated nor reserved.
fn free_pages() -> usize {
    let read = |file: &str| {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{file}");
        std::fs::read_to_string(path).ok()?.trim().parse::<usize>().ok()
    };
    read("free_hugepages").unwrap_or(0).saturating_sub(read("resv_hugepages").unwrap_or(0))
}

/// Finds the longest run of pages whose addresses are contiguous, in whatever order they are listed. Returns
/// the indices of at most `most` of them by ascending address. Of two equal runs the lower one wins.
fn longest_run(addresses: &[u64], most: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..addresses.len()).collect();
    order.sort_unstable_by_key(|&index| addresses[index]);
    let follows = |&before: &usize, &after: &usize| {
        addresses[before].checked_add(LARGE_PAGE as u64) == Some(addresses[after])
    };
    let mut best: &[usize] = &[];
    for run in order.chunk_by(follows) {
        if run.len() > best.len() {
            best = run;
        }
    }
    best[..best.len().min(most)].to_vec()
}

/// Frees a page of the file. If that fails, the page is freed with the file.
fn punch_hole(file: &File, page: usize) {
    let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a range of a file that is this function's caller's alone.
    unsafe {
        libc::fallocate(file.as_raw_fd(), hole, (page * LARGE_PAGE) as libc::off_t, LARGE_PAGE as libc::off_t)
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_of_a_simulated_memory_are_had_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ram");
        File::create(&path).unwrap().set_len(32 << 20).unwrap();
        let one = ContiguousPages::find(Some(&path)).unwrap();
        let two = ContiguousPages::find(Some(&path)).unwrap();
        assert_eq!(
            [(one.address, one.bytes), (two.address, two.bytes)],
            [(0, 16 << 20), (16 << 20, 16 << 20)]
        );
        assert!(ContiguousPages::find(Some(&path)).is_none());
        drop(one);
        assert_eq!(ContiguousPages::find(Some(&path)).unwrap().address, 0);
    }

    const fn page(number: u64) -> u64 {
        number * LARGE_PAGE as u64
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

    proptest! {
        #[test]
        fn a_run_is_contiguous_and_none_is_longer(
            pages in prop::collection::hash_set(0u64..40, 1..30),
            most in 1usize..12,
        ) {
            let pages: Vec<u64> = pages.into_iter().collect();
            let run = run_of(&pages, most);
            prop_assert!(run.windows(2).all(|pair| pages[pair[1]] == pages[pair[0]] + 1));
            let longest = (0..40).map(|start| (start..40).take_while(|page| pages.contains(page)).count()).max();
            prop_assert_eq!(run.len(), longest.unwrap().min(most));
        }
    }
}
