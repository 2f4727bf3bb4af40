//! Fills. The host fills with bytes and words; other patterns are copied.

use vgpu_wire::body::copy::Fill;
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::split;

use super::copy;
use crate::status::INVALID_VALUE;
use crate::v1::call::{Call, Failure, Payload};
use crate::v1::host::Host;

/// Bytes of the pattern that are sent where the host cannot fill with it.
const PATTERN: usize = 64 << 10;

/// Fills rows of elements.
pub(super) fn fill(host: Host<'_>, body: &Fill) -> Result<(), Failure> {
    let row = body.width.checked_mul(u64::from(body.element)).ok_or(Failure::Status(INVALID_VALUE))?;
    // Contiguous rows are one.
    let (width, height) =
        if body.pitch == row { (body.width * body.height, 1) } else { (body.width, body.height) };
    for at in 0..height {
        let destination = body.destination.wrapping_add(at * body.pitch);
        fill_row(host, destination, width, body)?;
    }
    Ok(())
}

fn fill_row(host: Host<'_>, destination: u64, count: u64, body: &Fill) -> Result<(), Failure> {
    let memset = |op, value, count: u64| {
        let ([low, high], [count_low, count_high]) = (split(destination), split(count));
        host.plain(&Call::new(op, &[low, high, value, 0, count_low, count_high])).map(|_| ())
    };
    if count == 0 {
        return Ok(());
    }
    let [first, second, ..] = body.value.to_le_bytes();
    match body.element {
        1 => memset(Op::MemsetD8, u32::from(first), count),
        4 => memset(Op::MemsetD32, body.value, count),
        // The host has no such call. Two equal bytes, or an even count at an address for words, are one
        // of the others.
        2 if first == second => memset(Op::MemsetD8, u32::from(first), 2 * count),
        2 if destination.is_multiple_of(4) && count.is_multiple_of(2) => {
            let half = body.value & 0xffff;
            memset(Op::MemsetD32, half << 16 | half, count / 2)
        }
        2 => fill_pattern(host, destination, 2 * count, [first, second]),
        _ => Err(Failure::Status(INVALID_VALUE)),
    }
}

/// Sends the start of the range, and lets the host double it by copies until everything is filled.
fn fill_pattern(host: Host<'_>, destination: u64, bytes: u64, pattern: [u8; 2]) -> Result<(), Failure> {
    let mut done = bytes.min(PATTERN as u64);
    let data: Vec<u8> = pattern.iter().copied().cycle().take(done as usize).collect();
    copy::upload(host, destination, Payload::Bytes(&data))?;
    while done < bytes {
        let more = done.min(bytes - done);
        copy::copy(host, destination + done, destination, more)?;
        done += more;
    }
    Ok(())
}
