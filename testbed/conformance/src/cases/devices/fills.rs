//! Every fill function, of lines and of rows.

use vgpu_abi::driver::CUstream;

use super::buffers::{
    BYTES, PER_THREAD, allocate_buffers, contexts, free_buffers, make_current, read_buffer, scenes,
    write_buffer,
};
use crate::calls::*;
use crate::case::{Case, cases};

pub const CASES: &[Case] = cases![
    "devices::fills":
    every_fill_reaches_every_device,
];

/// A fill: how many bytes an element has, whether of rows, and the call with address, stream, and shape.
type Fill = (&'static str, usize, bool, fn(u64, CUstream) -> Status);

const FILL_WIDTH: usize = 100;
const FILL_PITCH: usize = 600;
const FILL_HEIGHT: usize = 9;
const FILL_VALUE: u32 = 0x0403_0201;

const FILLS: &[Fill] = &[
    ("D8", 1, false, |to, _| cu!(cuMemsetD8_v2(to, FILL_VALUE as u8, FILL_WIDTH))),
    ("D8_ptds", 1, false, |to, _| cu!(cuMemsetD8_v2_ptds(to, FILL_VALUE as u8, FILL_WIDTH))),
    ("D16", 2, false, |to, _| cu!(cuMemsetD16_v2(to, FILL_VALUE as u16, FILL_WIDTH))),
    ("D16_ptds", 2, false, |to, _| cu!(cuMemsetD16_v2_ptds(to, FILL_VALUE as u16, FILL_WIDTH))),
    ("D32", 4, false, |to, _| cu!(cuMemsetD32_v2(to, FILL_VALUE, FILL_WIDTH))),
    ("D32_ptds", 4, false, |to, _| cu!(cuMemsetD32_v2_ptds(to, FILL_VALUE, FILL_WIDTH))),
    ("D8Async", 1, false, |to, on| cu!(cuMemsetD8Async(to, FILL_VALUE as u8, FILL_WIDTH, on))),
    ("D8Async_ptsz", 1, false, |to, on| cu!(cuMemsetD8Async_ptsz(to, FILL_VALUE as u8, FILL_WIDTH, on))),
    ("D16Async", 2, false, |to, on| cu!(cuMemsetD16Async(to, FILL_VALUE as u16, FILL_WIDTH, on))),
    ("D16Async_ptsz", 2, false, |to, on| cu!(cuMemsetD16Async_ptsz(to, FILL_VALUE as u16, FILL_WIDTH, on))),
    ("D32Async", 4, false, |to, on| cu!(cuMemsetD32Async(to, FILL_VALUE, FILL_WIDTH, on))),
    ("D32Async_ptsz", 4, false, |to, on| cu!(cuMemsetD32Async_ptsz(to, FILL_VALUE, FILL_WIDTH, on))),
    ("D2D8", 1, true, |to, _| {
        cu!(cuMemsetD2D8_v2(to, FILL_PITCH, FILL_VALUE as u8, FILL_WIDTH, FILL_HEIGHT))
    }),
    ("D2D8_ptds", 1, true, |to, _| {
        cu!(cuMemsetD2D8_v2_ptds(to, FILL_PITCH, FILL_VALUE as u8, FILL_WIDTH, FILL_HEIGHT))
    }),
    ("D2D16", 2, true, |to, _| {
        cu!(cuMemsetD2D16_v2(to, FILL_PITCH, FILL_VALUE as u16, FILL_WIDTH, FILL_HEIGHT))
    }),
    ("D2D16_ptds", 2, true, |to, _| {
        cu!(cuMemsetD2D16_v2_ptds(to, FILL_PITCH, FILL_VALUE as u16, FILL_WIDTH, FILL_HEIGHT))
    }),
    ("D2D32", 4, true, |to, _| cu!(cuMemsetD2D32_v2(to, FILL_PITCH, FILL_VALUE, FILL_WIDTH, FILL_HEIGHT))),
    ("D2D32_ptds", 4, true, |to, _| {
        cu!(cuMemsetD2D32_v2_ptds(to, FILL_PITCH, FILL_VALUE, FILL_WIDTH, FILL_HEIGHT))
    }),
    ("D2D8Async", 1, true, |to, on| {
        cu!(cuMemsetD2D8Async(to, FILL_PITCH, FILL_VALUE as u8, FILL_WIDTH, FILL_HEIGHT, on))
    }),
    ("D2D8Async_ptsz", 1, true, |to, on| {
        cu!(cuMemsetD2D8Async_ptsz(to, FILL_PITCH, FILL_VALUE as u8, FILL_WIDTH, FILL_HEIGHT, on))
    }),
    ("D2D16Async", 2, true, |to, on| {
        cu!(cuMemsetD2D16Async(to, FILL_PITCH, FILL_VALUE as u16, FILL_WIDTH, FILL_HEIGHT, on))
    }),
    ("D2D16Async_ptsz", 2, true, |to, on| {
        cu!(cuMemsetD2D16Async_ptsz(to, FILL_PITCH, FILL_VALUE as u16, FILL_WIDTH, FILL_HEIGHT, on))
    }),
    ("D2D32Async", 4, true, |to, on| {
        cu!(cuMemsetD2D32Async(to, FILL_PITCH, FILL_VALUE, FILL_WIDTH, FILL_HEIGHT, on))
    }),
    ("D2D32Async_ptsz", 4, true, |to, on| {
        cu!(cuMemsetD2D32Async_ptsz(to, FILL_PITCH, FILL_VALUE, FILL_WIDTH, FILL_HEIGHT, on))
    }),
];

fn every_fill_reaches_every_device() {
    let contexts = &contexts(1);
    let targets = allocate_buffers(contexts, BYTES);
    for (context, stream) in scenes(contexts) {
        for &to in &targets {
            for &(name, element, rows, function) in FILLS {
                let mut expected = random(BYTES);
                write_buffer(to, &expected);
                make_current(context);
                assert_eq!(function(to.address + 8, stream), 0, "{name}");
                ok!(cuStreamSynchronize(stream));
                ok!(cuStreamSynchronize(PER_THREAD));
                for row in 0..if rows { FILL_HEIGHT } else { 1 } {
                    for chunk in expected[8 + row * FILL_PITCH..][..FILL_WIDTH * element].chunks_mut(element)
                    {
                        chunk.copy_from_slice(&FILL_VALUE.to_le_bytes()[..element]);
                    }
                }
                assert!(read_buffer(to, BYTES) == expected, "{name}");
            }
        }
    }
    free_buffers(&targets);
}
