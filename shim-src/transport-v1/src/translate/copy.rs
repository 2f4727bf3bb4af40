//! Copies, in parts that fit a call, through the window where there is one.

use std::ptr::NonNull;

use vgpu_wire::body::copy::CopyRows;
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::{INLINE_BYTES, split};

use super::allocations::Allocations;
use crate::call::{Call, CallError, Payload};
use crate::host_session::HostSession;

/// Length in bytes of the shortest download that the window carries. A shorter one takes a load from BAR0 for
/// each word.
const THROUGH_WINDOW: u64 = INLINE_BYTES as u64 + 1;

/// Copies from the host to the device.
pub(crate) fn upload(host: HostSession<'_>, destination: u64, source: Payload<'_>) -> Result<(), CallError> {
    let limit = host.payload_limit();
    let length = source.len();
    let mut at = 0;
    while at < length {
        let bytes = limit.min(length - at);
        let payload = match source {
            Payload::Bytes(all) => Payload::Bytes(&all[at..at + bytes]),
            // SAFETY: `at` is below the length, for which the memory is readable.
            Payload::Memory(start, _) => Payload::Memory(unsafe { start.add(at) }, bytes),
        };
        let ([low, high], [count, zero]) = (split(destination.wrapping_add(at as u64)), split(bytes as u64));
        let args = [low, high, count, zero];
        let call = Call::new(Op::MemcpyHtoD, &args).with_padded_payload(payload);
        // SAFETY: the payload is readable, as its maker promised; nothing comes back.
        unsafe { host.call(&call) }?;
        at += bytes;
    }
    Ok(())
}

/// Copies from the device to the host.
///
/// # Safety
/// `destination` is writable for `bytes`.
pub(crate) unsafe fn download(
    host: HostSession<'_>,
    allocations: &Allocations,
    source: u64,
    destination: NonNull<u8>,
    bytes: usize,
) -> Result<(), CallError> {
    if host.has_window()
        && let Some((from, skip)) = widened(allocations, source, bytes as u64)
    {
        let mut more = [0; THROUGH_WINDOW as usize];
        // SAFETY: private bytes, as many as are asked for.
        unsafe { download_once(host, from, NonNull::from(&mut more).cast(), more.len()) }?;
        // SAFETY: writable for `bytes`, as the caller promises; `skip` and `bytes` are a part of `more`.
        unsafe { core::ptr::copy_nonoverlapping(more[skip..].as_ptr(), destination.as_ptr(), bytes) };
        return Ok(());
    }
    let limit = host.payload_limit();
    let mut at = 0;
    while at < bytes {
        let length = limit.min(bytes - at);
        // SAFETY: `at` is below `bytes`, for which the caller promises the destination.
        let to = unsafe { destination.add(at) };
        // SAFETY: writable for `length` more.
        unsafe { download_once(host, source.wrapping_add(at as u64), to, length) }?;
        at += length;
    }
    Ok(())
}

/// Makes one call of a download.
///
/// # Safety
/// `to` is writable for `bytes`.
unsafe fn download_once(
    host: HostSession<'_>,
    from: u64,
    to: NonNull<u8>,
    bytes: usize,
) -> Result<(), CallError> {
    let ([low, high], [count, zero]) = (split(from), split(bytes as u64));
    let args = [low, high, count, zero];
    let call = Call { back: Some((to, bytes)), ..Call::new(Op::MemcpyDtoH, &args) };
    // SAFETY: as the caller promises; there is no payload.
    unsafe { host.call(&call) }.map(|_| ())
}

/// Widens a download that is too short for the window, within its allocation. Returns the start of the wider
/// download, and the offset of the wanted bytes in it. Returns `None` if the download is long enough, or its
/// allocation is too short.
fn widened(allocations: &Allocations, source: u64, bytes: u64) -> Option<(u64, usize)> {
    if bytes >= THROUGH_WINDOW {
        return None;
    }
    let (start, end) = allocations.containing(source, bytes)?;
    let from = source.min(end.checked_sub(THROUGH_WINDOW)?);
    (from >= start).then_some((from, (source - from) as usize))
}

/// Copies within the device.
pub(super) fn copy_within(
    host: HostSession<'_>,
    destination: u64,
    source: u64,
    bytes: u64,
) -> Result<(), CallError> {
    if bytes == 0 {
        return Ok(());
    }
    let ([to, to_high], [from, from_high], [count, count_high]) =
        (split(destination), split(source), split(bytes));
    let args = [to, to_high, from, from_high, count, count_high];
    host.call_plain(&Call::new(Op::MemcpyDtoD, &args)).map(|_| ())
}

/// Copies a box of rows, with one call for each range that is contiguous on both sides.
pub(super) fn copy_rows(host: HostSession<'_>, body: &CopyRows) -> Result<(), CallError> {
    let mut rows = (body.width, body.height, body.depth);
    if body.destination_pitch == rows.0 && body.source_pitch == rows.0 {
        rows = (rows.0 * rows.1, 1, rows.2);
        if body.destination_slice == rows.0 && body.source_slice == rows.0 {
            rows = (rows.0 * rows.2, 1, 1);
        }
    }
    for slice in 0..rows.2 {
        for row in 0..rows.1 {
            let to = slice * body.destination_slice + row * body.destination_pitch;
            let from = slice * body.source_slice + row * body.source_pitch;
            copy_within(host, body.destination.wrapping_add(to), body.source.wrapping_add(from), rows.0)?;
        }
    }
    Ok(())
}

/// Copies device memory into private bytes.
pub(super) fn read_private(
    host: HostSession<'_>,
    allocations: &Allocations,
    source: u64,
    to: &mut [u8],
) -> Result<(), CallError> {
    let bytes = to.len();
    let start = NonNull::from(&mut *to).cast();
    // SAFETY: private bytes, as many as are asked for.
    unsafe { download(host, allocations, source, start, bytes) }
}
