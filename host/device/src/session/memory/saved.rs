//! The shared memory of a session in the device's saved state.

use vgpu_wire::body::pages::PageRun;

use super::SessionMemory;
use crate::memory::pages::{MappedRun, PageSegment};
use crate::saved::error::{NotSaved, RestoreError, require};
use crate::saved::state::{MemoryState, SegmentState};
use crate::sync::lock;

impl SessionMemory {
    /// Returns everything that the session owns as saved state. `returns` is its return area, if that is in
    /// guest pages. Fails if the guest has had registered pages mapped anew.
    pub(crate) fn save(&self, returns: Option<&MappedRun>) -> Result<MemoryState, NotSaved> {
        let segments = lock(&self.segments);
        if let Some(pages) = &self.pages {
            let runs = segments.values().flat_map(PageSegment::runs).map(|run| &**run).chain(returns);
            for run in runs {
                if !pages.is_unchanged(run) {
                    return Err(NotSaved::Pages(run.address()));
                }
            }
        }
        let segment =
            |(&number, segment): (&u32, &PageSegment)| SegmentState { number, runs: segment.save() };
        Ok(MemoryState {
            may_register: self.pages.is_some(),
            returns: returns.map(MappedRun::address),
            ranges: self.window_ranges(),
            segments: segments.iter().map(segment).collect(),
        })
    }

    /// Allocates and registers everything that the session owned. Fails if another owner has a part of it.
    pub(crate) fn restore(&self, state: &MemoryState) -> Result<(), RestoreError> {
        for &(offset, bytes) in &state.ranges {
            self.take_range(offset, bytes)?;
            lock(&self.owned).insert(offset, bytes);
        }
        for segment in &state.segments {
            let runs = self.map_runs(&segment.runs)?;
            let before = lock(&self.segments).insert(segment.number, runs);
            require(before.is_none(), "number of a segment", segment.number)?;
        }
        Ok(())
    }

    /// Allocates a range of the window, which must be free.
    pub(super) fn take_range(&self, offset: u64, bytes: u64) -> Result<(), RestoreError> {
        let taken = self.allocator.as_ref().is_some_and(|allocator| allocator.take(offset, bytes));
        require(taken, "range of the window", format_args!("{bytes:#x} bytes at {offset:#x}"))
    }

    /// Allocates a range that the guest has freed, and expects [`SessionMemory::free_window`] for it.
    pub(crate) fn restore_retired_window(&self, offset: u64, bytes: u64) -> Result<(), RestoreError> {
        self.take_range(offset, bytes)?;
        lock(&self.leaving).count += 1;
        Ok(())
    }

    /// Maps and registers the runs of a segment.
    pub(crate) fn map_runs(&self, runs: &[(u64, u64)]) -> Result<PageSegment, RestoreError> {
        let refused = || RestoreError::field("list of guest pages", format_args!("{runs:x?}"));
        let pages = self.pages.as_ref().ok_or_else(refused)?;
        let runs = runs.iter().map(|&(address, bytes)| PageRun { address, bytes });
        pages.map_all(self.session, runs).map_err(|_| refused())
    }
}
