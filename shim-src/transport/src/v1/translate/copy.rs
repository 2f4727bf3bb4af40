//! Copies, in pieces that a call carries, through the window where there is one.

use std::ptr::NonNull;

use vgpu_wire::body::copy::CopyRows;
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::{INLINE_BYTES, split};

use super::allocations::Allocations;
use crate::v1::call::{Call, Failure, Payload};
use crate::v1::host::Host;

/// The shortest download that goes through the window. A shorter one costs a load of each word.
const THROUGH_WINDOW: u64 = INLINE_BYTES as u64 + 1;

/// Copies from the host to the device.
pub(in crate::v1) fn upload(host: Host<'_>, destination: u64, source: Payload<'_>) -> Result<(), Failure> {
    let most = host.limit();
    let length = source.len();
    let mut at = 0;
    while at < length {
        let bytes = most.min(length - at);
        let payload = match source {
            Payload::Bytes(all) => Payload::Bytes(&all[at..at + bytes]),
            // SAFETY: `at` is below the length, for which the memory is readable.
            Payload::Memory(start, _) => Payload::Memory(unsafe { start.add(at) }, bytes),
        };
        let ([low, high], [count, zero]) = (split(destination.wrapping_add(at as u64)), split(bytes as u64));
        let args = [low, high, count, zero];
        let call = Call::new(Op::MemcpyHtoD, &args).padded(payload);
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
pub(in crate::v1) unsafe fn download(
    host: Host<'_>,
    allocations: &Allocations,
    source: u64,
    destination: NonNull<u8>,
    bytes: usize,
) -> Result<(), Failure> {
    if host.window_bytes().is_some()
        && let Some((from, skip)) = stretched(allocations, source, bytes as u64)
    {
        let mut more = [0; THROUGH_WINDOW as usize];
        // SAFETY: private bytes, as many as are asked for.
        unsafe { fetch(host, from, NonNull::from(&mut more).cast(), more.len()) }?;
        // SAFETY: writable for `bytes`, as the caller promises; `skip` and `bytes` are a part of `more`.
        unsafe { core::ptr::copy_nonoverlapping(more[skip..].as_ptr(), destination.as_ptr(), bytes) };
        return Ok(());
    }
    let most = host.limit();
    let mut at = 0;
    while at < bytes {
        let length = most.min(bytes - at);
        // SAFETY: `at` is below `bytes`, for which the caller promises the destination.
        let to = unsafe { destination.add(at) };
        // SAFETY: writable for `length` more.
        unsafe { fetch(host, source.wrapping_add(at as u64), to, length) }?;
        at += length;
    }
    Ok(())
}

/// Makes one call of a download.
///
/// # Safety
/// `to` is writable for `bytes`.
unsafe fn fetch(host: Host<'_>, from: u64, to: NonNull<u8>, bytes: usize) -> Result<(), Failure> {
    let ([low, high], [count, zero]) = (split(from), split(bytes as u64));
    let args = [low, high, count, zero];
    let call = Call { back: Some((to, bytes)), ..Call::new(Op::MemcpyDtoH, &args) };
    // SAFETY: as the caller promises; there is no payload.
    unsafe { host.call(&call) }.map(|_| ())
}

/// Widens a copy that is too short for the window, within the same allocation. Returns where the wider
/// copy starts, and how many of its bytes come before the copy. `None`: it is long enough, or the
/// allocation has no room for a wider one.
fn stretched(allocations: &Allocations, source: u64, bytes: u64) -> Option<(u64, usize)> {
    if bytes >= THROUGH_WINDOW {
        return None;
    }
    let (start, end) = allocations.around(source, bytes)?;
    let from = source.min(end.checked_sub(THROUGH_WINDOW)?);
    (from >= start).then_some((from, (source - from) as usize))
}

/// Copies within the device.
pub(super) fn copy(host: Host<'_>, destination: u64, source: u64, bytes: u64) -> Result<(), Failure> {
    if bytes == 0 {
        return Ok(());
    }
    let ([to, to_high], [from, from_high], [count, count_high]) =
        (split(destination), split(source), split(bytes));
    let args = [to, to_high, from, from_high, count, count_high];
    host.plain(&Call::new(Op::MemcpyDtoD, &args)).map(|_| ())
}

/// Copies a box of rows, with a call for each run of bytes that is contiguous on both sides.
pub(super) fn copy_rows(host: Host<'_>, body: &CopyRows) -> Result<(), Failure> {
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
            copy(host, body.destination.wrapping_add(to), body.source.wrapping_add(from), rows.0)?;
        }
    }
    Ok(())
}

/// Copies device memory into private bytes.
pub(super) fn read(
    host: Host<'_>,
    allocations: &Allocations,
    source: u64,
    to: &mut [u8],
) -> Result<(), Failure> {
    let bytes = to.len();
    let start = NonNull::from(&mut *to).cast();
    // SAFETY: private bytes, as many as are asked for.
    unsafe { download(host, allocations, source, start, bytes) }
}
