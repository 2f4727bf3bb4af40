//! Fills device memory with a repeated value.

use std::ffi::c_uint;

use vgpu_abi::CUresult;
use vgpu_wire::body::copy::Fill;

use crate::Result;
use crate::object::address;
use crate::object::stream::Stream;
use crate::submit::mode::{self, Mode};
use crate::submit::route;

/// Shape of a fill: `height` rows of `width` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillShape {
    /// Address of the first element.
    pub destination: u64,
    /// Distance in bytes from one row to the next.
    pub pitch: usize,
    /// Number of elements of a row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
}

/// Checks a fill and returns its message, for stream 0, or `None` if there is nothing to fill. An address or
/// a pitch that is not a multiple of the element's size is an invalid value.
pub fn message(shape: FillShape, value: c_uint, element: u32) -> Result<Option<Fill>> {
    let FillShape { destination, pitch, width, height } = shape;
    let wrong = CUresult::INVALID_VALUE;
    let size = u64::from(element);
    if !destination.is_multiple_of(size) {
        return Err(wrong);
    }
    if width == 0 || height == 0 {
        return Ok(None);
    }
    let row = (width as u64).checked_mul(size).ok_or(wrong)?;
    let pitch = if height == 1 { row } else { pitch as u64 };
    if pitch < row || !pitch.is_multiple_of(size) {
        return Err(wrong);
    }
    Ok(Some(Fill {
        stream: 0,
        value,
        element,
        reserved: 0,
        destination,
        pitch,
        width: width as u64,
        height: height as u64,
    }))
}

/// Returns the number of bytes from the first to the last byte to fill, or `None` on overflow.
pub fn span(fill: &Fill) -> Option<u64> {
    fill.pitch.checked_mul(fill.height - 1)?.checked_add(fill.width.checked_mul(u64::from(fill.element))?)
}

/// Fills memory in the order of the stream.
pub fn submit(stream: &Stream, shape: FillShape, value: c_uint, element: u32, mode: Mode) -> Result {
    mode::begin(mode)?;
    let Some(fill) = message(shape, value, element)? else { return Ok(()) };
    let bytes = span(&fill).ok_or(CUresult::INVALID_VALUE)?;
    let gpu = address::owner(stream, fill.destination, bytes)?;
    let message = |stream| Fill { stream, ..fill };
    route::submit(stream, gpu, message, mode)
}

/// Returns a fill of one row.
pub fn line(destination: u64, width: usize) -> FillShape {
    FillShape { destination, pitch: 0, width, height: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_checked() {
        let shape = FillShape { destination: 512, pitch: 64, width: 8, height: 3 };
        let fill = message(shape, 5, 4).unwrap().unwrap();
        assert_eq!((fill.pitch, fill.width, fill.height), (64, 8, 3));
        assert_eq!(span(&fill), Some(2 * 64 + 32));
        assert!(message(FillShape { destination: 513, ..shape }, 5, 2).is_err());
        assert!(message(FillShape { pitch: 31, ..shape }, 5, 4).is_err());
        assert!(message(FillShape { pitch: 34, ..shape }, 5, 4).is_err());
        assert!(message(FillShape { width: usize::MAX, ..shape }, 5, 4).is_err());
        assert_eq!(message(FillShape { width: 0, ..shape }, 5, 4), Ok(None));
        let line = message(line(512, 10), 5, 2).unwrap().unwrap();
        assert_eq!((line.pitch, line.height), (20, 1));
        let huge = message(FillShape { pitch: 1 << 62, height: 9, ..shape }, 5, 4).unwrap().unwrap();
        assert_eq!(span(&huge), None);
    }
}
