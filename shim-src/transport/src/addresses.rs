//! The device addresses that this process has reserved: those of each function that it has a session on.
//!
//! A copy names memory by address alone, whether it is the program's or a device's. So nothing of the program
//! may ever lie where a device pointer could point, and no two functions may share addresses. The range that
//! a function announces is mapped without any access at the attach, once for all sessions of the process on
//! that function, and unmapped with the last of them. It takes no memory, but counts as address space
//! (`ulimit -v`). A process that only looks for devices reserves nothing. A forked child inherits nothing: it
//! cannot use its parent's sessions, nor attach.

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
    /// No process could reserve what the device announces.
    #[error("it announces {bytes:#x} bytes of device addresses at {base:#x}, which no process can have")]
    Impossible {
        /// The first address.
        base: u64,
        /// The size in bytes.
        bytes: u64,
    },
    /// Another function that this process uses has them, too.
    #[error(
        "its device addresses, {range}, are also those of {other}, so that copies could not tell the two apart"
    )]
    Shared {
        /// The function's range.
        range: AddressRange,
        /// The other function.
        other: PciAddress,
    },
    /// Memory of this process lies there.
    #[error("its device addresses, {range}, are taken in this process{}", place(*mapping))]
    Taken {
        /// The function's range.
        range: AddressRange,
        /// The first mapping that lies there, from and to, if the kernel tells it.
        mapping: Option<(u64, u64)>,
    },
    /// The kernel refuses for another reason, such as a limit of address space.
    #[error("its device addresses, {range}, cannot be reserved: {}", io::Error::from_raw_os_error(*errno))]
    Refused {
        /// The function's range.
        range: AddressRange,
        /// The error number.
        errno: i32,
    },
}

fn place(mapping: Option<(u64, u64)>) -> String {
    mapping.map_or_else(String::new, |(start, end)| format!(" by what is mapped from {start:#x} to {end:#x}"))
}

/// A range that is reserved.
#[derive(Debug)]
struct Held {
    function: PciAddress,
    range: AddressRange,
    /// Number of sessions that keep it.
    users: usize,
    _mapping: Mapping,
}

/// All ranges that are reserved.
static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

/// A session's share of its function's reserved range.
#[derive(Debug)]
pub(crate) struct Reservation {
    function: PciAddress,
    range: AddressRange,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if forked() {
            // The child does not have the mapping, and may have memory of its own there.
            return;
        }
        let mut held = lock(&HELD);
        let own = |held: &Held| held.function == self.function && held.range == self.range;
        let Some(index) = held.iter().position(own) else { return };
        held[index].users -= 1;
        if held[index].users == 0 {
            held.swap_remove(index);
        }
    }
}

/// Reserves the range that a function announces in its facts, or takes part in the reservation that there is.
/// `None`: it announces none, as hosts did before there were ranges.
///
/// # Errors
/// The process cannot use the function beside what it has.
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
        return Ok(Some(Reservation { function, range }));
    }
    let overlapping = all.iter().find(|held| held.range.overlaps(&range));
    // A device that was started anew may have another range that overlaps that of its lost session.
    if let Some(held) = overlapping.filter(|held| held.function != function) {
        return Err(AddressRefusal::Shared { range, other: held.function });
    }
    let mapping = Mapping::reserved_at(range.base, range.bytes as usize).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            AddressRefusal::Taken { range, mapping: first_mapping(&range) }
        } else {
            AddressRefusal::Refused { range, errno: error.raw_os_error().unwrap_or(0) }
        }
    })?;
    all.push(Held { function, range, users: 1, _mapping: mapping });
    Ok(Some(Reservation { function, range }))
}

/// Start and end of the first mapping of this process that lies in the range.
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

    /// Addresses that only these tests use, apart for each: behind the ranges that devices have, and below
    /// programs.
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

    /// Permissions of the mapping that starts there.
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

    /// The first figure of that name in a file of `/proc`.
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
        // Other tests run beside this one and map and unmap what they like, so that the figures
        // are those of the one mapping. Only of the tables does the kernel keep no such figure.
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
