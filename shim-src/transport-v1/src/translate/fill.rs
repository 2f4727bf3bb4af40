//! Fills. The host fills with 8-bit and 32-bit values; other patterns are copied.

use vgpu_wire::body::copy::Fill;
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::split;

use super::copy;
use crate::call::{Call, CallError, Payload};
use crate::host_session::HostSession;
use crate::status::INVALID_VALUE;

/// Number of bytes to upload of a pattern that no call of the host fills with.
const PATTERN: usize = 64 << 10;

/// Fills rows of elements.
pub(super) fn fill(host: HostSession<'_>, body: &Fill) -> Result<(), CallError> {
    let row = body.width.checked_mul(u64::from(body.element)).ok_or(CallError::Status(INVALID_VALUE))?;
    // Contiguous rows are filled as one.
    let (width, height) =
        if body.pitch == row { (body.width * body.height, 1) } else { (body.width, body.height) };
    for at in 0..height {
        let destination = body.destination.wrapping_add(at * body.pitch);
        fill_row(host, destination, width, body)?;
    }
    Ok(())
}

fn fill_row(host: HostSession<'_>, destination: u64, count: u64, body: &Fill) -> Result<(), CallError> {
    let memset = |op, value, count: u64| {
        let ([low, high], [count_low, count_high]) = (split(destination), split(count));
        host.call_plain(&Call::new(op, &[low, high, value, 0, count_low, count_high])).map(|_| ())
    };
    if count == 0 {
        return Ok(());
    }
    let [first, second, ..] = body.value.to_le_bytes();
    match body.element {
        1 => memset(Op::MemsetD8, u32::from(first), count),
        4 => memset(Op::MemsetD32, body.value, count),
        // The host has no call for 16-bit values. Two equal bytes, and an even count at an aligned address,
        // can be expressed by the other calls.
        2 if first == second => memset(Op::MemsetD8, u32::from(first), 2 * count),
        2 if destination.is_multiple_of(4) && count.is_multiple_of(2) => {
            let half = body.value & 0xffff;
            memset(Op::MemsetD32, half << 16 | half, count / 2)
        }
        2 => fill_pattern(host, destination, 2 * count, [first, second]),
        _ => Err(CallError::Status(INVALID_VALUE)),
    }
}

/// Uploads the start of the range, and makes the host double it by copies until the range is filled.
fn fill_pattern(
    host: HostSession<'_>,
    destination: u64,
    bytes: u64,
    pattern: [u8; 2],
) -> Result<(), CallError> {
    let mut done = bytes.min(PATTERN as u64);
    let data: Vec<u8> = pattern.iter().copied().cycle().take(done as usize).collect();
    copy::upload(host, destination, Payload::Bytes(&data))?;
    while done < bytes {
        let more = done.min(bytes - done);
        copy::copy_within(host, destination + done, destination, more)?;
        done += more;
    }
    Ok(())
}
