//! The device addresses that this process has reserved: those of each function that it has a session on.
//!
//! A copy names memory by address alone, whether it is the program's or a device's. So no memory of the
//! program may ever be where a device pointer could point, and no two functions may share addresses. The
//! range that a function announces is mapped without any access at the attach, once for all sessions of the
//! process on that function, and unmapped with the last of them. It takes no memory, but counts as address
//! space (`ulimit -v`). A process that only lists devices reserves nothing. A forked child inherits nothing:
//! it can neither use its parent's sessions nor attach.
//!
//! The host's driver may place a module's variables outside the range that its function announces. Their
//! pages are reserved in the same way when the program learns of them, and are refused if the process has
//! mapped something there.

use std::io;
use std::sync::Mutex;

use thiserror::Error;
use vgpu_wire::AddressRange;
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::pci::PciAddress;

use crate::fork::forked;
use crate::mapping::Mapping;
use crate::mutex::lock;

/// Why a function's device addresses cannot be reserved in this process.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AddressRefusal {
    /// No process could reserve the range that the device announces.
    #[error("it announces {bytes:#x} bytes of device addresses at {base:#x}, which no process can have")]
    Impossible {
        /// First address of the range.
        base: u64,
        /// Size of the range in bytes.
        bytes: u64,
    },
    /// Another function that this process uses has the same addresses.
    #[error(
        "its device addresses, {range}, are also those of {other}, so that copies could not tell the two apart"
    )]
    Shared {
        /// Range of the function.
        range: AddressRange,
        /// Address of the other function.
        other: PciAddress,
    },
    /// The process has memory in the range.
    #[error("its device addresses, {range}, are taken in this process{}", describe_mapping(*mapping))]
    Taken {
        /// Range of the function.
        range: AddressRange,
        /// Start and end of the first mapping in the range, if the kernel tells them.
        mapping: Option<(u64, u64)>,
    },
    /// The kernel refuses the reservation for another reason, such as a limit of address space.
    #[error("its device addresses, {range}, cannot be reserved: {}", io::Error::from_raw_os_error(*errno))]
    Refused {
        /// Range of the function.
        range: AddressRange,
        /// Error number of the kernel.
        errno: i32,
    },
}

fn describe_mapping(mapping: Option<(u64, u64)>) -> String {
    mapping.map_or_else(String::new, |(start, end)| format!(" by what is mapped from {start:#x} to {end:#x}"))
}

/// Page size in bytes.
const PAGE: u64 = 4096;

/// A reserved range of addresses and its users.
#[derive(Debug)]
struct HeldRange {
    function: PciAddress,
    range: AddressRange,
    /// Number of reservations that share the range.
    users: usize,
    _mapping: Mapping,
}

/// All ranges that the process has reserved.
static HELD: Mutex<Vec<HeldRange>> = Mutex::new(Vec::new());

/// A share in ranges that are reserved for a function. A range stays reserved until its last share is
/// dropped.
#[derive(Debug)]
pub struct Reservation {
    function: PciAddress,
    /// Ranges that this share keeps reserved, each that of a [`HeldRange`].
    ranges: Vec<AddressRange>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if forked() {
            // The child does not have the mapping, and may have memory of its own there.
            return;
        }
        let mut held = lock(&HELD);
        for range in &self.ranges {
            let own = |held: &HeldRange| held.function == self.function && held.range == *range;
            let Some(index) = held.iter().position(own) else { continue };
            held[index].users -= 1;
            if held[index].users == 0 {
                held.swap_remove(index);
            }
        }
    }
}

/// Reserves a range in which the process has no mapping.
fn map(range: AddressRange) -> Result<Mapping, AddressRefusal> {
    Mapping::reserved_at(range.base, range.bytes as usize).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            AddressRefusal::Taken { range, mapping: first_mapping(&range) }
        } else {
            AddressRefusal::Refused { range, errno: error.raw_os_error().unwrap_or(0) }
        }
    })
}

/// Reserves the range that a function announces in its facts, or shares the existing reservation. Returns
/// `None` if it announces none, as older hosts do.
///
/// # Errors
/// Returns why the process cannot use the function beside its other memory and functions.
pub(crate) fn reserve(
    function: PciAddress,
    facts: &DeviceFacts,
) -> Result<Option<Reservation>, AddressRefusal> {
    let Some(range) = facts.addresses() else { return Ok(None) };
    if !range.is_possible() {
        return Err(AddressRefusal::Impossible { base: range.base, bytes: range.bytes });
    }
    let mut all = lock(&HELD);
    if let Some(held) = all.iter_mut().find(|held| held.function == function && held.range == range) {
        held.users += 1;
        return Ok(Some(Reservation { function, ranges: vec![range] }));
    }
    let overlapping = all.iter().find(|held| held.range.overlaps(&range));
    // A restarted device may announce another range than before, which overlaps that of its lost session.
    if let Some(held) = overlapping.filter(|held| held.function != function) {
        return Err(AddressRefusal::Shared { range, other: held.function });
    }
    all.push(HeldRange { function, range, users: 1, _mapping: map(range)? });
    Ok(Some(Reservation { function, ranges: vec![range] }))
}

