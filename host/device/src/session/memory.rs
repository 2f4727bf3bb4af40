//! The shared memory that one session owns: its channel's area, ranges of the window, and guest pages. Every
//! span that a message names is resolved here, so that no session can use a span of another.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vgpu_wire::body::pages::PageRun;
use vgpu_wire::{SEGMENT_BAR, SEGMENT_INLINE, Span, area};

use crate::memory::pages::{MappedRun, PageRegistry, PageSegment, PagesRefused};
use crate::memory::window::{SharedSlice, Window};
use crate::memory::window_allocator::WindowAllocator;
use crate::session::grant::Grant;
use crate::session::violation::Violation;
use crate::sync::lock;

mod saved;

/// Longest time that an allocation waits for window memory which the guest freed before it. The memory is
/// free when all work that uses it is complete and the executor has unregistered it, which another thread
/// does. Without the wait, a guest that frees and allocates by turns would sometimes be refused.
const WAIT_FOR_FREED: Duration = Duration::from_millis(100);

/// Outcome of a guest's request for window memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowRequest {
    /// The session owns this range, by offset and size.
    Allocated(u64, u64),
    /// There is no room.
    NoRoom,
    /// The device is paused, and the request waits for memory that is about to become available.
    Paused,
}

/// Range of the window, or of guest pages, that belonged to the session when it was resolved.
#[derive(Clone, Debug)]
pub struct ResolvedSpan {
    /// Guest pages in which `offset` counts, or `None` for the window.
    pages: Option<Arc<MappedRun>>,
    offset: u64,
    bytes: u64,
}

impl ResolvedSpan {
    /// Returns the length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Shared memory that a session owns.
pub(crate) struct SessionMemory {
    session: u32,
    window: Arc<Window>,
    /// Allocator of window memory, or `None` in a worker process, which is told of allocations.
    allocator: Option<Arc<WindowAllocator>>,
    /// Offset of the channel's area.
    area: u64,
    /// Sizes of the window memory that the session owns, by offset.
    owned: Mutex<BTreeMap<u64, u64>>,
    /// Ranges that the guest has freed and that are not available yet.
    leaving: Mutex<PendingFrees>,
    /// Notified when such a range has become available.
    available: Condvar,
    /// Registry of guest pages, if this session may register any.
    pages: Option<Arc<PageRegistry>>,
    /// Segments of guest pages by number.
    segments: Mutex<BTreeMap<u32, PageSegment>>,
}

#[derive(Debug, Default)]
struct PendingFrees {
    count: u32,
    /// Number of ranges that have become available so far.
    freed: u64,
    /// Whether an allocation has waited in vain since the last range became available. Another one does not
    /// wait then, because the session's thread has other messages.
    stuck: bool,
}

impl SessionMemory {
    /// Makes the memory of a new session, which owns the area of its channel. `pages` is set if the session
    /// may register guest pages.
    pub(crate) fn new(
        session: u32,
        window: Arc<Window>,
        allocator: Option<Arc<WindowAllocator>>,
        channel: u32,
        pages: Option<Arc<PageRegistry>>,
    ) -> Self {
        Self {
            session,
            window,
            allocator,
            area: u64::from(channel) * area::AREA_BYTES,
            owned: Mutex::default(),
            leaving: Mutex::default(),
            available: Condvar::new(),
            pages,
            segments: Mutex::default(),
        }
    }

    /// Returns the window.
    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// Returns the offset of the channel's area.
    pub(crate) const fn area(&self) -> u64 {
        self.area
    }

