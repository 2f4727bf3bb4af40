//! Guest pages that the device has mapped for sessions, with the session of each. It ensures that no two
//! registrations share a page, and checks the key by which a session proves that it may register pages.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex};

use rustix::fs::fstat;
use vgpu_wire::body::pages::{PageRun, RUNS_MAX};

use crate::memory::guest::GuestMemory;
use crate::memory::window::Window;
use crate::sync::lock;

/// Reason for which guest pages cannot be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PagesRefused {
    /// The pages are not guest memory, or are registered already.
    Pages,
    /// The session has reached the maximum number of runs.
    Many,
}

/// A mapped run of guest pages. The registry knows which session it belongs to.
#[derive(Debug)]
pub(crate) struct MappedRun {
    /// Offset of the run in its segment.
    pub(crate) start: u64,
    pub(crate) memory: Window,
    /// Guest-physical address of the run, or 0 in a worker process, which registers none.
    address: u64,
}

impl MappedRun {
    /// Makes a run that another process has registered, as the only one of its segment.
    pub(crate) const fn in_worker(memory: Window) -> Self {
        Self { start: 0, memory, address: 0 }
    }

    /// Returns the guest-physical address of the run.
    pub(crate) const fn address(&self) -> u64 {
        self.address
    }
}

/// Segment of guest pages, with its runs in the order of their offsets.
#[derive(Debug)]
pub(crate) struct PageSegment(Vec<Arc<MappedRun>>);

impl PageSegment {
    /// Makes a segment of consecutive runs that another process has registered.
    pub(crate) fn in_worker(runs: Vec<Window>) -> Self {
        let mut start = 0;
        let run = |memory: Window| {
            let run = MappedRun { start, memory, address: 0 };
            start += run.memory.bytes();
            Arc::new(run)
        };
        Self(runs.into_iter().map(run).collect())
    }

    /// Returns the run that contains all `bytes` at `offset`, and the offset in the run.
    pub(crate) fn find(&self, offset: u64, bytes: u64) -> Option<(&Arc<MappedRun>, u64)> {
        let after = self.0.partition_point(|run| run.start <= offset);
        let run = self.0.get(after.checked_sub(1)?)?;
        let within = offset - run.start;
        (bytes <= run.memory.bytes().checked_sub(within)?).then_some((run, within))
    }

    /// Returns all runs of the segment, in the order of their offsets.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Arc<MappedRun>> {
        self.0.iter()
    }

    /// Returns the guest-physical address and the length in bytes of each run, to be saved.
    pub(crate) fn save(&self) -> Vec<(u64, u64)> {
        self.0.iter().map(|run| (run.address, run.memory.bytes())).collect()
    }

    /// Returns the number of bytes of all runs.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.last().map_or(0, |run| run.start + run.memory.bytes())
    }
}

/// Range of guest-physical addresses that a session has registered.
#[derive(Clone, Copy, Debug)]
struct RegisteredRange {
    end: u64,
    session: u32,
}

/// Guest pages that sessions have registered with a device.
#[derive(Debug)]
pub(crate) struct PageRegistry {
    memory: Arc<dyn GuestMemory>,
    key: u64,
    taken: Mutex<TakenPages>,
}

/// What all sessions have registered.
#[derive(Debug, Default)]
struct TakenPages {
    /// Registered ranges by guest-physical address.
    ranges: BTreeMap<u64, RegisteredRange>,
    /// Number of ranges of each session that has some.
    counts: BTreeMap<u32, usize>,
}

impl TakenPages {
    fn insert(&mut self, address: u64, range: RegisteredRange) {
        self.ranges.insert(address, range);
        *self.counts.entry(range.session).or_default() += 1;
    }

    fn remove(&mut self, address: u64) {
        if let Some(range) = self.ranges.remove(&address)
            && let Some(count) = self.counts.get_mut(&range.session)
        {
            *count -= 1;
        }
    }
}

impl PageRegistry {
    pub(crate) fn new(memory: Arc<dyn GuestMemory>, key: u64) -> Self {
        Self { memory, key, taken: Mutex::default() }
    }

    /// Returns the key that authorises a session to register pages.
    pub(crate) const fn key(&self) -> u64 {
        self.key
    }

