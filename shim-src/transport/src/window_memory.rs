//! Handle by which an owner uses window memory.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::session_core::SessionCore;
use crate::session_error::SessionError;
use crate::window_alloc::{Grant, free};

/// Window memory of a session, for pinned host memory. It is freed on drop; the host gives it to another
/// session only after the work that refers to it.
#[derive(Debug)]
pub struct WindowMemory {
    core: Arc<SessionCore>,
    grant: Grant,
    address: NonNull<u8>,
}

// SAFETY: the address is one of a mapping that `core` keeps; what lies there is reached by raw pointers only.
unsafe impl Send for WindowMemory {}
// SAFETY: as above; shared use hands out the address alone.
unsafe impl Sync for WindowMemory {}

impl WindowMemory {
    pub(crate) fn new(core: Arc<SessionCore>, bytes: u64) -> Result<Option<Self>, SessionError> {
        let Some(grant) = core.window.allocate(&core.messenger, &core.reclaimer, bytes)? else {
            return Ok(None);
        };
        let address = core.link().window.pointer(grant.offset, grant.bytes);
        Ok(address.map(|address| Self { core, grant, address }))
    }

    /// Returns the offset in the window, for [`vgpu_wire::Span::bar`].
    pub fn offset(&self) -> u64 {
        self.grant.offset
    }

    /// Returns the size in bytes: the requested size, rounded up to the granule.
    pub fn bytes(&self) -> u64 {
        self.grant.bytes
    }

    /// Returns the address of the memory in this process, valid for `bytes()` while this value exists. Its
    /// content is lost when the session is closed or ends. The host may write there at any time, so no Rust
    /// reference into it may ever exist.
    pub fn ptr(&self) -> *mut u8 {
        self.address.as_ptr()
    }
}

impl Drop for WindowMemory {
    fn drop(&mut self) {
        // If the session is lost, the host has freed the memory already.
        let _ = free(&self.core.messenger, self.grant);
    }
}
