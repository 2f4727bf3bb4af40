//! A channel: its registers, the session that is attached, if any, and every change of its state. What a
//! session needs to start is in `attach.rs`, what it does in `worker.rs`.
//!
//! Two parties change the state: whoever serves registers ([`Channel::open`], [`Channel::refuse`],
//! [`Channel::end`]) and the session's own thread ([`Channel::fail`], [`Channel::free`]). Each change is made
//! under [`Channel::control`], which nobody holds while an executor works or a session is dropped, so a
//! register access waits for neither.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Instant;

use vgpu_wire::registers::{Refusal, channel};

use crate::session::host::SessionHost;
use crate::session::published::Published;
use crate::sync::lock;

/// One channel. Registers are atomics: reading them never waits for an attach or a detach.
#[derive(Debug)]
pub(crate) struct Channel {
    index: u32,
    state: AtomicU32,
    error: AtomicU32,
    session: AtomicU32,
    /// Written by the guest before attach, by register.
    pub(crate) guest_version: AtomicU32,
    pub(crate) guest_digest_lo: AtomicU32,
    pub(crate) guest_digest_hi: AtomicU32,
    pub(crate) guest_process: AtomicU32,
    pub(crate) return_gpa_lo: AtomicU32,
    pub(crate) return_gpa_hi: AtomicU32,
    pub(crate) pages_key_lo: AtomicU32,
    pub(crate) pages_key_hi: AtomicU32,
    /// Doorbells that the guest rang since the session started, and before that.
    doorbells: AtomicU64,
    earlier_doorbells: AtomicU64,
    /// The window's file has storage for the area.
    reserved: AtomicBool,
    /// The page that shows which channels are not free.
    published: Arc<Published>,
    control: Mutex<()>,
    /// Notified when the channel becomes free.
    freed: Condvar,
    /// The session, until the channel is free. Locked for moments only, as is `sleeper`.
    running: Mutex<Option<SessionHost>>,
    /// The session's thread, which the doorbell wakes.
    sleeper: Mutex<Option<Thread>>,
}

/// The right to change a channel's state.
pub(crate) type Control<'a> = MutexGuard<'a, ()>;

/// Two registers as one number.
fn wide(low: &AtomicU32, high: &AtomicU32) -> u64 {
    let half = |register: &AtomicU32| u64::from(register.load(Ordering::Relaxed));
    half(high) << 32 | half(low)
}

/// Two registers as one number. Both read zero from here on.
fn take(low: &AtomicU32, high: &AtomicU32) -> u64 {
    let half = |register: &AtomicU32| u64::from(register.swap(0, Ordering::Relaxed));
    half(high) << 32 | half(low)
}