    /// Resolves a span of the window, or of guest pages, that the session owns at this moment.
    pub(crate) fn piece(&self, span: &Span) -> Result<ResolvedSpan, Violation> {
        if span.reserved != 0 {
            return Err(Violation::Reserved);
        }
        if span.segment != SEGMENT_BAR {
            let segments = lock(&self.segments);
            let segment = segments.get(&span.segment).ok_or(Violation::Segment(span.segment))?;
            let foreign =
                Violation::PageSpan { segment: span.segment, offset: span.offset, bytes: span.bytes };
            let (run, offset) = segment.find(span.offset, span.bytes).ok_or(foreign)?;
            return Ok(ResolvedSpan { pages: Some(Arc::clone(run)), offset, bytes: span.bytes });
        }
        let foreign = Violation::Span { offset: span.offset, bytes: span.bytes };
        let Some(end) = span.offset.checked_add(span.bytes) else { return Err(foreign) };
        let within = |start: u64, bytes: u64| span.offset >= start && end <= start + bytes;
        let piece = ResolvedSpan { pages: None, offset: span.offset, bytes: span.bytes };
        if within(self.area, area::AREA_BYTES) {
            return Ok(piece);
        }
        let owned = lock(&self.owned);
        match owned.range(..=span.offset).next_back() {
            Some((&start, &bytes)) if within(start, bytes) => Ok(piece),
            _ => Err(foreign),
        }
    }

    /// Returns the memory of a resolved span.
    pub(crate) fn slice<'a>(&'a self, piece: &'a ResolvedSpan) -> SharedSlice<'a> {
        let memory = piece.pages.as_ref().map_or(&*self.window, |run| &run.memory);
        memory.slice(piece.offset, piece.bytes).expect("a piece lies within the memory that it was found in")
    }

    /// Returns the range of shared memory that contains a resolved span, and the span's offset in it. Returns
    /// `None` if the session has freed the window memory since.
    pub(crate) fn grant(&self, piece: &ResolvedSpan) -> Option<(Grant, u64)> {
        if let Some(run) = &piece.pages {
            return Some((Grant::pages(Arc::clone(run)), piece.offset));
        }
        let within = |start: u64, bytes: u64| {
            let offset = piece.offset.checked_sub(start)?;
            let grant = || (self.window_grant(start, bytes), offset);
            (piece.bytes <= bytes.checked_sub(offset)?).then(grant)
        };
        within(self.area, area::AREA_BYTES).or_else(|| {
            let owned = lock(&self.owned);
            let (&start, &bytes) = owned.range(..=piece.offset).next_back()?;
            within(start, bytes)
        })
    }

    /// Returns a grant of the channel's area.
    pub(crate) fn area_grant(&self) -> Grant {
        self.window_grant(self.area, area::AREA_BYTES)
    }

    /// Returns a grant of a range of the window, whichever session owns it.
    pub(crate) fn window_grant(&self, offset: u64, bytes: u64) -> Grant {
        Grant::window(Arc::clone(&self.window), offset, bytes)
    }

    /// Handles `PagesRegister`: maps the runs as segment `number`. A number that is reserved or in use is a
    /// violation. Pages that cannot be registered are refused, and the session continues.
    pub(crate) fn register_pages(
        &self,
        number: u32,
        runs: impl Iterator<Item = PageRun>,
    ) -> Result<Result<(), PagesRefused>, Violation> {
        let mut segments = lock(&self.segments);
        if number == SEGMENT_BAR || number == SEGMENT_INLINE {
            return Err(Violation::Segment(number));
        }
        if segments.contains_key(&number) {
            return Err(Violation::in_use("segment", number));
        }
        let Some(pages) = &self.pages else { return Ok(Err(PagesRefused::Pages)) };
        Ok(pages.map_all(self.session, runs).map(|segment| drop(segments.insert(number, segment))))
    }

    /// Returns whether the session may register guest pages.
    pub(crate) fn may_register(&self) -> bool {
        self.pages.is_some()
    }

    /// Returns the number of bytes of guest pages that the session has registered.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.pages.as_ref().map_or(0, |pages| pages.bytes_of(self.session))
    }

