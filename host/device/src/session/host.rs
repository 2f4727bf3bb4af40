//! A session as its executor reaches it: replies, marks and late errors go to the guest through it, and spans
//! of messages become memory. Owns when a session stops and ends, and when the guest's threads are woken.

mod retired;

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rustix::thread::futex;
use vgpu_wire::registers::usage;
use vgpu_wire::{Mark, SEGMENT_INLINE, Span, area};

use crate::charges::charge::Charges;
use crate::memory::pages::{Registry, Run};
use crate::memory::shares::Shares;
use crate::memory::window::{SharedSlice, Window};
use crate::session::gauges::{Counters, Gauges};
use crate::session::grant::Grant;
use crate::session::memory::{Piece, SessionMemory};
use crate::session::published::Published;
use crate::session::releases::Releases;
use crate::session::remote::{Loss, Remote};
use crate::session::return_area::{LateError, ReplyTo, ReturnArea, Why};
use crate::session::violation::Violation;
use crate::sync::lock;

pub use retired::Retired;

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
    memory: SessionMemory,
    /// The return area, if it is in guest pages.
    returns: Option<Arc<Run>>,
    channel: u32,
    session: u32,
    process: u32,
    epoch: Instant,
    stopping: Arc<AtomicBool>,
    ended: AtomicBool,
    /// Serialises errors; true once a sticky one is stored.
    sticky: Mutex<bool>,
    charges: Arc<Charges>,
    gauges: Gauges,
    counters: Counters,
    published: Arc<Published>,
    /// As in [`Guest`].
    wakes: bool,
    releases: Releases,
    /// The session's worker process, while it has one.
    remote: Mutex<Option<Arc<dyn Remote>>>,
    /// Why the session is lost, until its thread takes it; the flag says that there is something.
    loss: Mutex<Option<Loss>>,
    is_lost: AtomicBool,
    /// The session's thread.
    thread: OnceLock<Thread>,
}

/// A handle to a session's guest. Clones are of the same session; once it has ended they do nothing.
#[derive(Clone)]
pub struct SessionHost(Arc<Inner>);

impl std::fmt::Debug for SessionHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionHost").field("session", &self.0.session).finish_non_exhaustive()
    }
}

