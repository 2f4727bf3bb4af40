//! Pool of huge pages for the sessions of a device, which outlive the process that uses them.
//!
//! A host of version 2 writes to registered pages until it has been told that the session is over. A process
//! that is killed cannot tell it: if the pages were the process's own, they would belong to another process
//! while the host still writes to them. So they are a System V segment, which outlives every process and is
//! found again by its key: the function and the channel. The owner of the channel's lock owns the segment:
//! the next process on the channel takes it over, and the process that detaches the channel of a dead one
//! removes it. (An IPC namespace that ends removes its segments, whatever the host still writes, so the
//! processes of a container must be ended before it is killed.)
//!
//! On a simulated bus, the part of the file `ram` that belongs to the channel takes the role of the segment.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;

use vgpu_wire::area;
use vgpu_wire::body::pages::PageRun;
use vgpu_wire::fnv1a;
use vgpu_wire::registers::CAP_PAGES;

use super::frames;
use super::large::{LARGE_PAGE, lock_range};
use crate::descriptor::Descriptor;
use crate::mapping::{Mapping, MemoryType};
use crate::sysfs::PciFunction;

/// Sizes to try in bytes: enough buffers to keep both sides busy, or at least one page.
const SIZES: [usize; 2] = [2 * LARGE_PAGE, LARGE_PAGE];
/// Offset in the pages, after the return area, of the part that is registered as a segment of the session.
pub(crate) const REST: u64 = 0x2_0000;
/// `SHM_HUGETLB` and `SHM_HUGE_2MB` of `linux/shm.h`.
const SHM_LARGE: libc::c_int = 0o4000 | 21 << 26;
/// Permissions of a segment, which only its owner can access.
const MODE: libc::c_int = 0o600;

const _: () = assert!(area::RETURN_BYTES <= REST);

/// Kind of memory that the pages of a function's sessions are taken from.
#[derive(Clone, Debug)]
pub(crate) enum HugePagePool {
    /// System V segments, whose keys are derived from this number.
    Segments(u64),
    /// Path of the file of the simulated machine's memory, and the number of the function's first part.
    Parts(PathBuf, u64),
}

/// Huge pages of a session.
#[derive(Debug)]
pub(crate) struct HugePages {
    pub(crate) mapping: Arc<Mapping>,
    /// Guest-physical addresses of the large pages.
    addresses: Vec<u64>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Segment(libc::c_int),
    /// Part of a file, which the open file has locked.
    Part {
        _file: Descriptor,
    },
}

impl HugePagePool {
    /// Returns the pool of a device with these capabilities, or `None` if it accepts no guest pages.
    pub(crate) fn of_device(function: &PciFunction, capabilities: u32) -> Option<Self> {
        (capabilities & CAP_PAGES != 0).then(|| Self::for_function(function, function.is_simulated()))
    }

    /// Returns the pool of a function.
    fn for_function(function: &PciFunction, simulated: bool) -> Self {
        // DIR/bus/pci/devices/ADDRESS
        let bus = function.dir.ancestors().nth(4).filter(|_| simulated);
        match bus {
            Some(bus) => Self::Parts(bus.join("ram"), u64::from(function.address.device) * 64),
            None => Self::Segments(fnv1a(0, function.address.to_string().as_bytes())),
        }
    }

