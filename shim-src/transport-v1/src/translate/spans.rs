//! The bytes to which the spans of a message refer: in the message itself, or in the window, which is memory
//! of this process.

use std::ptr::NonNull;

use vgpu_transport::SessionError;
use vgpu_wire::{SEGMENT_BAR, SEGMENT_INLINE, Span};

use crate::call::{CallError, Payload};
use crate::return_area::ReturnArea;

/// Returns the bytes of a span as the payload of a call. `tail` follows the body of the message.
pub(super) fn payload<'a>(
    returns: &ReturnArea,
    span: &Span,
    tail: &'a [u8],
) -> Result<Payload<'a>, CallError> {
    if span.segment == SEGMENT_INLINE {
        return Ok(Payload::Bytes(tail));
    }
    let (start, bytes) = in_window(returns, span)?;
    Ok(Payload::Memory(start.as_ptr(), bytes))
}

/// Copies the bytes of a span to private memory.
pub(super) fn to_private(returns: &ReturnArea, span: &Span, tail: &[u8]) -> Result<Vec<u8>, CallError> {
    match payload(returns, span, tail)? {
        Payload::Bytes(bytes) => Ok(bytes.to_vec()),
        Payload::Memory(_, bytes) => {
            let mut data = vec![0; bytes];
            returns.window().get(span.offset, &mut data);
            Ok(data)
        }
    }
}

/// Returns address and length of a span that must be in the window.
pub(super) fn in_window(returns: &ReturnArea, span: &Span) -> Result<(NonNull<u8>, usize), CallError> {
    let wrong = CallError::Lost(SessionError::Misuse { what: "a span that is not in the window" });
    if span.segment != SEGMENT_BAR {
        return Err(wrong);
    }
    let start = returns.window().pointer(span.offset, span.bytes).ok_or(wrong)?;
    Ok((start, span.bytes as usize))
}
