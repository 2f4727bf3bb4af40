//! Copies of boxes of rows, as by `cuMemcpy2D` and `cuMemcpy3D`. Within a device the host copies. Rows of the
//! guest's memory, and rows copied between devices, are packed and unpacked here. Arrays are not supported.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{
    MEMORYTYPE_DEVICE, MEMORYTYPE_HOST, MEMORYTYPE_UNIFIED, Memcpy2D, Memcpy3D, Side2D, Side3D, attribute,
};
use vgpu_wire::body::copy::CopyRows;

use crate::Result;
use crate::arg::In;
use crate::object::gpu::Gpu;
use crate::object::stream::Stream;
use crate::object::{address, capture};
use crate::submit::mode::{self, Mode};
use crate::submit::route::{self, Route, across, move_bytes};
use crate::submit::{copy, transfer};

/// Approximate length in bytes of the pieces into which rows of the guest's memory are packed.
const PIECE: usize = 4 << 20;
/// Maximum ratio of the pitch to the row length for which a pitched source on the device is copied with its
/// gaps.
const GAPS: usize = 3;

/// Owner of the memory on one side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemoryKind {
    Host,
    Device,
}

/// One side of a copy, checked and in bytes.
#[derive(Clone, Copy, Debug)]
struct CopySide {
    memory: MemoryKind,
    /// Address of the first byte that is copied.
    start: u64,
    /// Distance in bytes from one row to the next.
    pitch: usize,
    /// Distance in bytes from one slice to the next.
    slice: usize,
}

/// Size of a copy: bytes of a row, rows of a slice, and slices.
#[derive(Clone, Copy, Debug)]
struct Extent {
    width: usize,
    height: usize,
    depth: usize,
}

fn memory(kind: u32, host: *mut c_void, device: u64) -> Result<(MemoryKind, u64)> {
    let of_device = |address: u64| {
        if address == 0 { Err(CUresult::INVALID_VALUE) } else { Ok(address) }
    };
    Ok(match kind {
        MEMORYTYPE_HOST => (MemoryKind::Host, of_device(host as u64)?),
        MEMORYTYPE_DEVICE => (MemoryKind::Device, of_device(device)?),
        MEMORYTYPE_UNIFIED => {
            let known = address::find(device)?.is_some();
            (if known { MemoryKind::Device } else { MemoryKind::Host }, of_device(device)?)
        }
        // Arrays are not supported.
        _ => return Err(CUresult::INVALID_VALUE),
    })
}

/// Returns one side of a copy, checked: rows fit their pitch, slices their rows, and nothing overflows.
fn side(
    place: (MemoryKind, u64),
    at: [usize; 3],
    pitch: usize,
    rows: usize,
    extent: Extent,
) -> Result<CopySide> {
    let [x, y, z] = at;
    let reach = x.checked_add(extent.width).ok_or(CUresult::INVALID_VALUE)?;
    let pitch = if pitch == 0 && extent.height == 1 && extent.depth == 1 { reach } else { pitch };
    let rows = if rows == 0 && extent.depth == 1 { y + extent.height } else { rows };
    let slice = pitch.checked_mul(rows).ok_or(CUresult::INVALID_VALUE)?;
    if reach > pitch || (extent.depth > 1 && extent.height > rows) {
        return Err(CUresult::INVALID_VALUE);
    }
    let start = (|| z.checked_mul(slice)?.checked_add(y.checked_mul(pitch)?)?.checked_add(x))();
    let start = start.and_then(|offset| place.1.checked_add(offset as u64)).ok_or(CUresult::INVALID_VALUE)?;
    let side = CopySide { memory: place.0, start, pitch, slice };
    start
        .checked_add(span(&side, extent).ok_or(CUresult::INVALID_VALUE)? as u64)
        .ok_or(CUresult::INVALID_VALUE)?;
    Ok(side)
}