    /// Returns the pages of a channel that this process has locked: those that a dead process left, or new
    /// ones. Returns `None` if there are none.
    pub(crate) fn acquire(&self, channel: u32) -> Option<HugePages> {
        match self {
            Self::Segments(function) => {
                let key = key(*function, channel);
                if let Some(id) = found(key) {
                    // If the segment is another program's, which has this key by chance, there are no pages.
                    return private_segment_bytes(id).and_then(|bytes| HugePages::of_segment(id, bytes));
                }
                let id = SIZES.iter().find_map(|&bytes| made(key, bytes))?;
                let kept = private_segment_bytes(id).and_then(|bytes| HugePages::of_segment(id, bytes));
                if kept.is_none() {
                    // No host was told of this segment, so it can be removed.
                    remove(id);
                }
                kept
            }
            Self::Parts(file, first) => {
                let bytes = SIZES[0];
                let file = File::options().read(true).write(true).open(file).ok()?;
                // Part 0 starts at address 0, which would state that the return area lies in the BAR.
                let usable = (file.metadata().ok()?.len() / bytes as u64).checked_sub(1)?;
                let address = ((first + u64::from(channel)).checked_rem(usable)? + 1) * bytes as u64;
                if !lock_range(&file, address, bytes as u64) {
                    return None;
                }
                let mapping =
                    Mapping::of_part(file.as_raw_fd(), address, bytes, MemoryType::WriteBack).ok()?;
                let addresses = (address..).step_by(LARGE_PAGE).take(bytes / LARGE_PAGE).collect();
                let file = Descriptor::adopt(file.into()).ok()?;
                HugePages::new(mapping, addresses, Place::Part { _file: file })
            }
        }
    }

    /// Returns whether a segment exists for a channel, of a living or a dead process. Parts of a file are
    /// never reported.
    pub(crate) fn contains(&self, channel: u32) -> bool {
        matches!(self, Self::Segments(function) if found(key(*function, channel)).is_some())
    }

    /// Frees the pages of a dead process. The caller holds that channel's lock and has seen the host confirm
    /// the detach.
    pub(crate) fn remove(&self, channel: u32) {
        if let Self::Segments(function) = self
            && let Some(id) = found(key(*function, channel))
            && private_segment_bytes(id).is_some()
        {
            remove(id);
        }
    }
}

impl HugePages {
    fn of_segment(id: libc::c_int, bytes: usize) -> Option<Self> {
        let mapping = Mapping::of_segment(id, bytes).ok()?;
        let addresses = frames::addresses(&mapping)?;
        Self::new(mapping, addresses, Place::Segment(id))
    }

    /// Returns `None` for pages that start at address 0: that address tells the host to use the BAR for the
    /// return area, and a guest that polls these pages would wait forever.
    fn new(mapping: Mapping, addresses: Vec<u64>, place: Place) -> Option<Self> {
        (*addresses.first()? != 0).then(|| Self { mapping: Arc::new(mapping), addresses, place })
    }

    /// Returns the guest-physical address of the return area, at which the mapping starts.
    pub(crate) fn returns(&self) -> u64 {
        self.addresses[0]
    }

    /// Returns the runs of pages from [`REST`] on.
    pub(crate) fn rest(&self) -> Vec<PageRun> {
        frames::runs(&self.addresses, REST)
    }

    /// Returns the pages to the kernel, once the host has released them. Other threads find private memory
    /// there.
    pub(crate) fn release(&self) {
        if self.mapping.make_private().is_ok()
            && let Place::Segment(id) = self.place
        {
            remove(id);
        }
    }
}

/// Returns the key of a channel's segment.
const fn key(function: u64, channel: u32) -> libc::key_t {
    let hash = fnv1a(fnv1a(function, b"vgpu-run pages"), &channel.to_le_bytes());
    // Not 0, which is no key.
    (hash as u32 & 0x7fff_ffff | 0x4000_0000) as libc::key_t
}

/// Returns the segment with this key, if it exists.
fn found(key: libc::key_t) -> Option<libc::c_int> {
    // SAFETY: asks for a number.
    let id = unsafe { libc::shmget(key, 0, 0) };
    (id >= 0).then_some(id)
}

/// Creates a segment, all of whose pages are available.
fn made(key: libc::key_t, bytes: usize) -> Option<libc::c_int> {
    // SAFETY: makes a segment, or none.
    let id = unsafe { libc::shmget(key, bytes, libc::IPC_CREAT | libc::IPC_EXCL | SHM_LARGE | MODE) };
    (id >= 0).then_some(id)
}

