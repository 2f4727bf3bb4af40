//! The shared memory that one session owns: its channel's area, ranges of the window, and guest pages. Every
//! span that a message names is resolved here, so a span of another session's is found by nobody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use vgpu_wire::body::pages::PageRun;
use vgpu_wire::{SEGMENT_BAR, SEGMENT_INLINE, Span, area};

use crate::memory::pages::{Refused, Registry, Run, Segment};
use crate::memory::shares::Shares;
use crate::memory::window::{SharedSlice, Window};
use crate::session::grant::Grant;
use crate::session::violation::Violation;
use crate::sync::lock;

/// A range of the window, or of guest pages, that was the session's when it was resolved.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The guest pages that `offset` is in; `None`: it is in the window.
    pages: Option<Arc<Run>>,
    offset: u64,
    bytes: u64,
}

impl Piece {
    /// Length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What a session owns.
pub(crate) struct SessionMemory {
    session: u32,
    window: Arc<Window>,
    /// What gives out window memory; `None` in a worker process, which is told what is given out.
    shares: Option<Arc<Shares>>,
    /// Offset of the channel's area.
    area: u64,
    /// Window memory that the session was given: bytes by offset.
    owned: Mutex<BTreeMap<u64, u64>>,
    /// The guest's pages, if this session may name them.
    pages: Option<Arc<Registry>>,
    /// Segments of guest pages by their numbers.
    segments: Mutex<BTreeMap<u32, Segment>>,
}

impl SessionMemory {
    /// Nothing but the area of a channel. `pages`: the guest's, if this session may name them.
    pub(crate) fn new(
        session: u32,
        window: Arc<Window>,
        shares: Option<Arc<Shares>>,
        channel: u32,
        pages: Option<Arc<Registry>>,
    ) -> Self {
        Self {
            session,
            window,
            shares,
            area: u64::from(channel) * area::AREA_BYTES,
            owned: Mutex::default(),
            pages,
            segments: Mutex::default(),
        }
    }

    /// The window.
    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// Offset of the channel's area.
    pub(crate) const fn area(&self) -> u64 {
        self.area
    }

    /// Resolves a span of the window, or of guest pages, that the session owns at this moment.
    pub(crate) fn piece(&self, span: &Span) -> Result<Piece, Violation> {
        if span.reserved != 0 {
            return Err(Violation::Reserved);
        }
        if span.segment != SEGMENT_BAR {
            let segments = lock(&self.segments);
            let segment = segments.get(&span.segment).ok_or(Violation::Segment(span.segment))?;
            let foreign =
                Violation::PageSpan { segment: span.segment, offset: span.offset, bytes: span.bytes };
            let (run, offset) = segment.find(span.offset, span.bytes).ok_or(foreign)?;
            return Ok(Piece { pages: Some(Arc::clone(run)), offset, bytes: span.bytes });
        }
        let foreign = Violation::Span { offset: span.offset, bytes: span.bytes };
        let Some(end) = span.offset.checked_add(span.bytes) else { return Err(foreign) };
        let within = |start: u64, bytes: u64| span.offset >= start && end <= start + bytes;
        let piece = Piece { pages: None, offset: span.offset, bytes: span.bytes };
        if within(self.area, area::AREA_BYTES) {
            return Ok(piece);
        }
        let owned = lock(&self.owned);
        match owned.range(..=span.offset).next_back() {
            Some((&start, &bytes)) if within(start, bytes) => Ok(piece),
            _ => Err(foreign),
        }
    }

    /// The memory of a piece.
    pub(crate) fn slice<'a>(&'a self, piece: &'a Piece) -> SharedSlice<'a> {
        let memory = piece.pages.as_ref().map_or(&*self.window, |run| &run.memory);
        memory.slice(piece.offset, piece.bytes).expect("a piece lies within the memory that it was found in")
    }

