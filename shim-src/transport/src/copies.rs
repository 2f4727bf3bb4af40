//! Copies of pageable memory, upload and download: through staging buffers, several in flight at once.
//!
//! The source of an upload is copied once, into a buffer. A download is copied out of buffers whose marks say
//! that the data has arrived, while the host fills the next ones. Small uploads travel in the message. While
//! the window is full, uploads go through the ring, and downloads through the two buffers that each channel
//! has for itself: slower, but they always make progress. A bridge takes copies straight from memory.

use std::collections::VecDeque;
use std::ptr::NonNull;

use vgpu_wire::area;
use vgpu_wire::body::copy::{CopyIn, CopyOut};
use vgpu_wire::body::stream::Join;
use vgpu_wire::{Mark, Span};

use crate::bridge::Bridge;
use crate::counters::Live;
use crate::outgoing::{Outgoing, Tail};
use crate::session_core::SessionCore;
use crate::session_error::SessionError;
use crate::staging::{PARTS, StagingGuard, StagingPool};
use crate::window_alloc::Grant;

/// Maximum length in bytes of an upload that is part of its message.
const INLINE: usize = 4 << 10;
/// Length in bytes of the messages in which a long upload is sent if there is no window memory.
const INLINE_MOST: usize = 32 << 10;

/// A part of a download that is in flight.
struct PendingDownload<'a> {
    held: StagingGuard<'a>,
    at: usize,
    bytes: usize,
}

/// Copies from process memory to the device; see [`crate::Session::copy_in`].
///
/// # Safety
/// `source` is readable for `bytes`.
pub(crate) unsafe fn upload(
    core: &SessionCore,
    stream: u32,
    to: u64,
    source: *const u8,
    bytes: usize,
) -> Result<(), SessionError> {
    let SessionCore { messenger, fences, staging, bridge, .. } = core;
    let link = core.link();
    link.enter()?;
    if let Some(bridge) = bridge {
        // SAFETY: the caller promises that the source is readable for `bytes`.
        let copied = unsafe { bridge.copy_in(to, source, bytes) };
        Live::add(&link.counters.bytes_in, bytes as u64);
        return copied_straight(core, bridge.as_ref(), copied);
    }
    let mut at = 0;
    if bytes > INLINE {
        let (mut pool, mut part) = staging.plan(bytes);
        while at < bytes {
            let Some(mut held) = pool.acquire(link, fences, || memory_of(core, pool))? else {
                if pool.is_small() {
                    break;
                }
                (pool, part) = (&staging.small, staging.small.bytes);
                continue;
            };
            let length = part.min(bytes - at);
            fences.wait(link, held.buffer.word, held.buffer.value)?;
            // SAFETY: `at` is below `bytes`, for which the caller promises the source.
            let from = unsafe { source.add(at) };
            // SAFETY: the source is readable for `length` more; nobody has a pointer into a staging buffer.
            unsafe { link.window.stream_in(held.buffer.offset, from, length) };
            let read = fences.mark(held.buffer.word);
            held.buffer.value = read.value;
            let source = Span::bar(held.buffer.offset, length as u64);
            let body = CopyIn { stream, reserved: 0, destination: to.wrapping_add(at as u64), source, read };
            messenger.send(&Outgoing::new(&body, Tail::Pieces(&[])))?;
            at += length;
        }
    }
    while at < bytes {
        let length = INLINE_MOST.min(bytes - at);
        // SAFETY: `at` is below `bytes`, for which the caller promises the source.
        let from = unsafe { source.add(at) };
        let source = Span::inline(length as u64);
        let destination = to.wrapping_add(at as u64);
        let body = CopyIn { stream, reserved: 0, destination, source, read: Mark::NONE };
        messenger.send(&Outgoing::new(&body, Tail::Raw(from, length)))?;
        at += length;
    }
    Live::add(&link.counters.bytes_in, bytes as u64);
    Ok(())
}

