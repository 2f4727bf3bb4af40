//! What the parts of a session share: everything behind [`crate::Session`].

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::channel::Channel;
use crate::counters::Live;
use crate::device::Areas;
use crate::fork::Home;
use crate::lock::LockFile;
use crate::lost::Lost;
use crate::mapping::Mapping;
use crate::pages::{Keeper, Kept};
use crate::reading::Reading;
use crate::registers::Registers;
use crate::replies::Replies;
use crate::ring::Ring;
use crate::staging::Staging;
use crate::sysfs::PciFunction;
use crate::tracer::Tracer;
use crate::v1::Bridge;
use crate::wait::{Pace, Usual};
use crate::words::Words;

/// A session. Public types hold it by `Arc`; none of its parts does.
pub(crate) struct Inner {
    pub(crate) function: PciFunction,
    pub(crate) registers: Arc<dyn Registers>,
    pub(crate) window: Arc<Mapping>,
    pub(crate) lock: LockFile,
    pub(crate) areas: Areas,
    /// Index of the channel, whose lock this session has.
    pub(crate) index: u32,
    pub(crate) channel: Channel,
    pub(crate) generation: u32,
    /// The session's number, as the channel's register has it.
    pub(crate) number: u32,
    /// Window memory that there is for all sessions, bytes; known after the greeting.
    pub(crate) window_bytes: AtomicU64,

    pub(crate) home: Home,
    /// [`OPEN`] or not; why not is in `lost`.
    pub(crate) state: AtomicU32,
    pub(crate) lost: OnceLock<Lost>,
    /// Milliseconds of the coarse clock when the device was last asked whether it lives.
    pub(crate) asked: AtomicU64,
    /// Number of the late error that was handed out last.
    pub(crate) told: AtomicU64,

    pub(crate) ring: Mutex<Ring>,
    /// What was published of the ring when the doorbell was last rung.
    pub(crate) rung: AtomicU64,
    pub(crate) replies: Replies,
    pub(crate) words: Words,
    pub(crate) staging: Staging,
    pub(crate) counters: Live,
    pub(crate) pace: Pace,
    pub(crate) tracer: Tracer,
    /// How long the ring is usually full.
    pub(crate) usual_room: Usual,
    /// Of a device of version 1.
    pub(crate) bridge: Option<Arc<Bridge>>,
    pub(crate) keeper: Option<Keeper>,
    /// Guest pages in which the return area is.
    pub(crate) pages: Option<Kept>,
    /// The rest of them is a segment of the session.
    pub(crate) registered: AtomicBool,
    pub(crate) reading: Reading,
    /// Whether window memory is for programs to read; looked at when it is first asked for.
    pub(crate) reads_well: OnceLock<bool>,
}

/// [`Inner::state`]: the session stands.
pub(crate) const OPEN: u32 = 0;
/// [`Inner::state`]: it does not.
pub(crate) const OVER: u32 = 1;

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("function", &self.function.address)
            .field("channel", &self.index)
            .field("number", &self.number)
            .field("lost", &self.lost.get())
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Whether the session may be used: two loads.
    #[inline]
    pub(crate) fn enter(&self) -> Result<(), Lost> {
        if !self.home.left() && self.state.load(Ordering::Acquire) == OPEN { Ok(()) } else { Err(self.why()) }
    }

    #[cold]
    fn why(&self) -> Lost {
        if self.home.left() { Lost::Forked } else { self.lost.get().copied().unwrap_or(Lost::Closed) }
    }
}

/// Locks a mutex. Nothing panics while one is held, and what they protect is whole at every step.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
