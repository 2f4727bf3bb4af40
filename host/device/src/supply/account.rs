//! Accounts of device memory: the device's total, and each session's share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::charges::charge::{Charge, Charges, OverLimit};
use crate::charges::limits::Resource;

/// The device's memory is used up, the session has reached its limit, or the host has no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("allocate memory: there is no room")]
pub struct OutOfMemory;

/// The account of a device's memory.
#[derive(Debug)]
pub struct Account {
    total: u64,
    used: AtomicU64,
}

impl Account {
    /// A device of `total` bytes, none of them in use.
    #[must_use]
    pub const fn new(total: u64) -> Self {
        Self { total, used: AtomicU64::new(0) }
    }

    /// Bytes of the device.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Number of bytes in use by all sessions.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// A session's share of the device's memory.
#[derive(Debug)]
pub struct Share {
    device: Arc<Account>,
    charges: Arc<Charges>,
}

impl Share {
    /// The share of the session with these charges.
    #[must_use]
    pub const fn new(device: Arc<Account>, charges: Arc<Charges>) -> Self {
        Self { device, charges }
    }

    /// The device's account.
    #[must_use]
    pub const fn device(&self) -> &Arc<Account> {
        &self.device
    }

    /// The session's charges.
    #[must_use]
    pub const fn charges(&self) -> &Arc<Charges> {
        &self.charges
    }

    /// Number of bytes that the session has allocated.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.charges.used(Resource::DeviceBytes)
    }

    /// Takes `bytes` of device memory until the guard is dropped.
    pub fn take(&self, bytes: u64) -> Result<Taken, OutOfMemory> {
        let charge = self.charge(Resource::DeviceBytes, bytes)?;
        let more = |used: u64| used.checked_add(bytes).filter(|&used| used <= self.device.total);
        self.device.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| OutOfMemory)?;
        Ok(Taken { device: Arc::clone(&self.device), charge })
    }

    /// Charges the session for a resource, and says in the log which limit is in the way.
    pub fn charge(&self, resource: Resource, amount: u64) -> Result<Charge, OutOfMemory> {
        self.charges.take(resource, amount).map_err(|over| self.over(&over))
    }

    /// Logs which limit was exceeded.
    pub fn over(&self, over: &OverLimit) -> OutOfMemory {
        self.charges.log(0, || tracing::warn!(session = self.charges.session(), "refused: {over}"));
        OutOfMemory
    }
}

/// Bytes of device memory that are taken until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it returns the bytes"]
pub struct Taken {
    device: Arc<Account>,
    charge: Charge,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.device.used.fetch_sub(self.charge.amount(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceCharges, Limits};

    fn share(device: &Arc<Account>, limits: Limits) -> Share {
        Share::new(Arc::clone(device), Charges::new(1, limits, Arc::new(DeviceCharges::default())))
    }

    #[test]
    fn the_account_is_the_devices_and_comes_back() {
        let device = Arc::new(Account::new(1 << 20));
        let (one, two) = (share(&device, Limits::default()), share(&device, Limits::default()));
        let half = one.take(1 << 19).unwrap();
        let quarter = two.take(1 << 18).unwrap();
        assert_eq!(two.take(1 << 19).unwrap_err(), OutOfMemory);
        assert_eq!(two.take(u64::MAX).unwrap_err(), OutOfMemory);
        assert_eq!((one.used(), two.used(), device.used()), (1 << 19, 1 << 18, 3 << 18));
        drop(half);
        let more = two.take(1 << 19).unwrap();
        assert_eq!((one.used(), two.used()), (0, 3 << 18));
        drop((quarter, more));
        assert_eq!(device.used(), 0);
    }

    #[test]
    fn a_session_may_have_less_than_the_device() {
        let device = Arc::new(Account::new(1 << 20));
        let one = share(&device, Limits { device_bytes: 1 << 19, ..Limits::default() });
        let half = one.take(1 << 19).unwrap();
        assert_eq!(one.take(1).unwrap_err(), OutOfMemory);
        assert_eq!(device.used(), 1 << 19, "what is refused is not taken");
        drop(half);
        assert_eq!(one.charges().bytes(), 0);
    }
}
