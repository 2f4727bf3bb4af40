//! Accounts of device memory: the total of the device, and the quota of each session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::charges::charge::{Charge, Charges, OverLimit};
use crate::charges::limits::Resource;

/// Error for an allocation: the device's memory is used up, the session has reached its limit, or the host
/// has no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("allocate memory: there is no room")]
pub struct OutOfMemory;

/// Device memory that all sessions of a device share.
#[derive(Debug)]
pub struct MemoryPool {
    total: u64,
    used: AtomicU64,
}

impl MemoryPool {
    /// Makes a pool of `total` bytes, all of them free.
    #[must_use]
    pub const fn new(total: u64) -> Self {
        Self { total, used: AtomicU64::new(0) }
    }

    /// Returns the size of the pool in bytes.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of bytes that all sessions use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// Quota of one session in a memory pool.
#[derive(Debug)]
pub struct Quota {
    device: Arc<MemoryPool>,
    charges: Arc<Charges>,
}

impl Quota {
    /// Makes the quota of the session that has these charges.
    #[must_use]
    pub const fn new(device: Arc<MemoryPool>, charges: Arc<Charges>) -> Self {
        Self { device, charges }
    }

    /// Returns the memory pool.
    #[must_use]
    pub const fn pool(&self) -> &Arc<MemoryPool> {
        &self.device
    }

    /// Returns the session's charges.
    #[must_use]
    pub const fn charges(&self) -> &Arc<Charges> {
        &self.charges
    }

    /// Returns the number of bytes that the session has allocated.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.charges.used(Resource::DeviceBytes)
    }

    /// Charges `bytes` of device memory to the session and the pool, until the guard is dropped.
    pub fn allocate(&self, bytes: u64) -> Result<PoolCharge, OutOfMemory> {
        let charge = self.charge(Resource::DeviceBytes, bytes)?;
        let more = |used: u64| used.checked_add(bytes).filter(|&used| used <= self.device.total);
        self.device.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| OutOfMemory)?;
        Ok(PoolCharge { device: Arc::clone(&self.device), charge })
    }

    /// Charges the session for a resource. Logs which limit would be exceeded.
    pub fn charge(&self, resource: Resource, amount: u64) -> Result<Charge, OutOfMemory> {
        self.charges.charge(resource, amount).map_err(|over| self.refuse(&over))
    }

    /// Logs which limit was exceeded.
    pub fn refuse(&self, over: &OverLimit) -> OutOfMemory {
        self.charges.log(0, || tracing::warn!(session = self.charges.session(), "refused: {over}"));
        OutOfMemory
    }
}

/// Bytes of a memory pool that are in use until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it returns the bytes"]
pub struct PoolCharge {
    device: Arc<MemoryPool>,
    charge: Charge,
}

impl Drop for PoolCharge {
    fn drop(&mut self) {
        self.device.used.fetch_sub(self.charge.amount(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceCharges, Limits};

    fn share(device: &Arc<MemoryPool>, limits: Limits) -> Quota {
        Quota::new(Arc::clone(device), Charges::new(1, limits, Arc::new(DeviceCharges::default())))
    }

    #[test]
    fn the_account_is_the_devices_and_comes_back() {
        let device = Arc::new(MemoryPool::new(1 << 20));
        let (one, two) = (share(&device, Limits::default()), share(&device, Limits::default()));
        let half = one.allocate(1 << 19).unwrap();
        let quarter = two.allocate(1 << 18).unwrap();
        assert_eq!(two.allocate(1 << 19).unwrap_err(), OutOfMemory);
        assert_eq!(two.allocate(u64::MAX).unwrap_err(), OutOfMemory);
        assert_eq!((one.used(), two.used(), device.used()), (1 << 19, 1 << 18, 3 << 18));
        drop(half);
        let more = two.allocate(1 << 19).unwrap();
        assert_eq!((one.used(), two.used()), (0, 3 << 18));
        drop((quarter, more));
        assert_eq!(device.used(), 0);
    }

    #[test]
    fn a_session_may_have_less_than_the_device() {
        let device = Arc::new(MemoryPool::new(1 << 20));
        let one = share(&device, Limits { device_bytes: 1 << 19, ..Limits::default() });
        let half = one.allocate(1 << 19).unwrap();
        assert_eq!(one.allocate(1).unwrap_err(), OutOfMemory);
        assert_eq!(device.used(), 1 << 19, "what is refused is not taken");
        drop(half);
        assert_eq!(one.charges().bytes(), 0);
    }
}
