//! A session as its executor accesses it. Replies, marks and late errors go to the guest through it, and
//! spans of messages are resolved to memory. It decides when a session stops and ends, and when the guest's
//! threads are woken.

mod holds;
mod pausing;
mod replies;
mod reservation;
mod retirement;
mod saved;
mod settled;

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rustix::thread::futex;
use vgpu_wire::registers::usage;
use vgpu_wire::{Mark, SEGMENT_INLINE, Span, area};

use crate::charges::charge::Charges;
use crate::memory::pages::{MappedRun, PageRegistry};
use crate::memory::window::{SharedSlice, Window};
use crate::memory::window_allocator::WindowAllocator;
use crate::session::gauges::{Counters, Gauges};
use crate::session::grant::Grant;
use crate::session::memory::{ResolvedSpan, SessionMemory};
use crate::session::register_page::RegisterPage;
use crate::session::remote::{SessionLoss, WorkerLink};
use crate::session::return_area::{FailureReason, LateError, ReturnArea};
use crate::session::settled::Settled;
use crate::session::violation::Violation;
use crate::sync::lock;

pub use retirement::RetiredMemory;

/// The guest process of a session, and how the device accesses it.
#[derive(Debug, Default)]
pub(crate) struct GuestProcess {
    /// Process id that the guest stated when it attached.
    pub(crate) process: u32,
    /// Whether the guest's threads run on this kernel, so that a futex wakes them.
    pub(crate) wakes: bool,
    /// Registry of the guest's pages, if this session may register any.
    pub(crate) pages: Option<Arc<PageRegistry>>,
    /// Return area, if that is in guest pages.
    pub(crate) returns: Option<Arc<MappedRun>>,
}

struct HostState {
    memory: SessionMemory,
    /// Return area, if that is in guest pages.
    returns: Option<Arc<MappedRun>>,
    channel: u32,
    session: u32,
    process: u32,
    epoch: Instant,
    stopping: Arc<AtomicBool>,
    /// Whether the device is paused, so that the session's thread must not wait within a message.
    pausing: AtomicBool,
    ended: AtomicBool,
    /// Whether the session's memory was freed.
    freed: AtomicBool,
    /// Lock that serializes the storing of errors. The value is true once a sticky error is stored.
    sticky: Mutex<bool>,
    charges: Arc<Charges>,
    gauges: Gauges,
    counters: Counters,
    published: Arc<RegisterPage>,
    /// Whether a futex wakes the guest's threads.
    wakes: bool,
    /// Link to the session's worker process, while it has one.
    remote: Mutex<Option<Arc<dyn WorkerLink>>>,
    /// Reason for which the session is lost, until its thread takes it. `is_lost` is set if there is one.
    loss: Mutex<Option<SessionLoss>>,
    is_lost: AtomicBool,
    /// Thread of the session, which is woken to end the session.
    thread: OnceLock<Thread>,
    settled: Settled,
}

/// Handle to a session's guest. Clones refer to the same session. Once the session has ended, replies, marks
/// and late errors have no effect.
#[derive(Clone)]
pub struct SessionHost(Arc<HostState>);

impl std::fmt::Debug for SessionHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionHost").field("session", &self.0.session).finish_non_exhaustive()
    }
}

impl SessionHost {
    pub(crate) fn new(
        window: Arc<Window>,
        allocator: Option<Arc<WindowAllocator>>,
        channel: u32,
        epoch: Instant,
        published: Arc<RegisterPage>,
        charges: Arc<Charges>,
        guest: GuestProcess,
    ) -> Self {
        let GuestProcess { process, wakes, pages, returns } = guest;
        let session = charges.session();
        Self(Arc::new(HostState {
            memory: SessionMemory::new(session, window, allocator, channel, pages),
            returns,
            channel,
            session,
            process,
            epoch,
            stopping: Arc::default(),
            pausing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            freed: AtomicBool::new(false),
            sticky: Mutex::new(false),
            charges,
            gauges: Gauges::default(),
            counters: Counters::default(),
            published,
            wakes,
            remote: Mutex::default(),
            loss: Mutex::default(),
            is_lost: AtomicBool::new(false),
            thread: OnceLock::new(),
            settled: Settled::default(),
        }))
    }

    /// Returns the session's number, which is unique while the device lives.
    #[must_use]
    pub fn session(&self) -> u32 {
        self.0.session
    }

    /// Returns the index of the channel.
    #[must_use]
    pub fn channel(&self) -> u32 {
        self.0.channel
    }

