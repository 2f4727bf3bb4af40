//! Attach: a process takes a channel, starts a session on it, and greets the host.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use vgpu_wire::body::session::Hello;
use vgpu_wire::facts::{DeviceFacts, HelloReply};
use vgpu_wire::registers::{self as reg, Refusal, channel as regs};
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION};
use zerocopy::{FromZeros, IntoBytes};

use crate::addresses;
use crate::attach_error::AttachError;
use crate::bar_mappings::BarMappings;
use crate::channel::Channel;
use crate::dead_processes;
use crate::detach::{DETACH_LIMIT, detach};
use crate::device::Device;
use crate::fences::Fences;
use crate::fork::Home;
use crate::guest_pages::GuestPages;
use crate::late_errors::LateErrors;
use crate::link::{AttachedChannel, Link};
use crate::messenger::Messenger;
use crate::outgoing::Tail;
use crate::owner::Owner;
use crate::pace::Pace;
use crate::pages::HugePages;
use crate::reclaim::Reclaimer;
use crate::registers::{Access, RegisterError, wide};
use crate::return_path::{self, Offer, ReturnPath, Why};
use crate::session_core::SessionCore;
use crate::session_error::{GoneReason, SessionError};
use crate::staging::Staging;
use crate::window_alloc::WindowAllocator;

/// How long an attach that finds no room waits for sessions that are ending.
const ROOM_LIMIT: Duration = Duration::from_secs(10);

/// Attaches to the device. Returns the session and the device's facts.
pub(crate) fn attach(device: Device) -> Result<(Arc<SessionCore>, DeviceFacts), AttachError> {
    compare(&device)?;
    let mappings = device.mappings().map_err(AttachError::Open)?;
    let (registers, lock) = (Arc::clone(&device.registers), &mappings.lock);
    // All slow preparations precede the attach, because the host's new thread spins until the greeting comes.
    let parts = Parts::new(device.identity.wake_futex);
    let start = Instant::now();
    let mut refused = None;
    let mut again = true;
    loop {
        let attached = dead_processes::attached(registers.as_ref())?;
        if let Some((index, begun)) = begin_free(&device, mappings, attached, &mut refused)? {
            let others = attached & !(1 << index);
            let core = Arc::new(build(device, index, begun, parts).ok_or(AttachError::Gone)?);
            return match greet(&core, others != 0) {
                Ok(facts) => Ok((core, facts)),
                Err(error) => {
                    detach(&core);
                    Err(error)
                }
            };
        }
        // A dead process frees a channel when its session has ended.
        let ending = dead_processes::end(registers.as_ref(), lock, device.areas_of_owners())?;
        let left = ROOM_LIMIT.saturating_sub(start.elapsed());
        let freed = ending.wait_for_one(registers.as_ref(), lock, device.pool.as_ref(), left)?;
        // The processes that competed with this one for channels may have theirs by now, so a second try may
        // succeed.
        if !freed && !std::mem::take(&mut again) {
            return Err(refused.unwrap_or(AttachError::NoChannel { channels: device.areas.channels }));
        }
    }
}

/// Checks that the device has this program's version and message table, and that its executor is ready.
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

