//! Shared memory on its way back from a session: who gets it, and when.

use std::sync::Arc;

use crate::memory::pages::Segment;
use crate::session::grant::Grant;
use crate::session::remote::{Home, SharedRange};
use crate::session::return_area::ReplyTo;
use crate::session::violation::Violation;

use super::SessionHost;

/// Shared memory that a guest has given back, or wants back. Dropping it gives window memory to whoever asks
/// next, and pages to the guest.
#[derive(Debug)]
pub struct Retired {
    host: SessionHost,
    range: SharedRange,
    /// The memory of guest pages.
    pages: Option<Segment>,
    back: Back,
}

/// What happens when nothing refers to the memory any more.
enum Back {
    /// It is window memory, which the device gives to whoever asks next.
    Window,
    /// It is the guest's, which is told so.
    Pages(ReplyTo),
    /// The device's process gave it this number, and is told.
    Elsewhere(u64, Arc<dyn Home>),
}

impl std::fmt::Debug for Back {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Window => f.write_str("Window"),
            Self::Pages(to) => f.debug_tuple("Pages").field(to).finish(),
            Self::Elsewhere(number, _) => f.debug_tuple("Elsewhere").field(number).finish_non_exhaustive(),
        }
    }
}

impl Retired {
    /// The memory.
    #[must_use]
    pub const fn range(&self) -> SharedRange {
        self.range
    }

    /// Where the memory is mapped in this process: of each range that was granted, or run of pages, the first
    /// address, as [`Grant::address`] has it.
    #[must_use]
    pub fn addresses(&self) -> Vec<usize> {
        match (&self.range, &self.pages) {
            (SharedRange::Window { offset, bytes }, _) => {
                vec![self.host.0.memory.window_grant(*offset, *bytes).address()]
            }
            (_, Some(pages)) => pages.runs().map(|run| Grant::pages(Arc::clone(run)).address()).collect(),
            (_, None) => Vec::new(),
        }
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        match (&self.back, self.range) {
            (Back::Window, SharedRange::Window { offset, bytes }) => {
                self.host.0.memory.give_back_window(offset, bytes);
            }
            (Back::Window, SharedRange::Pages { .. }) => {}
            (Back::Pages(to), _) => {
                if let Some(pages) = &self.pages {
                    self.host.0.memory.give_back_pages(pages);
                }
                self.host.reply(*to, 0, &[]);
            }
            (Back::Elsewhere(number, home), range) => {
                // Unmapped before anybody is told so.
                drop(self.pages.take());
                home.let_go(*number, range);
            }
        }
    }
}

impl SessionHost {
    /// `PagesUnregister`: from now on no span may name the segment; answered when nothing refers to it any
    /// more.
    pub(crate) fn retire_pages(&self, number: u32, to: ReplyTo) -> Result<Retired, Violation> {
        let pages = self.0.memory.disown_pages(number).ok_or(Violation::unknown("segment", number))?;
        let range = SharedRange::Pages { segment: number };
        Ok(Retired { host: self.clone(), range, pages: Some(pages), back: Back::Pages(to) })
    }

    /// Window memory that the guest gives back: from now on no span may name it.
    pub(crate) fn retire_window(&self, offset: u64) -> Result<Retired, Violation> {
        let bytes = self.0.memory.disown_window(offset).ok_or(Violation::WindowFree(offset))?;
        let range = SharedRange::Window { offset, bytes };
        Ok(Retired { host: self.clone(), range, pages: None, back: Back::Window })
    }

    /// What the device's process has retired by a number, in a worker process: from now on no span may name
    /// it. `home` is told when nothing refers to it any more. `None`: it is not the session's.
    pub fn retire_elsewhere(&self, range: SharedRange, number: u64, home: Arc<dyn Home>) -> Option<Retired> {
        let pages = match range {
            SharedRange::Window { offset, .. } => {
                self.0.memory.disown_window(offset)?;
                None
            }
            SharedRange::Pages { segment } => Some(self.0.memory.disown_pages(segment)?),
        };
        Some(Retired { host: self.clone(), range, pages, back: Back::Elsewhere(number, home) })
    }
}
