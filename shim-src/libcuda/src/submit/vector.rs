//! Vector operations whose sum the program wants in its own memory. The host stores it in device memory of
//! this library, from which it is copied.

use std::ffi::{c_int, c_void};

use vgpu_abi::CUresult;
use vgpu_abi::blas::element_bytes;
use vgpu_wire::body::memory::{Address, MemAlloc};
use vgpu_wire::body::vector::VectorOp;

use crate::Result;
use crate::object::allocation::with_second_try;
use crate::object::capture;
use crate::object::gpu::Gpu;
use crate::object::stream::Stream;

/// Size in bytes of the largest sum, a complex number of doubles.
const SLOT: u64 = 16;
/// Number of bytes allocated at a time, the granularity of device memory.
const BLOCK: u64 = 512;

/// A slot for a sum in device memory. It belongs to no context of the program, and is kept for the next sum.
struct ResultSlot {
    gpu: &'static Gpu,
    address: u64,
}

impl ResultSlot {
    /// Returns a slot that no other call uses. More are allocated where calls of many threads overlap.
    fn acquire(gpu: &'static Gpu) -> Result<Self> {
        if let Some(address) = gpu.sums.lock().pop() {
            return Ok(Self { gpu, address });
        }
        let message = MemAlloc { reply: 0, flags: 0, bytes: BLOCK };
        let Address { address } = with_second_try(gpu, || gpu.queue.ask(message, &[]))?;
        gpu.sums.lock().extend((address + SLOT..address + BLOCK).step_by(SLOT as usize));
        Ok(Self { gpu, address })
    }
}

impl Drop for ResultSlot {
    fn drop(&mut self) {
        self.gpu.sums.lock().push(self.address);
    }
}

/// Submits an operation, waits for its sum, and stores it at `place`.
pub fn sum(stream: &Stream, operation: VectorOp, place: *mut c_void) -> Result {
    capture::forbid_sync(stream)?;
    let gpu = stream.gpu();
    gpu.queue.async_error()?;
    let kind: c_int = operation.scalar_type.cast_signed();
    let bytes = element_bytes(kind).filter(|&bytes| bytes <= SLOT).ok_or(CUresult::INVALID_VALUE)?;
    let slot = ResultSlot::acquire(gpu)?;
    let number = stream.timeline.number();
    stream.send(&VectorOp { stream: number, result: slot.address, ..operation }, &[])?;
    // SAFETY: the export's caller promised room for a number of the scalar type at `place`.
    unsafe { gpu.queue.session.copy_out(number, slot.address, place.cast(), bytes as usize) }
        .map_err(|lost| gpu.queue.report(&lost))?;
    gpu.queue.observe_completion();
    gpu.queue.async_error()
}
