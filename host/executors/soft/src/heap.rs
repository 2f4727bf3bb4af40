//! The heap of a session's kernels: the device memory that their `malloc` gives out.

use std::sync::Arc;

use vgpu_device::{Charge, OutOfMemory, Resource, SessionHost};
use vgpu_simt::Heap;

use crate::memory::{Allocation, Memory};

/// Bytes of the heap: what CUDA has by default, and what the guest reports.
const BYTES: u64 = 8 << 20;

/// A heap with its memory, which goes with it.
#[derive(Debug)]
pub(crate) struct OwnHeap {
    heap: Arc<Heap>,
    _memory: Allocation,
    _notes: Charge,
}

impl OwnHeap {
    /// Takes the memory for a heap and for the notes of what is allocated there, both charged to the session.
    pub(crate) fn new(memory: &Memory, host: &SessionHost) -> Result<Self, OutOfMemory> {
        let notes = host.charges().take(Resource::HostBytes, Heap::cost(BYTES)).map_err(|_| OutOfMemory)?;
        let memory = memory.allocate_own(BYTES)?;
        let heap = Arc::new(Heap::new(memory.address(), BYTES).ok_or(OutOfMemory)?);
        Ok(Self { heap, _memory: memory, _notes: notes })
    }

    /// What launches allocate from.
    pub(crate) const fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }
}