/// Reserves the pages of a module's variable, which may be outside the range that the function announces.
/// Variables of one function may share pages.
///
/// # Errors
/// Fails if the process has mapped something else in those pages.
pub(crate) fn reserve_outside(
    function: PciAddress,
    start: u64,
    bytes: u64,
) -> Result<Reservation, AddressRefusal> {
    let range = whole_pages(start, bytes).filter(AddressRange::is_possible);
    let range = range.ok_or(AddressRefusal::Impossible { base: start, bytes })?;
    let mut all = lock(&HELD);
    let mut shared: Vec<AddressRange> = Vec::new();
    for held in all.iter().filter(|held| held.range.overlaps(&range)) {
        if held.function != function {
            return Err(AddressRefusal::Shared { range, other: held.function });
        }
        shared.push(held.range);
    }
    shared.sort_unstable_by_key(|held| held.base);
    let mut made = Vec::new();
    let mut next = range.base;
    for held in &shared {
        if next < held.base {
            made.push(AddressRange { base: next, bytes: held.base - next });
        }
        next = held.end();
    }
    if next < range.end() {
        made.push(AddressRange { base: next, bytes: range.end() - next });
    }
    // If one range is refused, those that were mapped for this call are unmapped again.
    let mappings = made.iter().map(|&range| map(range)).collect::<Result<Vec<_>, _>>()?;
    for held in all.iter_mut().filter(|held| shared.contains(&held.range)) {
        held.users += 1;
    }
    let new = made.iter().zip(mappings);
    all.extend(new.map(|(&range, mapping)| HeldRange { function, range, users: 1, _mapping: mapping }));
    Ok(Reservation { function, ranges: [shared, made].concat() })
}

/// Returns the whole pages that contain `bytes` bytes from `start`, at least one, or `None` if they would
/// reach beyond the last address.
fn whole_pages(start: u64, bytes: u64) -> Option<AddressRange> {
    let base = start - start % PAGE;
    let end = start.checked_add(bytes.max(1))?.checked_next_multiple_of(PAGE)?;
    Some(AddressRange { base, bytes: end - base })
}