/// Copies from the device to process memory; see [`crate::Session::copy_out`].
///
/// # Safety
/// `destination` is writable for `bytes`, and nobody else uses it meanwhile.
pub(crate) unsafe fn download(
    core: &SessionCore,
    stream: u32,
    from: u64,
    destination: *mut u8,
    bytes: usize,
) -> Result<(), SessionError> {
    let SessionCore { messenger, fences, staging, bridge, pages, .. } = core;
    let link = core.link();
    link.enter()?;
    if let Some((bridge, to)) = bridge.as_ref().zip(NonNull::new(destination)) {
        // SAFETY: the caller promises that the destination is writable for `bytes` and its alone.
        let copied = unsafe { bridge.copy_out(from, to, bytes) };
        Live::add(&link.counters.bytes_out, bytes as u64);
        return copied_straight(core, bridge.as_ref(), copied);
    }
    let (mut pool, mut part) = staging.plan_back(bytes, pages.segment().is_some());
    let mut asked = 0;
    let mut under_way: VecDeque<PendingDownload<'_>> = VecDeque::new();
    loop {
        while asked < bytes {
            // A thread that holds a buffer does not wait for another one: two such threads could wait for
            // each other.
            let held = if under_way.is_empty() {
                pool.acquire(link, fences, || memory_of(core, pool))?
            } else {
                pool.try_acquire(link)
            };
            let Some(mut held) = held else {
                if !under_way.is_empty() {
                    break;
                }
                // The channel's own buffers always exist.
                let next = if pool.is_small() { &staging.own } else { &staging.small };
                (pool, part) = (next, next.bytes);
                continue;
            };
            let length = part.min(bytes - asked);
            fences.wait(link, held.buffer.word, held.buffer.value)?;
            let written = fences.mark(held.buffer.word);
            held.buffer.value = written.value;
            let destination = pool.span(&held.buffer, length);
            let source = from.wrapping_add(asked as u64);
            let body = CopyOut { stream, reserved: 0, source, destination, written };
            messenger.send(&Outgoing::new(&body, Tail::Pieces(&[])))?;
            under_way.push_back(PendingDownload { held, at: asked, bytes: length });
            asked += length;
        }
        let Some(PendingDownload { held, at, bytes: length }) = under_way.pop_front() else { break };
        fences.wait(link, held.buffer.word, held.buffer.value)?;
        // SAFETY: `at` is below `bytes`, for which the caller promises the destination.
        let to = unsafe { destination.add(at) };
        let memory = match pages.all() {
            Some(pages) if held.pool.back => &pages.mapping,
            _ => &link.window,
        };
        // SAFETY: the destination is writable for `length` more; nobody has a pointer into a staging buffer.
        unsafe { memory.stream_out(held.buffer.offset, to, length) };
    }
    Live::add(&link.counters.bytes_out, bytes as u64);
    Ok(())
}

/// Ends a copy that took no message. The host's error is attached to a message that is sent for it, and is
/// reported late like any other.
fn copied_straight(
    core: &SessionCore,
    bridge: &dyn Bridge,
    copied: Result<Result<(), u32>, SessionError>,
) -> Result<(), SessionError> {
    match copied {
        Ok(Ok(())) => Ok(()),
        Ok(Err(code)) => {
            let nothing = Join { stream: 0, reserved: 0 };
            core.messenger.send(&Outgoing::new(&nothing, Tail::Pieces(&[])))?;
            bridge.fail_last_message(code);
            Ok(())
        }
        Err(lost) => Err(core.link().lose(lost)),
    }
}

/// Returns memory for a pool's buffers, or for the minimum number of them if there is no room for all.
fn memory_of(core: &SessionCore, pool: &StagingPool) -> Result<Option<Grant>, SessionError> {
    if std::ptr::eq(pool, &raw const core.staging.own) {
        let offset = core.area + area::STAGING;
        return Ok(Some(Grant { offset, bytes: area::STAGING_BYTES }));
    }
    if let Some(pages) = core.pages.all().filter(|_| pool.back) {
        return Ok(Some(pool.back_memory(pages.mapping.bytes())));
    }
    let take =
        |count: usize| core.window.allocate(&core.messenger, &core.reclaimer, (pool.bytes * count) as u64);
    match take(pool.count)? {
        None if pool.count > PARTS => take(PARTS),
        memory => Ok(memory),
    }
}
