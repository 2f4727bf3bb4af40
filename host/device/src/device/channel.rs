//! A channel: its registers, the session that is attached, if any, and every change of its state. The start
//! of a session is in `attach.rs`, and its thread in `session_thread.rs`.
//!
//! Two parties change the state: the thread that serves registers ([`Channel::open`], [`Channel::refuse`],
//! [`Channel::end`]) and the session's own thread ([`Channel::fail`], [`Channel::free`]). Each change is made
//! under [`Channel::control`], which nobody holds while an executor works or a session is dropped, so a
//! register access waits for neither.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Instant;

use vgpu_wire::registers::{Refusal, channel};

use crate::saved::state::ChannelState;
use crate::session::host::SessionHost;
use crate::session::register_page::RegisterPage;
use crate::sync::lock;

/// State of one channel. Registers are atomics, so reading them never waits for an attach or a detach.
#[derive(Debug)]
pub(crate) struct Channel {
    index: u32,
    state: AtomicU32,
    error: AtomicU32,
    session: AtomicU32,
    /// Values of the registers that [`WRITTEN`] names.
    written: [AtomicU32; WRITTEN.len()],
    /// Number of doorbells during the current session and, in the next field, before it.
    doorbells: AtomicU64,
    earlier_doorbells: AtomicU64,
    /// Whether the window's file has storage for the area.
    reserved: AtomicBool,
    /// Register page that shows which channels are free.
    published: Arc<RegisterPage>,
    control: Mutex<()>,
    /// Condition that is notified when the channel becomes free.
    freed: Condvar,
    /// The session, present until the channel is free. This lock and that of `sleeper` are only held for
    /// moments.
    running: Mutex<Option<SessionHost>>,
    /// The session's thread, which a doorbell wakes.
    sleeper: Mutex<Option<Thread>>,
}

/// Lock that gives the right to change a channel's state.
pub(crate) type ChannelControl<'a> = MutexGuard<'a, ()>;

/// Registers that keep what a guest writes for its attach, by their offsets in the channel's block.
const WRITTEN: [u32; 8] = [
    channel::GUEST_VERSION,
    channel::GUEST_DIGEST_LO,
    channel::GUEST_DIGEST_HI,
    channel::PROCESS,
    channel::RETURN_GPA_LO,
    channel::RETURN_GPA_HI,
    channel::PAGES_KEY_LO,
    channel::PAGES_KEY_HI,
];

fn load(register: &AtomicU32) -> u32 {
    register.load(Ordering::Relaxed)
}

/// Reads a register and sets it to 0.
fn clear(register: &AtomicU32) -> u32 {
    register.swap(0, Ordering::Relaxed)
}

impl Channel {
    pub(crate) fn new(index: u32, published: Arc<RegisterPage>) -> Self {
        Self {
            index,
            state: AtomicU32::new(channel::STATE_FREE),
            error: AtomicU32::new(0),
            session: AtomicU32::new(0),
            written: Default::default(),
            doorbells: AtomicU64::new(0),
            earlier_doorbells: AtomicU64::new(0),
            reserved: AtomicBool::new(false),
            published,
            control: Mutex::new(()),
            freed: Condvar::new(),
            running: Mutex::new(None),
            sleeper: Mutex::new(None),
        }
    }

    pub(crate) const fn index(&self) -> u32 {
        self.index
    }