/// Returns start and end of the first mapping of this process in the range.
fn first_mapping(range: &AddressRange) -> Option<(u64, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    // 7f0a1c000000-7f0a1c021000 rw-p 00000000 00:00 0
    maps.lines().find_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let (end, _) = rest.split_once(' ')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        (start < range.end() && range.base < end).then_some((start, end))
    })
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    /// Start of addresses that only these tests use, above the ranges of devices and below programs.
    const BASE: u64 = 0x5400_0000_0000;
    const BYTES: u64 = 1 << 30;

    fn function(device: u8) -> PciAddress {
        PciAddress { domain: 0, bus: 0, device, function: 0 }
    }

    fn facts(base: u64, bytes: u64) -> DeviceFacts {
        let mut facts = DeviceFacts::new_zeroed();
        facts.set_addresses(AddressRange { base, bytes });
        facts
    }

    /// Returns the permissions of the mapping that starts at an address.
    fn mapped(base: u64) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.starts_with(&format!("{base:x}-")))?;
        line.split(' ').nth(1).map(str::to_owned)
    }

    #[test]
    fn sessions_of_a_function_share_one_reservation() {
        let facts = facts(BASE, BYTES);
        let one = reserve(function(1), &facts).unwrap().unwrap();
        let two = reserve(function(1), &facts).unwrap().unwrap();
        assert_eq!(mapped(BASE).as_deref(), Some("---p"));
        drop(one);
        assert_eq!(mapped(BASE).as_deref(), Some("---p"));
        drop(two);
        assert_eq!(mapped(BASE), None);
        assert!(reserve(function(1), &DeviceFacts::new_zeroed()).unwrap().is_none(), "an older host");
    }

    #[test]
    fn functions_that_share_addresses_are_refused() {
        let base = BASE + 4 * BYTES;
        let first = reserve(function(2), &facts(base, 2 * BYTES)).unwrap();
        for (base, bytes) in [(base, 2 * BYTES), (base + BYTES, 2 * BYTES), (base - BYTES, 2 * BYTES)] {
            let refusal = reserve(function(3), &facts(base, bytes)).unwrap_err();
            assert!(
                matches!(refusal, AddressRefusal::Shared { other, .. } if other == function(2)),
                "{refusal}"
            );
            assert!(
                refusal.to_string().ends_with("of 0000:00:02.0, so that copies could not tell the two apart")
            );
        }
        let beside = reserve(function(3), &facts(base + 2 * BYTES, BYTES)).unwrap();
        drop(first);
        let after = reserve(function(4), &facts(base, 2 * BYTES)).unwrap();
        assert!(beside.is_some() && after.is_some());
    }

    #[test]
    fn what_is_taken_or_impossible_is_refused_with_its_reason() {
        let base = BASE + 16 * BYTES;
        let own = Mapping::reserved_at(base + BYTES / 2, 1 << 20).unwrap();
        let refusal = reserve(function(5), &facts(base, BYTES)).unwrap_err();
        let (start, end) = (base + BYTES / 2, base + BYTES / 2 + (1 << 20));
        let range = AddressRange { base, bytes: BYTES };
        assert_eq!(refusal, AddressRefusal::Taken { range, mapping: Some((start, end)) });
        assert!(refusal.to_string().contains(&format!("{start:#x} to {end:#x}")), "{refusal}");
        drop(own);
        assert!(reserve(function(5), &facts(base, BYTES)).unwrap().is_some());
        let impossible = reserve(function(5), &facts(base + 1, BYTES)).unwrap_err();
        assert_eq!(impossible, AddressRefusal::Impossible { base: base + 1, bytes: BYTES });
    }

    #[test]
    fn whole_pages_hold_what_lies_in_them() {
        for (start, bytes, pages) in [
            (0x1000, 0, Some((0x1000, 0x1000))),
            (0x1fff, 1, Some((0x1000, 0x1000))),
            (0x1fff, 2, Some((0x1000, 0x2000))),
            (0x1234, 0x2000, Some((0x1000, 0x3000))),
            (u64::MAX - 0xfff, 1, None),
            (u64::MAX, 2, None),
            (0, u64::MAX, None),
        ] {
            let expected = pages.map(|(base, bytes)| AddressRange { base, bytes });
            assert_eq!(whole_pages(start, bytes), expected, "{start:#x} {bytes:#x}");
        }
    }

    #[test]
    fn variables_share_pages_and_take_none_of_the_program() {
        let base = BASE + 24 * BYTES;
        let page = |index: u64| base + 4096 * index;
        let is_free = |index| Mapping::reserved_at(page(index), 4096).is_ok();
        // The first two meet in a page; the third starts in the last page of the second.
        let one = reserve_outside(function(7), page(0) + 100, 4096).unwrap();
        let two = reserve_outside(function(7), page(1) + 200, 8192).unwrap();
        let three = reserve_outside(function(7), page(3) + 300, 0).unwrap();
        assert!(!(0..4).any(is_free) && is_free(4));
        let other = reserve_outside(function(8), page(3) + 8, 8).unwrap_err();
        assert!(matches!(other, AddressRefusal::Shared { other, .. } if other == function(7)), "{other}");
        assert!(reserve(function(8), &facts(page(3), 4096)).is_err(), "nor may its range lie there");
        drop(two);
        assert!(!(0..4).any(is_free), "what was mapped together is unmapped together");
        drop(one);
        assert!(is_free(0) && is_free(1) && !is_free(2) && !is_free(3));

        let own = Mapping::reserved_at(page(6), 4096).unwrap();
        let refusal = reserve_outside(function(7), page(3), 4 * 4096).unwrap_err();
        assert!(
            matches!(refusal, AddressRefusal::Taken { mapping: Some((start, _)), .. } if start == page(6))
        );
        assert!(is_free(4) && is_free(5), "nothing is left of what was refused");
        drop((own, three));
        assert!((0..7).all(is_free));
        for (start, bytes) in [(0, 8), (1 << 47, 8), (u64::MAX, 1), (u64::MAX - 8, 100)] {
            let refusal = reserve_outside(function(7), start, bytes).unwrap_err();
            assert_eq!(refusal, AddressRefusal::Impossible { base: start, bytes });
        }
    }

    /// Returns the first number with this name in a file of `/proc`.
    fn kilobytes(text: &str, name: &str) -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn a_reservation_takes_no_memory_and_is_not_inherited() {
        let base = BASE + 512 * BYTES;
        let tables = || -> u64 {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            kilobytes(&status, "VmPTE:")
        };
        let before = tables();
        let held = reserve(function(6), &facts(base, 512 * BYTES)).unwrap();
        // Other tests of this process map and unmap memory meanwhile, so the figures below are those of the
        // one mapping. The kernel has no figure for the page tables of one mapping.
        assert!(tables() < before + 16 * 1024, "{before} {}", tables());
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (_, of_ours) = maps.split_once(&format!("{base:x}-{:x} ---p", base + 512 * BYTES)).unwrap();
        assert_eq!(kilobytes(of_ours, "Size:"), 512 * BYTES / 1024);
        assert_eq!(kilobytes(of_ours, "Rss:"), 0);
        // SAFETY: the child makes a system call and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // EINVAL or ENOMEM: nothing is mapped there. Success: something is.
            let at = std::ptr::without_provenance_mut(base as usize);
            // SAFETY: names a range of addresses, whatever is there; nothing is changed.
            let inherited = unsafe { libc::msync(at, 4096, libc::MS_ASYNC) } == 0;
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(inherited)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
        drop(held);
    }
}