    /// Returns the process id that the guest stated when it attached.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.0.process
    }

    /// Returns whether the session is being ended. Long work polls this and stops.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.0.stopping.load(Ordering::Acquire)
    }

    /// Returns the flag that [`SessionHost::stopping`] reads, for engines that poll it themselves. They must
    /// not write to it.
    #[must_use]
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.stopping)
    }

    /// Returns the time on the device's clock in nanoseconds, as marks carry it.
    #[must_use]
    pub fn now(&self) -> u64 {
        u64::try_from(self.0.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the charges of the session, which know its limits.
    #[must_use]
    pub fn charges(&self) -> &Arc<Charges> {
        &self.0.charges
    }

    /// Writes a log line that the guest caused, unless the session's log budget is used up. `bytes` is the
    /// length of the part of the line that the guest chose.
    pub fn log(&self, bytes: usize, write: impl FnOnce()) {
        self.0.charges.log(bytes, write);
    }

    /// Returns the gauges of the session, for the status report.
    #[must_use]
    pub fn gauges(&self) -> &Gauges {
        &self.0.gauges
    }

    /// Publishes a change of the device memory in use, for everybody who reads the registers. A reply
    /// publishes it too.
    pub fn memory_changed(&self) {
        self.0.published.memory_changed();
        self.show_usage(usage::USAGE_MEMORY_KIB);
    }

    /// Records that the executor starts an operation, so that reports include its time before it has ended.
    /// [`SessionHost::worked`] records its end.
    pub fn start_work(&self) {
        self.0.gauges.start_work();
    }

    /// Adds to the time that the executor has worked for the session, which registers show. The executor
    /// defines what counts as work. Any thread may call this.
    pub fn worked(&self, time: Duration) {
        self.0.gauges.end_work(time);
        self.0.published.worked();
        self.show_busy();
    }

    /// Sets the time for which the session's worker process has worked. A total that is smaller than an
    /// earlier one is ignored.
    pub fn worked_in_worker(&self, total: Duration) {
        self.0.gauges.raise_busy(total);
        self.show_busy();
    }

    /// Publishes the time that the executor has worked.
    pub(crate) fn show_busy(&self) {
        if !self.ended() {
            self.show_usage(usage::USAGE_BUSY_HI);
            self.show_usage(usage::USAGE_BUSY_LO);
        }
    }

    /// Returns the value of one of the registers of [`usage`], by its offset in a channel's block, or 0 if
    /// there is none.
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

    /// Updates a register of [`usage`] on the register page.
    fn show_usage(&self, register: u32) {
        self.0.published.usage_changed(self.0.channel, register, || self.usage(register));
    }

    /// Stores a mark, because the work that it belongs to has completed. Marks of one word may arrive in any
    /// order and from several threads, and the word's value never decreases.
    pub fn signal(&self, mark: &Mark) {
        self.signal_at(mark, self.now());
    }

    /// Stores a mark of work that completed at `time` on the device's clock, in nanoseconds.
    pub fn signal_at(&self, mark: &Mark, time: u64) {
        self.store_at(mark, time);
        self.wake();
    }

    /// Stores a mark like [`SessionHost::signal_at`], but wakes nobody, as a GPU does.
    pub fn store_at(&self, mark: &Mark, time: u64) {
        if mark.word != 0 && mark.word < area::WORDS && !self.ended() {
            self.returns().store_mark(mark, time);
        }
    }

    /// Stores an error that no reply can carry. Once a sticky error is stored, later ones are dropped, except
    /// the one with which the session ends.
    pub fn fail(&self, error: LateError) {
        self.fail_because(error, &FailureReason::default());
    }

    /// Stores an error with its reason, which the guest shows to the user.
    pub fn fail_because(&self, error: LateError, why: &FailureReason<'_>) {
        if !self.ended() {
            if self.count_out_of_memory(error.code) {
                // No answer publishes the figures.
                self.memory_changed();
            }
            self.store_error(error, why, false);
        }
    }

    fn store_error(&self, error: LateError, why: &FailureReason<'_>, last: bool) {
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
    pub fn piece(&self, span: &Span) -> Result<ResolvedSpan, Violation> {
        self.0.memory.piece(span)
    }

    /// Returns the memory of a resolved span.
    #[must_use]
    pub fn slice<'a>(&'a self, piece: &'a ResolvedSpan) -> SharedSlice<'a> {
        self.0.memory.slice(piece)
    }

    /// Passes on the data of a message, which is in its tail or in the session's shared memory. `take` gets
    /// the number of bytes, and a function that copies them into a buffer of that size.
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

    /// Returns the whole range of shared memory that contains a resolved span, and the span's offset in it.
    /// Returns `None` if the session has freed the memory since the span was resolved.
    #[must_use]
    pub fn grant(&self, piece: &ResolvedSpan) -> Option<(Grant, u64)> {
        self.0.memory.grant(piece)
    }

    /// Returns the memory that holds the session's completion words, and the offset of the first word. Words
    /// are [`area::WORD_BYTES`] apart, and the value is at [`area::WORD_VALUE`] of each.
    #[must_use]
    pub fn words(&self) -> (Grant, u64) {
        match &self.0.returns {
            Some(run) => (Grant::pages(Arc::clone(run)), area::RETURN_WORDS),
            None => (self.0.memory.area_grant(), area::RETURN + area::RETURN_WORDS),
        }
    }

    /// Returns whether a completion word has reached a value.
    #[must_use]
    pub fn has_reached(&self, word: u32, value: u64) -> bool {
        word < area::WORDS && self.returns().mark_value(word) >= value
    }

    /// Returns whether the guest's threads sleep until they are woken. If something other than
    /// [`SessionHost::signal`] stores the words, such as a GPU, the caller must call `signal` as well.
    #[must_use]
    pub fn wakes(&self) -> bool {
        self.0.wakes
    }

    /// Returns the shared memory that the session owns.
    pub(crate) fn memory(&self) -> &SessionMemory {
        &self.0.memory
    }

    /// Frees and clears everything that the guest could write to. Nothing of the session may be in progress.
    pub(crate) fn release(&self) {
        self.0.freed.store(true, Ordering::Release);
        self.0.memory.release_window();
        self.0.memory.release_pages();
        let (window, base) = (self.window(), self.area());
        // The facts between these ranges are kept.
        window.zero(base, area::RETURN + area::RETURN_BYTES);
        window.zero(base + area::STAGING, area::STAGING_BYTES);
        window.zero(base + area::RING, area::RING_BYTES);
    }

    /// Returns how many published bytes of the ring the session's thread has not reported as read.
    pub(crate) fn unread(&self) -> u64 {
        let head = self.returns().u64_at(area::RETURN_HEAD).load(Ordering::Acquire);
        let tail =
            self.window().u64_at(self.area() + area::SUBMIT + area::SUBMIT_TAIL).load(Ordering::Acquire);
        tail.wrapping_sub(head)
    }

    /// Returns the counters of the session's messages, for the status report.
    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Returns the window.
    #[must_use]
    pub fn window(&self) -> &Window {
        self.0.memory.window()
    }

    /// Returns the offset of the channel's area.
    #[must_use]
    pub fn area(&self) -> u64 {
        self.0.memory.area()
    }

    /// Returns the guest pages that contain the return area, if any do.
    pub(crate) fn return_run(&self) -> Option<&MappedRun> {
        self.0.returns.as_deref()
    }

    /// Returns the return area.
    #[must_use]
    pub fn returns(&self) -> ReturnArea<'_> {
        match &self.0.returns {
            Some(run) => ReturnArea::new(&run.memory, 0),
            None => ReturnArea::new(self.window(), self.area() + area::RETURN),
        }
    }

    /// Tells the session to stop. Releases its holds, because its thread may be in a call of a driver that
    /// waits for a held stream.
    pub fn stop(&self) {
        self.0.stopping.store(true, Ordering::SeqCst);
        self.release_all_holds();
        if let Some(remote) = self.remote() {
            remote.stop();
        }
    }

    /// Sets the link to the session's worker process, or removes it. If the session was told to stop before,
    /// the worker is told now.
    pub fn set_worker(&self, remote: Option<Arc<dyn WorkerLink>>) {
        *lock(&self.0.remote) = remote;
        if self.stopping()
            && let Some(remote) = self.remote()
        {
            // The session may have been told to stop before there was a worker process.
            remote.stop();
        }
    }

    /// Returns the link to the worker process.
    pub(crate) fn remote(&self) -> Option<Arc<dyn WorkerLink>> {
        lock(&self.0.remote).clone()
    }

    /// Tells the session's thread to end the session because it is lost, and wakes the thread. The first loss
    /// counts.
    pub fn lose(&self, loss: SessionLoss) {
        lock(&self.0.loss).get_or_insert(loss);
        self.0.is_lost.store(true, Ordering::SeqCst);
        if let Some(thread) = self.0.thread.get() {
            thread.unpark();
        }
    }

    /// Takes the reason for which the session is lost, if it is lost and the reason was not taken.
    pub(crate) fn take_loss(&self) -> Option<SessionLoss> {
        lock(&self.0.loss).take()
    }

    /// Returns whether the session's thread is to end the session.
    pub(crate) fn interrupted(&self) -> bool {
        self.stopping() || self.0.is_lost.load(Ordering::Acquire)
    }

    /// Declares the calling thread to be the session's thread, which is woken when another thread ends the
    /// session.
    pub(crate) fn served_here(&self) {
        // There is only one such thread, so the value is not set yet.
        let _ = self.0.thread.set(std::thread::current());
    }

    /// Makes all later completions of the executor have no effect, because the area may soon belong to
    /// another session.
    pub fn end(&self) {
        self.0.ended.store(true, Ordering::SeqCst);
    }

    /// Stores the sticky error with which the session ends for the guest, in place of an earlier one. `code`
    /// is a `CUresult`, and `message` the number of the message that failed.
    pub(crate) fn end_with(&self, code: u32, message: u64) {
        self.store_error(LateError { code, sticky: true, message }, &FailureReason::default(), true);
    }

    fn ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    /// Wakes the guest's threads if any sleep. It is called after a store that they may wait for.
    pub fn wake(&self) {
        if !self.0.wakes {
            return;
        }
        // Pairs with the guest's fence between counting itself as a sleeper and its last check.
        fence(Ordering::SeqCst);
        let sleepers = self.window().u32_at(self.area() + area::SUBMIT + area::SUBMIT_SLEEPERS);
        if sleepers.load(Ordering::Relaxed) == 0 {
            return;
        }
        let word = self.returns().u32_at(area::RETURN_WAKE);
        word.fetch_add(1, Ordering::SeqCst);
        // Not a private futex, because the sleepers are in another process. A wake of a mapped word does not
        // fail.
        let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
    }
}
