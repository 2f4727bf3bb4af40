//! Every copy function, from each buffer to each other, and copies longer than what goes between devices at a
//! time.

use std::ffi::c_void;
use std::ptr;

use vgpu_abi::driver::{CUcontext, CUstream, Memcpy2D, Memcpy3D, Side2D, Side3D};

use super::buffers::{
    BYTES, Buffer, PER_THREAD, allocate_buffers, contexts, free_buffers, host_pointer, make_current,
    read_buffer, scenes, write_buffer,
};
use crate::calls::*;
use crate::case::{Case, cases};

pub const CASES: &[Case] = cases![
    "devices::copies":
    every_copy_reaches_every_device,
    long_copies_between_devices_arrive_whole,
];

/// More than what goes between devices at a time.
const LONG: usize = (9 << 20) + 123;

impl Buffer {
    fn side(self, unified: bool, pitch: usize, height: usize) -> Side3D {
        let memory_type = match (unified, self.context) {
            (true, _) => 4,
            (false, None) => 1,
            (false, Some(_)) => 2,
        };
        Side3D {
            x: 3,
            y: 2,
            z: 1,
            lod: 0,
            memory_type,
            host: self.address as *mut c_void,
            device: self.address,
            array: 0,
            context: self.context.unwrap_or(CUcontext::NULL),
            pitch,
            height,
        }
    }
}

/// A copy that a function is asked for.
struct CopyCall {
    to: Buffer,
    from: Buffer,
    stream: CUstream,
    flat: Memcpy2D,
    deep: Memcpy3D,
}

/// What part of the buffers a function copies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Region {
    Line,
    Flat,
    Deep,
}

const WIDTH: usize = 301;
const HEIGHT: usize = 17;
const DEPTH: usize = 4;
/// Pitch and rows of a slice, of the destination and of the source.
const SIDES: [(usize, usize); 2] = [(640, 20), (420, 33)];

impl CopyCall {
    fn new(to: Buffer, from: Buffer, stream: CUstream, unified: bool) -> Self {
        let [dst, src] = [(to, SIDES[0]), (from, SIDES[1])]
            .map(|(buffer, (pitch, height))| buffer.side(unified, pitch, height));
        let flat = |side: Side3D| Side2D {
            x: side.x,
            y: side.y,
            memory_type: side.memory_type,
            host: side.host,
            device: side.device,
            array: 0,
            pitch: side.pitch,
        };
        let (flat_src, flat_dst) = (flat(src), flat(dst));
        let flat = Memcpy2D { src: flat_src, dst: flat_dst, width: WIDTH, height: HEIGHT };
        let deep = Memcpy3D { src, dst, width: WIDTH, height: HEIGHT, depth: DEPTH };
        Self { to, from, stream, flat, deep }
    }
}

impl Region {
    /// Returns what the destination holds after the copy.
    fn expected(self, before: &[u8], source: &[u8]) -> Vec<u8> {
        if self == Self::Line {
            return source.to_vec();
        }
        let mut after = before.to_vec();
        for z in 0..if self == Self::Deep { DEPTH } else { 1 } {
            for y in 0..HEIGHT {
                let [to, from] = SIDES.map(|(pitch, rows)| {
                    let slice = if self == Self::Deep { (1 + z) * pitch * rows } else { 0 };
                    slice + (2 + y) * pitch + 3
                });
                after[to..to + WIDTH].copy_from_slice(&source[from..from + WIDTH]);
            }
        }
        after
    }
}