/// Returns the number of bytes from the first to the last byte that is copied, or `None` on overflow.
fn span(side: &CopySide, extent: Extent) -> Option<usize> {
    let slices = side.slice.checked_mul(extent.depth.checked_sub(1)?)?;
    let rows = side.pitch.checked_mul(extent.height.checked_sub(1)?)?;
    slices.checked_add(rows)?.checked_add(extent.width)
}

/// Merges rows that are contiguous on both sides into one.
fn merge(extent: Extent, to: &CopySide, from: &CopySide) -> Extent {
    let Extent { mut width, mut height, mut depth } = extent;
    if [to, from].iter().all(|side| side.pitch == width || height == 1)
        && [to, from].iter().all(|side| side.slice == width * height || depth == 1)
    {
        width *= height * depth;
        (height, depth) = (1, 1);
    }
    Extent { width, height, depth }
}

/// Returns the address of a row, counted over all slices.
fn row(side: &CopySide, extent: Extent, index: usize) -> u64 {
    side.start + (index / extent.height * side.slice + index % extent.height * side.pitch) as u64
}

fn submit_copy(
    stream: &'static Stream,
    to: &CopySide,
    from: &CopySide,
    extent: Extent,
    mode: Mode,
) -> Result {
    mode::begin(mode)?;
    let extent = merge(extent, to, from);
    let rows = extent.height * extent.depth;
    match (to.memory, from.memory) {
        (MemoryKind::Device, MemoryKind::Device) if rows == 1 => {
            copy::by_address(stream, to.start, from.start, extent.width, mode)
        }
        (MemoryKind::Device, MemoryKind::Device) => between(stream, to, from, extent, mode),
        (MemoryKind::Device, MemoryKind::Host) if rows == 1 => {
            transfer::submit_upload(stream, to.start, from.start as *const c_void, extent.width, mode)
        }
        (MemoryKind::Host, MemoryKind::Device) if rows == 1 => {
            transfer::submit_download(stream, to.start as *mut c_void, from.start, extent.width, mode)
        }
        (MemoryKind::Host, MemoryKind::Host) => {
            for index in 0..rows {
                let (to, from) = (row(to, extent, index), row(from, extent, index));
                transfer::host(stream, to as *mut c_void, from as *const c_void, extent.width)?;
            }
            Ok(())
        }
        _ if capture::intercept(stream)? => capture::fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED),
        (MemoryKind::Device, MemoryKind::Host) => {
            let route = Route::to(stream, owner_of(stream, to, extent)?)?;
            let place = |index| row(from, extent, index) as *const u8;
            pack(&route, to, extent, 0..rows, place)?;
            route.end(mode)
        }
        (MemoryKind::Host, MemoryKind::Device) => {
            let route = Route::to(stream, owner_of(stream, from, extent)?)?;
            unpack(&route, from, extent, 0..rows, |index| row(to, extent, index) as *mut u8)
        }
    }
}

/// Returns the device that owns all of a side's memory.
fn owner_of(stream: &Stream, side: &CopySide, extent: Extent) -> Result<&'static Gpu> {
    address::owner(stream, side.start, span(side, extent).ok_or(CUresult::INVALID_VALUE)? as u64)
}

fn between(stream: &Stream, to: &CopySide, from: &CopySide, extent: Extent, mode: Mode) -> Result {
    let (there, here) = (owner_of(stream, to, extent)?, owner_of(stream, from, extent)?);
    if !ptr::eq(there, here) {
        return across(stream, there, here, mode, |writer, reader| {
            move_rows(writer, reader, to, from, extent)
        });
    }
    let message = |stream| CopyRows {
        stream,
        reserved: 0,
        destination: to.start,
        destination_pitch: to.pitch as u64,
        destination_slice: to.slice as u64,
        source: from.start,
        source_pitch: from.pitch as u64,
        source_slice: from.slice as u64,
        width: extent.width as u64,
        height: extent.height as u64,
        depth: extent.depth as u64,
    };
    route::submit(stream, there, message, mode)
}

