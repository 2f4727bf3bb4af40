//! Charges for the resources that a session makes its host hold, and the guards that return them.
//!
//! Every byte and every handle that exists because a guest requested it is charged to its session before it
//! is made. The code that makes it keeps the [`Charge`] beside it, so that both are dropped together. If a
//! limit would be exceeded, nothing is made, and the guest gets CUDA's out-of-memory status. When a session
//! has ended, the device checks that nothing is charged to it any more. Charges that were not returned stay
//! in the device's total.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::charges::host_memory::HostMemory;
use crate::charges::limits::{Limits, Resource};
use crate::charges::log_budget::LogBudget;

/// Longest wait for the charges of an ended session to be returned, and the pause between two checks.
const RETURN_MOST: Duration = Duration::from_secs(10);
const RETURN_PAUSE: Duration = Duration::from_millis(5);

/// `CUDA_ERROR_OUT_OF_MEMORY`: the status of a call that would exceed a limit.
pub const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`: the status for a kernel that is too large to prepare.
pub const OUT_OF_RESOURCES: u32 = 701;

/// Error for a charge that would exceed a limit of the session. The guest gets [`OUT_OF_MEMORY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} more {}: the session has {used} of {limit}{}", .resource.name(), if *.host_lacks { ", and the host has no memory" } else { "" })]
pub struct OverLimit {
    /// The resource whose limit would be exceeded.
    pub resource: Resource,
    /// Amount that was requested, in units of the resource.
    pub wanted: u64,
    /// Amount that the session holds, in units of the resource.
    pub used: u64,
    /// Limit of the session, in units of the resource.
    pub limit: u64,
    /// Whether the limit allows the amount, but the host has no memory for it.
    pub host_lacks: bool,
}

/// Memory that is charged to all sessions of a device, and the log's budget for lines that are charged to
/// none.
#[derive(Debug, Default)]
pub struct DeviceCharges {
    bytes: AtomicU64,
    host: HostMemory,
    log: LogBudget,
}

impl DeviceCharges {
    /// Returns the number of bytes of host and device memory that are charged to sessions, including those
    /// that ended without returning them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Writes a log line that a guest without a session caused, unless the device's log budget is used up.
    pub(crate) fn log(&self, bytes: usize, write: impl FnOnce()) {
        if self.log.admit(bytes, |text| tracing::warn!("all sessions of the device: {text}")) {
            write();
        }
    }
}

/// The charges of one session.
#[derive(Debug)]
pub struct Charges {
    session: u32,
    limits: Limits,
    used: [AtomicU64; Resource::COUNT],
    device: Arc<DeviceCharges>,
    log: LogBudget,
}

impl Charges {
    /// Makes the charges of a new session, which count in the total of `device` too.
    #[must_use]
    pub fn new(session: u32, limits: Limits, device: Arc<DeviceCharges>) -> Arc<Self> {
        let log = LogBudget::new(limits.log_lines, limits.log_lines_per_minute);
        Arc::new(Self { session, limits, used: Default::default(), device, log })
    }

    /// Returns the session's number.
    #[must_use]
    pub const fn session(&self) -> u32 {
        self.session
    }

