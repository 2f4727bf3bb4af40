//! Releases of held streams: the word of the submit page that the guest stores, and a GPU polls.

use std::sync::atomic::{AtomicU32, Ordering};

use vgpu_wire::area;

use super::SessionHost;
use crate::session::grant::Grant;

impl SessionHost {
    /// Returns the memory with the word of released holds ([`area::SUBMIT_RELEASED`]), and the word's offset.
    #[must_use]
    pub fn release_word(&self) -> (Grant, u64) {
        (self.0.memory.area_grant(), area::SUBMIT + area::SUBMIT_RELEASED)
    }

    /// Returns whether the guest, or [`SessionHost::stop`], has stored the release of a hold. Numbers are
    /// compared as a GPU compares them.
    #[must_use]
    pub fn has_released(&self, hold: u32) -> bool {
        self.released_holds().load(Ordering::Acquire).wrapping_sub(hold).cast_signed() >= 0
    }

    /// Releases all holds up to a number, as the guest does.
    pub fn release_holds(&self, hold: u32) {
        self.released_holds().fetch_max(hold, Ordering::AcqRel);
    }

    /// Releases all holds, because the session ends. The guest can still overwrite the word.
    pub fn release_all_holds(&self) {
        // After that the area may belong to another session. It is zeroed before that one starts.
        if !self.0.freed.load(Ordering::Acquire) {
            self.released_holds().store(area::HOLD_MAX, Ordering::Release);
        }
    }

    fn released_holds(&self) -> &AtomicU32 {
        self.window().u32_at(self.area() + area::SUBMIT + area::SUBMIT_RELEASED)
    }
}
