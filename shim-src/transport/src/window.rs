//! Window memory: shares of BAR2 that the session owns.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vgpu_wire::area::WINDOW_GRANULE;
use vgpu_wire::body::session::{WindowAlloc, WindowAllocReply, WindowFree};
use zerocopy::{FromZeros, IntoBytes};

use crate::inner::Inner;
use crate::lost::{GoneReason, Lost};
use crate::ring::{Outgoing, Tail};

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;

/// A range of the window that the host gave, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Inner {
    /// Takes window memory; if there is no room, after taking back what dead processes hold.
    pub(crate) fn take_window(&self, bytes: u64) -> Result<Option<Grant>, Lost> {
        self.enter()?;
        let bytes = bytes.max(1);
        if bytes > self.window_bytes.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if let Some(grant) = self.ask_window(bytes)? {
            return Ok(Some(grant));
        }
        if self.reclaim()? == 0 { Ok(None) } else { self.ask_window(bytes) }
    }

    fn ask_window(&self, bytes: u64) -> Result<Option<Grant>, Lost> {
        let mut given = WindowAllocReply::new_zeroed();
        let answer =
            self.call(WindowAlloc { reply: 0, reserved: 0, bytes }, Tail::Pieces(&[]), given.as_mut_bytes())?;
        match answer.status {
            0 if answer.bytes == size_of::<WindowAllocReply>() => {}
            OUT_OF_MEMORY => return Ok(None),
            _ => return Err(self.gone(GoneReason::Nonsense)),
        }
        // The device must not make us write where channels or nothing at all lie.
        let good = given.offset.is_multiple_of(WINDOW_GRANULE)
            && given.bytes >= bytes
            && given.bytes <= self.window.bytes()
            && given.offset >= self.areas.end()
            && self.window.pointer(given.offset, given.bytes).is_some();
        if good {
            Ok(Some(Grant { offset: given.offset, bytes: given.bytes }))
        } else {
            Err(self.gone(GoneReason::Nonsense))
        }
    }

    pub(crate) fn give_window(&self, grant: Grant) -> Result<(), Lost> {
        self.post(&Outgoing::new(&WindowFree { offset: grant.offset }, Tail::Pieces(&[]))).map(|_| ())
    }
}

/// Window memory of a session, for pinned host memory; given back on drop (to another session after the work that
/// refers to it, the host sees to that).
#[derive(Debug)]
pub struct WindowMemory {
    inner: Arc<Inner>,
    grant: Grant,
    address: NonNull<u8>,
}

// SAFETY: the address is one of a mapping that `inner` keeps; what lies there is reached by raw pointers only.
unsafe impl Send for WindowMemory {}
// SAFETY: as above; shared use hands out the address alone.
unsafe impl Sync for WindowMemory {}

impl WindowMemory {
    pub(crate) fn new(inner: Arc<Inner>, bytes: u64) -> Result<Option<Self>, Lost> {
        let Some(grant) = inner.take_window(bytes)? else { return Ok(None) };
        let address = inner.window.pointer(grant.offset, grant.bytes);
        Ok(address.map(|address| Self { inner, grant, address }))
    }

    /// Offset in the window, for [`vgpu_wire::Span::bar`].
    pub fn offset(&self) -> u64 {
        self.grant.offset
    }

    /// Bytes: what was asked for, rounded up to the granule.
    pub fn bytes(&self) -> u64 {
        self.grant.bytes
    }

    /// Where the process sees it; when the session is closed or ended, what lies there is lost. Valid for `bytes()` while this value lives. The host may write there at any time, so no
    /// Rust reference into it may ever exist.
    pub fn ptr(&self) -> *mut u8 {
        self.address.as_ptr()
    }
}

impl Drop for WindowMemory {
    fn drop(&mut self) {
        // A session that is lost has given everything back already.
        let _ = self.inner.give_window(self.grant);
    }
}