    /// Locks the state against changes by other threads. An attach holds the lock from start to end.
    pub(crate) fn control(&self) -> ChannelControl<'_> {
        lock(&self.control)
    }

    /// Calls `reserve` to allocate storage for the area unless the area has some. Returns whether it has. The
    /// caller holds [`Channel::control`].
    pub(crate) fn reserve(&self, reserve: impl FnOnce() -> bool) -> bool {
        let done = self.reserved.load(Ordering::Relaxed) || reserve();
        self.reserved.store(done, Ordering::Relaxed);
        done
    }

    pub(crate) fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    pub(crate) fn error(&self) -> u32 {
        self.error.load(Ordering::Acquire)
    }

    pub(crate) fn session(&self) -> u32 {
        self.session.load(Ordering::Acquire)
    }

    /// Returns the register that keeps what a guest writes at offset `register` of the channel's block.
    pub(crate) fn written(&self, register: u32) -> Option<&AtomicU32> {
        WRITTEN.iter().position(|&written| written == register).map(|index| &self.written[index])
    }

    /// Returns two of these registers as one 64-bit number. `load` reads one register.
    fn wide(&self, low: u32, high: u32, load: fn(&AtomicU32) -> u32) -> u64 {
        let half = |register| u64::from(self.written(register).map_or(0, load));
        half(high) << 32 | half(low)
    }

    /// Returns the guest's process id, as it stated it.
    pub(crate) fn process(&self) -> u32 {
        self.written(channel::PROCESS).map_or(0, load)
    }

    /// Returns the guest's version of the contract, as it stated it.
    pub(crate) fn guest_version(&self) -> u32 {
        self.written(channel::GUEST_VERSION).map_or(0, load)
    }

    /// Returns the digest of the guest's table, as it stated it.
    pub(crate) fn guest_digest(&self) -> u64 {
        self.wide(channel::GUEST_DIGEST_LO, channel::GUEST_DIGEST_HI, load)
    }

    /// Takes the values that the guest stated about its pages for this attach: the guest-physical address of
    /// its return area, which is 0 if that is in the window, and the key of its pages. They are valid for one
    /// attach only, because the next process on the channel must not inherit the key.
    pub(crate) fn take_pages(&self) -> (u64, u64) {
        let key = self.wide(channel::PAGES_KEY_LO, channel::PAGES_KEY_HI, clear);
        (self.wide(channel::RETURN_GPA_LO, channel::RETURN_GPA_HI, clear), key)
    }

    /// Sets the state. The caller has stored everything that the new state announces to the guest.
    fn set(&self, _control: &ChannelControl<'_>, state: u32) {
        self.state.store(state, Ordering::Release);
        self.published.channel_changed(self.index, state != channel::STATE_FREE);
    }

    /// Changes the state from free to attached, with the session `host`. The caller starts the session's
    /// thread afterwards.
    pub(crate) fn open(&self, control: &ChannelControl<'_>, host: SessionHost) {
        self.session.store(host.session(), Ordering::Relaxed);
        self.error.store(0, Ordering::Relaxed);
        let before = self.doorbells.swap(0, Ordering::Relaxed);
        self.earlier_doorbells.fetch_add(before, Ordering::Relaxed);
        self.published.publish_usage(self.index, |register| host.usage(register));
        *lock(&self.running) = Some(host);
        self.set(control, channel::STATE_ATTACHED);
    }

    /// Returns the registers as saved state. The caller adds the session.
    pub(crate) fn save(&self) -> ChannelState {
        ChannelState {
            written: self.written.each_ref().map(load),
            doorbells: self.doorbells(),
            earlier_doorbells: self.earlier_doorbells.load(Ordering::Relaxed),
            reserved: self.reserved.load(Ordering::Relaxed),
            error: self.error(),
            session: None,
        }
    }

    /// Takes over the registers of a saved channel, and its session if it has one. The caller starts the
    /// session's thread afterwards.
    pub(crate) fn restore(
        &self,
        control: &ChannelControl<'_>,
        state: &ChannelState,
        session: Option<SessionHost>,
    ) {
        for (register, value) in self.written.iter().zip(state.written) {
            register.store(value, Ordering::Relaxed);
        }
        self.earlier_doorbells.store(state.earlier_doorbells, Ordering::Relaxed);
        self.reserved.store(state.reserved, Ordering::Relaxed);
        if let Some(host) = session {
            self.open(control, host);
        }
        self.doorbells.store(state.doorbells, Ordering::Relaxed);
        self.error.store(state.error, Ordering::Relaxed);
    }

    /// Changes the state of a restored session from attached to failed.
    pub(crate) fn restore_failed(&self, control: &ChannelControl<'_>, error: u32) {
        self.error.store(error, Ordering::Relaxed);
        self.set(control, channel::STATE_FAILED);
    }

    /// Sets the thread that doorbells wake.
    pub(crate) fn sleeps_in(&self, _control: &ChannelControl<'_>, thread: Thread) {
        *lock(&self.sleeper) = Some(thread);
    }

    /// Shows the reason for which an attach is refused. The state does not change.
    pub(crate) fn refuse(&self, _control: &ChannelControl<'_>, why: Refusal) {
        self.error.store(why as u32, Ordering::Release);
    }

    /// Changes the state from attached to failed, on the session's own thread. Returns false if the session
    /// was told to end meanwhile.
    pub(crate) fn fail(&self, why: Refusal) -> bool {
        let control = self.control();
        if self.state() != channel::STATE_ATTACHED {
            return false;
        }
        self.error.store(why as u32, Ordering::Relaxed);
        self.set(&control, channel::STATE_FAILED);
        true
    }

    /// Changes the state from attached or failed to ending. The session's thread then ends the session and
    /// frees the channel. Does nothing in other states.
    pub(crate) fn end(&self, control: &ChannelControl<'_>) {
        if !matches!(self.state(), channel::STATE_ATTACHED | channel::STATE_FAILED) {
            return;
        }
        self.set(control, channel::STATE_ENDING);
        if let Some(host) = &*lock(&self.running) {
            host.stop();
        }
        self.ring();
    }

    /// Changes the state to free. The session's own thread has ended the session, or could not be started.
    pub(crate) fn free(&self, control: &ChannelControl<'_>) {
        *lock(&self.sleeper) = None;
        *lock(&self.running) = None;
        self.published.publish_usage(self.index, |_| 0);
        self.session.store(0, Ordering::Relaxed);
        self.error.store(0, Ordering::Relaxed);
        self.set(control, channel::STATE_FREE);
        self.freed.notify_all();
    }

    /// Waits until the channel is free, but not beyond `deadline`. Returns whether it is.
    pub(crate) fn wait_until_free(&self, deadline: Instant) -> bool {
        let mut control = self.control();
        while self.state() != channel::STATE_FREE {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            control = self.freed.wait_timeout(control, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Clears the registers that a guest writes before it attaches.
    pub(crate) fn forget_guest(&self) {
        for register in &self.written {
            register.store(0, Ordering::Relaxed);
        }
    }

    /// Calls `act` with the session, if the channel has one.
    pub(crate) fn with_session<T>(&self, act: impl FnOnce(&SessionHost) -> T) -> Option<T> {
        let host = lock(&self.running).clone();
        host.as_ref().map(act)
    }

    /// Handles a doorbell of the guest.
    pub(crate) fn doorbell(&self) {
        self.doorbells.fetch_add(1, Ordering::Relaxed);
        self.ring();
    }

    /// Returns the number of doorbells since the session started.
    pub(crate) fn doorbells(&self) -> u64 {
        self.doorbells.load(Ordering::Relaxed)
    }

    /// Returns the number of doorbells since the device started.
    pub(crate) fn all_doorbells(&self) -> u64 {
        self.earlier_doorbells.load(Ordering::Relaxed) + self.doorbells()
    }

    /// Wakes the session's thread, which then polls its ring.
    pub(crate) fn ring(&self) {
        if let Some(thread) = lock(&self.sleeper).as_ref() {
            thread.unpark();
        }
    }
}