impl SessionHost {
    pub(crate) fn new(
        window: Arc<Window>,
        shares: Option<Arc<Shares>>,
        channel: u32,
        epoch: Instant,
        published: Arc<Published>,
        charges: Arc<Charges>,
        guest: Guest,
    ) -> Self {
        let Guest { process, wakes, pages, returns } = guest;
        let session = charges.session();
        Self(Arc::new(Inner {
            memory: SessionMemory::new(session, window, shares, channel, pages),
            returns,
            channel,
            session,
            process,
            epoch,
            stopping: Arc::default(),
            ended: AtomicBool::new(false),
            sticky: Mutex::new(false),
            charges,
            gauges: Gauges::default(),
            counters: Counters::default(),
            published,
            wakes,
            releases: Releases::default(),
            remote: Mutex::default(),
            loss: Mutex::default(),
            is_lost: AtomicBool::new(false),
            thread: OnceLock::new(),
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
    #[must_use]
    pub fn process(&self) -> u32 {
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

    /// The executor took or gave back device memory: who looks at the device sees it from now on. A reply
    /// says it by itself.
    pub fn memory_changed(&self) {
        self.0.published.memory_changed();
        self.show_usage(usage::USAGE_MEMORY_KIB);
    }

    /// Adds to the time that the executor has worked for the session, which is shown to whoever looks at the
    /// device. What counts as work is the executor's to say. From any thread.
    pub fn worked(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.gauges.busy_ns.fetch_add(time, Ordering::Relaxed);
        self.0.published.worked();
        self.show_busy();
    }

    /// The session's worker process has worked for it for `total` so far. A total that is smaller than an
    /// earlier one is ignored.
    pub fn worked_elsewhere(&self, total: Duration) {
        self.0.gauges.raise_busy(total);
        self.show_busy();
    }

    fn show_busy(&self) {
        if !self.ended() {
            self.show_usage(usage::USAGE_BUSY_HI);
            self.show_usage(usage::USAGE_BUSY_LO);
        }
    }

    /// What the session uses: the value of one of the registers of [`usage`], by its offset from a channel's
    /// base.
    pub(crate) fn usage(&self, register: u32) -> u32 {
        let gauges = &self.0.gauges;
        match register {
            usage::USAGE_PROCESS => self.process(),
            usage::USAGE_MEMORY_KIB => {
                let kib = gauges.allocated.load(Ordering::Relaxed).div_ceil(1024);
                u32::try_from(kib).unwrap_or(u32::MAX)
            }
            usage::USAGE_BUSY_LO => gauges.busy_us() as u32,
            usage::USAGE_BUSY_HI => (gauges.busy_us() >> 32) as u32,
            _ => 0,
        }
    }

    /// Brings a register of [`usage`] on the page up to date.
    fn show_usage(&self, register: u32) {
        self.0.published.usage_changed(self.0.channel, register, || self.usage(register));
    }

    /// Answers a message: `status` is a `CUresult`, `data` at most [`area::REPLY_DATA_MAX`] bytes.
    pub fn reply(&self, to: ReplyTo, status: u32, data: &[u8]) {
        debug_assert!(data.len() as u64 <= area::REPLY_DATA_MAX, "a reply fits its slot");
        debug_assert!(to.slot < area::REPLIES, "slots are checked before an executor sees them");
        if self.ended() {
            return;
        }
        // First, for the guest may look as soon as it has the answer.
        self.0.published.answered(to.number);
        self.returns().store_reply(to, status, data);
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
        self.returns().store_mark(mark, time);
        self.wake();
    }

    /// Stores an error that no reply can carry. After a sticky one, others that are not are dropped.
    pub fn fail(&self, error: LateError) {
        self.fail_because(error, &Why::default());
    }

    /// The same with the reason, which the guest shows to who runs the program.
    pub fn fail_because(&self, error: LateError, why: &Why<'_>) {
        if !self.ended() {
            self.store_error(error, why, false);
        }
    }

    fn store_error(&self, error: LateError, why: &Why<'_>, last: bool) {
        let mut sticky = lock(&self.0.sticky);
        if *sticky && !last {
            return;
        }
        *sticky |= error.sticky;
        let returns = self.returns();
        if !why.reason.is_empty() {
            returns.store_why(error.message, why);
        }
        returns.store_error(error, last);
        drop(sticky);
        self.wake();
    }

    /// Resolves a span of the window, or of guest pages, that the session owns at this moment.
    pub fn piece(&self, span: &Span) -> Result<Piece, Violation> {
        self.0.memory.piece(span)
    }

    /// The memory of a piece.
    #[must_use]
    pub fn slice<'a>(&'a self, piece: &'a Piece) -> SharedSlice<'a> {
        self.0.memory.slice(piece)
    }

    /// Takes the data that a message brings, in its tail or in the session's shared memory. `take` gets how
    /// many bytes there are, and what copies them to where there is room for as many.
    pub fn take_data(
        &self,
        span: &Span,
        tail: &[u8],
        take: impl FnOnce(u64, &mut dyn FnMut(&mut [u8])) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        if span.segment == SEGMENT_INLINE {
            return take(tail.len() as u64, &mut |room| room.copy_from_slice(tail));
        }
        let piece = self.piece(span)?;
        take(piece.bytes(), &mut |room| {
            self.slice(&piece).copy_to(room);
        })
    }

    /// The whole range of shared memory that a piece lies in, as the session owns it now, and the piece's
    /// offset in it. `None`: the piece was given back since it was resolved.
    #[must_use]
    pub fn grant(&self, piece: &Piece) -> Option<(Grant, u64)> {
        self.0.memory.grant(piece)
    }

    /// The memory that holds the session's completion words, and where in it the first word is. Words are
    /// [`area::WORD_BYTES`] apart; the value is at [`area::WORD_VALUE`] of each.
    #[must_use]
    pub fn words(&self) -> (Grant, u64) {
        match &self.0.returns {
            Some(run) => (Grant::pages(Arc::clone(run)), area::RETURN_WORDS),
            None => (self.0.memory.area_grant(), area::RETURN + area::RETURN_WORDS),
        }
    }

    /// Whether a completion word has reached a value.
    #[must_use]
    pub fn has_reached(&self, word: u32, value: u64) -> bool {
        word < area::WORDS && self.returns().mark_value(word) >= value
    }

    /// Whether the guest sleeps until it is woken. Who stores its words without [`SessionHost::signal`], as a
    /// GPU does, must see to it that somebody calls that as well.
    #[must_use]
    pub fn wakes(&self) -> bool {
        self.0.wakes
    }

    /// Releases of the session's holds.
    #[must_use]
    pub fn releases(&self) -> &Releases {
        &self.0.releases
    }

    /// The shared memory that the session owns.
    pub(crate) fn memory(&self) -> &SessionMemory {
        &self.0.memory
    }

    /// Gives back all that the guest could write to, and leaves nothing of it for others to see. Nothing of
    /// the session may be under way.
    pub(crate) fn release(&self) {
        self.0.memory.release_window();
        self.0.memory.release_pages();
        let (window, base) = (self.window(), self.area());
        // The facts, which lie between these, stay.
        window.zero(base, area::RETURN + area::RETURN_BYTES);
        window.zero(base + area::STAGING, area::STAGING_BYTES);
        window.zero(base + area::RING, area::RING_BYTES);
    }

    /// Bytes that the guest has published in its ring and the session's thread has not reported read.
    pub(crate) fn unread(&self) -> u64 {
        let head = self.returns().u64_at(area::RETURN_HEAD).load(Ordering::Acquire);
        let tail =
            self.window().u64_at(self.area() + area::SUBMIT + area::SUBMIT_TAIL).load(Ordering::Acquire);
        tail.wrapping_sub(head)
    }

    /// What the session has been sent, for the status report.
    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// The window.
    #[must_use]
    pub fn window(&self) -> &Window {
        self.0.memory.window()
    }

    /// Offset of the channel's area.
    #[must_use]
    pub fn area(&self) -> u64 {
        self.0.memory.area()
    }

    /// The guest pages that the return area is in, if it is.
    pub(crate) fn return_run(&self) -> Option<&Run> {
        self.0.returns.as_deref()
    }

    /// The return area.
    #[must_use]
    pub fn returns(&self) -> ReturnArea<'_> {
        match &self.0.returns {
            Some(run) => ReturnArea::new(&run.memory, 0),
            None => ReturnArea::new(self.window(), self.area() + area::RETURN),
        }
    }

    /// Asks the session to stop.
    pub fn stop(&self) {
        self.0.stopping.store(true, Ordering::SeqCst);
        if let Some(remote) = self.remote() {
            remote.stop();
        }
    }

    /// The session lives in another process from now on, or does no longer.
    pub fn lives_in(&self, remote: Option<Arc<dyn Remote>>) {
        *lock(&self.0.remote) = remote;
        if self.stopping()
            && let Some(remote) = self.remote()
        {
            // It may have been told before there was anybody to tell.
            remote.stop();
        }
    }

    /// The other process that the session lives in.
    pub(crate) fn remote(&self) -> Option<Arc<dyn Remote>> {
        lock(&self.0.remote).clone()
    }

    /// The session is over: its thread ends it, wherever it waits. The first reason counts.
    pub fn lose(&self, loss: Loss) {
        lock(&self.0.loss).get_or_insert(loss);
        self.0.is_lost.store(true, Ordering::SeqCst);
        if let Some(thread) = self.0.thread.get() {
            thread.unpark();
        }
    }

    /// Why the session is lost, once.
    pub(crate) fn take_loss(&self) -> Option<Loss> {
        lock(&self.0.loss).take()
    }

    /// Whether the session's thread is to end the session.
    pub(crate) fn interrupted(&self) -> bool {
        self.stopping() || self.0.is_lost.load(Ordering::Acquire)
    }

    /// The calling thread is the session's: what ends the session wakes it.
    pub(crate) fn served_here(&self) {
        // There is one such thread, so nothing is there yet.
        let _ = self.0.thread.set(std::thread::current());
    }

    /// From here on an executor's completions do nothing: the area may soon be another's.
    pub fn end(&self) {
        self.0.ended.store(true, Ordering::SeqCst);
    }

    /// Tells the guest that its session is over.
    pub(crate) fn end_with(&self, code: u32, message: u64) {
        self.store_error(LateError { code, sticky: true, message }, &Why::default(), true);
    }

    fn ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    /// Wakes the guest's threads if any sleep. Called after a store that they may wait for.
    pub fn wake(&self) {
        if !self.0.wakes {
            return;
        }
        // Pairs with the guest's fence between counting itself as a sleeper and looking once more.
        fence(Ordering::SeqCst);
        let sleepers = self.window().u32_at(self.area() + area::SUBMIT + area::SUBMIT_SLEEPERS);
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