    /// Maps a run, which begins at offset `start` of its segment, and registers it for a session. Fails if it
    /// is not guest memory, if a page of it is registered, or if the session has `RUNS_MAX` runs.
    pub(crate) fn map(&self, session: u32, run: PageRun, start: u64) -> Result<Arc<MappedRun>, PagesRefused> {
        self.claim(session, run)?;
        let mapped = self.memory.file(run.address, run.bytes).and_then(|(file, at)| {
            Window::from_file_range(file, at, run.bytes)
                .inspect_err(|error| tracing::warn!("guest pages at {:#x}: {error}", run.address))
                .ok()
        });
        if let Some(memory) = mapped {
            return Ok(Arc::new(MappedRun { start, memory, address: run.address }));
        }
        lock(&self.taken).remove(run.address);
        Err(PagesRefused::Pages)
    }

    /// Returns whether the guest's memory still is what was mapped for a run. A guest can have its memory mapped
    /// anew, after which the run's address leads to other bytes.
    pub(crate) fn is_unchanged(&self, run: &MappedRun) -> bool {
        let identity = |file: BorrowedFd<'_>| fstat(file).map(|stat| (stat.st_dev, stat.st_ino));
        self.memory.file(run.address, run.memory.bytes()).is_some_and(|(file, at)| {
            at == run.memory.file_offset()
                && identity(file.as_fd()).is_ok_and(|now| identity(run.memory.file()) == Ok(now))
        })
    }

    /// Maps and registers all runs of a segment, or none.
    pub(crate) fn map_all(
        &self,
        session: u32,
        runs: impl Iterator<Item = PageRun>,
    ) -> Result<PageSegment, PagesRefused> {
        let mut segment = PageSegment(Vec::new());
        for run in runs {
            match self.map(session, run, segment.bytes()) {
                Ok(run) => segment.0.push(run),
                Err(refused) => {
                    self.forget(&segment);
                    return Err(refused);
                }
            }
        }
        Ok(segment)
    }

    fn claim(&self, session: u32, run: PageRun) -> Result<(), PagesRefused> {
        let end = run.address.checked_add(run.bytes).ok_or(PagesRefused::Pages)?;
        let mut taken = lock(&self.taken);
        if taken.ranges.range(..end).next_back().is_some_and(|(_, below)| below.end > run.address) {
            return Err(PagesRefused::Pages);
        }
        if taken.counts.get(&session).is_some_and(|&count| count >= RUNS_MAX as usize) {
            return Err(PagesRefused::Many);
        }
        taken.insert(run.address, RegisteredRange { end, session });
        Ok(())
    }

    /// Unregisters the pages of a segment.
    pub(crate) fn forget(&self, segment: &PageSegment) {
        let mut taken = lock(&self.taken);
        for run in &segment.0 {
            taken.remove(run.address);
        }
    }

    /// Unregisters all pages of a session.
    pub(crate) fn release(&self, session: u32) {
        let mut taken = lock(&self.taken);
        taken.ranges.retain(|_, range| range.session != session);
        taken.counts.remove(&session);
    }

