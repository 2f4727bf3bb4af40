//! The bytes that a message names: behind the message itself, or in the window, which is this process's
//! memory.

use std::ptr::NonNull;

use vgpu_wire::{SEGMENT_BAR, SEGMENT_INLINE, Span};

use crate::session_error::SessionError;
use crate::v1::call::{Failure, Payload};
use crate::v1::returns::Returns;

/// The bytes of a span, wherever they lie. `tail` is what follows the message.
pub(super) fn payload<'a>(returns: &Returns, span: &Span, tail: &'a [u8]) -> Result<Payload<'a>, Failure> {
    if span.segment == SEGMENT_INLINE {
        return Ok(Payload::Bytes(tail));
    }
    let (start, bytes) = in_window(returns, span)?;
    Ok(Payload::Memory(start.as_ptr(), bytes))
}

/// The bytes of a span, in private memory.
pub(super) fn private(returns: &Returns, span: &Span, tail: &[u8]) -> Result<Vec<u8>, Failure> {
    match payload(returns, span, tail)? {
        Payload::Bytes(bytes) => Ok(bytes.to_vec()),
        Payload::Memory(_, bytes) => {
            let mut data = vec![0; bytes];
            returns.window().get(span.offset, &mut data);
            Ok(data)
        }
    }
}

/// Address and length of a span of the window in this process.
pub(super) fn in_window(returns: &Returns, span: &Span) -> Result<(NonNull<u8>, usize), Failure> {
    let wrong = Failure::Lost(SessionError::Misuse { what: "a span that is not in the window" });
    if span.segment != SEGMENT_BAR {
        return Err(wrong);
    }
    let start = returns.window().pointer(span.offset, span.bytes).ok_or(wrong)?;
    Ok((start, span.bytes as usize))
}
