//! Memory through which long payloads reach an executor: a slot for each call in progress, so that no call
//! waits for another's.

use std::sync::{Arc, Mutex};

use vgpu_device::{Window, lock};
use vgpu_wire::v1::PAYLOAD_MAX;

/// Size of a slot in bytes: that of the longest payload.
pub(super) const SLOT_BYTES: u64 = PAYLOAD_MAX as u64;
/// Number of unused slots that keep their memory. A call that gets one of them does not allocate, which would
/// take longer than the copy.
const WARM: usize = 4;

/// All slots, which are part of the mediator's window.
#[derive(Debug)]
pub(super) struct PayloadSlots {
    window: Arc<Window>,
    start: u64,
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    /// Indices of unused slots that keep their memory.
    warm: Vec<u32>,
    cold: Vec<u32>,
}

/// A slot in use. Dropping this releases it.
#[derive(Debug)]
pub(super) struct PayloadSlot {
    slots: Arc<PayloadSlots>,
    index: u32,
}

impl PayloadSlots {
    /// Makes `count` slots from offset `start` on, without memory.
    pub(super) fn new(window: Arc<Window>, start: u64, count: u32) -> Arc<Self> {
        let free = Free { warm: Vec::new(), cold: (0..count).rev().collect() };
        Arc::new(Self { window, start, free: Mutex::new(free) })
    }

    /// Acquires an unused slot. Returns `None` if all are in use, or if the host has no memory.
    pub(super) fn acquire(self: &Arc<Self>) -> Option<PayloadSlot> {
        let mut free = lock(&self.free);
        if let Some(index) = free.warm.pop() {
            return Some(PayloadSlot { slots: Arc::clone(self), index });
        }
        let index = free.cold.pop()?;
        drop(free);
        // From here on, dropping the value releases the slot.
        let slot = PayloadSlot { slots: Arc::clone(self), index };
        self.window.reserve(slot.offset(), SLOT_BYTES).then_some(slot)
    }
}

impl PayloadSlot {
    /// Returns the offset in bytes of the slot in the window.
    pub(super) fn offset(&self) -> u64 {
        self.slots.start + u64::from(self.index) * SLOT_BYTES
    }
}

impl Drop for PayloadSlot {
    fn drop(&mut self) {
        let mut free = lock(&self.slots.free);
        if free.warm.len() < WARM {
            free.warm.push(self.index);
        } else {
            drop(free);
            self.slots.window.clear(self.offset(), SLOT_BYTES);
            lock(&self.slots.free).cold.push(self.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_had_once_and_few_keep_their_memory() {
        let window = Arc::new(Window::private(6 * SLOT_BYTES).unwrap());
        let slots = PayloadSlots::new(Arc::clone(&window), 0, 6);
        let all: Vec<PayloadSlot> = std::iter::from_fn(|| slots.acquire()).collect();
        let mut offsets: Vec<u64> = all.iter().map(PayloadSlot::offset).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, [0, 1, 2, 3, 4, 5].map(|index| index * SLOT_BYTES));
        let blocks = || std::os::unix::fs::MetadataExt::blocks(&file(&window).metadata().unwrap()) * 512;
        assert_eq!(blocks(), 6 * SLOT_BYTES);
        drop(all);
        assert_eq!(blocks(), WARM as u64 * SLOT_BYTES);
        assert!(slots.acquire().is_some());
    }

    fn file(window: &Window) -> std::fs::File {
        window.file().try_clone_to_owned().unwrap().into()
    }
}
