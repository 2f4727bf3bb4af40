//! One contiguous range of guest-physical memory, of this process's own.
//!
//! A kernel gives large pages as it finds them, often from the highest address down. So more are taken than
//! needed, if there are, the longest run is mapped in the order of its addresses, and the others are given
//! back.
//!
//! A host may still write its answer to the pages of a process that was killed in the middle of a call. So
//! they are a file with a name, in a file system of large pages, which no death of a process ends: the next
//! process that needs pages takes the file over ([`named`]).

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use super::frames;
use super::large::{LARGE, lock};
use super::named::{self, Left, New};
use crate::descriptor::Descriptor;
use crate::mapping::{Mapping, MemoryType};

/// So many large pages make each half of the range as long as the longest payload of a call.
const WANTED: usize = 8;
/// So many are looked at where the first ones do not have such a run.
const LOOKED_AT: usize = 64;
/// Sizes to try on a simulated bus, the best first.
const SIZES: [usize; 4] = [16 << 20, 8 << 20, 4 << 20, 2 << 20];

/// A contiguous range of guest-physical memory.
#[derive(Debug)]
pub(crate) struct Contiguous {
    pub(crate) mapping: Mapping,
    /// Its guest-physical address.
    pub(crate) address: u64,
    /// Size in bytes.
    pub(crate) bytes: u32,
    /// Has the lock that keeps others out of these pages.
    _file: Descriptor,
}

impl Contiguous {
    /// The largest range that can be had, up to 16 MiB. `None`: there is none, which is usual for all but
    /// root.
    pub(crate) fn find(memory: Option<&Path>) -> Option<Self> {
        match memory {
            Some(file) => SIZES.iter().find_map(|&bytes| Self::part_of(file, bytes)),
            None => Self::large(),
        }
    }

    /// Large pages: those that a process left behind, or new ones.
    fn large() -> Option<Self> {
        let folder = named::folder()?;
        for Left { file, order, path } in named::left_behind(&folder) {
            if let Some(left) = Self::of(file, &order) {
                return Some(left);
            }
            // Pages that are no window, so no host writes to them.
            let _ = std::fs::remove_file(path);
        }
        let (first, path) = Self::run_of(&folder, WANTED.min(free_pages()))?;
        if first.bytes as usize == WANTED * LARGE || free_pages() == 0 {
            return Some(first);
        }
        // Its pages are to be among those that are looked at; no host has heard of them.
        drop(first);
        let _ = std::fs::remove_file(path);
        Self::run_of(&folder, LOOKED_AT.min(free_pages())).map(|(run, _)| run)
    }

    /// The longest run of as many pages as can be had, `count` at most; and its file's name.
    fn run_of(folder: &Path, count: usize) -> Option<(Self, PathBuf)> {
        let (new, all) =
            (0..).map(|halved| count >> halved).take_while(|&count| count > 0).find_map(|count| {
                let new = New::make(folder, count).ok()?;
                let order: Vec<usize> = (0..count).collect();
                // Fails where another process was faster.
                let all = Mapping::of_large(new.file().ok()?.as_raw_fd(), &order, LARGE).ok()?;
                Some((new, all))
            })?;
        let addresses = frames::addresses(&all)?;
        let run = frames::longest_run(&addresses, WANTED);
        drop(all);
        for unused in (0..addresses.len()).filter(|page| !run.contains(page)) {
            give_back(new.file().ok()?, unused);
        }
        let (file, path) = new.keep(&run).ok()?;
        Some((Self::of(file, &run)?, path))
    }

    /// Pages of a file in an order that is that of their addresses.
    fn of(file: File, order: &[usize]) -> Option<Self> {
        let mapping = Mapping::of_large(file.as_raw_fd(), order, LARGE).ok()?;
        let addresses = frames::addresses(&mapping)?;
        let ascending = frames::longest_run(&addresses, order.len()) == (0..order.len()).collect::<Vec<_>>();
        if !ascending {
            return None;
        }
        Some(Self {
            mapping,
            address: *addresses.first()?,
            bytes: u32::try_from(addresses.len() * LARGE).ok()?,
            _file: Descriptor::adopt(file.into()).ok()?,
        })
    }

    /// A part of a simulated machine's memory that nobody has locked.
    fn part_of(path: &Path, bytes: usize) -> Option<Self> {
        let file = File::options().read(true).write(true).open(path).ok()?;
        let room = file.metadata().ok()?.len();
        let address = (0..room / bytes as u64)
            .map(|part| part * bytes as u64)
            .find(|&address| lock(&file, address, bytes as u64))?;
        let mapping = Mapping::of_part(file.as_raw_fd(), address, bytes, MemoryType::WriteBack).ok()?;
        // The lock lives as long as the open file, whatever number it has.
        let file = Descriptor::adopt(file.into()).ok()?;
        Some(Self { mapping, address, bytes: bytes as u32, _file: file })
    }
}

/// How many large pages nobody has or was promised.
fn free_pages() -> usize {
    let read = |file: &str| {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{file}");
        std::fs::read_to_string(path).ok()?.trim().parse::<usize>().ok()
    };
    read("free_hugepages").unwrap_or(0).saturating_sub(read("resv_hugepages").unwrap_or(0))
}

/// Gives a page of the file back to the kernel. One that is not taken back goes when the file does.
fn give_back(file: &File, page: usize) {
    let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a range of a file that is this function's caller's alone.
    unsafe { libc::fallocate(file.as_raw_fd(), hole, (page * LARGE) as libc::off_t, LARGE as libc::off_t) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_simulated_memory_are_had_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ram");
        File::create(&path).unwrap().set_len(32 << 20).unwrap();
        let one = Contiguous::find(Some(&path)).unwrap();
        let two = Contiguous::find(Some(&path)).unwrap();
        assert_eq!(
            [(one.address, one.bytes), (two.address, two.bytes)],
            [(0, 16 << 20), (16 << 20, 16 << 20)]
        );
        assert!(Contiguous::find(Some(&path)).is_none());
        drop(one);
        assert_eq!(Contiguous::find(Some(&path)).unwrap().address, 0);
    }
}
