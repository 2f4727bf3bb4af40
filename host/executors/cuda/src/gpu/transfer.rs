//! Copies and fills within the GPU's memory: their ranges are looked up, then they are enqueued, or captured
//! in a graph.

use vgpu_abi::CUresult;
use vgpu_wire::Body;
use vgpu_wire::body::copy::{CopyDevice, CopyRows, Fill};

use crate::driver::error::DriverError;
use crate::driver::range::DeviceRange;
use crate::driver::stream::{DriverStream, Rows};
use crate::gpu::memory::DeviceMemory;

/// Number of slices into which a copy of rows may be split, if the driver cannot take all of them at once.
const SLICES_MOST: u64 = 4096;

/// Error of a copy or fill whose address does not belong to the session. CUDA finds it during the call.
pub(crate) const WRONG_ADDRESS: DriverError =
    DriverError { call: "look up an address", code: CUresult::INVALID_VALUE };

/// Looks up a range of the session's memory.
pub(crate) fn find(memory: &DeviceMemory, address: u64, bytes: u64) -> Result<DeviceRange, DriverError> {
    memory.find(address, bytes).ok_or(WRONG_ADDRESS)
}

/// Returns the number of bytes from the start of the first row to the end of the last, or `None` if it
/// overflows.
fn extent(pitch: u64, slice: u64, width: u64, height: u64, depth: u64) -> Option<u64> {
    let rows = pitch.checked_mul(height.checked_sub(1)?)?;
    let slices = slice.checked_mul(depth.checked_sub(1)?)?;
    rows.checked_add(slices)?.checked_add(width)
}

/// A copy or a fill. Its ranges belonged to the session when it was looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transfer {
    /// The transfer touches no byte.
    Nothing,
    /// Copies a range to another of the same length.
    Copy { to: DeviceRange, from: DeviceRange },
    /// Copies rows. `size` is bytes of a row, rows of a slice, and slices.
    Rows { to: Rows, from: Rows, size: [u64; 3] },
    /// Copies slices whose distance is not a multiple of the row's. `slices` are the distances in bytes, of
    /// the destination and the source.
    Slices { to: Rows, from: Rows, size: [u64; 3], slices: [u64; 2] },
    /// Fills a range with elements of 1, 2 or 4 bytes.
    Fill { range: DeviceRange, element: u32, value: u32 },
    /// Fills `width` elements of each of `height` rows.
    FillRows { rows: Rows, element: u32, value: u32, width: u64, height: u64 },
}

impl Transfer {
    /// Looks up the ranges of a message. Returns `None` if the message is neither a copy within the GPU nor a
    /// fill.
    pub(crate) fn find(memory: &DeviceMemory, body: &Body) -> Option<Result<Self, DriverError>> {
        match body {
            Body::CopyDevice(body) => Some(Self::copy(memory, body)),
            Body::CopyRows(body) => Some(Self::rows(memory, body)),
            Body::Fill(body) => Some(Self::fill(memory, body)),
            _ => None,
        }
    }

    fn copy(memory: &DeviceMemory, body: &CopyDevice) -> Result<Self, DriverError> {
        let to = find(memory, body.destination, body.bytes)?;
        let from = find(memory, body.source, body.bytes)?;
        Ok(Self::Copy { to, from })
    }

    fn rows(memory: &DeviceMemory, body: &CopyRows) -> Result<Self, DriverError> {
        let &CopyRows { width, height, depth, .. } = body;
        if width == 0 || height == 0 || depth == 0 {
            return Ok(Self::Nothing);
        }
        let side = |address, pitch, slice| {
            let bytes = extent(pitch, slice, width, height, depth).ok_or(WRONG_ADDRESS)?;
            find(memory, address, bytes)
        };
        let (to_pitch, to_slice) = (body.destination_pitch, body.destination_slice);
        let (from_pitch, from_slice) = (body.source_pitch, body.source_slice);
        let to = side(body.destination, to_pitch, to_slice)?;
        let from = side(body.source, from_pitch, from_slice)?;
        let size = [width, height, depth];
        // The driver counts rows from slice to slice.
        let whole = |slice: u64, pitch: u64| pitch != 0 && slice.is_multiple_of(pitch);
        if depth == 1 || (whole(to_slice, to_pitch) && whole(from_slice, from_pitch)) {
            let rows = |range, slice: u64, pitch: u64| {
                let stride = slice.checked_div(pitch).unwrap_or(0).max(height);
                Rows { range, pitch, stride }
            };
            let (to, from) = (rows(to, to_slice, to_pitch), rows(from, from_slice, from_pitch));
            return Ok(Self::Rows { to, from, size });
        }
        if depth > SLICES_MOST {
            let code = CUresult::NOT_SUPPORTED;
            return Err(DriverError { call: "copy slices that are no whole rows apart", code });
        }
        let rows = |range, pitch| Rows { range, pitch, stride: height };
        let (to, from) = (rows(to, to_pitch), rows(from, from_pitch));
        Ok(Self::Slices { to, from, size, slices: [to_slice, from_slice] })
    }

    fn fill(memory: &DeviceMemory, body: &Fill) -> Result<Self, DriverError> {
        let &Fill { element, value, pitch, width, height, .. } = body;
        if width == 0 || height == 0 {
            return Ok(Self::Nothing);
        }
        let row = width.checked_mul(u64::from(element)).ok_or(WRONG_ADDRESS)?;
        let bytes = extent(pitch, 0, row, height, 1).ok_or(WRONG_ADDRESS)?;
        let range = find(memory, body.destination, bytes)?;
        if height == 1 || pitch == row {
            return Ok(Self::Fill { range, element, value });
        }
        Ok(Self::FillRows { rows: Rows { range, pitch, stride: height }, element, value, width, height })
    }

    /// Enqueues the copy or fill.
    pub(crate) fn issue(&self, stream: &DriverStream) -> Result<(), DriverError> {
        match *self {
            Self::Nothing => Ok(()),
            Self::Copy { to, from } => stream.enqueue_d2d(to, from),
            Self::Rows { to, from, size } => stream.copy_rows(to, from, size),
            Self::Slices { to, from, size: [width, height, depth], slices } => {
                let slice = |rows: Rows, index: u64, apart: u64| {
                    let bytes = extent(rows.pitch, 0, width, height, 1).ok_or(WRONG_ADDRESS)?;
                    let start = rows.range.address() + index * apart;
                    let range = rows.range.part(start, bytes).ok_or(WRONG_ADDRESS)?;
                    Ok::<_, DriverError>(Rows { range, ..rows })
                };
                (0..depth).try_for_each(|index| {
                    let (to, from) = (slice(to, index, slices[0])?, slice(from, index, slices[1])?);
                    stream.copy_rows(to, from, [width, height, 1])
                })
            }
            Self::Fill { range, element, value } => stream.fill(range, element, value),
            Self::FillRows { rows, element, value, width, height } => {
                stream.fill_rows(rows, element, value, width, height)
            }
        }
    }

    /// Returns whether no byte is touched.
    pub(crate) const fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}
