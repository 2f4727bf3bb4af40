//! The guest pages of a session: its return area, and the rest as a segment for copies back.

use std::sync::atomic::{AtomicBool, Ordering};

use vgpu_wire::body::pages::PagesRegister;
use zerocopy::IntoBytes;

use crate::messenger::Messenger;
use crate::outgoing::Tail;
use crate::pages::HugePages;
use crate::session_error::SessionError;

/// Number of the session's segment of guest pages.
pub(crate) const SEGMENT: u32 = 1;

/// The pages that a session has given to its host, if it has.
#[derive(Debug)]
pub(crate) struct GuestPages {
    pages: Option<HugePages>,
    /// What the return area leaves of them is a segment of the session.
    registered: AtomicBool,
}

impl GuestPages {
    pub(crate) fn new(pages: Option<HugePages>) -> Self {
        Self { pages, registered: AtomicBool::new(false) }
    }

    /// All pages, the return area's among them.
    pub(crate) fn all(&self) -> Option<&HugePages> {
        self.pages.as_ref()
    }

    /// The pages, if copies back may go through them.
    pub(crate) fn segment(&self) -> Option<&HugePages> {
        self.pages.as_ref().filter(|_| self.registered.load(Ordering::Acquire))
    }

    /// Makes what the return area leaves of the pages a segment. With a host that refuses, the return area
    /// stays there and copies go through the window.
    pub(crate) fn register(&self, messenger: &Messenger) -> Result<(), SessionError> {
        let Some(pages) = &self.pages else { return Ok(()) };
        let runs = pages.rest();
        let body = PagesRegister { reply: 0, segment: SEGMENT, runs: runs.len() as u32, reserved: 0 };
        let answer = messenger.call(body, Tail::Pieces(&[runs.as_bytes()]), &mut [])?;
        self.registered.store(answer.status == 0, Ordering::Release);
        Ok(())
    }
}
