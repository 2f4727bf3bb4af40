//! The device's own registers in a page of memory, for buses whose guests can read one: who looks at a
//! device then asks nobody. The page holds each register at its offset; the device stores what changes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use vgpu_wire::registers as reg;

use crate::memory::window::Window;
use crate::session::remote::Home;

/// Whoever knows how much device memory is in use: the executor, which stands above this file.
pub(crate) trait MemoryInUse: Send + Sync {
    /// Bytes in use by all sessions.
    fn bytes(&self) -> u64;
}

/// A worker process knows its own part of the device's memory alone.
struct Unknown;

impl MemoryInUse for Unknown {
    fn bytes(&self) -> u64 {
        0
    }
}

/// The page, once a bus has made one, and what its changing registers are computed from.
pub(crate) struct Published {
    page: OnceLock<Window>,
    in_use: Box<dyn MemoryInUse>,
    /// Device memory in bytes.
    total: u64,
    /// A bit for each channel that is not free.
    attached: AtomicU64,
    /// Registers that read something else than the truth: they do not change.
    overridden: Vec<u32>,
    /// Told of device memory that was taken or given back, and of time, where another process keeps the
    /// registers.
    home: Option<Arc<dyn Home>>,
}

impl std::fmt::Debug for Published {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Published").field("attached", &self.attached).finish_non_exhaustive()
    }
}

impl Published {
    /// A device without a page yet. `total`: bytes of its memory, of which `in_use` knows how many are taken.
    /// `overridden`: offsets of registers that [`Published::store`] alone sets.
    pub(crate) fn new(total: u64, in_use: Box<dyn MemoryInUse>, overridden: Vec<u32>) -> Self {
        Self { page: OnceLock::new(), in_use, total, attached: AtomicU64::new(0), overridden, home: None }
    }

    /// What a worker process has instead of the registers: its device's process is told of changes.
    pub(crate) fn elsewhere(home: Arc<dyn Home>) -> Self {
        Self { home: Some(home), ..Self::new(0, Box::new(Unknown), Vec::new()) }
    }

    /// Takes the page, which has [`reg::V2_PAGE_BYTES`] at least. There is one at most.
    pub(crate) fn take(&self, page: Window) {
        // A second page would be a bus's mistake, and nobody would read it.
        let _ = self.page.set(page);
    }

    /// Stores the register at `offset`.
    pub(crate) fn store(&self, offset: u32, value: u32) {
        if let Some(page) = self.page.get() {
            page.u32_at(u64::from(offset)).store(value, Ordering::Release);
        }
    }

    /// Device memory that is free, in whole MiB.
    pub(crate) fn free_mib(&self) -> u32 {
        let free = self.total.saturating_sub(self.in_use.bytes());
        u32::try_from(free >> 20).unwrap_or(u32::MAX)
    }

    /// A bit for each channel that is not free.
    pub(crate) fn attached(&self) -> u64 {
        self.attached.load(Ordering::Acquire)
    }

    /// A channel is free from now on, or is not.
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

    /// Device memory was taken or given back.
    pub(crate) fn memory_changed(&self) {
        self.changed(None);
    }

    /// The same by the message of this number, which is answered now.
    pub(crate) fn answered(&self, number: u64) {
        self.changed(Some(number));
    }

    fn changed(&self, number: Option<u64>) {
        if let Some(home) = &self.home {
            home.memory_changed(number);
        }
        self.show(reg::V2_FREE_MIB, || self.free_mib());
    }

    /// The executor has worked for a session: told where another process keeps the registers.
    pub(crate) fn worked(&self) {
        if let Some(home) = &self.home {
            home.worked();
        }
    }

    /// A register of [`reg::usage`] of a channel has changed.
    pub(crate) fn usage_changed(&self, channel: u32, register: u32, truth: impl Fn() -> u32) {
        self.show(reg::usage::base(channel) + register, truth);
    }

    /// The registers of [`reg::usage`] of a channel are as `usage` tells from now on.
    pub(crate) fn usage_of(&self, channel: u32, usage: impl Fn(u32) -> u32) {
        for register in (0..reg::usage::USAGE_STRIDE).step_by(4) {
            self.usage_changed(channel, register, || usage(register));
        }
    }

    /// Brings a register of the page up to date. Of two threads that store at once the later to read the
    /// truth may store first, so each looks again after it has stored.
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