/// Moves rows between devices: as many at a time as a piece holds, or one that is longer than a piece.
fn move_rows(
    writer: &Route<'_>,
    reader: &Route<'_>,
    to: &CopySide,
    from: &CopySide,
    extent: Extent,
) -> Result {
    let (rows, width) = (extent.height * extent.depth, extent.width);
    if width > PIECE {
        return (0..rows).try_for_each(|index| {
            let (to, from) = (row(to, extent, index), row(from, extent, index));
            move_bytes(writer, reader, to, from, width)
        });
    }
    let most = (PIECE / width).min(rows);
    let mut buffer = vec![0_u8; most * width];
    for begin in (0..rows).step_by(most) {
        let these = begin..rows.min(begin + most);
        unpack(reader, from, extent, these.clone(), |index| {
            buffer[(index - begin) * width..][..width].as_mut_ptr()
        })?;
        pack(writer, to, extent, these, |index| buffer[(index - begin) * width..][..width].as_ptr())?;
    }
    Ok(())
}

/// Uploads rows: rows that are contiguous on the device in pieces, others one by one. `place` returns the
/// address of each row in the guest, `extent.width` readable bytes.
fn pack(
    route: &Route<'_>,
    to: &CopySide,
    extent: Extent,
    rows: Range<usize>,
    place: impl Fn(usize) -> *const u8,
) -> Result {
    let mut index = rows.start;
    let mut buffer = Vec::new();
    while index < rows.end {
        let first = row(to, extent, index);
        buffer.clear();
        while index < rows.end
            && row(to, extent, index) == first + buffer.len() as u64
            && (buffer.is_empty() || buffer.len() + extent.width <= PIECE)
        {
            let end = buffer.len();
            buffer.resize(end + extent.width, 0);
            // SAFETY: the export's caller promised that every row of the host's side is readable, or the row
            // is one of a buffer between devices; the destination is the end of the buffer here, `width`
            // long.
            unsafe { ptr::copy_nonoverlapping(place(index), buffer[end..].as_mut_ptr(), extent.width) };
            index += 1;
        }
        route.copy_in(first, buffer.as_ptr().cast(), buffer.len())?;
    }
    Ok(())
}

/// Downloads rows: rows with small gaps between them in pieces, others one by one. `place` returns the
/// address for each row in the guest, `extent.width` writable bytes.
fn unpack(
    route: &Route<'_>,
    from: &CopySide,
    extent: Extent,
    rows: Range<usize>,
    mut place: impl FnMut(usize) -> *mut u8,
) -> Result {
    let mut index = rows.start;
    let mut buffer = Vec::new();
    while index < rows.end {
        let first = row(from, extent, index);
        let begin = index;
        let mut bytes = 0;
        while index < rows.end {
            let end = row(from, extent, index).wrapping_sub(first) as usize + extent.width;
            let gaps = end > (index - begin + 1) * extent.width * (1 + GAPS);
            if index > begin && (end > PIECE || gaps || end < bytes) {
                break;
            }
            bytes = end;
            index += 1;
        }
        buffer.resize(bytes, 0);
        route.copy_out(buffer.as_mut_ptr().cast(), first, bytes)?;
        for index in begin..index {
            let offset = (row(from, extent, index) - first) as usize;
            // SAFETY: the export's caller promised that every row of the host's side is writable, or the row
            // is one of a buffer between devices; the source lies within the buffer here.
            unsafe { ptr::copy_nonoverlapping(buffer[offset..].as_ptr(), place(index), extent.width) };
        }
    }
    Ok(())
}

