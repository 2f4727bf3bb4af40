//! Allocates and frees device memory, at once or in stream order from a pool.

use std::ptr;

use vgpu_abi::CUresult;
use vgpu_abi::driver::CUmemoryPool;
use vgpu_wire::body::memory::{Address, MemAlloc, MemAllocAsync, MemFree, MemFreeAsync};

use crate::Result;
use crate::object::gpu::Gpu;
use crate::object::memory::{Range, Source};
use crate::object::stream::Stream;
use crate::object::{address, capture, current, pool};

/// Requests memory. If there is none, waits for frees under way, reclaims the memory of dead processes, and
/// requests it once more.
pub fn with_second_try<R>(gpu: &Gpu, ask: impl Fn() -> Result<R>) -> Result<R> {
    match ask() {
        Err(CUresult::OUT_OF_MEMORY) => {
            gpu.drain()?;
            gpu.queue.session.reclaim().map_err(|lost| gpu.queue.report(&lost))?;
            ask()
        }
        other => other,
    }
}

/// Allocates in the current context.
pub fn request_memory(bytes: usize) -> Result<u64> {
    let context = current::context()?;
    capture::forbid_unsafe()?;
    if bytes == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let gpu = context.gpu();
    gpu.queue.async_error()?;
    let message = MemAlloc { reply: 0, flags: 0, bytes: bytes as u64 };
    let Address { address } = with_second_try(gpu, || gpu.queue.ask(message, &[]))?;
    gpu.add_memory(address, bytes as u64, Source::Allocation, context.handle())?;
    Ok(address)
}

/// Frees an allocation, of a pool too. Orders all later work after all earlier work, and waits while the host
/// uses pinned memory.
pub fn free(address: u64) -> Result {
    current::context()?;
    capture::forbid_unsafe()?;
    if address == 0 {
        return Ok(());
    }
    let (gpu, _) = address::find(address)?.ok_or(CUresult::INVALID_VALUE)?;
    gpu.queue.async_error()?;
    let range = gpu.memory.remove(address, Range::is_allocation).ok_or(CUresult::INVALID_VALUE)?;
    pool::freed(&range);
    gpu.queue.send(&MemFree { address }, &[])?;
    gpu.quiesce_pinned()
}

/// Frees the allocations of a context.
pub fn end_context(gpu: &Gpu, context: usize) {
    let ended = |range: &Range| range.context == context && range.is_allocation();
    for range in gpu.memory.take_all(ended) {
        pool::freed(&range);
        // The context ends even if the host returns an error.
        let _ = gpu.queue.send(&MemFree { address: range.start }, &[]);
    }
}

/// Allocates in stream order, from the given pool or from the device's current one.
pub fn allocate_ordered(bytes: usize, from: Option<CUmemoryPool>, stream: &Stream) -> Result<u64> {
    let gpu = pool::supported(stream.gpu())?;
    let handle = from.unwrap_or_else(|| pool::current(gpu));
    let pool = pool::get(handle)?;
    if capture::intercept(stream)? {
        // An allocation within a graph: the contract has no such node.
        capture::fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED)?;
    }
    if bytes == 0 || !ptr::eq(pool.gpu(), gpu) {
        return Err(CUresult::INVALID_VALUE);
    }
    gpu.queue.async_error()?;
    stream.timeline.wait_for_room(&gpu.queue);
    let bytes = bytes as u64;
    pool.charge(bytes)?;
    let message = MemAllocAsync { reply: 0, stream: stream.timeline.number(), bytes };
    let given: Result<Address> = with_second_try(gpu, || gpu.queue.ask(message, &[]));
    let added = given.and_then(|Address { address }| {
        stream.timeline.submitted(&gpu.queue);
        gpu.add_memory(address, bytes, Source::Pool(handle.0), stream.context())?;
        Ok(address)
    });
    added.inspect_err(|_| pool.discharge(bytes))
}

/// Frees an allocation in stream order.
pub fn free_ordered(address: u64, stream: &Stream) -> Result {
    if capture::intercept(stream)? {
        return capture::fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED);
    }
    let gpu = stream.gpu();
    gpu.queue.async_error()?;
    let range = gpu.memory.remove(address, Range::is_allocation).ok_or(CUresult::INVALID_VALUE)?;
    pool::freed(&range);
    stream.send(&MemFreeAsync { stream: stream.timeline.number(), reserved: 0, address }, &[])
}
