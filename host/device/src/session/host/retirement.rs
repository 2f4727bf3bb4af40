//! Shared memory that a session returns: who receives it, and when.

use std::sync::Arc;

use crate::memory::pages::PageSegment;
use crate::saved::error::RestoreError;
use crate::saved::state::RetiredState;
use crate::session::grant::Grant;
use crate::session::remote::{DeviceProcess, SharedRange};
use crate::session::return_area::ReplyTo;
use crate::session::violation::Violation;

use super::SessionHost;

/// Shared memory that a guest has freed. Dropping this makes window memory available again and unregisters
/// pages.
#[derive(Debug)]
pub struct RetiredMemory {
    host: SessionHost,
    range: SharedRange,
    /// Segment, if the memory is guest pages.
    pages: Option<PageSegment>,
    back: Recipient,
}

/// Recipient of the memory when nothing refers to it any more.
enum Recipient {
    /// The window's allocator gets window memory.
    Window,
    /// The guest gets its pages back, and an answer to this message.
    Pages(ReplyTo),
    /// The device's process gets a message with this number.
    Worker(u64, Arc<dyn DeviceProcess>),
}

impl std::fmt::Debug for Recipient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Window => f.write_str("Window"),
            Self::Pages(to) => f.debug_tuple("Pages").field(to).finish(),
            Self::Worker(number, _) => f.debug_tuple("Worker").field(number).finish_non_exhaustive(),
        }
    }
}

impl RetiredMemory {
    /// Describes the memory, which keeps its recipient, or returns `None` in a worker process.
    #[must_use]
    pub fn save(&self) -> Option<RetiredState> {
        match (&self.back, self.range, &self.pages) {
            (Recipient::Window, SharedRange::Window { offset, bytes }, _) => {
                Some(RetiredState::Window { offset, bytes })
            }
            (Recipient::Pages(to), SharedRange::Pages { segment }, Some(pages)) => {
                let (slot, number) = (to.slot, to.number);
                Some(RetiredState::Pages { segment, runs: pages.save(), slot, number })
            }
            _ => None,
        }
    }

    pub(super) fn restore(host: &SessionHost, state: &RetiredState) -> Result<Self, RestoreError> {
        let memory = &host.0.memory;
        match state {
            &RetiredState::Window { offset, bytes } => {
                memory.restore_retired_window(offset, bytes)?;
                let range = SharedRange::Window { offset, bytes };
                Ok(Self { range, pages: None, back: Recipient::Window, host: host.clone() })
            }
            RetiredState::Pages { segment, runs, slot, number } => {
                let pages = Some(memory.map_runs(runs)?);
                let back = Recipient::Pages(ReplyTo::new(*slot, *number));
                Ok(Self { range: SharedRange::Pages { segment: *segment }, pages, back, host: host.clone() })
            }
        }
    }

    /// Returns the retired memory.
    #[must_use]
    pub const fn range(&self) -> SharedRange {
        self.range
    }

    /// Returns the first address of each mapping of the memory in this process, as [`Grant::address`] returns
    /// it for the range or for each run of pages.
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

impl Drop for RetiredMemory {
    fn drop(&mut self) {
        match (&self.back, self.range) {
            (Recipient::Window, SharedRange::Window { offset, bytes }) => {
                self.host.0.memory.free_window(offset, bytes);
            }
            (Recipient::Window, SharedRange::Pages { .. }) => {}
            (Recipient::Pages(to), _) => {
                if let Some(pages) = &self.pages {
                    self.host.0.memory.unregister_pages(pages);
                }
                self.host.reply(*to, 0, &[]);
            }
            (Recipient::Worker(number, home), range) => {
                // Unmapped before the recipient is told.
                drop(self.pages.take());
                home.release(*number, range);
            }
        }
    }
}

impl SessionHost {
    /// Handles `PagesUnregister`: no span may name the segment from now on. The answer is stored when nothing
    /// refers to it any more.
    pub(crate) fn retire_pages(&self, number: u32, to: ReplyTo) -> Result<RetiredMemory, Violation> {
        let pages = self.0.memory.remove_pages(number).ok_or(Violation::unknown("segment", number))?;
        let range = SharedRange::Pages { segment: number };
        Ok(RetiredMemory { host: self.clone(), range, pages: Some(pages), back: Recipient::Pages(to) })
    }

    /// Retires window memory that the guest frees. No span may name it from now on.
    pub(crate) fn retire_window(&self, offset: u64) -> Result<RetiredMemory, Violation> {
        let bytes = self.0.memory.retire_window(offset).ok_or(Violation::WindowFree(offset))?;
        let range = SharedRange::Window { offset, bytes };
        Ok(RetiredMemory { host: self.clone(), range, pages: None, back: Recipient::Window })
    }

    /// Retires memory in a worker process, as the device's process has done under `number`. No span may name
    /// it from now on, and `home` is told when nothing refers to it any more. Returns `None` if the memory
    /// does not belong to the session.
    pub fn retire_in_worker(
        &self,
        range: SharedRange,
        number: u64,
        home: Arc<dyn DeviceProcess>,
    ) -> Option<RetiredMemory> {
        let pages = match range {
            SharedRange::Window { offset, .. } => {
                self.0.memory.remove_window(offset)?;
                None
            }
            SharedRange::Pages { segment } => Some(self.0.memory.remove_pages(segment)?),
        };
        Some(RetiredMemory { host: self.clone(), range, pages, back: Recipient::Worker(number, home) })
    }
}