impl Channel {
    pub(crate) fn new(index: u32, published: Arc<Published>) -> Self {
        Self {
            index,
            state: AtomicU32::new(channel::STATE_FREE),
            error: AtomicU32::new(0),
            session: AtomicU32::new(0),
            guest_version: AtomicU32::new(0),
            guest_digest_lo: AtomicU32::new(0),
            guest_digest_hi: AtomicU32::new(0),
            guest_process: AtomicU32::new(0),
            return_gpa_lo: AtomicU32::new(0),
            return_gpa_hi: AtomicU32::new(0),
            pages_key_lo: AtomicU32::new(0),
            pages_key_hi: AtomicU32::new(0),
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

    /// Waits until nobody else changes the state. Held for the whole of an attach.
    pub(crate) fn control(&self) -> Control<'_> {
        lock(&self.control)
    }

    /// Has `reserve` get storage for the area unless it has; whether there is some. Under
    /// [`Channel::control`].
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

    /// The guest's process id, as it said.
    pub(crate) fn process(&self) -> u32 {
        self.guest_process.load(Ordering::Relaxed)
    }

    /// The digest of the guest's table, as it said.
    pub(crate) fn guest_digest(&self) -> u64 {
        wide(&self.guest_digest_lo, &self.guest_digest_hi)
    }

    /// Takes what the guest said of its pages for this attach: where in them its return area is to be (0: in
    /// the window), and their key. They are for one attach only: the next process on the channel must not
    /// inherit the key.
    pub(crate) fn take_pages(&self) -> (u64, u64) {
        let key = take(&self.pages_key_lo, &self.pages_key_hi);
        (take(&self.return_gpa_lo, &self.return_gpa_hi), key)
    }

    /// Sets the state. The caller has stored before what the new state promises to the guest.
    fn set(&self, _control: &Control<'_>, state: u32) {
        self.state.store(state, Ordering::Release);
        self.published.channel_changed(self.index, state != channel::STATE_FREE);
    }

    /// From free to attached, with the session `host`. Its thread is started after this.
    pub(crate) fn open(&self, control: &Control<'_>, host: SessionHost) {
        self.session.store(host.session(), Ordering::Relaxed);
        self.error.store(0, Ordering::Relaxed);
        let before = self.doorbells.swap(0, Ordering::Relaxed);
        self.earlier_doorbells.fetch_add(before, Ordering::Relaxed);
        self.published.usage_of(self.index, |register| host.usage(register));
        *lock(&self.running) = Some(host);
        self.set(control, channel::STATE_ATTACHED);
    }

    /// Has the doorbell wake `thread` from now on.
    pub(crate) fn sleeps_in(&self, _control: &Control<'_>, thread: Thread) {
        *lock(&self.sleeper) = Some(thread);
    }

    /// Shows why an attach is refused. The state stays what it is.
    pub(crate) fn refuse(&self, _control: &Control<'_>, why: Refusal) {
        self.error.store(why as u32, Ordering::Release);
    }

    /// From attached to failed, by the session's own thread. False: the session was told to end meanwhile.
    pub(crate) fn fail(&self, why: Refusal) -> bool {
        let control = self.control();
        if self.state() != channel::STATE_ATTACHED {
            return false;
        }
        self.error.store(why as u32, Ordering::Relaxed);
        self.set(&control, channel::STATE_FAILED);
        true
    }

    /// From attached or failed to ending: the session's thread ends the session and frees the channel. Does
    /// nothing in other states.
    pub(crate) fn end(&self, control: &Control<'_>) {
        if !matches!(self.state(), channel::STATE_ATTACHED | channel::STATE_FAILED) {
            return;
        }
        self.set(control, channel::STATE_ENDING);
        if let Some(host) = &*lock(&self.running) {
            host.stop();
        }
        self.ring();
    }

    /// To free. Nothing of the session is left: its own thread has ended it, or could not be started.
    pub(crate) fn free(&self, control: &Control<'_>) {
        *lock(&self.sleeper) = None;
        *lock(&self.running) = None;
        self.published.usage_of(self.index, |_| 0);
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

    /// Forgets what the guest wrote for its attach.
    pub(crate) fn forget_guest(&self) {
        for register in [
            &self.guest_version,
            &self.guest_digest_lo,
            &self.guest_digest_hi,
            &self.guest_process,
            &self.return_gpa_lo,
            &self.return_gpa_hi,
            &self.pages_key_lo,
            &self.pages_key_hi,
        ] {
            register.store(0, Ordering::Relaxed);
        }
    }

    /// Runs `look` on the session, if the channel has one.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&SessionHost) -> T) -> Option<T> {
        let host = lock(&self.running).clone();
        host.as_ref().map(look)
    }

    /// The guest's doorbell.
    pub(crate) fn doorbell(&self) {
        self.doorbells.fetch_add(1, Ordering::Relaxed);
        self.ring();
    }

    /// Doorbells that the guest rang since the session started.
    pub(crate) fn doorbells(&self) -> u64 {
        self.doorbells.load(Ordering::Relaxed)
    }

    /// Doorbells that guests rang since the device started.
    pub(crate) fn all_doorbells(&self) -> u64 {
        self.earlier_doorbells.load(Ordering::Relaxed) + self.doorbells()
    }

    /// Makes the session's thread look at its ring.
    pub(crate) fn ring(&self) {
        if let Some(thread) = lock(&self.sleeper).as_ref() {
            thread.unpark();
        }
    }
}
