//! What an executor's session can say to its guest: replies, marks, late errors; and how it reaches
//! the window memory that the session owns. Owns the host's half of a channel's area.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::thread::futex;
use vgpu_wire::body::pages::PageRun;
use vgpu_wire::{Mark, SEGMENT_BAR, SEGMENT_INLINE, Span, area};

use crate::SharedSlice;
use crate::charge::Charges;
use crate::pages::{Refused, Registry, Run, Segment};
use crate::published::Published;
use crate::shares::Shares;
use crate::tally::Tally;
use crate::violation::Violation;
use crate::window::Window;

/// An error that is found after the call that caused it has returned in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateError {
    /// A `CUresult`.
    pub code: u32,
    /// Every later call reports it.
    pub sticky: bool,
    /// Number of the message that caused it.
    pub message: u64,
}

/// Where a message is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    slot: u32,
    number: u64,
}

impl ReplyTo {
    pub(crate) const fn new(slot: u32, number: u64) -> Self {
        Self { slot, number }
    }
}

/// What a session holds in its executor, for the status report. The executor keeps it up to date.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Bytes of device memory.
    pub allocated: AtomicU64,
    /// Allocations of device memory.
    pub allocations: AtomicU32,
    /// Streams, the default one not counted.
    pub streams: AtomicU32,
    /// Events.
    pub events: AtomicU32,
    /// Modules.
    pub modules: AtomicU32,
}

impl Gauges {
    /// The session has ended: it holds nothing.
    pub(crate) fn clear(&self) {
        self.allocated.store(0, Ordering::Relaxed);
        for gauge in [&self.allocations, &self.streams, &self.events, &self.modules] {
            gauge.store(0, Ordering::Relaxed);
        }
    }
}

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

/// Shared memory that a guest has given back, or wants back. Dropping it gives window memory to whoever asks next, and pages to the
/// guest.
#[derive(Debug)]
pub struct Retired(Back);

#[derive(Debug)]
enum Back {
    Window { shares: Arc<Shares>, offset: u64, bytes: u64 },
    Pages { host: SessionHost, segment: Segment, to: ReplyTo },
}

impl Drop for Retired {
    fn drop(&mut self) {
        match &self.0 {
            Back::Window { shares, offset, bytes } => shares.give_back(*offset, *bytes),
            Back::Pages { host, segment, to } => {
                if let Some(pages) = &host.0.pages {
                    pages.forget(segment);
                }
                host.reply(*to, 0, &[]);
            }
        }
    }
}

/// Where a session's return area is. Fields are at the offsets of [`area`].
#[derive(Debug)]
pub(crate) struct Returns<'a> {
    memory: &'a Window,
    base: u64,
}

impl<'a> Returns<'a> {
    pub(crate) fn u64_at(&self, field: u64) -> &'a AtomicU64 {
        self.memory.u64_at(self.base + field)
    }

    pub(crate) fn u32_at(&self, field: u64) -> &'a AtomicU32 {
        self.memory.u32_at(self.base + field)
    }

    pub(crate) fn slice(&self, field: u64, bytes: u64) -> Option<SharedSlice<'a>> {
        self.memory.slice(self.base + field, bytes)
    }

    /// All of it reads zeros.
    pub(crate) fn clear(&self) {
        self.memory.zero(self.base, area::RETURN_BYTES);
    }
}

/// A session's counters, for the status report.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub messages: AtomicU64,
    pub done: AtomicU64,
    pub host_sleeps: AtomicU64,
    pub tally: Tally,
}

impl Counters {
    pub(crate) fn set(&self, messages: u64, done: u64) {
        self.messages.store(messages, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }
}

/// How a session's guest is reached.
#[derive(Debug, Default)]
pub(crate) struct Guest {
    /// Its process id, as it said when it attached.
    pub(crate) process: u32,
    /// A futex reaches its sleepers: they are processes of this kernel.
    pub(crate) wakes: bool,
    /// Its pages, if this session may name them.
    pub(crate) pages: Option<Arc<Registry>>,
    /// The return area, if it is in guest pages.
    pub(crate) returns: Option<Arc<Run>>,
}

struct Inner {
    window: Arc<Window>,
    shares: Arc<Shares>,
    /// Offset of the channel's area.
    area: u64,
    channel: u32,
    session: u32,
    process: u32,
    epoch: Instant,
    stopping: Arc<AtomicBool>,
    ended: AtomicBool,
    /// Window memory that the session was given: bytes by offset.
    owned: Mutex<BTreeMap<u64, u64>>,
    /// Serialises errors; true once a sticky one is stored.
    sticky: Mutex<bool>,
    charges: Arc<Charges>,
    gauges: Gauges,
    counters: Counters,
    published: Arc<Published>,
    /// As in [`Guest`].
    pages: Option<Arc<Registry>>,
    returns: Option<Arc<Run>>,
    segments: Mutex<BTreeMap<u32, Segment>>,
    wakes: bool,
}

/// A handle to a session's guest. Clones are of the same session; once it has ended they do nothing.
#[derive(Clone)]
pub struct SessionHost(Arc<Inner>);

impl std::fmt::Debug for SessionHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionHost").field("session", &self.0.session).finish_non_exhaustive()
    }
}

