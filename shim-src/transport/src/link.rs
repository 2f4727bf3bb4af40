//! The link between a session and its channel on the device, on which all other parts of a session are built.
//!
//! It owns the access to the device (registers, channel, window, lock), and it alone decides whether the
//! session still stands. A device counts as gone only on evidence: registers that read all ones, a changed
//! generation, a closed socket, a channel with another session's number. Silence is no evidence. The device
//! is examined at most every [`PING_EVERY_MS`], by a thread that sends, waits or polls. A process that does
//! none of these does not notice a lost device.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use vgpu_wire::area::{ERROR_ENDED, ERROR_STICKY};
use vgpu_wire::pci::PciAddress;
use vgpu_wire::registers::{self as reg, channel as regs};

use crate::areas::Areas;
use crate::channel::Channel;
use crate::counters::Live;
use crate::dead_processes;
use crate::fork::Home;
use crate::lock::{LockFile, Renewal};
use crate::log_hook::{Notice, notify};
use crate::mapping::Mapping;
use crate::pace::Pace;
use crate::registers::{RegisterError, Registers};
use crate::reply_slots::ReplySlots;
use crate::session_error::{GoneReason, SessionError, known};
use crate::sleep::{coarse_milliseconds, wake};
use crate::tracer::Tracer;

/// Minimum time between two examinations of the device by [`Link::ping`], in milliseconds.
const PING_EVERY_MS: u64 = 400;

/// Minimum time between two searches for dead processes by a process that waits, in milliseconds.
const DEAD_EVERY_MS: u64 = 1000;

/// [`Link::state`]: the session stands.
const OPEN: u32 = 0;
/// [`Link::state`]: the session is lost.
const OVER: u32 = 1;

/// An attached session's access to its channel. The fields of [`AttachedChannel`] are reached through it
/// (`Deref`).
pub(crate) struct Link {
    ends: AttachedChannel,
    home: Home,
    /// [`OPEN`] or [`OVER`]; the reason is in `lost`.
    state: AtomicU32,
    lost: OnceLock<SessionError>,
    /// Time of the last examination of the device, in milliseconds of the coarse clock.
    examined: AtomicU64,
    /// Time of the last search for dead processes, in milliseconds of the coarse clock.
    reaped: AtomicU64,
    pub(crate) reply_slots: ReplySlots,
    pub(crate) counters: Live,
    pub(crate) pace: Pace,
    pub(crate) tracer: Tracer,
}

/// The channel that an attach has taken, and the means to access it.
#[derive(Debug)]
pub(crate) struct AttachedChannel {
    /// Address of the PCI function.
    pub(crate) function: PciAddress,
    pub(crate) registers: Arc<dyn Registers>,
    pub(crate) window: Arc<Mapping>,
    /// Lock by which this process owns the channel while the value exists.
    pub(crate) lock: LockFile,
    pub(crate) channel: Channel,
    /// Areas of all channels, unless the device is behind a bridge.
    pub(crate) areas: Option<Areas>,
    /// Index of the channel, which this session has locked.
    pub(crate) index: u32,
    /// The device's generation at the time of the attach.
    pub(crate) generation: u32,
    /// Number of the session, as the channel's register holds it.
    pub(crate) number: u32,
}

impl Deref for Link {
    type Target = AttachedChannel;

    #[inline]
    fn deref(&self) -> &AttachedChannel {
        &self.ends
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("function", &self.function)
            .field("channel", &self.index)
            .field("number", &self.number)
            .field("lost", &self.lost.get())
            .finish_non_exhaustive()
    }
}

impl Link {
    /// Creates the link of a session that the process of `home` has attached.
    pub(crate) fn new(ends: AttachedChannel, home: Home, pace: Pace) -> Self {
        Self {
            ends,
            home,
            state: AtomicU32::new(OPEN),
            lost: OnceLock::new(),
            examined: AtomicU64::new(coarse_milliseconds()),
            reaped: AtomicU64::new(coarse_milliseconds()),
            reply_slots: ReplySlots::new(),
            counters: Live::new(),
            pace,
            tracer: Tracer::find(),
        }
    }

    /// Returns whether this process is a forked child of the one that attached.
    #[inline]
    pub(crate) fn in_forked_child(&self) -> bool {
        self.home.in_forked_child()
    }

    /// Returns why the session is lost, or `None` while it stands.
    pub(crate) fn lost(&self) -> Option<SessionError> {
        if self.in_forked_child() { Some(SessionError::Forked) } else { self.lost.get().copied() }
    }

    /// Checks that the session may be used, which costs two loads.
    #[inline]
    pub(crate) fn enter(&self) -> Result<(), SessionError> {
        if !self.home.in_forked_child() && self.state.load(Ordering::Acquire) == OPEN {
            Ok(())
        } else {
            Err(self.why())
        }
    }

    #[cold]
    fn why(&self) -> SessionError {
        self.lost().unwrap_or(SessionError::Closed)
    }