/// Starts a session on the first free channel that no other process has locked and that the host gives to
/// this one. Returns it with the channel's index, or `None` if there is no such channel or the host has no
/// room, in which case `refused` holds the refusal.
fn begin_free(
    device: &Device,
    mappings: &BarMappings,
    attached: u64,
    refused: &mut Option<AttachError>,
) -> Result<Option<(u32, Begun)>, AttachError> {
    let free = |channel: &u32| attached & (1 << channel) == 0;
    for channel in (0..device.areas.channels).filter(free) {
        if !mappings.lock.try_lock(channel).map_err(AttachError::Lock)? {
            continue;
        }
        let error = match begin_best(device, mappings, channel) {
            Ok(begun) => return Ok(Some((channel, begun))),
            Err(error) => error,
        };
        mappings.lock.unlock(channel);
        match error {
            // The channel belonged to a process that died meanwhile.
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

/// A session that the host has started, before its parts are built.
struct Begun {
    number: u32,
    channel: Channel,
    pages: Option<HugePages>,
    return_path: ReturnPath,
}

/// Attaches to a channel that this process has locked, with the fastest return path available.
fn begin_best(device: &Device, mappings: &BarMappings, index: u32) -> Result<Begun, AttachError> {
    let base = device.areas.offset_of(index);
    mappings.map_area(base).map_err(AttachError::Open)?;
    let (offer, mut path) = return_path::choose(device, mappings, index).map_err(AttachError::Open)?;
    let submit = || Arc::clone(&mappings.window);
    if let Some(offer) = offer {
        match begin(device, index, Some(&offer)) {
            Ok(number) => {
                let channel = Channel::new(submit(), base, Arc::clone(&offer.kept.mapping), 0);
                return Ok(Begun { number, channel, pages: Some(offer.kept), return_path: path });
            }
            Err(AttachError::Refused(Refusal::ReturnArea)) => {
                offer.kept.release();
                path.why = Why::Refused;
                path.page_bytes = 0;
            }
            Err(error) => {
                // If the device did not answer, it may have started a session that writes to the pages. If
                // the channel is busy, a dead process's session may write to them. In both cases they are
                // kept.
                if matches!(error, AttachError::Version { .. } | AttachError::Digest { .. })
                    || matches!(error, AttachError::Refused(refusal) if refusal != Refusal::Busy)
                {
                    offer.kept.release();
                }
                return Err(error);
            }
        }
    }
    let (returns, back) = mappings.returns(base).map_err(AttachError::Open)?;
    let number = begin(device, index, None)?;
    Ok(Begun { number, channel: Channel::new(submit(), base, returns, back), pages: None, return_path: path })
}

/// Attaches to a channel that this process has locked. Returns the session's number.
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
    // The state is also attached if the session of another process owns the channel; the error then says
    // busy.
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

/// Parts that a session needs before it has a channel.
struct Parts {
    home: Home,
    fences: Fences,
    staging: Staging,
    pace: Pace,
}

impl Parts {
    fn new(futex: bool) -> Self {
        let fences = Fences::new();
        let staging = Staging::new(&fences);
        Self { home: Home::get(), fences, staging, pace: Pace::new(futex) }
    }
}

/// Builds a session from its parts. Returns `None` if the device's window has not been mapped.
fn build(device: Device, index: u32, begun: Begun, parts: Parts) -> Option<SessionCore> {
    let owners = device.areas_of_owners().copied();
    let Device { function, registers, areas, identity, mappings, bridge, pool, .. } = device;
    let BarMappings { window, lock, .. } = mappings.into_inner()?;
    let Begun { number, channel, pages, return_path } = begun;
    let generation = identity.generation;
    let function = function.address;
    if owners.is_some()
        && let Some(owner) = Owner::this()
    {
        channel.set_owner(&owner);
    }
    let ends = AttachedChannel {
        function,
        registers,
        window,
        lock,
        channel,
        areas: owners,
        index,
        generation,
        number,
    };
    Some(SessionCore {
        messenger: Messenger::new(Link::new(ends, parts.home, parts.pace)),
        fences: parts.fences,
        late_errors: LateErrors::default(),
        window: WindowAllocator::new(areas.end()),
        reclaimer: Reclaimer::new(areas.channels, pool),
        pages: GuestPages::new(pages),
        staging: parts.staging,
        bridge,
        area: areas.offset_of(index),
        return_path,
        reads_well: OnceLock::new(),
        addresses: OnceLock::new(),
    })
}

/// Greets the host and returns the device's facts. `others` tells whether other channels were attached
/// before.
fn greet(core: &SessionCore, others: bool) -> Result<DeviceFacts, AttachError> {
    let link = core.link();
    if !link.channel.is_clear() {
        return Err(AttachError::Strange("the return area of a new session is not empty"));
    }
    let hello = Hello { reply: 0, process: std::process::id(), reserved: 0 };
    let mut reply = HelloReply::new_zeroed();
    let answer = core.messenger.call(hello, Tail::Pieces(&[]), reply.as_mut_bytes());
    let answer = answer.map_err(AttachError::Lost)?;
    if answer.status != 0 {
        return Err(AttachError::Greeting(answer.status));
    }
    if answer.bytes != size_of::<HelloReply>() {
        return Err(AttachError::Strange("its greeting has another length"));
    }
    if reply.session != link.number || reply.generation != link.generation {
        return Err(AttachError::Strange("its greeting is for another session"));
    }
    if let Some(reserved) = addresses::reserve(link.function, &reply.facts)? {
        // The session is new, so the value is not set yet.
        let _ = core.addresses.set(reserved);
    }
    core.window.set_bytes(reply.window_bytes.min(link.window.bytes()));
    // The device may send texts without a zero at their end.
    reply.facts.name[255] = 0;
    reply.facts.driver_text[79] = 0;
    core.pages.register(&core.messenger).map_err(AttachError::Lost)?;
    // A failure to end sessions of dead processes does not affect this session, unless the device is gone.
    core.reclaimer.end_dead(link, others).map_err(AttachError::Lost)?;
    Ok(reply.facts)
}

/// Returns free device memory in bytes, read from a register after the sessions of dead processes have ended.
pub(crate) fn free_memory(device: &Device) -> Result<u64, SessionError> {
    let gone = |error: RegisterError| AttachError::from(error).into_lost();
    let registers = device.registers.as_ref();
    let read = || registers.read([reg::V2_FREE_MIB, reg::V2_ATTACHED_LO, reg::V2_ATTACHED_HI]).map_err(gone);
    let mut values = read()?;
    if values[0] == reg::ALL_ONES {
        return Err(SessionError::Gone { reason: GoneReason::AllOnes });
    }
    if wide(values[1], values[2]) != 0 {
        let BarMappings { lock, .. } =
            device.mappings().map_err(|error| AttachError::Open(error).into_lost())?;
        // Only a session that this call has ended is waited for. A process that polls free memory thus waits
        // only once for a session that does not end.
        let ended = dead_processes::end(registers, lock, device.areas_of_owners()).map_err(gone)?.told();
        if ended.wait_for_all(registers, lock, device.pool.as_ref(), DETACH_LIMIT).map_err(gone)? > 0 {
            values = read()?;
        }
    }
    Ok(u64::from(values[0]) << 20)
}