/// Returns the size of a segment in bytes if a process of this user created it for itself alone, and it
/// consists of whole large pages.
fn private_segment_bytes(id: libc::c_int) -> Option<usize> {
    // SAFETY: the structure is plain numbers, for which zeros are values.
    let mut about: libc::shmid_ds = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes one structure.
    if unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut about) } != 0 {
        return None;
    }
    // SAFETY: asks for a number.
    let user = unsafe { libc::geteuid() };
    let owner = about.shm_perm;
    let mine = owner.uid == user && owner.cuid == user && libc::c_int::from(owner.mode) & 0o777 == MODE;
    (mine && about.shm_segsz >= LARGE_PAGE && about.shm_segsz.is_multiple_of(LARGE_PAGE))
        .then_some(about.shm_segsz)
}

/// Removes a segment once no process has it mapped.
fn remove(id: libc::c_int) {
    // SAFETY: nothing is written; whoever has it mapped keeps it until then.
    unsafe { libc::shmctl(id, libc::IPC_RMID, core::ptr::null_mut()) };
}

/// Reads the key by which a session may name pages. The kernel shows this part of configuration space only to
/// an administrator. Returns `None` if this process may not read it, or if there is none.
pub(crate) fn device_key(function: &PciFunction) -> io::Result<Option<u64>> {
    use std::os::unix::fs::FileExt;
    let mut key = [0; 8];
    let file = File::open(function.dir.join("config"))?;
    match file.read_exact_at(&mut key, vgpu_wire::pci::PAGES_KEY) {
        Ok(()) => Ok(Some(u64::from_le_bytes(key)).filter(|key| *key != 0)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_channel_has_a_key_of_its_own() {
        let mut keys: Vec<_> =
            (0..8).flat_map(|function| (0..64).map(move |channel| key(function, channel))).collect();
        assert!(keys.iter().all(|&key| key > 0));
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 8 * 64);
    }

    #[test]
    fn a_simulated_channel_has_its_part() {
        let dir = tempfile::tempdir().unwrap();
        let ram = dir.path().join("ram");
        File::create(&ram).unwrap().set_len(64 << 20).unwrap();
        let keeper = HugePagePool::Parts(ram, 64 * 5);
        let kept = keeper.acquire(3).unwrap();
        assert_eq!((kept.returns(), kept.mapping.bytes()), (9 * (4 << 20), 4 << 20));
        let rest = PageRun { address: kept.returns() + REST, bytes: (4 << 20) - REST };
        assert_eq!(kept.rest(), [rest]);
        assert!(keeper.acquire(3).is_none(), "locked");
        assert!(keeper.acquire(4).is_some());
    }

    /// Address 0 means that there are no pages, so no channel may have pages there.
    #[test]
    fn no_channel_has_the_pages_at_address_0() {
        let dir = tempfile::tempdir().unwrap();
        let ram = dir.path().join("ram");
        let mut addresses = Vec::new();
        for (bytes, slot) in [(64 << 20, 0), (64 << 20, 5), (12 << 20, 7)] {
            File::create(&ram).unwrap().set_len(bytes).unwrap();
            let keeper = HugePagePool::Parts(ram.clone(), 64 * slot);
            addresses
                .extend((0..64).filter_map(|channel| keeper.acquire(channel)).map(|kept| kept.returns()));
        }
        assert_eq!(addresses.len(), 3 * 64, "each had pages");
        assert!(addresses.iter().all(|&address| address != 0), "{addresses:x?}");
        File::create(&ram).unwrap().set_len(4 << 20).unwrap();
        assert!(HugePagePool::Parts(ram, 0).acquire(0).is_none(), "there are no other pages");
        let mapping = Mapping::anonymous(LARGE_PAGE).unwrap();
        assert!(HugePages::new(mapping, vec![0], Place::Segment(-1)).is_none());
    }
}
