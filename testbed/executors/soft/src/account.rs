//! How much device memory there is, and who has it: the device's account, and each session's share of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The device has no room, or the host has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("allocate device memory: there is no room")]
pub(crate) struct OutOfMemory;

/// The memory of a device.
#[derive(Debug)]
pub(crate) struct Account {
    total: u64,
    used: AtomicU64,
}

impl Account {
    pub(crate) const fn new(total: u64) -> Self {
        Self { total, used: AtomicU64::new(0) }
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Bytes in use by all sessions.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// What a session has of it.
#[derive(Debug)]
pub(crate) struct Share {
    device: Arc<Account>,
    used: AtomicU64,
}

impl Share {
    pub(crate) const fn new(device: Arc<Account>) -> Self {
        Self { device, used: AtomicU64::new(0) }
    }

    pub(crate) const fn device(&self) -> &Arc<Account> {
        &self.device
    }

    /// Bytes that the session has.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes` from the device until the charge is dropped.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge, OutOfMemory> {
        let more = |used: u64| used.checked_add(bytes).filter(|&used| used <= self.device.total);
        self.device.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| OutOfMemory)?;
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Ok(Charge { share: Arc::clone(self), bytes })
    }
}

/// Bytes that are taken.
#[derive(Debug)]
pub(crate) struct Charge {
    share: Arc<Share>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.share.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.share.device.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_the_devices_and_comes_back() {
        let device = Arc::new(Account::new(1 << 20));
        let one = Arc::new(Share::new(Arc::clone(&device)));
        let two = Arc::new(Share::new(Arc::clone(&device)));
        let half = one.charge(1 << 19).unwrap();
        let quarter = two.charge(1 << 18).unwrap();
        assert_eq!(two.charge(1 << 19).unwrap_err(), OutOfMemory);
        assert_eq!(two.charge(u64::MAX).unwrap_err(), OutOfMemory);
        assert_eq!((one.used(), two.used(), device.used()), (1 << 19, 1 << 18, 3 << 18));
        drop(half);
        let more = two.charge(1 << 19).unwrap();
        assert_eq!((one.used(), two.used()), (0, 3 << 18));
        drop((quarter, more));
        assert_eq!(device.used(), 0);
    }
}