    /// Returns the number of bytes that a session has registered.
    pub(crate) fn bytes_of(&self, session: u32) -> u64 {
        let taken = lock(&self.taken);
        let of_session = taken.ranges.iter().filter(|(_, taken)| taken.session == session);
        of_session.map(|(address, taken)| taken.end - address).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::guest::Ram;

    const PAGE: u64 = 0x1000;

    fn registry(pages: u64) -> (tempfile::TempDir, PageRegistry) {
        let dir = tempfile::tempdir().unwrap();
        let ram = Ram::create(&dir.path().join("ram"), pages * PAGE).unwrap();
        (dir, PageRegistry::new(Arc::new(ram), 7))
    }

    const fn run(page: u64, pages: u64) -> PageRun {
        PageRun { address: page * PAGE, bytes: pages * PAGE }
    }

    #[test]
    fn pages_are_the_guests_memory_and_somebodys_once() {
        let (_dir, registry) = registry(16);
        let segment = registry.map_all(1, [run(4, 2), run(0, 1)].into_iter()).unwrap();
        assert_eq!((segment.bytes(), registry.bytes_of(1)), (3 * PAGE, 3 * PAGE));
        for taken in [run(4, 1), run(5, 3), run(3, 2), run(0, 16), run(15, 2), run(16, 1)] {
            assert_eq!(registry.map(2, taken, 0).unwrap_err(), PagesRefused::Pages, "{taken:?}");
        }
        // None of a list is registered if one run is bad.
        assert_eq!(registry.map_all(2, [run(8, 1), run(8, 1)].into_iter()).unwrap_err(), PagesRefused::Pages);
        assert_eq!(registry.bytes_of(2), 0);
        registry.forget(&segment);
        registry.map(2, run(4, 2), 0).unwrap();
        registry.release(2);
        registry.map(3, run(0, 16), 0).unwrap();
    }

    #[test]
    fn a_span_lies_in_one_run() {
        let (_dir, registry) = registry(16);
        let segment = registry.map_all(1, [run(4, 2), run(0, 1)].into_iter()).unwrap();
        let found = |offset, bytes| segment.find(offset, bytes).map(|(run, at)| (run.address, at));
        assert_eq!(found(0, 2 * PAGE), Some((4 * PAGE, 0)));
        assert_eq!(found(2 * PAGE, PAGE), Some((0, 0)));
        assert_eq!(found(2 * PAGE + 5, PAGE - 5), Some((0, 5)));
        for (offset, bytes) in
            [(PAGE, PAGE + 1), (2 * PAGE, PAGE + 1), (3 * PAGE, 1), (u64::MAX, 1), (1, u64::MAX)]
        {
            assert_eq!(found(offset, bytes), None, "{bytes} at {offset}");
        }
    }

    /// Guest memory that the VMM maps anew.
    #[derive(Debug)]
    struct Remapped(Mutex<Ram>);

    impl GuestMemory for Remapped {
        fn map(&self, address: u64, bytes: u64) -> bool {
            lock(&self.0).map(address, bytes)
        }

        fn read(&self, address: u64, into: &mut [u8]) -> bool {
            lock(&self.0).read(address, into)
        }

        fn write(&self, address: u64, from: &[u8]) -> bool {
            lock(&self.0).write(address, from)
        }

        fn file(&self, address: u64, bytes: u64) -> Option<(std::fs::File, u64)> {
            lock(&self.0).file(address, bytes)
        }
    }

    #[test]
    fn pages_that_are_other_memory_now_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let ram = |name, pages| Ram::create(&dir.path().join(name), pages * PAGE).unwrap();
        let memory = Arc::new(Remapped(Mutex::new(ram("first", 16))));
        let registry = PageRegistry::new(Arc::clone(&memory) as _, 7);
        let mapped = registry.map(1, run(8, 2), 0).unwrap();
        assert!(registry.is_unchanged(&mapped));
        *lock(&memory.0) = ram("second", 16);
        assert!(!registry.is_unchanged(&mapped), "another file");
        *lock(&memory.0) = ram("third", 8);
        assert!(!registry.is_unchanged(&mapped), "no memory");
    }

    #[test]
    fn a_session_has_no_more_than_there_can_be() {
        let pages = u64::from(RUNS_MAX) + 2;
        let (_dir, registry) = registry(pages);
        let all = registry.map_all(1, (0..u64::from(RUNS_MAX)).map(|page| run(page, 1)));
        assert_eq!(all.unwrap().bytes(), u64::from(RUNS_MAX) * PAGE);
        assert_eq!(registry.map(1, run(pages - 1, 1), 0).unwrap_err(), PagesRefused::Many);
        registry.map(2, run(pages - 1, 1), 0).unwrap();
    }

    proptest! {
        #[test]
        fn no_two_registrations_share_a_page(steps in prop::collection::vec((1u32..4, 0u64..20, 1u64..6, any::<bool>()), 1..60)) {
            let (_dir, registry) = registry(16);
            let mut held: Vec<(u32, PageRun)> = Vec::new();
            for (session, page, pages, release) in steps {
                if release {
                    registry.release(session);
                    held.retain(|(owner, _)| *owner != session);
                    continue;
                }
                let new = run(page, pages);
                let free = page + pages <= 16
                    && held.iter().all(|(_, old)| new.address >= old.address + old.bytes || old.address >= new.address + new.bytes);
                prop_assert_eq!(registry.map(session, new, 0).is_ok(), free);
                if free {
                    held.push((session, new));
                }
            }
        }
    }
}
