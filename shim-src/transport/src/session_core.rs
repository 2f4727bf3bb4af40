//! State of an attached [`crate::Session`]: its parts side by side, each implemented in a file of its own.

use std::sync::{Arc, OnceLock};

use crate::addresses::Reservation;
use crate::bridge::Bridge;
use crate::fences::Fences;
use crate::guest_pages::GuestPages;
use crate::late_errors::LateErrors;
use crate::link::Link;
use crate::messenger::Messenger;
use crate::reclaim::Reclaimer;
use crate::return_path::ReturnPath;
use crate::staging::Staging;
use crate::window_alloc::WindowAllocator;

/// An attached session. Public types hold it by `Arc`; none of its parts does.
pub(crate) struct SessionCore {
    pub(crate) messenger: Messenger,
    pub(crate) fences: Fences,
    pub(crate) late_errors: LateErrors,
    pub(crate) window: WindowAllocator,
    pub(crate) reclaimer: Reclaimer,
    pub(crate) pages: GuestPages,
    pub(crate) staging: Staging,
    /// Bridge to the device if it does not have version 2.
    pub(crate) bridge: Option<Arc<dyn Bridge>>,
    /// Offset of the channel's area in the window.
    pub(crate) area: u64,
    /// Return path of the session, chosen at the attach.
    pub(crate) return_path: ReturnPath,
    /// Whether reads from the window are fast enough to hand window memory to the program. Measured on first
    /// use.
    pub(crate) reads_well: OnceLock<bool>,
    /// Reservation that keeps the function's device addresses free of this process's memory; unset if the
    /// host announces none.
    pub(crate) addresses: OnceLock<Reservation>,
}

impl SessionCore {
    #[inline]
    pub(crate) fn link(&self) -> &Link {
        &self.messenger.link
    }
}

impl std::fmt::Debug for SessionCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SessionCore").field(self.link()).finish()
    }
}