    /// Allocates window memory for the guest. If there is no room, waits a limited time for memory that the
    /// guest has freed, but not once `pausing` returns true.
    pub(crate) fn allocate_window(&self, bytes: u64, pausing: impl Fn() -> bool) -> WindowRequest {
        let Some(allocator) = &self.allocator else { return WindowRequest::NoRoom };
        let end = Instant::now() + WAIT_FOR_FREED;
        loop {
            let freed = lock(&self.leaving).freed;
            // Without the lock, because the system may need long to find storage.
            if let Some((offset, bytes)) = allocator.allocate(bytes) {
                lock(&self.owned).insert(offset, bytes);
                return WindowRequest::Allocated(offset, bytes);
            }
            let mut leaving = lock(&self.leaving);
            if leaving.freed != freed {
                continue;
            }
            let left = end.saturating_duration_since(Instant::now());
            if leaving.count == 0 || leaving.stuck || bytes > allocator.bytes() {
                return WindowRequest::NoRoom;
            }
            if left.is_zero() {
                leaving.stuck = true;
                return WindowRequest::NoRoom;
            }
            if pausing() {
                return WindowRequest::Paused;
            }
            drop(self.available.wait_timeout(leaving, left).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Wakes the thread that waits for window memory, which then looks whether the device is paused.
    pub(crate) fn interrupt(&self) {
        // With the lock, so that a thread that has not looked is waiting already.
        let _leaving = lock(&self.leaving);
        self.available.notify_all();
    }

    /// Lets spans of the session name window memory that was allocated elsewhere: by a mediator, or by the
    /// device whose worker process this is.
    pub(crate) fn lend(&self, offset: u64, bytes: u64) {
        lock(&self.owned).insert(offset, bytes);
    }

    /// Ends the effect of [`Self::lend`]. No span may name the memory from now on.
    pub(crate) fn revoke(&self, offset: u64) {
        lock(&self.owned).remove(&offset);
    }

    /// Returns the number of bytes of window memory that the session owns.
    pub(crate) fn window_bytes(&self) -> u64 {
        lock(&self.owned).values().sum()
    }

    /// Removes window memory from the session, so that no span may name it. Returns its size, if the session
    /// owned it.
    pub(crate) fn remove_window(&self, offset: u64) -> Option<u64> {
        lock(&self.owned).remove(&offset)
    }

    /// Removes a segment from the session, so that no span may name it.
    pub(crate) fn remove_pages(&self, number: u32) -> Option<PageSegment> {
        lock(&self.segments).remove(&number)
    }

    /// Removes window memory from the session as [`Self::remove_window`] does, and expects
    /// [`Self::free_window`] for it.
    pub(crate) fn retire_window(&self, offset: u64) -> Option<u64> {
        let bytes = self.remove_window(offset)?;
        lock(&self.leaving).count += 1;
        Some(bytes)
    }

    /// Frees window memory that was retired.
    pub(crate) fn free_window(&self, offset: u64, bytes: u64) {
        if let Some(allocator) = &self.allocator {
            allocator.free(offset, bytes);
        }
        let mut leaving = lock(&self.leaving);
        leaving.count -= 1;
        leaving.freed += 1;
        leaving.stuck = false;
        drop(leaving);
        self.available.notify_all();
    }

    /// Unregisters the pages of a segment that was removed from the session.
    pub(crate) fn unregister_pages(&self, segment: &PageSegment) {
        if let Some(pages) = &self.pages {
            pages.forget(segment);
        }
    }

    /// Unregisters all pages. Nothing of the session may be in progress.
    pub(crate) fn release_pages(&self) {
        lock(&self.segments).clear();
        if let Some(pages) = &self.pages {
            pages.release(self.session);
        }
    }

    /// Frees all window memory of the session.
    pub(crate) fn release_window(&self) {
        let owned = std::mem::take(&mut *lock(&self.owned));
        if let Some(allocator) = &self.allocator {
            for (offset, bytes) in owned {
                allocator.free(offset, bytes);
            }
        }
    }

    /// Returns offset and size of each range of the window that the session owns.
    pub(crate) fn window_ranges(&self) -> Vec<(u64, u64)> {
        lock(&self.owned).iter().map(|(&offset, &bytes)| (offset, bytes)).collect()
    }

    /// Returns the numbers of the session's segments.
    pub(crate) fn segment_numbers(&self) -> Vec<u32> {
        lock(&self.segments).keys().copied().collect()
    }

    /// Returns the runs of a segment, in the order of their offsets.
    pub(crate) fn runs(&self, number: u32) -> Vec<Arc<MappedRun>> {
        lock(&self.segments).get(&number).map(|segment| segment.runs().cloned().collect()).unwrap_or_default()
    }

    /// Adds a segment whose runs another process has registered for the session.
    pub(crate) fn adopt_pages(&self, number: u32, segment: PageSegment) {
        lock(&self.segments).insert(number, segment);
    }
}
