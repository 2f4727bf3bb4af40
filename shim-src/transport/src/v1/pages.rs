//! Guest pages of which both sides know where they are: memory for the shared window.
//!
//! A host of version 1 maps one range of guest-physical memory, which must be contiguous and stay where it is. Only pages of 2 MiB
//! (hugetlbfs) do: others are moved by the kernel as it likes, locked or not, so they are not used. Which pages they are, the kernel
//! tells root alone. On a simulated bus, guest memory is a file, and who wants a part of it locks it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::descriptor::Descriptor;
use crate::mapping::{Mapping, MemoryType};

/// Bytes of a large page.
const HUGE: usize = 2 << 20;
/// Bytes of the pages that `/proc/self/pagemap` counts in.
const PAGE: usize = 4096;
/// Sizes to try, the best first: each half then takes the longest payload of a call, a half, a quarter of it...
const SIZES: [usize; 4] = [16 << 20, 8 << 20, 4 << 20, 2 << 20];

/// A contiguous range of guest-physical memory.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) mapping: Mapping,
    /// Offset of the range in the mapping.
    pub(crate) offset: u64,
    /// Its guest-physical address.
    pub(crate) address: u64,
    /// Its size.
    pub(crate) bytes: u32,
    /// Keeps others out of this part of a simulated machine's memory.
    _part: Option<Descriptor>,
}

impl Pages {
    /// The largest range that can be had. `None`: there is none, which is usual for all but root.
    pub(crate) fn find(memory: Option<&Path>) -> Option<Self> {
        SIZES.iter().find_map(|&bytes| match memory {
            Some(file) => Self::part_of(file, bytes),
            None => Self::huge(bytes),
        })
    }

    /// Large pages; the longest run of them that is contiguous.
    fn huge(bytes: usize) -> Option<Self> {
        let mapping = Mapping::huge(bytes).ok()?;
        let start = mapping.pointer(0, 1)?.as_ptr().addr();
        let map = File::open("/proc/self/pagemap").ok()?;
        let frames: Vec<u64> = (0..bytes / HUGE)
            .map(|page| {
                let mut entry = [0; 8];
                map.read_exact_at(&mut entry, ((start + page * HUGE) / PAGE * 8) as u64).ok()?;
                frame(u64::from_le_bytes(entry))
            })
            .collect::<Option<_>>()?;
        let (first, count) = longest_run(&frames);
        Some(Self {
            mapping,
            offset: (first * HUGE) as u64,
            address: frames[first] * PAGE as u64,
            bytes: u32::try_from(count * HUGE).ok()?,
            _part: None,
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
        let part = Descriptor::adopt(file.into()).ok()?;
        Some(Self { mapping, offset: 0, address, bytes: bytes as u32, _part: Some(part) })
    }
}

/// The frame number in an entry of `pagemap`; `None`: not present, or not for this process to know.
fn frame(entry: u64) -> Option<u64> {
    let frame = entry & ((1 << 55) - 1);
    (entry >> 63 == 1 && frame != 0).then_some(frame)
}

/// Start and length of the longest run of frames, each of a large page, that follow each other.
fn longest_run(frames: &[u64]) -> (usize, usize) {
    let mut best = (0, 1);
    let mut start = 0;
    for at in 1..frames.len() {
        if frames[at] != frames[at - 1] + (HUGE / PAGE) as u64 {
            start = at;
        }
        if at + 1 - start > best.1 {
            best = (start, at + 1 - start);
        }
    }
    best
}

/// Locks a part of a file for as long as it is open. False: another process has it.
fn lock(file: &File, start: u64, bytes: u64) -> bool {
    let lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start as libc::off_t,
        l_len: bytes as libc::off_t,
        l_pid: 0,
    };
    // SAFETY: the kernel reads the structure.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_large_pages() {
        assert_eq!(longest_run(&[512]), (0, 1));
        assert_eq!(longest_run(&[0, 512, 1024, 4096]), (0, 3));
        assert_eq!(longest_run(&[512, 4096, 4608, 5120, 512]), (1, 3));
        assert_eq!(longest_run(&[1024, 512, 0]), (0, 1));
    }

    #[test]
    fn frames_are_told_to_root_alone() {
        assert_eq!(frame(1 << 63 | 7), Some(7));
        assert_eq!(frame(1 << 63), None, "not root");
        assert_eq!(frame(7), None, "not present");
    }

    #[test]
    fn parts_of_a_simulated_memory_are_had_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ram");
        File::create(&path).unwrap().set_len(32 << 20).unwrap();
        let one = Pages::find(Some(&path)).unwrap();
        let two = Pages::find(Some(&path)).unwrap();
        assert_eq!(
            [(one.address, one.bytes), (two.address, two.bytes)],
            [(0, 16 << 20), (16 << 20, 16 << 20)]
        );
        assert!(Pages::find(Some(&path)).is_none());
        drop(one);
        assert_eq!(Pages::find(Some(&path)).unwrap().address, 0);
    }
}
