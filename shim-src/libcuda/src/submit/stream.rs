//! Submits work to streams and queries them, unless a capture records or forbids it.

use std::ptr;

use vgpu_wire::Payload;

use crate::Result;
use crate::object::gpu::Gpu;
use crate::object::stream::Stream;
use crate::object::{capture, context, stream};
use crate::queue::pending::FencePoint;
use crate::queue::timeline::Timeline;

/// Sends a piece of work for the stream to the host, or adds it to a capture as a node. `make` receives the
/// stream's number in messages, or 0 in a graph, whose nodes are ordered by their edges.
#[inline]
pub fn submit<P: Payload>(stream: &Stream, make: impl FnOnce(u32) -> P, tail: &[&[u8]]) -> Result {
    if capture::intercept(stream)? {
        return capture::record(stream, &make(0), tail);
    }
    stream.send(&make(stream.timeline.number()), tail)
}

/// Synchronises with a stream. Waits while the host may still use the program's memory; otherwise ordering
/// all later work after the stream's is enough.
pub fn synchronize(stream: &Stream) -> Result {
    if capture::any() {
        capture::forbid_sync(stream)?;
    }
    let gpu = stream.gpu();
    if stream.is_legacy() {
        return gpu.quiesce_pinned();
    }
    stream.timeline.synchronize(&gpu.queue)?;
    gpu.queue.async_error()
}

/// Returns whether all work of the stream has completed.
pub fn query(stream: &Stream) -> Result<bool> {
    if capture::any() {
        capture::forbid_sync(stream)?;
    }
    let gpu = stream.gpu();
    gpu.queue.async_error()?;
    let (fence, fresh) = if stream.is_legacy() {
        legacy_fence(stream, gpu)?
    } else if stream.timeline.is_joined() {
        (None, false)
    } else {
        (stream.timeline.signal(&gpu.queue)?, stream.timeline.is_fresh(&gpu.queue))
    };
    if let Some((word, value)) = fence
        && !gpu.queue.reached(word, value)?
    {
        if fresh || gpu.queue.holds.any() {
            return Ok(false);
        }
        gpu.queue.wait(word, value)?;
    }
    gpu.queue.observe_completion();
    gpu.queue.async_error()?;
    Ok(true)
}

/// Returns the fence point that covers the legacy stream, and whether it may be reported as incomplete. The
/// legacy stream is ordered after the work of the other streams, so the work submitted to all of them
/// together decides whether the fence point of an older query still covers everything.
fn legacy_fence(legacy: &Stream, gpu: &Gpu) -> Result<(Option<FencePoint>, bool)> {
    let (mut submitted, mut joined, mut fresh) = (0, true, false);
    for_all_timelines(gpu, |timeline| {
        submitted += timeline.submitted_so_far();
        joined &= timeline.is_joined();
        fresh |= timeline.is_fresh(&gpu.queue);
    });
    if joined {
        return Ok((None, false));
    }
    let mut query = legacy.query.lock();
    let fence = match *query {
        Some((fence, count)) if count == submitted => fence,
        _ => {
            let fence = gpu.everything.signal_always(&gpu.queue)?;
            *query = Some((fence, submitted));
            fence
        }
    };
    Ok((Some(fence), fresh))
}

/// Calls `each` with the timeline of every stream of a device, including the legacy streams of all its
/// contexts.
fn for_all_timelines(gpu: &Gpu, mut each: impl FnMut(&Timeline)) {
    stream::for_all(gpu, |stream| each(&stream.timeline));
    context::for_all(|context| {
        if ptr::eq(context.gpu(), gpu) {
            each(&context.legacy.timeline);
        }
    });
}
