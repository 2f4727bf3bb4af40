//! The device's own registers in a page of memory, for buses whose guests can read one. A guest that only
//! reads then needs no answer of the device. The page holds each register at its offset, and the device
//! stores changes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use vgpu_wire::registers as reg;

use crate::memory::window::Window;
use crate::session::remote::DeviceProcess;

/// Source of the device memory in use. The executor implements it, in a layer above this file.
pub(crate) trait MemoryInUse: Send + Sync {
    /// Returns the number of bytes that all sessions use.
    fn bytes(&self) -> u64;
}

/// Source for processes in which the device memory in use is unknown: a worker process knows only its own
/// session.
struct Unknown;

impl MemoryInUse for Unknown {
    fn bytes(&self) -> u64 {
        0
    }
}

/// The register page, once a bus has made one, and the sources of its changing registers.
pub(crate) struct RegisterPage {
    page: OnceLock<Window>,
    in_use: Box<dyn MemoryInUse>,
    /// Size of the device memory in bytes.
    total: u64,
    /// Bit mask of the channels that are not free.
    attached: AtomicU64,
    /// Offsets of registers that a test overrides. They do not change.
    overridden: Vec<u32>,
    /// Device's process, if the registers are there. It is told of changes of memory and time.
    home: Option<Arc<dyn DeviceProcess>>,
}

impl std::fmt::Debug for RegisterPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegisterPage").field("attached", &self.attached).finish_non_exhaustive()
    }
}

impl RegisterPage {
    /// Makes the registers of a device that has no page yet, with `total` bytes of device memory.
    /// `overridden` lists the offsets of registers that only [`RegisterPage::store`] sets.
    pub(crate) fn new(total: u64, in_use: Box<dyn MemoryInUse>, overridden: Vec<u32>) -> Self {
        Self { page: OnceLock::new(), in_use, total, attached: AtomicU64::new(0), overridden, home: None }
    }

    /// Makes the stand-in for a worker process, which tells the device's process of changes.
    pub(crate) fn in_worker(home: Arc<dyn DeviceProcess>) -> Self {
        Self { home: Some(home), ..Self::new(0, Box::new(Unknown), Vec::new()) }
    }

    /// Sets the page, which has at least [`reg::V2_PAGE_BYTES`]. Only the first call has an effect.
    pub(crate) fn set_page(&self, page: Window) {
        // A second page would be a mistake of the bus, and nobody would read it.
        let _ = self.page.set(page);
    }

    /// Stores the register at `offset`.
    pub(crate) fn store(&self, offset: u32, value: u32) {
        if let Some(page) = self.page.get() {
            page.u32_at(u64::from(offset)).store(value, Ordering::Release);
        }
    }

    /// Returns the free device memory in whole MiB.
    pub(crate) fn free_mib(&self) -> u32 {
        let free = self.total.saturating_sub(self.in_use.bytes());
        u32::try_from(free >> 20).unwrap_or(u32::MAX)
    }

    /// Returns the bit mask of the channels that are not free.
    pub(crate) fn attached(&self) -> u64 {
        self.attached.load(Ordering::Acquire)
    }

    /// Records that a channel has become free, or that it no longer is.
    pub(crate) fn channel_changed(&self, channel: u32, taken: bool) {
        let bit = 1 << channel;
        if taken {
            self.attached.fetch_or(bit, Ordering::SeqCst);
        } else {
            self.attached.fetch_and(!bit, Ordering::SeqCst);
        }
        self.show(reg::V2_ATTACHED_LO, || self.attached() as u32);
        self.show(reg::V2_ATTACHED_HI, || (self.attached() >> 32) as u32);
    }

    /// Publishes a change of the device memory in use.
    pub(crate) fn memory_changed(&self) {
        self.changed(None);
    }

    /// Publishes a change of the device memory in use by the message of this number, before it is answered.
    pub(crate) fn answered(&self, number: u64) {
        self.changed(Some(number));
    }

    fn changed(&self, number: Option<u64>) {
        if let Some(home) = &self.home {
            home.memory_changed(number);
        }
        self.show(reg::V2_FREE_MIB, || self.free_mib());
    }

    /// Calls `take` if the device has `bytes` of device memory beside what all sessions use. Only a worker
    /// process asks: in the device's own, the charge of the memory is the answer.
    pub(crate) fn reserve(&self, bytes: u64, take: &mut dyn FnMut()) -> bool {
        if let Some(home) = &self.home {
            return home.reserve(bytes, take);
        }
        take();
        true
    }

    /// Tells the device's process, if that is another one, that the executor has worked for a session.
    pub(crate) fn worked(&self) {
        if let Some(home) = &self.home {
            home.worked();
        }
    }

    /// Tells the device's process, if that is another one, up to which message all work is complete.
    pub(crate) fn settled(&self, number: u64) {
        if let Some(home) = &self.home {
            home.settled(number);
        }
    }

    /// Publishes a change of a register of [`reg::usage`] of a channel.
    pub(crate) fn usage_changed(&self, channel: u32, register: u32, truth: impl Fn() -> u32) {
        self.show(reg::usage::base(channel) + register, truth);
    }

    /// Publishes all registers of [`reg::usage`] of a channel, with the values that `usage` returns.
    pub(crate) fn publish_usage(&self, channel: u32, usage: impl Fn(u32) -> u32) {
        for register in (0..reg::usage::USAGE_STRIDE).step_by(4) {
            self.usage_changed(channel, register, || usage(register));
        }
    }

    /// Updates a register of the page. Of two threads that store at the same time, the one that read the
    /// newer value may store first, so each checks again after it has stored.
    fn show(&self, offset: u32, truth: impl Fn() -> u32) {
        let Some(page) = self.page.get().filter(|_| !self.overridden.contains(&offset)) else { return };
        let register = page.u32_at(u64::from(offset));
        loop {
            let value = truth();
            if register.load(Ordering::Acquire) == value {
                return;
            }
            register.store(value, Ordering::SeqCst);
        }
    }
}