type Function = (&'static str, Region, fn(&CopyCall) -> Status);

/// The functions that take any two buffers.
const ANY: &[Function] = &[
    ("cuMemcpy", Region::Line, |call| cu!(cuMemcpy(call.to.address, call.from.address, BYTES))),
    ("cuMemcpy_ptds", Region::Line, |call| cu!(cuMemcpy_ptds(call.to.address, call.from.address, BYTES))),
    ("cuMemcpyAsync", Region::Line, |call| {
        cu!(cuMemcpyAsync(call.to.address, call.from.address, BYTES, call.stream))
    }),
    ("cuMemcpyAsync_ptsz", Region::Line, |call| {
        cu!(cuMemcpyAsync_ptsz(call.to.address, call.from.address, BYTES, call.stream))
    }),
    ("cuMemcpy2D_v2", Region::Flat, |call| cu!(cuMemcpy2D_v2(&raw const call.flat))),
    ("cuMemcpy2D_v2_ptds", Region::Flat, |call| cu!(cuMemcpy2D_v2_ptds(&raw const call.flat))),
    ("cuMemcpy2DUnaligned_v2", Region::Flat, |call| cu!(cuMemcpy2DUnaligned_v2(&raw const call.flat))),
    ("cuMemcpy2DUnaligned_v2_ptds", Region::Flat, |call| {
        cu!(cuMemcpy2DUnaligned_v2_ptds(&raw const call.flat))
    }),
    ("cuMemcpy2DAsync_v2", Region::Flat, |call| cu!(cuMemcpy2DAsync_v2(&raw const call.flat, call.stream))),
    ("cuMemcpy2DAsync_v2_ptsz", Region::Flat, |call| {
        cu!(cuMemcpy2DAsync_v2_ptsz(&raw const call.flat, call.stream))
    }),
    ("cuMemcpy3D_v2", Region::Deep, |call| cu!(cuMemcpy3D_v2(&raw const call.deep))),
    ("cuMemcpy3D_v2_ptds", Region::Deep, |call| cu!(cuMemcpy3D_v2_ptds(&raw const call.deep))),
    ("cuMemcpy3DAsync_v2", Region::Deep, |call| cu!(cuMemcpy3DAsync_v2(&raw const call.deep, call.stream))),
    ("cuMemcpy3DAsync_v2_ptsz", Region::Deep, |call| {
        cu!(cuMemcpy3DAsync_v2_ptsz(&raw const call.deep, call.stream))
    }),
    ("cuMemcpy3DPeer", Region::Deep, |call| cu!(cuMemcpy3DPeer(&raw const call.deep))),
    ("cuMemcpy3DPeer_ptds", Region::Deep, |call| cu!(cuMemcpy3DPeer_ptds(&raw const call.deep))),
    ("cuMemcpy3DPeerAsync", Region::Deep, |call| cu!(cuMemcpy3DPeerAsync(&raw const call.deep, call.stream))),
    ("cuMemcpy3DPeerAsync_ptsz", Region::Deep, |call| {
        cu!(cuMemcpy3DPeerAsync_ptsz(&raw const call.deep, call.stream))
    }),
];

const HOST_TO_DEVICE: &[Function] = &[
    ("cuMemcpyHtoD_v2", Region::Line, |call| {
        cu!(cuMemcpyHtoD_v2(call.to.address, host_pointer(call.from), BYTES))
    }),
    ("cuMemcpyHtoD_v2_ptds", Region::Line, |call| {
        cu!(cuMemcpyHtoD_v2_ptds(call.to.address, host_pointer(call.from), BYTES))
    }),
    ("cuMemcpyHtoDAsync_v2", Region::Line, |call| {
        cu!(cuMemcpyHtoDAsync_v2(call.to.address, host_pointer(call.from), BYTES, call.stream))
    }),
    ("cuMemcpyHtoDAsync_v2_ptsz", Region::Line, |call| {
        cu!(cuMemcpyHtoDAsync_v2_ptsz(call.to.address, host_pointer(call.from), BYTES, call.stream))
    }),
];

const DEVICE_TO_HOST: &[Function] = &[
    ("cuMemcpyDtoH_v2", Region::Line, |call| {
        cu!(cuMemcpyDtoH_v2(host_pointer(call.to), call.from.address, BYTES))
    }),
    ("cuMemcpyDtoH_v2_ptds", Region::Line, |call| {
        cu!(cuMemcpyDtoH_v2_ptds(host_pointer(call.to), call.from.address, BYTES))
    }),
    ("cuMemcpyDtoHAsync_v2", Region::Line, |call| {
        cu!(cuMemcpyDtoHAsync_v2(host_pointer(call.to), call.from.address, BYTES, call.stream))
    }),
    ("cuMemcpyDtoHAsync_v2_ptsz", Region::Line, |call| {
        cu!(cuMemcpyDtoHAsync_v2_ptsz(host_pointer(call.to), call.from.address, BYTES, call.stream))
    }),
];

const DEVICE_TO_DEVICE: &[Function] = &[
    ("cuMemcpyDtoD_v2", Region::Line, |call| cu!(cuMemcpyDtoD_v2(call.to.address, call.from.address, BYTES))),
    ("cuMemcpyDtoD_v2_ptds", Region::Line, |call| {
        cu!(cuMemcpyDtoD_v2_ptds(call.to.address, call.from.address, BYTES))
    }),
    ("cuMemcpyDtoDAsync_v2", Region::Line, |call| {
        cu!(cuMemcpyDtoDAsync_v2(call.to.address, call.from.address, BYTES, call.stream))
    }),
    ("cuMemcpyDtoDAsync_v2_ptsz", Region::Line, |call| {
        cu!(cuMemcpyDtoDAsync_v2_ptsz(call.to.address, call.from.address, BYTES, call.stream))
    }),
    ("cuMemcpyPeer", Region::Line, |CopyCall { to, from, .. }| {
        cu!(cuMemcpyPeer(to.address, to.context.unwrap(), from.address, from.context.unwrap(), BYTES))
    }),
    ("cuMemcpyPeer_ptds", Region::Line, |CopyCall { to, from, .. }| {
        cu!(cuMemcpyPeer_ptds(to.address, to.context.unwrap(), from.address, from.context.unwrap(), BYTES))
    }),
    ("cuMemcpyPeerAsync", Region::Line, |CopyCall { to, from, stream, .. }| {
        let (there, here) = (to.context.unwrap(), from.context.unwrap());
        cu!(cuMemcpyPeerAsync(to.address, there, from.address, here, BYTES, *stream))
    }),
    ("cuMemcpyPeerAsync_ptsz", Region::Line, |CopyCall { to, from, stream, .. }| {
        let (there, here) = (to.context.unwrap(), from.context.unwrap());
        cu!(cuMemcpyPeerAsync_ptsz(to.address, there, from.address, here, BYTES, *stream))
    }),
];

fn every_copy_reaches_every_device() {
    let contexts = &contexts(1);
    let (targets, sources) = (allocate_buffers(contexts, BYTES), allocate_buffers(contexts, BYTES));
    let mut pageable = [vec![0_u8; BYTES], vec![0_u8; BYTES]];
    let hosts = |at: usize, pageable: &mut [Vec<u8>; 2]| {
        [pageable[at].as_mut_ptr(), pinned(BYTES)]
            .map(|address| Buffer { context: None, address: address as u64 })
    };
    let (hosts_to, hosts_from) = (hosts(0, &mut pageable), hosts(1, &mut pageable));
    let all_to: Vec<Buffer> = targets.iter().chain(&hosts_to).copied().collect();
    let all_from: Vec<Buffer> = sources.iter().chain(&hosts_from).copied().collect();
    let mut copies = 0;
    for (context, stream) in scenes(contexts) {
        for &to in &all_to {
            for &from in &all_from {
                let more = match (to.context, from.context) {
                    (Some(_), Some(_)) => DEVICE_TO_DEVICE,
                    (Some(_), None) => HOST_TO_DEVICE,
                    (None, Some(_)) => DEVICE_TO_HOST,
                    (None, None) => &[],
                };
                for &(name, region, function) in ANY.iter().chain(more) {
                    let (before, data) = (random(BYTES), random(BYTES));
                    write_buffer(to, &before);
                    write_buffer(from, &data);
                    make_current(context);
                    let call = CopyCall::new(to, from, stream, copies % 2 == 0);
                    assert_eq!(function(&call), 0, "{name}");
                    // Pinned memory is the program's again, or written, when the stream has come so far.
                    ok!(cuStreamSynchronize(stream));
                    ok!(cuStreamSynchronize(PER_THREAD));
                    assert!(read_buffer(to, BYTES) == region.expected(&before, &data), "{name} {region:?}");
                    assert!(read_buffer(from, BYTES) == data, "{name} changed its source");
                    copies += 1;
                }
            }
        }
    }
    assert!(copies > 700 * contexts.len(), "{copies}");
    free_buffers(&targets);
    free_buffers(&sources);
    for buffer in [hosts_to[1], hosts_from[1]] {
        ok!(cuMemFreeHost(host_pointer(buffer)));
    }
}

fn long_copies_between_devices_arrive_whole() {
    let contexts = &contexts(2);
    let buffers = allocate_buffers(contexts, LONG);
    let data = random(LONG);
    write_buffer(buffers[0], &data);
    let last = contexts.len() - 1;
    // Round by all devices, each hop by the last one's stream, and rows that are longer than a piece.
    make_current(contexts[last]);
    let stream = get!(CUstream, cuStreamCreate(0));
    for hop in 0..contexts.len() {
        let (from, to) = (buffers[hop], buffers[(hop + 1) % contexts.len()]);
        ok!(cuMemcpyDtoDAsync_v2(to.address, from.address, LONG, stream));
    }
    assert!(read_buffer(buffers[0], LONG) == data);
    let half = LONG / 2;
    let side = |buffer: Buffer| Side2D {
        x: 0,
        y: 0,
        memory_type: 4,
        host: ptr::null_mut(),
        device: buffer.address,
        array: 0,
        pitch: half + 7,
    };
    let width = (4 << 20) + 11;
    let rows = Memcpy2D { src: side(buffers[0]), dst: side(buffers[last]), width, height: 2 };
    let before = random(LONG);
    write_buffer(buffers[last], &before);
    make_current(contexts[0]);
    ok!(cuMemcpy2DUnaligned_v2(&raw const rows));
    let after = read_buffer(buffers[last], LONG);
    for row in 0..2 {
        let at = row * (half + 7);
        assert!(after[at..at + width] == data[at..at + width], "row {row}");
    }
    assert!(after[width..half + 7] == before[width..half + 7], "the gap");
    free_buffers(&buffers);
}