    /// The range of shared memory that a piece lies in, as the session owns it now, and the piece's offset in
    /// it. `None`: the piece is of the window and was given back.
    pub(crate) fn grant(&self, piece: &Piece) -> Option<(Grant, u64)> {
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

    /// The channel's area.
    pub(crate) fn area_grant(&self) -> Grant {
        self.window_grant(self.area, area::AREA_BYTES)
    }

    /// A range of the window, whoever owns it.
    pub(crate) fn window_grant(&self, offset: u64, bytes: u64) -> Grant {
        Grant::window(Arc::clone(&self.window), offset, bytes)
    }

    /// `PagesRegister`: maps the runs as a segment. The status of the reply.
    pub(crate) fn register_pages(
        &self,
        number: u32,
        runs: impl Iterator<Item = PageRun>,
    ) -> Result<Result<(), Refused>, Violation> {
        let mut segments = lock(&self.segments);
        if number == SEGMENT_BAR || number == SEGMENT_INLINE {
            return Err(Violation::Segment(number));
        }
        if segments.contains_key(&number) {
            return Err(Violation::in_use("segment", number));
        }
        let Some(pages) = &self.pages else { return Ok(Err(Refused::Pages)) };
        Ok(pages.map_all(self.session, runs).map(|segment| drop(segments.insert(number, segment))))
    }

    /// Whether the session may name pages of the guest's.
    pub(crate) fn may_register(&self) -> bool {
        self.pages.is_some()
    }

    /// Bytes of guest pages that the session has registered.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.pages.as_ref().map_or(0, |pages| pages.bytes_of(self.session))
    }

    /// Window memory for the guest: offset and bytes, or nothing where there is no room.
    pub(crate) fn take_window(&self, bytes: u64) -> Option<(u64, u64)> {
        let (offset, bytes) = self.shares.as_ref()?.take(bytes)?;
        lock(&self.owned).insert(offset, bytes);
        Some((offset, bytes))
    }

    /// Lets the session's spans name window memory that is given out elsewhere: a mediator's own, or that of
    /// the device whose worker process this is.
    pub(crate) fn lend(&self, offset: u64, bytes: u64) {
        lock(&self.owned).insert(offset, bytes);
    }

    /// Ends what [`Self::lend`] allowed: from now on no span may name it.
    pub(crate) fn take_back(&self, offset: u64) {
        lock(&self.owned).remove(&offset);
    }

    /// Bytes of window memory that the session owns.
    pub(crate) fn window_bytes(&self) -> u64 {
        lock(&self.owned).values().sum()
    }

    /// Takes window memory from the session: from now on no span may name it. Its bytes, if the session owned
    /// it.
    pub(crate) fn disown_window(&self, offset: u64) -> Option<u64> {
        lock(&self.owned).remove(&offset)
    }

    /// Takes a segment from the session: from now on no span may name it.
    pub(crate) fn disown_pages(&self, number: u32) -> Option<Segment> {
        lock(&self.segments).remove(&number)
    }

    /// Gives disowned window memory to whoever asks next.
    pub(crate) fn give_back_window(&self, offset: u64, bytes: u64) {
        if let Some(shares) = &self.shares {
            shares.give_back(offset, bytes);
        }
    }

    /// Gives the pages of a disowned segment back to the guest.
    pub(crate) fn give_back_pages(&self, segment: &Segment) {
        if let Some(pages) = &self.pages {
            pages.forget(segment);
        }
    }

    /// Gives all pages back to the guest. Nothing of the session may be under way.
    pub(crate) fn release_pages(&self) {
        lock(&self.segments).clear();
        if let Some(pages) = &self.pages {
            pages.release(self.session);
        }
    }

    /// All the window memory of the session goes back.
    pub(crate) fn release_window(&self) {
        for (offset, bytes) in std::mem::take(&mut *lock(&self.owned)) {
            self.give_back_window(offset, bytes);
        }
    }

    /// The ranges of the window that the session owns: offset and bytes.
    pub(crate) fn window_ranges(&self) -> Vec<(u64, u64)> {
        lock(&self.owned).iter().map(|(&offset, &bytes)| (offset, bytes)).collect()
    }

    /// The numbers of the session's segments.
    pub(crate) fn segment_numbers(&self) -> Vec<u32> {
        lock(&self.segments).keys().copied().collect()
    }

    /// The runs of a segment, in the order of their offsets.
    pub(crate) fn runs(&self, number: u32) -> Vec<Arc<Run>> {
        lock(&self.segments).get(&number).map(|segment| segment.runs().cloned().collect()).unwrap_or_default()
    }

    /// Takes runs that were mapped for the session elsewhere as a segment.
    pub(crate) fn adopt_pages(&self, number: u32, segment: Segment) {
        lock(&self.segments).insert(number, segment);
    }
}
