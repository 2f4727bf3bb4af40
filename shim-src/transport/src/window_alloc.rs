//! Window memory: parts of BAR2 that the host allocates to a session.

use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_wire::area::WINDOW_GRANULE;
use vgpu_wire::body::session::{WindowAlloc, WindowAllocReply, WindowFree};
use zerocopy::{FromZeros, IntoBytes};

use crate::messenger::Messenger;
use crate::outgoing::{Outgoing, Tail};
use crate::reclaim::Reclaimer;
use crate::session_error::{GoneReason, SessionError};

/// `CUDA_ERROR_OUT_OF_MEMORY`: the window has no room.
const OUT_OF_MEMORY: u32 = 2;

/// A range of the window that belongs to the session, checked to be within window memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Allocator of a session's window memory, which the host grants.
#[derive(Debug)]
pub(crate) struct WindowAllocator {
    /// Number of bytes that the device has for all its sessions; 0 until the greeting.
    bytes: AtomicU64,
    /// Offset of the end of the channels' areas.
    first: u64,
}

impl WindowAllocator {
    pub(crate) fn new(first: u64) -> Self {
        Self { bytes: AtomicU64::new(0), first }
    }

    /// Stores the number of bytes for all sessions, as the host's greeting states it.
    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Allocates window memory. If there is no room, reclaims the memory of dead processes and tries once
    /// more. Returns `None` if there is still no room.
    pub(crate) fn allocate(
        &self,
        messenger: &Messenger,
        reclaimer: &Reclaimer,
        bytes: u64,
    ) -> Result<Option<Grant>, SessionError> {
        messenger.link.enter()?;
        let bytes = bytes.max(1);
        if bytes > self.bytes.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if let Some(grant) = self.request(messenger, bytes)? {
            return Ok(Some(grant));
        }
        if reclaimer.reclaim(&messenger.link)? == 0 { Ok(None) } else { self.request(messenger, bytes) }
    }

    fn request(&self, messenger: &Messenger, bytes: u64) -> Result<Option<Grant>, SessionError> {
        let mut given = WindowAllocReply::new_zeroed();
        let body = WindowAlloc { reply: 0, reserved: 0, bytes };
        let answer = messenger.call(body, Tail::Pieces(&[]), given.as_mut_bytes())?;
        match answer.status {
            0 if answer.bytes == size_of::<WindowAllocReply>() => {}
            OUT_OF_MEMORY => return Ok(None),
            _ => return Err(messenger.link.gone(GoneReason::Nonsense)),
        }
        // A device must not make this process write to channels' areas, or beyond the window.
        let window = &messenger.link.window;
        let good = given.offset.is_multiple_of(WINDOW_GRANULE)
            && given.bytes >= bytes
            && given.bytes <= window.bytes()
            && given.offset >= self.first
            && window.pointer(given.offset, given.bytes).is_some();
        if good {
            Ok(Some(Grant { offset: given.offset, bytes: given.bytes }))
        } else {
            Err(messenger.link.gone(GoneReason::Nonsense))
        }
    }
}

/// Returns window memory to the host.
pub(crate) fn free(messenger: &Messenger, grant: Grant) -> Result<(), SessionError> {
    let message = WindowFree { offset: grant.offset };
    messenger.send(&Outgoing::new(&message, Tail::Pieces(&[]))).map(|_| ())
}