/// Locks a mutex whose data is whole even if a thread panicked while it held it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SessionHost {
    pub(crate) fn new(
        window: Arc<Window>,
        shares: Arc<Shares>,
        channel: u32,
        epoch: Instant,
        published: Arc<Published>,
        charges: Arc<Charges>,
        guest: Guest,
    ) -> Self {
        let Guest { process, wakes, pages, returns } = guest;
        Self(Arc::new(Inner {
            window,
            shares,
            area: u64::from(channel) * area::AREA_BYTES,
            wakes,
            channel,
            session: charges.session(),
            process,
            epoch,
            stopping: Arc::default(),
            ended: AtomicBool::new(false),
            owned: Mutex::default(),
            sticky: Mutex::new(false),
            charges,
            gauges: Gauges::default(),
            counters: Counters::default(),
            published,
            pages,
            returns,
            segments: Mutex::default(),
        }))
    }

    /// The session's number, unique while the device lives.
    #[must_use]
    pub fn session(&self) -> u32 {
        self.0.session
    }

    /// The index of the channel.
    #[must_use]
    pub fn channel(&self) -> u32 {
        self.0.channel
    }

    /// The guest's process id, as it said when it attached.
    pub(crate) fn process(&self) -> u32 {
        self.0.process
    }

    /// Whether the session is being ended: work that takes long stops when it sees this.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.0.stopping.load(Ordering::Acquire)
    }

    /// The flag behind [`SessionHost::stopping`], for engines that look at it themselves. Only to be read.
    #[must_use]
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.stopping)
    }

    /// Nanoseconds on the device's clock, as marks carry them.
    #[must_use]
    pub fn now(&self) -> u64 {
        u64::try_from(self.0.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The charges of the session, and its limits.
    #[must_use]
    pub fn charges(&self) -> &Arc<Charges> {
        &self.0.charges
    }

    /// Writes to the log because of what the guest did, unless it has made the host write too much. `bytes`:
    /// how long the guest's part of the line is.
    pub fn log(&self, bytes: usize, write: impl FnOnce()) {
        self.0.charges.log(bytes, write);
    }

    /// What the session holds, for the status report.
    #[must_use]
    pub fn gauges(&self) -> &Gauges {
        &self.0.gauges
    }

    /// The executor took or gave back device memory: who looks at the device sees it from now on. A reply says it by itself.
    pub fn memory_changed(&self) {
        self.0.published.memory_changed();
    }

    /// Answers a message: `status` is a `CUresult`, `data` at most [`area::REPLY_DATA_MAX`] bytes.
    pub fn reply(&self, to: ReplyTo, status: u32, data: &[u8]) {
        debug_assert!(data.len() as u64 <= area::REPLY_DATA_MAX, "a reply fits its slot");
        debug_assert!(to.slot < area::REPLIES, "slots are checked before an executor sees them");
        if self.ended() {
            return;
        }
        // First, for the guest may look as soon as it has the answer.
        self.memory_changed();
        let slot = area::RETURN_REPLIES + u64::from(to.slot) * area::REPLY_BYTES;
        let returns = self.returns();
        if let Some(room) = returns.slice(slot + area::REPLY_DATA, area::REPLY_DATA_MAX) {
            room.copy_from(data);
        }
        returns.u32_at(slot + area::REPLY_STATUS).store(status, Ordering::Relaxed);
        returns.u32_at(slot + area::REPLY_LEN).store(data.len() as u32, Ordering::Relaxed);
        returns.u64_at(slot + area::REPLY_TICKET).store(to.number, Ordering::Release);
        self.wake();
    }

    /// Answers a message that failed, with the reason as text: the guest shows it to who runs the program.
    pub fn refuse(&self, to: ReplyTo, status: u32, why: &str) {
        self.reply(to, status, area::reply_text(why));
    }

    /// Stores a mark: the work that it belongs to is done. Marks of one word may come in any order and
    /// from several threads; the word's value never decreases.
    pub fn signal(&self, mark: &Mark) {
        self.signal_at(mark, self.now());
    }

    /// The same, for work that was done at `time` on the device's clock.
    pub fn signal_at(&self, mark: &Mark, time: u64) {
        if mark.word == 0 || mark.word >= area::WORDS || self.ended() {
            return;
        }
        let word = area::RETURN_WORDS + u64::from(mark.word) * area::WORD_BYTES;
        let returns = self.returns();
        returns.u64_at(word + area::WORD_TIME).store(time, Ordering::Relaxed);
        returns.u64_at(word + area::WORD_VALUE).fetch_max(mark.value, Ordering::Release);
        self.wake();
    }

    /// Stores an error that no reply can carry. After a sticky one, others that are not are dropped.
    pub fn fail(&self, error: LateError) {
        if !self.ended() {
            self.store_error(error, false);
        }
    }

    fn store_error(&self, error: LateError, last: bool) {
        let mut sticky = lock(&self.0.sticky);
        if *sticky && !last {
            return;
        }
        *sticky |= error.sticky;
        let mut flags = if error.sticky { area::ERROR_STICKY } else { 0 };
        if last {
            flags |= area::ERROR_ENDED;
        }
        let returns = self.returns();
        returns.u32_at(area::RETURN_ERROR).store(error.code, Ordering::Relaxed);
        returns.u32_at(area::RETURN_ERROR_FLAGS).store(flags, Ordering::Relaxed);
        returns.u64_at(area::RETURN_ERROR_MESSAGE).store(error.message, Ordering::Release);
        drop(sticky);
        self.wake();
    }

    /// Resolves a span of the window, or of guest pages, that the session owns at this moment.
    pub fn piece(&self, span: &Span) -> Result<Piece, Violation> {
        if span.reserved != 0 {
            return Err(Violation::Reserved);
        }
        if span.segment != SEGMENT_BAR {
            let segments = lock(&self.0.segments);
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
        if within(self.0.area, area::AREA_BYTES) {
            return Ok(piece);
        }
        let owned = lock(&self.0.owned);
        match owned.range(..=span.offset).next_back() {
            Some((&start, &bytes)) if within(start, bytes) => Ok(piece),
            _ => Err(foreign),
        }
    }

    /// The memory of a piece.
    #[must_use]
    pub fn slice<'a>(&'a self, piece: &'a Piece) -> SharedSlice<'a> {
        let memory = piece.pages.as_ref().map_or(&*self.0.window, |run| &run.memory);
        memory.slice(piece.offset, piece.bytes).expect("a piece lies within the memory that it was found in")
    }

    /// `PagesRegister`: maps the runs as a segment. The status of the reply.
    pub(crate) fn register_pages(
        &self,
        number: u32,
        runs: impl Iterator<Item = PageRun>,
    ) -> Result<Result<(), Refused>, Violation> {
        let mut segments = lock(&self.0.segments);
        if number == SEGMENT_BAR || number == SEGMENT_INLINE {
            return Err(Violation::Segment(number));
        }
        if segments.contains_key(&number) {
            return Err(Violation::in_use("segment", number));
        }
        let Some(pages) = &self.0.pages else { return Ok(Err(Refused::Pages)) };
        Ok(pages.map_all(self.0.session, runs).map(|segment| drop(segments.insert(number, segment))))
    }

    /// `PagesUnregister`: from now on no span may name the segment; answered when nothing refers to it any more.
    pub(crate) fn retire_pages(&self, number: u32, to: ReplyTo) -> Result<Retired, Violation> {
        let segment = lock(&self.0.segments).remove(&number);
        let segment = segment.ok_or(Violation::unknown("segment", number))?;
        Ok(Retired(Back::Pages { host: self.clone(), segment, to }))
    }

    /// Whether the session may name pages of the guest's.
    pub(crate) fn may_register(&self) -> bool {
        self.0.pages.is_some()
    }

    /// Bytes of guest pages that the session has registered.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.0.pages.as_ref().map_or(0, |pages| pages.bytes_of(self.0.session))
    }

    /// Gives all pages back to the guest. Nothing of the session may be under way.
    pub(crate) fn release_pages(&self) {
        lock(&self.0.segments).clear();
        if let Some(pages) = &self.0.pages {
            pages.release(self.0.session);
        }
    }

    /// Window memory for the guest: offset and bytes, or nothing where there is no room.
    pub(crate) fn take_window(&self, bytes: u64) -> Option<(u64, u64)> {
        let (offset, bytes) = self.0.shares.take(bytes)?;
        lock(&self.0.owned).insert(offset, bytes);
        Some((offset, bytes))
    }

    /// Lets the session's spans name window memory that is not given out: a mediator's own.
    pub(crate) fn lend(&self, offset: u64, bytes: u64) {
        lock(&self.0.owned).insert(offset, bytes);
    }

    /// Ends what [`Self::lend`] allowed: from now on no span may name it.
    pub(crate) fn take_back(&self, offset: u64) {
        lock(&self.0.owned).remove(&offset);
    }

    /// Window memory that the guest gives back: from now on no span may name it.
    pub(crate) fn retire_window(&self, offset: u64) -> Result<Retired, Violation> {
        let bytes = lock(&self.0.owned).remove(&offset).ok_or(Violation::WindowFree(offset))?;
        Ok(Retired(Back::Window { shares: Arc::clone(&self.0.shares), offset, bytes }))
    }

    /// Gives back all that the guest could write to, and leaves nothing of it for others to see. Nothing of
    /// the session may be under way.
    pub(crate) fn release(&self) {
        self.release_window();
        self.release_pages();
        let (window, base) = (&self.0.window, self.0.area);
        // The facts, which lie between these, stay.
        window.zero(base, area::RETURN + area::RETURN_BYTES);
        window.zero(base + area::STAGING, area::STAGING_BYTES);
        window.zero(base + area::RING, area::RING_BYTES);
    }

    /// All the window memory of the session goes back.
    fn release_window(&self) {
        for (offset, bytes) in std::mem::take(&mut *lock(&self.0.owned)) {
            self.0.shares.give_back(offset, bytes);
        }
    }

    pub(crate) fn window_bytes(&self) -> u64 {
        lock(&self.0.owned).values().sum()
    }

    /// Bytes that the guest has published in its ring and the session's thread has not reported read.
    pub(crate) fn unread(&self) -> u64 {
        let window = &self.0.window;
        let head = self.returns().u64_at(area::RETURN_HEAD).load(Ordering::Acquire);
        let tail = window.u64_at(self.0.area + area::SUBMIT + area::SUBMIT_TAIL).load(Ordering::Acquire);
        tail.wrapping_sub(head)
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    pub(crate) fn window(&self) -> &Window {
        &self.0.window
    }

    /// Offset of the channel's area.
    pub(crate) fn area(&self) -> u64 {
        self.0.area
    }

    /// The return area.
    pub(crate) fn returns(&self) -> Returns<'_> {
        match &self.0.returns {
            Some(run) => Returns { memory: &run.memory, base: 0 },
            None => Returns { memory: &self.0.window, base: self.0.area + area::RETURN },
        }
    }

    /// Asks the session to stop.
    pub(crate) fn stop(&self) {
        self.0.stopping.store(true, Ordering::SeqCst);
    }

    /// From here on an executor's completions do nothing: the area may soon be another's.
    pub(crate) fn end(&self) {
        self.0.ended.store(true, Ordering::SeqCst);
    }

    /// Tells the guest that its session is over.
    pub(crate) fn end_with(&self, code: u32, message: u64) {
        self.store_error(LateError { code, sticky: true, message }, true);
    }

    fn ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    /// Wakes the guest's threads if any sleep. Called after a store that they may wait for.
    pub(crate) fn wake(&self) {
        if !self.0.wakes {
            return;
        }
        // Pairs with the guest's fence between counting itself as a sleeper and looking once more.
        fence(Ordering::SeqCst);
        let window = &self.0.window;
        let sleepers = window.u32_at(self.0.area + area::SUBMIT + area::SUBMIT_SLEEPERS);
        if sleepers.load(Ordering::Relaxed) == 0 {
            return;
        }
        let word = self.returns().u32_at(area::RETURN_WAKE);
        word.fetch_add(1, Ordering::SeqCst);
        // Not private: the sleepers are in another process. Nothing can be done about a failure, and
        // there is none for a mapped word.
        let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
    }
}
