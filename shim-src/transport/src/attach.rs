//! How a process gets a channel, and how it takes back those of dead processes.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use thiserror::Error;
use vgpu_wire::body::pages::PagesRegister;
use vgpu_wire::body::session::Hello;
use vgpu_wire::facts::{DeviceFacts, HelloReply};
use vgpu_wire::registers::{self as reg, Refusal, channel as regs};
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION};
use zerocopy::{FromZeros, IntoBytes};

use crate::channel::Channel;
use crate::counters::Live;
use crate::dead;
use crate::device::{Device, OpenError, wide};
use crate::fork::Home;
use crate::inner::{Inner, OPEN};
use crate::lost::{GoneReason, Lost};
use crate::pages::Kept;
use crate::reach::Reach;
use crate::reading::{self, Offer, Reading, Why};
use crate::registers::{Access, RegisterError};
use crate::replies::Replies;
use crate::ring::{Ring, Tail};
use crate::staging::{PAGES, Staging};
use crate::tracer::Tracer;
use crate::wait::{Pace, Usual, coarse_milliseconds};
use crate::words::Words;

/// Why a session cannot be opened.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The versions differ.
    #[error(
        "the device speaks wire version {}.{}, this program {}.{}",
        host >> 16, host & 0xffff, guest >> 16, guest & 0xffff
    )]
    Version {
        /// This program's.
        guest: u32,
        /// The device's.
        host: u32,
    },
    /// The versions agree, the message tables do not.
    #[error(
        "device and program are different builds of wire version {}.{}: message table {host:#018x} there, {guest:#018x} here",
        version >> 16, version & 0xffff
    )]
    Digest {
        /// Version of both.
        version: u32,
        /// This program's.
        guest: u64,
        /// The device's.
        host: u64,
    },
    /// Every channel belongs to a living process.
    #[error("all {channels} channels of the device are in use")]
    NoChannel {
        /// How many there are.
        channels: u32,
    },
    /// A file of the function that only a session needs cannot be opened or mapped.
    #[error("failed to open what a session needs")]
    Open(#[source] OpenError),
    /// The lock file cannot be locked.
    #[error("failed to lock a channel")]
    Lock(#[source] io::Error),
    /// The host refused.
    #[error("the host refused the session: {}", told(*.0))]
    Refused(Refusal),
    /// The host refused for a reason that this program does not know.
    #[error("the host refused the session for the unknown reason {0}")]
    RefusedStrangely(u32),
    /// The host did not answer the greeting with success.
    #[error("the host answered the greeting with error {0}")]
    Greeting(u32),
    /// What the device wrote at attach contradicts the contract.
    #[error("the device contradicts the contract: {0}")]
    Strange(&'static str),
    /// The session was lost while it was opened.
    #[error("failed to greet the host")]
    Lost(#[source] Lost),
    /// The registers stopped answering.
    #[error("failed to attach: the device is gone")]
    Gone,
}

const fn told(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Version => "its wire version is another one",
        Refusal::Digest => "its message table is another one",
        Refusal::NoRoom => "it has no room for one more",
        Refusal::ReturnArea => "it cannot reach the return area",
        Refusal::Violation => "this program broke the contract",
        Refusal::Executor => "its executor is not ready",
        Refusal::Busy => "the channel's last session is still ending",
    }
}

impl From<RegisterError> for AttachError {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::Forked => Self::Lost(Lost::Forked),
            RegisterError::Lost(lost) => Self::Lost(lost),
            RegisterError::Refused(_) => Self::Strange("it refused a register access"),
            RegisterError::Closed(_) | RegisterError::TimedOut => Self::Gone,
        }
    }
}

impl AttachError {
    /// What a session answers that attaches late and cannot.
    pub(crate) fn into_lost(self) -> Lost {
        match self {
            Self::Lost(lost) => lost,
            Self::Gone => Lost::Gone { reason: GoneReason::Socket },
            Self::NoChannel { .. } => Lost::NotAttached { reason: "all its channels are in use" },
            Self::Open(_) => Lost::NotAttached { reason: "its window cannot be opened" },
            Self::Lock(_) => Lost::NotAttached { reason: "no channel could be locked" },
            Self::Refused(refusal) => Lost::NotAttached { reason: told(refusal) },
            Self::Version { .. } | Self::Digest { .. } => {
                Lost::NotAttached { reason: told(Refusal::Version) }
            }
            Self::RefusedStrangely(_) => {
                Lost::NotAttached { reason: "the host refuses without a known reason" }
            }
            Self::Greeting(_) => Lost::NotAttached { reason: "the host did not return the greeting" },
            Self::Strange(reason) => Lost::NotAttached { reason },
        }
    }
}