    /// Returns the limits of the session.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the amount of a resource that the session holds, in units of the resource.
    #[must_use]
    pub fn used(&self, resource: Resource) -> u64 {
        self.used[resource as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of bytes of host and device memory that the session holds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.used(Resource::HostBytes) + self.used(Resource::DeviceBytes)
    }

    /// Charges `amount`, in units of the resource, until the guard is dropped. Fails without a charge if the
    /// session would exceed its limit, or if the host does not have the memory.
    pub fn charge(self: &Arc<Self>, resource: Resource, amount: u64) -> Result<Charge, OverLimit> {
        self.add(resource, amount)?;
        Ok(Charge { charges: Arc::clone(self), resource, amount })
    }

    /// Charges what the session holds already, because it was restored or does not wait, until the guard is
    /// dropped. No limit refuses it.
    pub fn adopt(self: &Arc<Self>, resource: Resource, amount: u64) -> Charge {
        self.used[resource as usize].fetch_add(amount, Ordering::Relaxed);
        if resource == Resource::HostBytes {
            self.device.host.adopt(amount);
        }
        if is_bytes(resource) {
            self.device.bytes.fetch_add(amount, Ordering::Relaxed);
        }
        Charge { charges: Arc::clone(self), resource, amount }
    }

    /// Writes a log line on behalf of the session, unless its log budget is used up. `bytes` is the length of
    /// the part of the line that the guest chose.
    pub fn log(&self, bytes: usize, write: impl FnOnce()) {
        if self.log.admit(bytes, |text| tracing::warn!(session = self.session, "{text}")) {
            self.device.log(bytes, write);
        }
    }

    /// Writes a log line as [`Charges::log`] does, for the line with the reason why the session ended. Only
    /// the device's budget counts, because the session's may be used up by then.
    pub(crate) fn log_end(&self, bytes: usize, write: impl FnOnce()) {
        self.device.log(bytes, write);
    }

    /// Waits until the charges of the session, which has ended, are returned, and logs an error if some
    /// remain after `RETURN_MOST`, which is a bug of its executor. The wait is for threads that are still
    /// leaving the session's last kernel and hold its memory.
    pub fn check_returned(&self) {
        let end = Instant::now() + RETURN_MOST;
        while let Some(left) = self.remaining() {
            if Instant::now() > end {
                tracing::error!(session = self.session, "an ended session is still charged {left}");
                return;
            }
            std::thread::sleep(RETURN_PAUSE);
        }
    }

    /// Describes what the session still holds, or returns `None` if it holds nothing.
    fn remaining(&self) -> Option<String> {
        let left = Resource::NAMES.into_iter().filter(|&(resource, _)| self.used(resource) > 0);
        let text: Vec<String> =
            left.map(|(resource, name)| format!("{} {name}", self.used(resource))).collect();
        (!text.is_empty()).then(|| text.join(", "))
    }

    fn add(&self, resource: Resource, wanted: u64) -> Result<(), OverLimit> {
        let limit = self.limits.limit(resource);
        let more = |used: u64| used.checked_add(wanted).filter(|&used| used <= limit);
        let added = self.used[resource as usize].fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let over = |used, host_lacks| OverLimit { resource, wanted, used, limit, host_lacks };
        let used = added.map_err(|used| over(used, false))?;
        if resource == Resource::HostBytes && !self.device.host.reserve(wanted) {
            self.used[resource as usize].fetch_sub(wanted, Ordering::Relaxed);
            return Err(over(used, true));
        }
        if is_bytes(resource) {
            self.device.bytes.fetch_add(wanted, Ordering::Relaxed);
        }
        Ok(())
    }

    fn release(&self, resource: Resource, amount: u64) {
        self.used[resource as usize].fetch_sub(amount, Ordering::Relaxed);
        if resource == Resource::HostBytes {
            self.device.host.release(amount);
        }
        if is_bytes(resource) {
            self.device.bytes.fetch_sub(amount, Ordering::Relaxed);
        }
    }
}

const fn is_bytes(resource: Resource) -> bool {
    matches!(resource, Resource::HostBytes | Resource::DeviceBytes)
}

/// An amount that is charged to a session while this lives.
#[derive(Debug)]
#[must_use = "dropping it returns the charge"]
pub struct Charge {
    charges: Arc<Charges>,
    resource: Resource,
    amount: u64,
}

impl Charge {
    /// Returns the amount, in units of the resource.
    #[must_use]
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// Adds `more` to the charge. Fails without a change if the session would exceed its limit, or if the
    /// host does not have the memory.
    pub fn grow(&mut self, more: u64) -> Result<(), OverLimit> {
        self.charges.add(self.resource, more)?;
        self.amount += more;
        Ok(())
    }

