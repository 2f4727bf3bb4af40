//! Shared memory of a session as whole mappings, which a driver registers so that a GPU can access them.

use std::sync::Arc;

use vm_memory::VolatileMemory;

use crate::memory::pages::MappedRun;
use crate::memory::window::Window;

/// Shared memory that a driver can register as one mapping: a granted range of the window, the channel's
/// area, or a run of guest pages. The memory stays mapped while this lives, whichever session owns it.
#[derive(Clone, Debug)]
pub struct Grant {
    memory: GrantMemory,
    offset: u64,
    bytes: u64,
}

#[derive(Clone, Debug)]
enum GrantMemory {
    Window(Arc<Window>),
    Pages(Arc<MappedRun>),
}

impl Grant {
    /// Makes a grant of `bytes` of the window from `offset` on.
    pub(crate) const fn window(window: Arc<Window>, offset: u64, bytes: u64) -> Self {
        Self { memory: GrantMemory::Window(window), offset, bytes }
    }

    /// Makes a grant of a whole run of pages.
    pub(crate) fn pages(run: Arc<MappedRun>) -> Self {
        let bytes = run.memory.bytes();
        Self { memory: GrantMemory::Pages(run), offset: 0, bytes }
    }

    /// Returns the address of the mapping in this process. The guest may write to the memory at any moment,
    /// so the address is for DMA and not for references.
    #[must_use]
    pub fn address(&self) -> usize {
        let memory = match &self.memory {
            GrantMemory::Window(window) => window,
            GrantMemory::Pages(run) => &run.memory,
        };
        let slice = memory.slice(self.offset, self.bytes).expect("a grant lies within its mapping");
        slice.as_volatile_slice().ptr_guard_mut().as_ptr().expose_provenance()
    }

    /// Returns the length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}