/// How long an ending process waits for the device to say that it has detached, and to have freed what the
/// session held.
const DETACH_LIMIT: Duration = Duration::from_millis(200);
/// How long an attach that finds no room waits for sessions that are ending.
const ROOM_LIMIT: Duration = Duration::from_secs(10);
/// How long an allocation that finds no room does.
const MEMORY_LIMIT: Duration = Duration::from_secs(2);

/// Opens a session.
pub(crate) fn attach(device: Device) -> Result<(Arc<Inner>, DeviceFacts), AttachError> {
    compare(&device)?;
    let reach = device.reach().map_err(AttachError::Open)?;
    let (registers, lock) = (Arc::clone(&device.registers), &reach.lock);
    // All that takes time is done before the host's new thread begins to spin for the greeting.
    let parts = Parts::new(device.identity.wake_futex);
    let start = Instant::now();
    let mut refused = None;
    let mut again = true;
    loop {
        let attached = dead::attached(registers.as_ref())?;
        if let Some((index, begun)) = begin_free(&device, reach, attached, &mut refused)? {
            let others = attached & !(1 << index);
            let inner = Arc::new(build(device, index, begun, parts).ok_or(AttachError::Gone)?);
            return match greet(&inner, others) {
                Ok(facts) => Ok((inner, facts)),
                Err(error) => {
                    inner.close();
                    Err(error)
                }
            };
        }
        // Dead processes make room when their sessions have ended.
        let ending = dead::end(registers.as_ref(), lock)?;
        let left = ROOM_LIMIT.saturating_sub(start.elapsed());
        let freed = ending.wait_for_one(registers.as_ref(), lock, device.keeper.as_ref(), left)?;
        // Or those who raced us for channels have theirs.
        if !freed && !std::mem::take(&mut again) {
            return Err(refused.unwrap_or(AttachError::NoChannel { channels: device.areas.channels }));
        }
    }
}

/// Compares version and message table with the device's; that its executor is ready.
pub(crate) fn compare(device: &Device) -> Result<(), AttachError> {
    let (host, digest) = (device.identity.wire_version, device.identity.digest);
    if host != WIRE_VERSION {
        return Err(AttachError::Version { guest: WIRE_VERSION, host });
    }
    if digest != TABLE_DIGEST {
        return Err(AttachError::Digest { version: host, guest: TABLE_DIGEST, host: digest });
    }
    if !device.identity.executor_ready {
        return Err(AttachError::Refused(Refusal::Executor));
    }
    Ok(())
}

/// Starts a session on the first free channel that no other process has and that the host gives us; with its
/// index. `None`: there is none, or the host has no room, which `refused` says then.
fn begin_free(
    device: &Device,
    reach: &Reach,
    attached: u64,
    refused: &mut Option<AttachError>,
) -> Result<Option<(u32, Begun)>, AttachError> {
    let free = |channel: &u32| attached & (1 << channel) == 0;
    for channel in (0..device.areas.channels).filter(free) {
        if !reach.lock.try_lock(channel).map_err(AttachError::Lock)? {
            continue;
        }
        let error = match begin_best(device, reach, channel) {
            Ok(begun) => return Ok(Some((channel, begun))),
            Err(error) => error,
        };
        reach.lock.unlock(channel);
        match error {
            // Somebody who died meanwhile had the channel.
            AttachError::Refused(Refusal::Busy) => {}
            AttachError::Refused(Refusal::NoRoom) => {
                *refused = Some(error);
                return Ok(None);
            }
            error => return Err(error),
        }
    }
    Ok(None)
}

/// A session that has begun.
struct Begun {
    number: u32,
    channel: Channel,
    pages: Option<Kept>,
    reading: Reading,
}

/// Attaches to a channel that is locked, in the best way that there is.
fn begin_best(device: &Device, reach: &Reach, index: u32) -> Result<Begun, AttachError> {
    let base = device.areas.of(index);
    reach.map_area(base).map_err(AttachError::Open)?;
    let (offer, mut reading) = reading::choose(device, reach, index).map_err(AttachError::Open)?;
    let submit = || Arc::clone(&reach.window);
    if let Some(offer) = offer {
        match begin(device, index, Some(&offer)) {
            Ok(number) => {
                let channel = Channel::new(submit(), base, Arc::clone(&offer.kept.mapping), 0);
                return Ok(Begun { number, channel, pages: Some(offer.kept), reading });
            }
            Err(AttachError::Refused(Refusal::ReturnArea)) => {
                offer.kept.release();
                reading.why = Why::Refused;
                reading.page_bytes = 0;
            }
            Err(error) => {
                // Whether a session has begun is not known if nothing answered; then its pages stay what they
                // are. So they do where a session of a dead process has them.
                if matches!(error, AttachError::Version { .. } | AttachError::Digest { .. })
                    || matches!(error, AttachError::Refused(refusal) if refusal != Refusal::Busy)
                {
                    offer.kept.release();
                }
                return Err(error);
            }
        }
    }
    let (returns, back) = reach.returns(base).map_err(AttachError::Open)?;
    let number = begin(device, index, None)?;
    Ok(Begun { number, channel: Channel::new(submit(), base, returns, back), pages: None, reading })
}