    /// Reduces the charge to `amount`, which must not exceed it.
    pub fn shrink_to(&mut self, amount: u64) {
        let less = self.amount.saturating_sub(amount);
        self.charges.release(self.resource, less);
        self.amount -= less;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.charges.release(self.resource, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charges(limits: Limits) -> (Arc<Charges>, Arc<DeviceCharges>) {
        let device = Arc::new(DeviceCharges::default());
        (Charges::new(1, limits, Arc::clone(&device)), device)
    }

    #[test]
    fn a_charge_is_counted_until_its_guard_is_dropped() {
        let (one, device) = charges(Limits { host_bytes: 100, ..Limits::default() });
        let two = Charges::new(2, Limits { host_bytes: 100, ..Limits::default() }, Arc::clone(&device));
        let mut first = one.charge(Resource::HostBytes, 60).unwrap();
        let second = two.charge(Resource::HostBytes, 100).unwrap();
        assert_eq!((one.bytes(), two.bytes(), device.bytes()), (60, 100, 160));
        let over =
            OverLimit { resource: Resource::HostBytes, wanted: 41, used: 60, limit: 100, host_lacks: false };
        assert_eq!(one.charge(Resource::HostBytes, 41).unwrap_err(), over);
        assert_eq!(first.grow(41).unwrap_err(), over);
        assert_eq!(one.charge(Resource::HostBytes, u64::MAX).unwrap_err().used, 60);
        first.grow(40).unwrap();
        first.shrink_to(10);
        assert_eq!((first.amount(), one.bytes()), (10, 10));
        drop((first, second));
        assert_eq!((one.bytes(), two.bytes(), device.bytes()), (0, 0, 0));
        assert_eq!(one.remaining(), None);
    }

    /// Charging an amount that the host does not have fails before anything is allocated, and charges
    /// nothing.
    #[test]
    fn what_the_host_does_not_have_is_refused_though_the_session_may_have_it() {
        let (one, device) = charges(Limits { host_bytes: u64::MAX, ..Limits::default() });
        let held = one.charge(Resource::HostBytes, 5000).unwrap();
        let over = one.charge(Resource::HostBytes, 1 << 62).unwrap_err();
        assert!(over.host_lacks && over.to_string().ends_with(", and the host has no memory"), "{over}");
        assert_eq!((one.bytes(), device.bytes()), (5000, 5000));
        let (narrow, _) = charges(Limits { host_bytes: 1, ..Limits::default() });
        let adopted = narrow.adopt(Resource::HostBytes, 5000);
        assert_eq!((narrow.bytes(), narrow.charge(Resource::HostBytes, 1).unwrap_err().used), (5000, 5000));
        drop(adopted);
        assert_eq!((narrow.bytes(), narrow.device.bytes(), narrow.device.host.bytes()), (0, 0, 0));
        drop(held);
        assert_eq!((one.bytes(), device.bytes()), (0, 0));
        assert_eq!(device.host.bytes(), 0);
    }

    #[test]
    fn each_resource_has_its_own_limit() {
        let (charges, device) = charges(Limits { streams: 2, events: 1, ..Limits::default() });
        let held =
            (charges.charge(Resource::Streams, 2).unwrap(), charges.charge(Resource::Events, 1).unwrap());
        assert!(
            charges.charge(Resource::Streams, 1).is_err() && charges.charge(Resource::Events, 1).is_err()
        );
        assert_eq!(charges.remaining().unwrap(), "2 streams, 1 events");
        assert_eq!(device.bytes(), 0, "handles are no bytes");
        drop(held);
        assert_eq!(charges.used(Resource::Streams), 0);
        for (index, (resource, _)) in Resource::NAMES.into_iter().enumerate() {
            assert_eq!(resource as usize, index);
        }
    }
}
