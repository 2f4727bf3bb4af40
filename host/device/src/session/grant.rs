//! Shared memory of a session as whole mappings: what a driver registers so that a GPU reaches it.

use std::sync::Arc;

use vm_memory::VolatileMemory;

use crate::memory::pages::Run;
use crate::memory::window::Window;

/// A range of memory that the session's guest has too: a range of the window that was granted to it, its
/// channel's area, or a run of its pages. The memory stays mapped while this lives, whoever owns it then.
#[derive(Clone, Debug)]
pub struct Grant {
    memory: Mapped,
    offset: u64,
    bytes: u64,
}

#[derive(Clone, Debug)]
enum Mapped {
    Window(Arc<Window>),
    Pages(Arc<Run>),
}

impl Grant {
    /// `bytes` of the window from `offset` on.
    pub(crate) const fn window(window: Arc<Window>, offset: u64, bytes: u64) -> Self {
        Self { memory: Mapped::Window(window), offset, bytes }
    }

    /// All of a run of pages.
    pub(crate) fn pages(run: Arc<Run>) -> Self {
        let bytes = run.memory.bytes();
        Self { memory: Mapped::Pages(run), offset: 0, bytes }
    }

    /// Where the memory is mapped in this process. The guest writes to it at any moment: it is for devices,
    /// not for references.
    #[must_use]
    pub fn address(&self) -> usize {
        let memory = match &self.memory {
            Mapped::Window(window) => window,
            Mapped::Pages(run) => &run.memory,
        };
        let slice = memory.slice(self.offset, self.bytes).expect("a grant lies within its mapping");
        slice.as_volatile_slice().ptr_guard_mut().as_ptr().expose_provenance()
    }

    /// Length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}