    /// Marks the session as lost, unless it already is, and returns the first reason.
    #[cold]
    pub(crate) fn lose(&self, lost: SessionError) -> SessionError {
        if self.home.in_forked_child() {
            return SessionError::Forked;
        }
        if self.lost.set(lost).is_ok() {
            self.state.store(OVER, Ordering::Release);
            self.reply_slots.wake_all();
            wake(self.channel.futex());
            if lost == (SessionError::Gone { reason: GoneReason::Channel }) {
                // A process that finds the lock free may end the session's remains.
                self.channel.clear_owner();
                // The channel's memory may belong to another session by now, but the program has pointers to
                // it. (The memory of a session that the host ended stays the session's until it detaches.) A
                // failure is ignored: it means that the process has no memory left.
                let _ = self.window.make_private();
            }
            if lost != SessionError::Closed {
                notify(&Notice::Lost { function: self.function, lost });
            }
        }
        self.lost.get().copied().unwrap_or(lost)
    }

    /// Marks the session as lost because the device is gone.
    pub(crate) fn gone(&self, reason: GoneReason) -> SessionError {
        self.lose(SessionError::Gone { reason })
    }

    /// Returns what a failed register access means for the session, and marks the session as lost if it is.
    pub(crate) fn lost_by(&self, error: &RegisterError) -> SessionError {
        match error {
            RegisterError::Forked => SessionError::Forked,
            RegisterError::Closed(_) | RegisterError::TimedOut => self.gone(GoneReason::Socket),
            RegisterError::Refused(_) => self.gone(GoneReason::Nonsense),
            RegisterError::Lost(lost) => self.lose(*lost),
        }
    }

    /// Checks whether the host has ended the session, which costs one load.
    #[inline]
    pub(crate) fn ended(&self) -> Result<(), SessionError> {
        if self.channel.error_flags() & ERROR_ENDED == 0 { Ok(()) } else { Err(self.learn_end()) }
    }

    /// Marks the session as ended by the host.
    #[cold]
    pub(crate) fn learn_end(&self) -> SessionError {
        let error = self.channel.error();
        self.lose(SessionError::Ended { code: known(error.code), message: error.message })
    }

    /// Checks for the events that end a wait for a mark: the end of the session, or a sticky error.
    pub(crate) fn broken(&self) -> Result<(), SessionError> {
        if self.channel.error_flags() & (ERROR_ENDED | ERROR_STICKY) == 0 {
            return Ok(());
        }
        self.ended()?;
        let error = self.channel.error();
        // If the session was lost meanwhile, the memory reads zeros.
        self.enter()?;
        Err(SessionError::Ended { code: known(error.code), message: error.message })
    }

    /// Examines the device, unless that has been done recently.
    #[inline]
    pub(crate) fn ping(&self) -> Result<(), SessionError> {
        let now = coarse_milliseconds();
        let examined = self.examined.load(Ordering::Relaxed);
        if now.wrapping_sub(examined) < PING_EVERY_MS { Ok(()) } else { self.ping_now(examined, now) }
    }

    #[cold]
    fn ping_now(&self, examined: u64, now: u64) -> Result<(), SessionError> {
        // Of several threads, one examines the device.
        if self.examined.compare_exchange(examined, now, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return Ok(());
        }
        self.examine()
    }

    /// Examines the device as [`Link::ping`] does, for a thread that waits, and now and then ends the
    /// sessions of dead processes, whose work may be what it waits for. It does not wait for their end.
    pub(crate) fn ping_waiting(&self) -> Result<(), SessionError> {
        self.ping()?;
        let (now, reaped) = (coarse_milliseconds(), self.reaped.load(Ordering::Relaxed));
        // Of several threads, one searches.
        let due = now.wrapping_sub(reaped) >= DEAD_EVERY_MS
            && self.reaped.compare_exchange(reaped, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !due {
            return Ok(());
        }
        let ended = dead_processes::end(self.registers.as_ref(), &self.lock, self.areas.as_ref());
        ended.map(drop).map_err(|error| self.lost_by(&error))
    }

    /// Examines the lock file and the device's registers.
    fn examine(&self) -> Result<(), SessionError> {
        self.enter()?;
        match self.lock.renew(self.index) {
            Ok(Renewal::Kept) => {}
            Ok(Renewal::Reopened) => notify(&Notice::Reopened { function: self.function }),
            Ok(Renewal::Lost) => return Err(self.gone(GoneReason::Channel)),
            // The file is removed with its device. If the device is alive, its registers answer below, and a
            // lock that cannot be taken again counts as lost.
            Err(_) => {
                self.examine_registers()?;
                return Err(self.gone(GoneReason::Channel));
            }
        }
        self.examine_registers()
    }

    fn examine_registers(&self) -> Result<(), SessionError> {
        let base = regs::base(self.index);
        let read = self.registers.read([reg::V2_GENERATION, base + regs::SESSION]);
        let [generation, session] = read.map_err(|error| self.lost_by(&error))?;
        if generation == reg::ALL_ONES {
            return Err(self.gone(GoneReason::AllOnes));
        }
        if generation != self.generation {
            return Err(self.gone(GoneReason::Generation));
        }
        // A session that the host ended states so in its return area. Its number may read 0 or not.
        self.ended()?;
        if session != self.number {
            return Err(self.gone(GoneReason::Channel));
        }
        Ok(())
    }

    /// Rings the doorbell if `still` returns true when the access can be made. Returns whether it was rung.
    pub(crate) fn ring_doorbell(&self, still: &dyn Fn() -> bool) -> Result<bool, SessionError> {
        let rung = self.registers.post(regs::base(self.index) + regs::DOORBELL, 1, still);
        let rung = rung.map_err(|error| self.lost_by(&error))?;
        if rung {
            Live::add(&self.counters.doorbells, 1);
        }
        Ok(rung)
    }
}