/// Copies a rectangle. With `aligned`, the pitch of device memory must be one that the device supports.
pub fn flat(stream: &'static Stream, copy: In<Memcpy2D>, mode: Mode, aligned: bool) -> Result {
    let copy = copy.get()?;
    let extent = Extent { width: copy.width, height: copy.height, depth: 1 };
    if extent.width == 0 || extent.height == 0 {
        return Ok(());
    }
    let most = usize::try_from(stream.gpu().attribute(attribute::MAX_PITCH)).unwrap_or(0);
    let make = |it: &Side2D| {
        let place = memory(it.memory_type, it.host, it.device)?;
        if aligned && place.0 == MemoryKind::Device && most != 0 && it.pitch > most {
            return Err(CUresult::INVALID_VALUE);
        }
        side(place, [it.x, it.y, 0], it.pitch, 0, extent)
    };
    submit_copy(stream, &make(&copy.dst)?, &make(&copy.src)?, extent, mode)
}

/// Copies a box of rows.
pub fn deep(stream: &'static Stream, copy: In<Memcpy3D>, mode: Mode) -> Result {
    let copy = copy.get()?;
    let extent = Extent { width: copy.width, height: copy.height, depth: copy.depth };
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Ok(());
    }
    if copy.src.lod != 0 || copy.dst.lod != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let make = |it: &Side3D| {
        side(memory(it.memory_type, it.host, it.device)?, [it.x, it.y, it.z], it.pitch, it.height, extent)
    };
    submit_copy(stream, &make(&copy.dst)?, &make(&copy.src)?, extent, mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn make(start: u64, at: [usize; 3], pitch: usize, rows: usize, extent: Extent) -> Result<CopySide> {
        side((MemoryKind::Device, start), at, pitch, rows, extent)
    }

    #[test]
    fn rows_must_fit() {
        let extent = Extent { width: 10, height: 4, depth: 1 };
        assert!(make(512, [0, 0, 0], 9, 0, extent).is_err());
        assert!(make(512, [1, 0, 0], 10, 0, extent).is_err());
        assert!(make(512, [0, 0, 0], 0, 0, extent).is_err(), "no pitch, several rows");
        let side = make(512, [6, 2, 0], 16, 0, extent).unwrap();
        assert_eq!(side.start, 512 + 2 * 16 + 6);
        assert_eq!(span(&side, extent), Some(3 * 16 + 10));
        let deep = Extent { width: 10, height: 4, depth: 2 };
        assert!(make(512, [0, 0, 0], 16, 3, deep).is_err(), "slices of fewer rows than are copied");
        assert!(make(u64::MAX - 4, [0, 0, 0], 16, 4, deep).is_err());
        assert!(make(512, [0, 0, usize::MAX], 16, 4, deep).is_err());
    }

    #[test]
    fn neighbours_become_one_row() {
        let extent = Extent { width: 16, height: 4, depth: 2 };
        let tight = make(512, [0, 0, 0], 16, 4, extent).unwrap();
        let loose = make(512, [0, 0, 0], 32, 4, extent).unwrap();
        let merged = merge(extent, &tight, &tight);
        assert_eq!((merged.width, merged.height, merged.depth), (128, 1, 1));
        let kept = merge(extent, &tight, &loose);
        assert_eq!((kept.width, kept.height, kept.depth), (16, 4, 2));
    }

    proptest! {
        #[test]
        fn every_row_lies_in_the_span(
            width in 1_usize..40, height in 1_usize..6, depth in 1_usize..4,
            x in 0_usize..8, gap in 0_usize..8, more in 0_usize..3, y in 0_usize..4, z in 0_usize..3,
        ) {
            let extent = Extent { width, height, depth };
            let pitch = x + width + gap;
            let side = make(4096, [x, y, z], pitch, height + more, extent).unwrap();
            let end = side.start + span(&side, extent).unwrap() as u64;
            let mut before = None;
            for index in 0..height * depth {
                let at = row(&side, extent, index);
                prop_assert!(at >= side.start && at + width as u64 <= end);
                prop_assert!(before.is_none_or(|before: u64| before + width as u64 <= at), "rows overlap");
                before = Some(at);
            }
        }
    }
}