/// Attaches to a channel that is locked; returns the session's number.
fn begin(device: &Device, index: u32, pages: Option<&Offer>) -> Result<u32, AttachError> {
    let address = pages.map_or(0, |offer| offer.kept.returns());
    let key = pages.map_or(0, |offer| offer.key);
    let probe = &device.identity;
    let at = |register| regs::base(index) + register;
    let accesses = [
        Access::Write(at(regs::GUEST_VERSION), WIRE_VERSION),
        Access::Write(at(regs::GUEST_DIGEST_LO), TABLE_DIGEST as u32),
        Access::Write(at(regs::GUEST_DIGEST_HI), (TABLE_DIGEST >> 32) as u32),
        Access::Write(at(regs::PROCESS), std::process::id()),
        Access::Write(at(regs::RETURN_GPA_LO), address as u32),
        Access::Write(at(regs::RETURN_GPA_HI), (address >> 32) as u32),
        Access::Write(at(regs::PAGES_KEY_LO), key as u32),
        Access::Write(at(regs::PAGES_KEY_HI), (key >> 32) as u32),
        Access::Write(at(regs::CONTROL), regs::ATTACH),
        Access::Read(reg::V2_GENERATION),
        Access::Read(at(regs::STATE)),
        Access::Read(at(regs::ERROR)),
        Access::Read(at(regs::SESSION)),
    ];
    let mut values = [0; 13];
    device.registers.access(&accesses, &mut values)?;
    let [.., generation, state, error, number] = values;
    if generation != probe.generation {
        return Err(AttachError::Gone);
    }
    // Another's session may be attached where ours was refused.
    if state != regs::STATE_ATTACHED || error != 0 {
        return Err(match Refusal::try_from(error) {
            Ok(Refusal::Version) => AttachError::Version { guest: WIRE_VERSION, host: probe.wire_version },
            Ok(Refusal::Digest) => {
                AttachError::Digest { version: WIRE_VERSION, guest: TABLE_DIGEST, host: probe.digest }
            }
            Ok(refusal) => AttachError::Refused(refusal),
            Err(unknown) => AttachError::RefusedStrangely(unknown),
        });
    }
    Ok(number)
}

/// What a session needs before it has a channel.
struct Parts {
    home: Home,
    words: Words,
    staging: Staging,
    pace: Pace,
}

impl Parts {
    fn new(futex: bool) -> Self {
        let words = Words::new();
        let staging = Staging::new(&words);
        Self { home: Home::get(), words, staging, pace: Pace::new(futex) }
    }
}

/// `None`: the device was not reached before.
fn build(device: Device, index: u32, begun: Begun, parts: Parts) -> Option<Inner> {
    let Device { function, registers, areas, identity, reach, bridge, keeper, .. } = device;
    let Reach { window, lock, .. } = reach.into_inner()?;
    let Begun { number, channel, pages, reading } = begun;
    Some(Inner {
        function,
        registers,
        window,
        lock,
        areas,
        index,
        channel,
        generation: identity.generation,
        number,
        window_bytes: AtomicU64::new(0),
        home: parts.home,
        state: AtomicU32::new(OPEN),
        lost: OnceLock::new(),
        asked: AtomicU64::new(coarse_milliseconds()),
        told: AtomicU64::new(0),
        ring: Mutex::new(Ring::default()),
        rung: AtomicU64::new(0),
        replies: Replies::new(),
        words: parts.words,
        staging: parts.staging,
        counters: Live::new(),
        pace: parts.pace,
        tracer: Tracer::find(),
        usual_room: Usual::new(),
        bridge,
        keeper,
        pages,
        registered: AtomicBool::new(false),
        reading,
        reads_well: OnceLock::new(),
    })
}

/// Greets; `others` are the channels that were attached before.
fn greet(inner: &Inner, others: u64) -> Result<DeviceFacts, AttachError> {
    if !inner.channel.is_clear() {
        return Err(AttachError::Strange("the return area of a new session is not empty"));
    }
    let hello = Hello { reply: 0, process: std::process::id(), reserved: 0 };
    let mut reply = HelloReply::new_zeroed();
    let answer = inner.call(hello, Tail::Pieces(&[]), reply.as_mut_bytes()).map_err(AttachError::Lost)?;
    if answer.status != 0 {
        return Err(AttachError::Greeting(answer.status));
    }
    if answer.bytes != size_of::<HelloReply>() {
        return Err(AttachError::Strange("its greeting has another length"));
    }
    if reply.session != inner.number || reply.generation != inner.generation {
        return Err(AttachError::Strange("its greeting is for another session"));
    }
    inner.window_bytes.store(reply.window_bytes.min(inner.window.bytes()), Ordering::Relaxed);
    // Texts end, whatever the device says.
    reply.facts.name[255] = 0;
    reply.facts.driver_text[79] = 0;
    inner.register_pages().map_err(AttachError::Lost)?;
    // Dead processes that we meet. That they could not be freed is not this session's trouble, unless the device is gone.
    if others != 0 || inner.keeper.is_some() {
        inner.end_dead().map_err(AttachError::Lost)?;
    }
    Ok(reply.facts)
}

