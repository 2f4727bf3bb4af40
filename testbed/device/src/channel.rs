//! A channel: its registers, and the session that is attached, if any. Attach and detach are in
//! `device.rs`, which has what a session needs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};

use vgpu_wire::registers::{Refusal, channel};

use crate::host::{SessionHost, lock};

/// A session and its thread.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) host: SessionHost,
    pub(crate) thread: JoinHandle<()>,
}

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
    /// How often the guest rang, since the session began, and before.
    doorbells: AtomicU64,
    earlier_doorbells: AtomicU64,
    /// The window's file has storage for the area.
    reserved: AtomicBool,
    /// Held for the whole of an attach or a detach.
    pub(crate) control: Mutex<()>,
    /// Held for moments only.
    running: Mutex<Option<Running>>,
    /// Whom the doorbell wakes; a lock of its own, held for moments only.
    sleeper: Mutex<Option<Thread>>,
}

/// Two registers as one number.
fn wide(low: &AtomicU32, high: &AtomicU32) -> u64 {
    let half = |register: &AtomicU32| u64::from(register.load(Ordering::Relaxed));
    half(high) << 32 | half(low)
}

impl Channel {
    pub(crate) fn new(index: u32) -> Self {
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
            control: Mutex::new(()),
            running: Mutex::new(None),
            sleeper: Mutex::new(None),
        }
    }

    pub(crate) const fn index(&self) -> u32 {
        self.index
    }

    /// Has `reserve` get storage for the area unless it has; whether there is some. Under [`Channel::control`].
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

    /// Where in its own pages the guest wants its return area; 0: in the window.
    pub(crate) fn return_address(&self) -> u64 {
        wide(&self.return_gpa_lo, &self.return_gpa_hi)
    }

    /// The key of the device's pages, as the guest said.
    pub(crate) fn pages_key(&self) -> u64 {
        wide(&self.pages_key_lo, &self.pages_key_hi)
    }

    /// A session is open. Everything of it is in place before its state is readable.
    pub(crate) fn open(&self, running: Running) {
        self.session.store(running.host.session(), Ordering::Relaxed);
        let before = self.doorbells.swap(0, Ordering::Relaxed);
        self.earlier_doorbells.fetch_add(before, Ordering::Relaxed);
        // A thread that failed at once has said so already; that must stay.
        let _ = self.state.compare_exchange(
            channel::STATE_FREE,
            channel::STATE_ATTACHED,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        *lock(&self.sleeper) = Some(running.thread.thread().clone());
        *lock(&self.running) = Some(running);
    }

    /// The session's own thread has ended it.
    pub(crate) fn fail(&self, why: Refusal) {
        self.error.store(why as u32, Ordering::Relaxed);
        self.state.store(channel::STATE_FAILED, Ordering::Release);
    }

    /// No session is open; `why` none was.
    pub(crate) fn free(&self, why: Option<Refusal>) {
        self.session.store(0, Ordering::Relaxed);
        self.error.store(why.map_or(0, |why| why as u32), Ordering::Relaxed);
        self.state.store(channel::STATE_FREE, Ordering::Release);
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

    /// Takes the session out, to end it.
    pub(crate) fn take(&self) -> Option<Running> {
        *lock(&self.sleeper) = None;
        lock(&self.running).take()
    }

    /// Runs `look` on the session, if one is attached.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&SessionHost) -> T) -> Option<T> {
        let host = lock(&self.running).as_ref().map(|running| running.host.clone());
        host.as_ref().map(look)
    }

    /// The guest's doorbell.
    pub(crate) fn doorbell(&self) {
        self.doorbells.fetch_add(1, Ordering::Relaxed);
        self.ring();
    }

    /// How often the guest rang, since the session began.
    pub(crate) fn doorbells(&self) -> u64 {
        self.doorbells.load(Ordering::Relaxed)
    }

    /// How often guests rang, since the device began.
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
