//! The device's own registers in a page of memory, for buses whose guests can read one: who looks at a
//! device then asks nobody. The page holds each register at its offset; the device stores what changes.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use vgpu_wire::registers as reg;

use crate::executor::Executor;
use crate::window::Window;

/// The page, once a bus has made one, and what its changing register is computed from.
pub(crate) struct Published {
    page: OnceLock<Window>,
    executor: Arc<dyn Executor>,
    /// Device memory in bytes.
    total: u64,
}

impl Published {
    pub(crate) fn new(executor: Arc<dyn Executor>, total: u64) -> Self {
        Self { page: OnceLock::new(), executor, total }
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
        let free = self.total.saturating_sub(self.executor.allocated());
        u32::try_from(free >> 20).unwrap_or(u32::MAX)
    }

    /// Device memory was taken or given back. Of two threads that store at once the later to read the
    /// account may store first, so each looks again after it has stored.
    pub(crate) fn memory_changed(&self) {
        let Some(page) = self.page.get() else { return };
        let register = page.u32_at(u64::from(reg::V2_FREE_MIB));
        loop {
            let free = self.free_mib();
            if register.load(Ordering::Acquire) == free {
                return;
            }
            register.store(free, Ordering::SeqCst);
        }
    }
}
