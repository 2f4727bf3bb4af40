//! Sessions of dead processes: finds them, has the host end them, and waits for their end.
//!
//! A channel that is not free and whose lock is free belongs to a process that died, or that ended before the
//! host had detached it, or that has closed its descriptors and lives ([`crate::owner`]). The process that
//! takes the lock of a dead one may end the session. The host does that asynchronously: the channel is ending
//! until everything that the session held is free, and its number reads 0 after that.

use std::time::{Duration, Instant};

use vgpu_wire::registers::{self as reg, channel as regs};

use crate::areas::Areas;
use crate::lock::ChannelLocks;
use crate::pages::HugePagePool;
use crate::registers::{Access, BATCH, RegisterError, Registers, wide};
use crate::sleep::sleep_for;

/// Shortest and longest pause between two checks whether a session has ended.
const PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(5));

/// Returns the channels that are not free, one bit each.
///
/// # Errors
/// Fails if the registers do not answer.
pub(crate) fn attached(registers: &dyn Registers) -> Result<u64, RegisterError> {
    let [low, high] = registers.read([reg::V2_ATTACHED_LO, reg::V2_ATTACHED_HI])?;
    Ok(wide(low, high))
}

/// A session of a dead process that is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct One {
    channel: u32,
    number: u32,
    /// Whether this process told the host to end it, in this call.
    told: bool,
}

/// Sessions that were ending at the same time.
#[derive(Debug, Default)]
pub(crate) struct Ending(Vec<One>);

/// Ends the sessions of dead processes without waiting for them. `areas` are the channels' areas, where their
/// owners describe themselves, unless the device is behind a bridge.
///
/// # Errors
/// Fails if the registers do not answer.
pub(crate) fn end(
    registers: &dyn Registers,
    lock: &dyn ChannelLocks,
    areas: Option<&Areas>,
) -> Result<Ending, RegisterError> {
    let attached = attached(registers)?;
    let mut ending = Ending::default();
    for channel in (0..reg::MAX_CHANNELS).filter(|channel| attached & (1 << channel) != 0) {
        // The lock of a living process is not taken, because that process may be about to take it again. An
        // error of the lock file counts as a lock that another process holds.
        let area = areas.map(|areas| areas.offset_of(channel));
        if lock.has_owner(channel, area) || !lock.try_lock(channel).unwrap_or(false) {
            continue;
        }
        // While this process holds the lock, no other attaches to the channel. The channel may have changed
        // since the bits were read.
        let one = end_one(registers, channel);
        lock.unlock(channel);
        ending.0.extend(one?);
    }
    Ok(ending)
}

/// Ends the session of a channel that this process has locked, if there is one.
fn end_one(registers: &dyn Registers, channel: u32) -> Result<Option<One>, RegisterError> {
    let base = regs::base(channel);
    let [state, number] = registers.read([base + regs::STATE, base + regs::SESSION])?;
    if state == regs::STATE_FREE {
        return Ok(None);
    }
    let told = state != regs::STATE_ENDING;
    if told {
        registers.write(base + regs::DETACH_SESSION, number)?;
    }
    Ok(Some(One { channel, number, told }))
}

impl Ending {
    /// Returns the number of sessions.
    pub(crate) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Keeps only the sessions that this process has told the host to end.
    pub(crate) fn told(mut self) -> Self {
        self.0.retain(|one| one.told);
        self
    }

    /// Waits until all have ended, but no longer than `limit`. Returns how many have. Their pages are
    /// returned to the kernel.
    ///
    /// # Errors
    /// Fails if the registers do not answer.
    pub(crate) fn wait_for_all(
        self,
        registers: &dyn Registers,
        lock: &dyn ChannelLocks,
        pool: Option<&HugePagePool>,
        limit: Duration,
    ) -> Result<u32, RegisterError> {
        let count = self.0.len();
        self.wait(registers, lock, pool, limit, |left| left == 0).map(|left| (count - left) as u32)
    }

