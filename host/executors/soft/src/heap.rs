//! The heap of a session's kernels: the device memory that `malloc` in a kernel allocates from.

use std::sync::Arc;

use vgpu_device::{Charge, OutOfMemory, Resource, SessionHost};
use vgpu_simt::Heap;

use crate::memory::{Allocation, Memory};

/// Size of the heap in bytes: CUDA's default, which the guest reports.
const BYTES: u64 = 8 << 20;

/// A heap and the memory that it manages, which is freed with it.
#[derive(Debug)]
pub(crate) struct OwnHeap {
    heap: Arc<Heap>,
    _memory: Allocation,
    _notes: Charge,
}

impl OwnHeap {
    /// Allocates the memory and the tables of a heap. Both are charged to the session, the tables as host
    /// memory. Asks the device for the memory first, because no message of the guest requests it.
    pub(crate) fn new(memory: &Memory, host: &SessionHost) -> Result<Self, OutOfMemory> {
        let notes = host.charges().charge(Resource::HostBytes, Heap::cost(BYTES)).map_err(|_| OutOfMemory)?;
        let allocate = || {
            let allocated = memory.allocate_own(BYTES);
            host.gauges().set_allocated(|| memory.charged());
            allocated
        };
        let memory = host.with_reserved(BYTES, allocate).unwrap_or(Err(OutOfMemory))?;
        let heap = Arc::new(Heap::new(memory.address(), BYTES).ok_or(OutOfMemory)?);
        Ok(Self { heap, _memory: memory, _notes: notes })
    }

    /// Returns the heap that is passed to launches.
    pub(crate) const fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }
}
