//! Reclaims resources of dead processes on behalf of a session.

use std::time::Duration;

use crate::dead_processes;
use crate::link::Link;
use crate::pages::HugePagePool;
use crate::session_error::SessionError;

/// Maximum time that an allocation which finds no room waits for sessions that are ending.
const MEMORY_LIMIT: Duration = Duration::from_secs(2);

/// The device whose channels and pages of dead processes a session may reclaim.
#[derive(Debug)]
pub(crate) struct Reclaimer {
    /// Number of channels that the device has.
    channels: u32,
    pool: Option<HugePagePool>,
}

impl Reclaimer {
    pub(crate) fn new(channels: u32, pool: Option<HugePagePool>) -> Self {
        Self { channels, pool }
    }

    /// Ends the sessions of dead processes, waits until they have ended, and returns how many have. A session
    /// in the middle of work that cannot be interrupted is not counted.
    pub(crate) fn reclaim(&self, link: &Link) -> Result<u32, SessionError> {
        link.enter()?;
        let registers = link.registers.as_ref();
        dead_processes::end(registers, &link.lock, link.areas.as_ref())
            .and_then(|ending| ending.wait_for_all(registers, &link.lock, self.pool.as_ref(), MEMORY_LIMIT))
            .map_err(|error| link.lost_by(&error))
    }

    /// Ends the sessions of dead processes without waiting for them. `others` tells whether another channel
    /// was attached.
    pub(crate) fn end_dead(&self, link: &Link, others: bool) -> Result<(), SessionError> {
        if !others && self.pool.is_none() {
            return Ok(());
        }
        let registers = link.registers.as_ref();
        let ended = dead_processes::end(registers, &link.lock, link.areas.as_ref());
        let ended = ended.and_then(|_| match &self.pool {
            Some(pool) => dead_processes::sweep(registers, &link.lock, pool, self.channels),
            None => Ok(()),
        });
        ended.map_err(|error| link.lost_by(&error))
    }
}
