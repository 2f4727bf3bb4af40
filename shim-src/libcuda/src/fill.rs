//! "Memory Management", fills: `cuMemsetD8`, `D16`, `D32` and their 2D forms.

use std::ffi::{c_uchar, c_uint, c_ushort};
use std::ptr;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUdeviceptr, CUstream};
use vgpu_wire::body::copy::Fill;

use crate::Result;
use crate::copy::{Mode, begin_of, default_stream, end_of};
use crate::foreign::{Foreign, owner};
use crate::stream::{Stream, find};

/// A fill of `height` rows of `width` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Address of the first element.
    pub destination: u64,
    /// Bytes from row to row.
    pub pitch: usize,
    /// Elements of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// The message of a fill, checked; `None`: nothing to fill.
pub fn message(shape: Shape, value: c_uint, element: u32) -> Result<Option<Fill>> {
    let Shape { destination, pitch, width, height } = shape;
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

/// Bytes from the first to the last that is filled.
pub fn span(fill: &Fill) -> Option<u64> {
    fill.pitch.checked_mul(fill.height - 1)?.checked_add(fill.width.checked_mul(u64::from(fill.element))?)
}

fn run(stream: &Stream, shape: Shape, value: c_uint, element: u32, mode: Mode) -> Result {
    begin_of(mode)?;
    let Some(fill) = message(shape, value, element)? else { return Ok(()) };
    let bytes = span(&fill).ok_or(CUresult::INVALID_VALUE)?;
    let gpu = owner(stream, fill.destination, bytes)?;
    let message = |stream| Fill { stream, ..fill };
    if !ptr::eq(gpu, stream.gpu()) {
        let part = Foreign::start(stream, gpu)?;
        part.submit(message)?;
        return part.end();
    }
    stream.submit(message, &[])?;
    end_of(stream, mode)
}

fn line(destination: u64, width: usize) -> Shape {
    Shape { destination, pitch: 0, width, height: 1 }
}

export_both! {
    /// `cuMemsetD8_v2`
    pub fn cuMemsetD8_v2, cuMemsetD8_v2_ptds(to: CUdeviceptr, value: c_uchar, count: usize) |default| {
        run(default_stream(default)?, line(to, count), c_uint::from(value), 1, Mode::Sync)
    }

    /// `cuMemsetD16_v2`
    pub fn cuMemsetD16_v2, cuMemsetD16_v2_ptds(to: CUdeviceptr, value: c_ushort, count: usize) |default| {
        run(default_stream(default)?, line(to, count), c_uint::from(value), 2, Mode::Sync)
    }

    /// `cuMemsetD32_v2`
    pub fn cuMemsetD32_v2, cuMemsetD32_v2_ptds(to: CUdeviceptr, value: c_uint, count: usize) |default| {
        run(default_stream(default)?, line(to, count), value, 4, Mode::Sync)
    }

    /// `cuMemsetD8Async`
    pub fn cuMemsetD8Async, cuMemsetD8Async_ptsz(
        to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream
    ) |default| {
        run(find(stream, default)?, line(to, count), c_uint::from(value), 1, Mode::Async)
    }

    /// `cuMemsetD16Async`
    pub fn cuMemsetD16Async, cuMemsetD16Async_ptsz(
        to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream
    ) |default| {
        run(find(stream, default)?, line(to, count), c_uint::from(value), 2, Mode::Async)
    }

    /// `cuMemsetD32Async`
    pub fn cuMemsetD32Async, cuMemsetD32Async_ptsz(
        to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream
    ) |default| {
        run(find(stream, default)?, line(to, count), value, 4, Mode::Async)
    }

    /// `cuMemsetD2D8_v2`
    pub fn cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds(
        destination: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize
    ) |default| {
        let shape = Shape { destination, pitch, width, height };
        run(default_stream(default)?, shape, c_uint::from(value), 1, Mode::Sync)
    }

    /// `cuMemsetD2D16_v2`
    pub fn cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds(
        destination: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize
    ) |default| {
        let shape = Shape { destination, pitch, width, height };
        run(default_stream(default)?, shape, c_uint::from(value), 2, Mode::Sync)
    }

    /// `cuMemsetD2D32_v2`
    pub fn cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds(
        destination: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize
    ) |default| {
        run(default_stream(default)?, Shape { destination, pitch, width, height }, value, 4, Mode::Sync)
    }

    /// `cuMemsetD2D8Async`
    pub fn cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz(
        destination: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize, stream: CUstream
    ) |default| {
        let shape = Shape { destination, pitch, width, height };
        run(find(stream, default)?, shape, c_uint::from(value), 1, Mode::Async)
    }

    /// `cuMemsetD2D16Async`
    pub fn cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz(
        destination: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize, stream: CUstream
    ) |default| {
        let shape = Shape { destination, pitch, width, height };
        run(find(stream, default)?, shape, c_uint::from(value), 2, Mode::Async)
    }

    /// `cuMemsetD2D32Async`
    pub fn cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz(
        destination: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream
    ) |default| {
        run(find(stream, default)?, Shape { destination, pitch, width, height }, value, 4, Mode::Async)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_checked() {
        let shape = Shape { destination: 512, pitch: 64, width: 8, height: 3 };
        let fill = message(shape, 5, 4).unwrap().unwrap();
        assert_eq!((fill.pitch, fill.width, fill.height), (64, 8, 3));
        assert_eq!(span(&fill), Some(2 * 64 + 32));
        assert!(message(Shape { destination: 513, ..shape }, 5, 2).is_err());
        assert!(message(Shape { pitch: 31, ..shape }, 5, 4).is_err());
        assert!(message(Shape { pitch: 34, ..shape }, 5, 4).is_err());
        assert!(message(Shape { width: usize::MAX, ..shape }, 5, 4).is_err());
        assert_eq!(message(Shape { width: 0, ..shape }, 5, 4), Ok(None));
        let line = message(line(512, 10), 5, 2).unwrap().unwrap();
        assert_eq!((line.pitch, line.height), (20, 1));
        let huge = message(Shape { pitch: 1 << 62, height: 9, ..shape }, 5, 4).unwrap().unwrap();
        assert_eq!(span(&huge), None);
    }
}
