//! Ranges of device addresses for functions: 45 ranges of 1 TiB each, at fixed addresses.
//!
//! A guest reserves the range of each function in every process that uses it, and on a real GPU a worker
//! process maps device memory there. So the ranges are at addresses that Linux uses for nothing else on
//! x86-64. Linux uses these addresses, with and without the largest randomization (`vm.mmap_rnd_bits=32`: 16
//! TiB):
//!
//! | addresses | what the kernel puts there | source |
//! | --- | --- | --- |
//! | from 0x40_0000 | programs that are not position independent, and their heaps | their linker |
//! | 0x2aaa_aaaa_b000 to 0x3aaa_aaaa_b000 | the lowest mapping, from where others follow upwards: `ulimit -s unlimited`, `ADDR_COMPAT_LAYOUT` | `TASK_UNMAPPED_BASE`, a third of 2^47 |
//! | 0x5555_5555_4000 to 0x6555_5555_4000 | position independent programs; their heaps follow | `ELF_ET_DYN_BASE`, two thirds of 2^47 |
//! | 0x6ffb_f000_0000 to 0x7fff_ffff_f000 | the highest mapping, below which others follow downwards; stacks, vDSO | `mmap_base`: 2^47, less the stack's 16 GiB of randomization and its limit, less 16 TiB |
//!
//! This leaves 0x4000_0000_0000 to 0x5555_5555_4000, less what is mapped upwards from the second row, and the
//! addresses below 0x2aaa_aaaa_b000, less programs and their heaps. The ranges from 0x4000_0000_0000 on come
//! first: no runtime that chooses addresses itself chooses among 47 bits (V8 and Chromium draw 46), Go's heap
//! starts at 0xc0_0000_0000, and the shadow memory of AddressSanitizer ends at 0x1000_7fff_8000.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};
use vgpu_wire::AddressRange;

/// Size of the range that each function has, in bytes.
pub const ADDRESS_SPAN: u64 = 1 << 40;

/// Start of each band of consecutive ranges, and the number of ranges in it.
const BANDS: [(u64, u32); 2] = [(0x4000_0000_0000, 20), (0x1100_0000_0000, 25)];

/// Number of address ranges that functions can have.
pub const ADDRESS_RANGES: u32 = BANDS[0].1 + BANDS[1].1;

/// The device addresses of one function: one of the ranges or its beginning, and the lock by which no other
/// device process of this host draws the range while this value or a copy of it lives. As text it has no
/// lock, because the process that made it holds the lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Addresses {
    index: u32,
    /// Bytes from the start of the range.
    bytes: u64,
    #[serde(skip)]
    lock: Option<Arc<File>>,
}

impl Addresses {
    /// Returns the range of a number. Numbers from [`ADDRESS_RANGES`] on wrap around. `lock` is the file
    /// whose lock reserves the range.
    pub(super) fn from_index(index: u32, lock: Option<File>) -> Self {
        Self { index: index % ADDRESS_RANGES, bytes: ADDRESS_SPAN, lock: lock.map(Arc::new) }
    }

    /// Returns the first `bytes` of the range, for a driver that does not reserve all of it.
    #[must_use]
    pub fn shortened(self, bytes: u64) -> Self {
        Self { bytes: bytes.min(ADDRESS_SPAN), ..self }
    }

    /// Returns the file whose lock reserves the range, for the process that replaces this one.
    #[must_use]
    pub fn lock_file(&self) -> Option<BorrowedFd<'_>> {
        self.lock.as_ref().map(|file| file.as_fd())
    }

    /// Returns the range of a number whose lock this process has inherited. Numbers from [`ADDRESS_RANGES`] on
    /// wrap around.
    #[must_use]
    pub fn inherited(index: u32, lock: Option<OwnedFd>) -> Self {
        Self::from_index(index, lock.map(File::from))
    }

    /// Returns the range of a number without a lock, to ask about it. Numbers from [`ADDRESS_RANGES`] on wrap
    /// around.
    #[must_use]
    pub fn unlocked(index: u32) -> Self {
        Self::from_index(index, None)
    }

    /// Returns the next range of this process, without a lock. [`ADDRESS_RANGES`] calls in a row return as
    /// many ranges. For devices whose guests see no devices of other processes.
    #[must_use]
    pub fn next_in_process() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self::from_index(NEXT.fetch_add(1, Ordering::Relaxed) % ADDRESS_RANGES, None)
    }

    /// Returns the number of the range, which is below [`ADDRESS_RANGES`].
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Returns the range of device addresses.
    #[must_use]
    pub const fn range(&self) -> AddressRange {
        let [(upper, count), (lower, _)] = BANDS;
        let base = if self.index < count {
            upper + self.index as u64 * ADDRESS_SPAN
        } else {
            lower + (self.index - count) as u64 * ADDRESS_SPAN
        };
        AddressRange { base, bytes: self.bytes }
    }
}

/// Compares the ranges. Their locks do not count.
impl PartialEq for Addresses {
    fn eq(&self, other: &Self) -> bool {
        (self.index, self.bytes) == (other.index, other.bytes)
    }
}

impl Eq for Addresses {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page size rounds these down or up by less than a page.
    const TASK_SIZE: u64 = (1 << 47) - 4096;
    const MOST_RANDOM: u64 = 4096 << 32;

    #[test]
    fn ranges_lie_where_the_kernel_puts_nothing() {
        let bottom_up = TASK_SIZE / 3;
        let programs = TASK_SIZE / 3 * 2;
        // Room for what follows upwards: heaps, and mappings of the old layout.
        let room = 4 << 40;
        for index in 0..ADDRESS_RANGES {
            let range = Addresses::from_index(index, None).range();
            assert!(range.is_possible(), "{range}");
            let below = range.base > 16 << 40 && range.end() < bottom_up;
            let between = range.base >= bottom_up + MOST_RANDOM + room && range.end() < programs;
            assert!(below || between, "{index}: {range}");
        }
    }

    #[test]
    fn ranges_are_apart() {
        let ranges: Vec<_> =
            (0..ADDRESS_RANGES).map(|index| Addresses::from_index(index, None).range()).collect();
        for (index, range) in ranges.iter().enumerate() {
            assert!(ranges[..index].iter().all(|other| !other.overlaps(range)), "{range}");
        }
        assert_eq!(Addresses::from_index(ADDRESS_RANGES, None).range(), ranges[0]);
    }

    #[test]
    fn devices_of_a_process_have_ranges_of_their_own() {
        let (one, two) = (Addresses::next_in_process(), Addresses::next_in_process());
        assert!(one != two && one == one.clone());
    }
}
