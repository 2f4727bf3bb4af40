//! Copies and fills. They are divided into pieces, between which they can be interrupted.

use vgpu_arena::{Illegal, View};
use vgpu_device::SharedSlice;
use vgpu_ptx::{Halt, Interrupt};
use vgpu_wire::body::copy::{CopyRows, Fill};

/// Bytes that are copied between two polls of the interrupt.
const PIECE: usize = 4 << 20;
/// Number of rows that are copied or filled between two polls. A row that is longer than a piece is polled
/// within.
const ROWS: u64 = 64;
/// Number of bytes that are filled at once.
const PATTERN: usize = 64 << 10;

/// Reason for which a copy or a fill failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CopyError {
    /// The memory does not belong to the session: `CUDA_ERROR_ILLEGAL_ADDRESS`.
    #[error("copy or fill: {0}")]
    Illegal(#[from] Illegal),
    /// Rows overlap, or an address is misaligned: `CUDA_ERROR_INVALID_VALUE`.
    #[error("copy or fill: rows overlap, or an address is misaligned")]
    Shape,
    /// The copy or fill was interrupted after a part of it was done.
    #[error("copy or fill: {0}")]
    Halted(#[from] Halt),
}

/// Copies as many bytes as both slices have. They may overlap. If it is interrupted, a part has been copied.
pub(super) fn copy(
    source: &SharedSlice<'_>,
    destination: &SharedSlice<'_>,
    interrupt: &Interrupt,
) -> Result<(), Halt> {
    let bytes = source.len().min(destination.len());
    if bytes <= PIECE {
        source.copy_to_volatile_slice(*destination);
        return Ok(());
    }
    for at in (0..bytes).step_by(PIECE) {
        let piece = PIECE.min(bytes - at);
        if let (Ok(from), Ok(to)) = (source.subslice(at, piece), destination.subslice(at, piece)) {
            from.copy_to_volatile_slice(to);
        }
        interrupt.check()?;
    }
    Ok(())
}

/// Returns the number of bytes from the start of the first row to the end of the last. Fails if rows or
/// slices overlap, or if the number exceeds 64 bits.
fn extent(body: &CopyRows, pitch: u64, slice: u64) -> Result<u64, CopyError> {
    let rows = body.height - 1;
    let slices = body.depth - 1;
    if (rows > 0 && pitch < body.width) || (slices > 0 && slice < pitch.saturating_mul(body.height)) {
        return Err(CopyError::Shape);
    }
    let row_bytes = pitch.checked_mul(rows);
    let slice_bytes = slice.checked_mul(slices);
    row_bytes
        .zip(slice_bytes)
        .and_then(|(rows, slices)| rows.checked_add(slices)?.checked_add(body.width))
        .ok_or(CopyError::Shape)
}

/// Copies rows of bytes in up to three dimensions.
pub(super) fn copy_rows(memory: &View, body: &CopyRows, interrupt: &Interrupt) -> Result<(), CopyError> {
    if body.width == 0 || body.height == 0 || body.depth == 0 {
        return Ok(());
    }
    let source_bytes = extent(body, body.source_pitch, body.source_slice)?;
    let destination_bytes = extent(body, body.destination_pitch, body.destination_slice)?;
    let source = memory.readable(body.source, source_bytes)?;
    let destination = memory.writable(body.destination, destination_bytes)?;
    let width = body.width as usize;
    for z in 0..body.depth {
        for y in 0..body.height {
            let from = (z * body.source_slice + y * body.source_pitch) as usize;
            let to = (z * body.destination_slice + y * body.destination_pitch) as usize;
            if let (Ok(from), Ok(to)) = (source.subslice(from, width), destination.subslice(to, width)) {
                copy(&from, &to, interrupt)?;
            }
            if y % ROWS == 0 {
                interrupt.check()?;
            }
        }
    }
    Ok(())
}

/// Fills rows with an element of 1, 2 or 4 bytes. The device has checked the size.
pub(super) fn fill(memory: &View, body: &Fill, interrupt: &Interrupt) -> Result<(), CopyError> {
    let element = u64::from(body.element);
    let row = body.width.checked_mul(element).ok_or(CopyError::Shape)?;
    if row == 0 || body.height == 0 {
        return Ok(());
    }
    let pitch = if body.height == 1 { row } else { body.pitch };
    if pitch < row || !body.destination.is_multiple_of(element) || !pitch.is_multiple_of(element) {
        return Err(CopyError::Shape);
    }
    let bytes = pitch.checked_mul(body.height - 1).and_then(|rows| rows.checked_add(row));
    let target = memory.writable(body.destination, bytes.ok_or(CopyError::Shape)?)?;
    // Adjacent rows are filled as one.
    let (row, height) = if pitch == row { (row * body.height, 1) } else { (row, body.height) };
    let value = body.value.to_le_bytes();
    let pattern = value[..body.element as usize].repeat(PATTERN.min(row as usize) / body.element as usize);
    for y in 0..height {
        let start = (y * pitch) as usize;
        for at in (0..row as usize).step_by(pattern.len()) {
            let piece = pattern.len().min(row as usize - at);
            if let Ok(part) = target.subslice(start + at, piece) {
                part.copy_from(&pattern[..piece]);
            }
            if y % ROWS == 0 || piece == PATTERN {
                interrupt.check()?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use vgpu_device::MemoryPool;
    use zerocopy::FromZeros;

    use super::*;
    use crate::memory::Memory;
    use crate::shares::share;

    const BYTES: u64 = 4096;

    fn memory() -> (View, u64, u64) {
        let memory = Memory::new(share(&Arc::new(MemoryPool::new(1 << 20))), 0x7000_0000_0000);
        let (a, b) = (memory.allocate(BYTES).unwrap(), memory.allocate(BYTES).unwrap());
        (memory.view().unwrap(), a, b)
    }

    fn read(memory: &View, address: u64) -> Vec<u8> {
        let mut bytes = vec![0; BYTES as usize];
        memory.readable(address, BYTES).unwrap().copy_to(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn rows_arrive_where_they_belong(
            width in 0u64..40, height in 0u64..6, depth in 0u64..4,
            gaps in prop::array::uniform4(0u64..9), offsets in prop::array::uniform2(0u64..600),
        ) {
            let (memory, source, destination) = memory();
            let pattern: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8 + 1).collect();
            memory.writable(source, BYTES).unwrap().copy_from(&pattern);
            let (source_pitch, destination_pitch) = (width + gaps[0], width + gaps[1]);
            let body = CopyRows {
                stream: 0, reserved: 0, width, height, depth, source_pitch, destination_pitch,
                source: source + offsets[0], destination: destination + offsets[1],
                source_slice: source_pitch * height + gaps[2],
                destination_slice: destination_pitch * height + gaps[3],
            };
            copy_rows(&memory, &body, &Interrupt::default()).unwrap();
            let mut expected = vec![0u8; BYTES as usize];
            for (z, y, x) in (0..depth).flat_map(|z| (0..height).flat_map(move |y| (0..width).map(move |x| (z, y, x)))) {
                let from = offsets[0] + z * body.source_slice + y * source_pitch + x;
                let to = offsets[1] + z * body.destination_slice + y * destination_pitch + x;
                expected[to as usize] = pattern[from as usize];
            }
            prop_assert_eq!(read(&memory, destination), expected);
        }

        #[test]
        fn fills_write_their_elements_and_nothing_else(
            element in prop::sample::select(vec![1u32, 2, 4]), value: u32, width in 0u64..50, height in 0u64..7, gap in 0u64..5, offset in 0u64..100,
        ) {
            let (memory, address, _) = memory();
            let size = u64::from(element);
            let body = Fill {
                stream: 0, value, element, reserved: 0, destination: address + offset * size,
                pitch: (width + gap) * size, width, height,
            };
            fill(&memory, &body, &Interrupt::default()).unwrap();
            let mut expected = vec![0u8; BYTES as usize];
            for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
                let at = (offset * size + y * body.pitch + x * size) as usize;
                expected[at..at + element as usize].copy_from_slice(&value.to_le_bytes()[..element as usize]);
            }
            prop_assert_eq!(read(&memory, address), expected);
        }

        #[test]
        fn no_numbers_do_harm(n in prop::array::uniform9(prop_oneof![0u64..5000, any::<u64>()]), element in prop::sample::select(vec![1u32, 2, 4])) {
            let (memory, address, _) = memory();
            let _ = copy_rows(&memory, &CopyRows {
                stream: 0, reserved: 0, destination: address.wrapping_add(n[0]), destination_pitch: n[1], destination_slice: n[2],
                source: address.wrapping_add(n[3]), source_pitch: n[4], source_slice: n[5], width: n[6], height: n[7], depth: n[8],
            }, &Interrupt::default());
            let _ = fill(&memory, &Fill {
                stream: 0, value: 1, element, reserved: 0, destination: address.wrapping_add(n[0]), pitch: n[1], width: n[2], height: n[3],
            }, &Interrupt::default());
        }
    }

    /// Copies and fills of a stopped session end at their next check, with the bytes written so far.
    #[test]
    fn copies_and_fills_that_are_interrupted_end_early() {
        let memory = Memory::new(share(&Arc::new(MemoryPool::new(64 << 20))), 0x7000_0000_0000);
        let bytes = 16 << 20;
        let (a, b) = (memory.allocate(bytes).unwrap(), memory.allocate(bytes).unwrap());
        let view = memory.view().unwrap();
        let stopped = Interrupt::default();
        stopped.stop();
        let late = Interrupt::default().limited(Some(std::time::Duration::ZERO));
        let ones = Fill {
            value: 1,
            element: 1,
            destination: a,
            pitch: 1,
            width: bytes,
            height: 1,
            ..Fill::new_zeroed()
        };
        for (interrupt, halt) in [(&stopped, Halt::Stopped), (&late, Halt::TimedOut)] {
            assert_eq!(fill(&view, &ones, interrupt), Err(CopyError::Halted(halt)));
        }
        let last = |address: u64| {
            let mut byte = [0u8];
            view.readable(address + bytes - 1, 1).unwrap().copy_to(&mut byte);
            byte[0]
        };
        assert_eq!(last(a), 0, "the fill went on");
        fill(&view, &ones, &Interrupt::default()).unwrap();
        assert_eq!(last(a), 1);
        let (from, to) = (view.readable(a, bytes).unwrap(), view.writable(b, bytes).unwrap());
        assert_eq!(copy(&from, &to, &stopped), Err(Halt::Stopped));
        let rows = CopyRows {
            destination: b,
            destination_pitch: 16,
            destination_slice: bytes,
            source: a,
            source_pitch: 16,
            source_slice: bytes,
            width: 16,
            height: bytes / 16,
            depth: 1,
            ..CopyRows::new_zeroed()
        };
        assert_eq!(copy_rows(&view, &rows, &late), Err(CopyError::Halted(Halt::TimedOut)));
        assert_eq!(last(b), 0, "the copies went on");
    }

    #[test]
    fn overlapping_rows_and_foreign_memory_are_refused() {
        let (memory, a, b) = memory();
        let good = CopyRows {
            destination: b,
            destination_pitch: 16,
            destination_slice: 64,
            source: a,
            source_pitch: 16,
            source_slice: 64,
            width: 16,
            height: 4,
            depth: 64,
            ..CopyRows::new_zeroed()
        };
        let copied = |body| copy_rows(&memory, &body, &Interrupt::default());
        assert_eq!(copied(good), Ok(()));
        assert_eq!(copied(CopyRows { source_pitch: 15, ..good }), Err(CopyError::Shape));
        assert_eq!(copied(CopyRows { destination_slice: 63, ..good }), Err(CopyError::Shape));
        assert!(matches!(copied(CopyRows { depth: 65, ..good }), Err(CopyError::Illegal(_))));
        let fill4 = Fill { element: 4, destination: a, width: 1024, height: 1, ..Fill::new_zeroed() };
        let filled = |body| fill(&memory, &body, &Interrupt::default());
        assert_eq!(filled(fill4), Ok(()));
        assert_eq!(filled(Fill { destination: a + 2, ..fill4 }), Err(CopyError::Shape));
        assert!(matches!(filled(Fill { width: 1025, ..fill4 }), Err(CopyError::Illegal(_))));
    }
}
