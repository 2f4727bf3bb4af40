//! The guest pages of a session: its return area, and the rest as a segment for downloads.

use std::sync::atomic::{AtomicBool, Ordering};

use vgpu_wire::body::pages::PagesRegister;
use zerocopy::IntoBytes;

use crate::messenger::Messenger;
use crate::outgoing::Tail;
use crate::pages::HugePages;
use crate::session_error::SessionError;

/// Number of the session's segment of guest pages.
pub(crate) const SEGMENT: u32 = 1;

/// The pages that a session has given to its host, if any.
#[derive(Debug)]
pub(crate) struct GuestPages {
    pages: Option<HugePages>,
    /// Whether the pages behind the return area are registered as a segment of the session.
    registered: AtomicBool,
}

impl GuestPages {
    pub(crate) fn new(pages: Option<HugePages>) -> Self {
        Self { pages, registered: AtomicBool::new(false) }
    }

    /// Returns all pages, including those of the return area.
    pub(crate) fn all(&self) -> Option<&HugePages> {
        self.pages.as_ref()
    }

    /// Returns the pages if downloads may go through them.
    pub(crate) fn segment(&self) -> Option<&HugePages> {
        self.pages.as_ref().filter(|_| self.registered.load(Ordering::Acquire))
    }

    /// Registers the pages behind the return area as a segment. If the host refuses, the return area stays
    /// there and downloads go through the window.
    pub(crate) fn register(&self, messenger: &Messenger) -> Result<(), SessionError> {
        let Some(pages) = &self.pages else { return Ok(()) };
        let runs = pages.rest();
        let body = PagesRegister { reply: 0, segment: SEGMENT, runs: runs.len() as u32, reserved: 0 };
        let answer = messenger.call(body, Tail::Pieces(&[runs.as_bytes()]), &mut [])?;
        self.registered.store(answer.status == 0, Ordering::Release);
        Ok(())
    }
}