/// Free device memory in bytes, by register, after dead processes' sessions were ended.
pub(crate) fn free_memory(device: &Device) -> Result<u64, Lost> {
    let gone = |error: RegisterError| AttachError::from(error).into_lost();
    let registers = device.registers.as_ref();
    let read = || registers.read([reg::V2_FREE_MIB, reg::V2_ATTACHED_LO, reg::V2_ATTACHED_HI]).map_err(gone);
    let mut values = read()?;
    if values[0] == reg::ALL_ONES {
        return Err(Lost::Gone { reason: GoneReason::AllOnes });
    }
    if wide(values[1], values[2]) != 0 {
        let Reach { lock, .. } = device.reach().map_err(|error| AttachError::Open(error).into_lost())?;
        // Who only looks waits once for a session that does not end.
        let ended = dead::end(registers, lock).map_err(gone)?.told();
        if ended.wait_for_all(registers, lock, device.keeper.as_ref(), DETACH_LIMIT).map_err(gone)? > 0 {
            values = read()?;
        }
    }
    Ok(u64::from(values[0]) << 20)
}

impl Inner {
    /// Ends the sessions of dead processes and waits until they have ended; returns how many have. One in the
    /// middle of work that cannot be interrupted is not among them.
    pub(crate) fn reclaim(&self) -> Result<u32, Lost> {
        self.enter()?;
        let registers = self.registers.as_ref();
        dead::end(registers, &self.lock)
            .and_then(|ending| ending.wait_for_all(registers, &self.lock, self.keeper.as_ref(), MEMORY_LIMIT))
            .map_err(|error| self.lost_by(&error))
    }

    /// Ends the sessions of dead processes and waits for none of them.
    fn end_dead(&self) -> Result<(), Lost> {
        let ended = dead::end(self.registers.as_ref(), &self.lock).and_then(|_| match &self.keeper {
            Some(keeper) => dead::sweep(self.registers.as_ref(), &self.lock, keeper, self.areas.channels),
            None => Ok(()),
        });
        ended.map_err(|error| self.lost_by(&error))
    }

    /// Makes what the return area leaves of the pages a segment. A host that does not want it has the return area there, and copies
    /// go through the window.
    fn register_pages(&self) -> Result<(), Lost> {
        let Some(pages) = &self.pages else { return Ok(()) };
        let runs = pages.rest();
        let body = PagesRegister { reply: 0, segment: PAGES, runs: runs.len() as u32, reserved: 0 };
        let answer = self.call(body, Tail::Pieces(&[runs.as_bytes()]), &mut [])?;
        self.registered.store(answer.status == 0, Ordering::Release);
        Ok(())
    }

    /// Ends the session. Whatever other threads do meanwhile, they do it to private memory.
    pub(crate) fn close(&self) {
        if self.home.left() {
            return;
        }
        // A session that the host ended still has its channel; one whose device is gone has none.
        let attached = match self.lost.get() {
            None | Some(Lost::Ended { .. }) => true,
            Some(Lost::Gone { reason }) => *reason == GoneReason::Nonsense,
            Some(_) => false,
        };
        self.lose(Lost::Closed);
        // Pages are this process's own until the host has let go of them.
        let polled = if self.pages.is_none() { self.channel.make_private() } else { Ok(()) };
        if self.window.make_private().and(polled).is_err() {
            // Threads could still write to memory that would be another process's. The kernel drops the lock when this one ends.
            return;
        }
        if attached {
            // If the device is slow it detaches all the same, and this session only, however late; if it
            // never answers, the next one to look finds the lock free.
            let end = Instant::now() + DETACH_LIMIT;
            let register = regs::base(self.index) + regs::DETACH_SESSION;
            let told = self.registers.write_within(register, self.number, DETACH_LIMIT);
            let free = told.is_ok() && dead::is_free_by(self.registers.as_ref(), self.index, end);
            if let (true, Some(pages)) = (free, &self.pages) {
                // A store to a BAR may be under way when it is over; what is read next comes after it. A host that has not let go has
                // the pages, and whoever is next on this channel.
                pages.release();
            }
        }
        self.lock.unlock(self.index);
    }
}