    /// Waits until one has ended, but no longer than `limit`. Returns whether one has.
    ///
    /// # Errors
    /// Fails if the registers do not answer.
    pub(crate) fn wait_for_one(
        self,
        registers: &dyn Registers,
        lock: &dyn ChannelLocks,
        pool: Option<&HugePagePool>,
        limit: Duration,
    ) -> Result<bool, RegisterError> {
        let count = self.0.len();
        self.wait(registers, lock, pool, limit, |left| left < count).map(|left| left < count)
    }

    /// Waits until `enough` accepts the number of sessions that are left, but no longer than `limit`. Returns
    /// that number.
    fn wait(
        mut self,
        registers: &dyn Registers,
        lock: &dyn ChannelLocks,
        pool: Option<&HugePagePool>,
        limit: Duration,
        enough: impl Fn(usize) -> bool,
    ) -> Result<usize, RegisterError> {
        let mut pauses = Pauses::until(Instant::now() + limit);
        loop {
            let mut ended = Vec::new();
            for part in self.0.chunks(BATCH) {
                let mut accesses = [Access::Read(0); BATCH];
                for (access, one) in accesses.iter_mut().zip(part) {
                    *access = Access::Read(regs::base(one.channel) + regs::SESSION);
                }
                let mut numbers = [0; BATCH];
                registers.access(&accesses[..part.len()], &mut numbers[..part.len()])?;
                // The channel may belong to another process by now.
                let gone = part.iter().zip(numbers).filter(|(one, number)| one.number != *number);
                ended.extend(gone.map(|(one, _)| *one));
            }
            self.0.retain(|one| !ended.contains(one));
            if let Some(pool) = pool {
                for one in &ended {
                    release_guest_pages(registers, lock, pool, one.channel)?;
                }
            }
            if self.0.is_empty() || enough(self.0.len()) || !pauses.pause() {
                return Ok(self.0.len());
            }
        }
    }
}

/// Waits until a channel that this process has locked is free, but not beyond `end`. Returns whether it is.
pub(crate) fn is_free_by(registers: &dyn Registers, channel: u32, end: Instant) -> bool {
    let mut pauses = Pauses::until(end);
    loop {
        match attached(registers) {
            Ok(attached) if attached & (1 << channel) == 0 => return true,
            Ok(_) if pauses.pause() => {}
            _ => return false,
        }
    }
}

/// Frees the pages that dead processes left on channels which have become free.
///
/// # Errors
/// Fails if the registers do not answer.
pub(crate) fn sweep(
    registers: &dyn Registers,
    lock: &dyn ChannelLocks,
    pool: &HugePagePool,
    channels: u32,
) -> Result<(), RegisterError> {
    (0..channels)
        .filter(|&channel| pool.contains(channel))
        .try_for_each(|channel| release_guest_pages(registers, lock, pool, channel))
}

/// Frees the pages of a channel that no process owns, if the host has released them.
fn release_guest_pages(
    registers: &dyn Registers,
    lock: &dyn ChannelLocks,
    pool: &HugePagePool,
    channel: u32,
) -> Result<(), RegisterError> {
    if !lock.try_lock(channel).unwrap_or(false) {
        return Ok(());
    }
    let state = registers.read([regs::base(channel) + regs::STATE]);
    if matches!(state, Ok([regs::STATE_FREE])) {
        pool.remove(channel);
    }
    lock.unlock(channel);
    state.map(drop)
}

/// Pauses of growing length, until a deadline.
struct Pauses {
    end: Instant,
    next: Duration,
}

impl Pauses {
    const fn until(end: Instant) -> Self {
        Self { end, next: PAUSE.0 }
    }

    /// Sleeps, each time for longer. Returns false without sleeping once the deadline has passed.
    fn pause(&mut self) -> bool {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        sleep_for(self.next.min(left));
        self.next = (2 * self.next).min(PAUSE.1);
        true
    }
}
