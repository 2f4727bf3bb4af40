//! Every copy function, from each place to each other, and copies longer than what goes between devices at a
//! time.

use std::ffi::c_void;
use std::ptr;

use vgpu_abi::driver::{CUcontext, CUstream, Memcpy2D, Memcpy3D, Side2D, Side3D};

use super::{BYTES, PER_THREAD, Place, buffers, current, free, host, put, scenes, take, with_devices};
use crate::cuda::*;

/// More than what goes between devices at a time.
const LONG: usize = (9 << 20) + 123;

impl Place {
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
struct Ask {
    to: Place,
    from: Place,
    stream: CUstream,
    flat: Memcpy2D,
    deep: Memcpy3D,
}

/// What part of the buffers a function copies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Line,
    Flat,
    Deep,
}

const WIDTH: usize = 301;
const HEIGHT: usize = 17;
const DEPTH: usize = 4;
/// Pitch and rows of a slice, of the destination and of the source.
const SIDES: [(usize, usize); 2] = [(640, 20), (420, 33)];

impl Ask {
    fn new(to: Place, from: Place, stream: CUstream, unified: bool) -> Self {
        let [dst, src] = [(to, SIDES[0]), (from, SIDES[1])]
            .map(|(place, (pitch, height))| place.side(unified, pitch, height));
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

impl Form {
    /// What the destination holds after the copy.
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

type Function = (&'static str, Form, fn(&Ask) -> Status);

/// The functions that take any two places.
const ANY: &[Function] = &[
    ("cuMemcpy", Form::Line, |ask| cu!(cuMemcpy(ask.to.address, ask.from.address, BYTES))),
    ("cuMemcpy_ptds", Form::Line, |ask| cu!(cuMemcpy_ptds(ask.to.address, ask.from.address, BYTES))),
    ("cuMemcpyAsync", Form::Line, |ask| {
        cu!(cuMemcpyAsync(ask.to.address, ask.from.address, BYTES, ask.stream))
    }),
    ("cuMemcpyAsync_ptsz", Form::Line, |ask| {
        cu!(cuMemcpyAsync_ptsz(ask.to.address, ask.from.address, BYTES, ask.stream))
    }),
    ("cuMemcpy2D_v2", Form::Flat, |ask| cu!(cuMemcpy2D_v2(&raw const ask.flat))),
    ("cuMemcpy2D_v2_ptds", Form::Flat, |ask| cu!(cuMemcpy2D_v2_ptds(&raw const ask.flat))),
    ("cuMemcpy2DUnaligned_v2", Form::Flat, |ask| cu!(cuMemcpy2DUnaligned_v2(&raw const ask.flat))),
    ("cuMemcpy2DUnaligned_v2_ptds", Form::Flat, |ask| cu!(cuMemcpy2DUnaligned_v2_ptds(&raw const ask.flat))),
    ("cuMemcpy2DAsync_v2", Form::Flat, |ask| cu!(cuMemcpy2DAsync_v2(&raw const ask.flat, ask.stream))),
    ("cuMemcpy2DAsync_v2_ptsz", Form::Flat, |ask| {
        cu!(cuMemcpy2DAsync_v2_ptsz(&raw const ask.flat, ask.stream))
    }),
    ("cuMemcpy3D_v2", Form::Deep, |ask| cu!(cuMemcpy3D_v2(&raw const ask.deep))),
    ("cuMemcpy3D_v2_ptds", Form::Deep, |ask| cu!(cuMemcpy3D_v2_ptds(&raw const ask.deep))),
    ("cuMemcpy3DAsync_v2", Form::Deep, |ask| cu!(cuMemcpy3DAsync_v2(&raw const ask.deep, ask.stream))),
    ("cuMemcpy3DAsync_v2_ptsz", Form::Deep, |ask| {
        cu!(cuMemcpy3DAsync_v2_ptsz(&raw const ask.deep, ask.stream))
    }),
    ("cuMemcpy3DPeer", Form::Deep, |ask| cu!(cuMemcpy3DPeer(&raw const ask.deep))),
    ("cuMemcpy3DPeer_ptds", Form::Deep, |ask| cu!(cuMemcpy3DPeer_ptds(&raw const ask.deep))),
    ("cuMemcpy3DPeerAsync", Form::Deep, |ask| cu!(cuMemcpy3DPeerAsync(&raw const ask.deep, ask.stream))),
    ("cuMemcpy3DPeerAsync_ptsz", Form::Deep, |ask| {
        cu!(cuMemcpy3DPeerAsync_ptsz(&raw const ask.deep, ask.stream))
    }),
];

const HOST_TO_DEVICE: &[Function] = &[
    ("cuMemcpyHtoD_v2", Form::Line, |ask| cu!(cuMemcpyHtoD_v2(ask.to.address, host(ask.from), BYTES))),
    ("cuMemcpyHtoD_v2_ptds", Form::Line, |ask| {
        cu!(cuMemcpyHtoD_v2_ptds(ask.to.address, host(ask.from), BYTES))
    }),
    ("cuMemcpyHtoDAsync_v2", Form::Line, |ask| {
        cu!(cuMemcpyHtoDAsync_v2(ask.to.address, host(ask.from), BYTES, ask.stream))
    }),
    ("cuMemcpyHtoDAsync_v2_ptsz", Form::Line, |ask| {
        cu!(cuMemcpyHtoDAsync_v2_ptsz(ask.to.address, host(ask.from), BYTES, ask.stream))
    }),
];

const DEVICE_TO_HOST: &[Function] = &[
    ("cuMemcpyDtoH_v2", Form::Line, |ask| cu!(cuMemcpyDtoH_v2(host(ask.to), ask.from.address, BYTES))),
    ("cuMemcpyDtoH_v2_ptds", Form::Line, |ask| {
        cu!(cuMemcpyDtoH_v2_ptds(host(ask.to), ask.from.address, BYTES))
    }),
    ("cuMemcpyDtoHAsync_v2", Form::Line, |ask| {
        cu!(cuMemcpyDtoHAsync_v2(host(ask.to), ask.from.address, BYTES, ask.stream))
    }),
    ("cuMemcpyDtoHAsync_v2_ptsz", Form::Line, |ask| {
        cu!(cuMemcpyDtoHAsync_v2_ptsz(host(ask.to), ask.from.address, BYTES, ask.stream))
    }),
];

const DEVICE_TO_DEVICE: &[Function] = &[
    ("cuMemcpyDtoD_v2", Form::Line, |ask| cu!(cuMemcpyDtoD_v2(ask.to.address, ask.from.address, BYTES))),
    ("cuMemcpyDtoD_v2_ptds", Form::Line, |ask| {
        cu!(cuMemcpyDtoD_v2_ptds(ask.to.address, ask.from.address, BYTES))
    }),
    ("cuMemcpyDtoDAsync_v2", Form::Line, |ask| {
        cu!(cuMemcpyDtoDAsync_v2(ask.to.address, ask.from.address, BYTES, ask.stream))
    }),
    ("cuMemcpyDtoDAsync_v2_ptsz", Form::Line, |ask| {
        cu!(cuMemcpyDtoDAsync_v2_ptsz(ask.to.address, ask.from.address, BYTES, ask.stream))
    }),
    ("cuMemcpyPeer", Form::Line, |Ask { to, from, .. }| {
        cu!(cuMemcpyPeer(to.address, to.context.unwrap(), from.address, from.context.unwrap(), BYTES))
    }),
    ("cuMemcpyPeer_ptds", Form::Line, |Ask { to, from, .. }| {
        cu!(cuMemcpyPeer_ptds(to.address, to.context.unwrap(), from.address, from.context.unwrap(), BYTES))
    }),
    ("cuMemcpyPeerAsync", Form::Line, |Ask { to, from, stream, .. }| {
        let (there, here) = (to.context.unwrap(), from.context.unwrap());
        cu!(cuMemcpyPeerAsync(to.address, there, from.address, here, BYTES, *stream))
    }),
    ("cuMemcpyPeerAsync_ptsz", Form::Line, |Ask { to, from, stream, .. }| {
        let (there, here) = (to.context.unwrap(), from.context.unwrap());
        cu!(cuMemcpyPeerAsync_ptsz(to.address, there, from.address, here, BYTES, *stream))
    }),
];

#[test]
fn every_copy_reaches_every_device() {
    with_devices("devices::copies::every_copy_reaches_every_device", |contexts| {
        let (targets, sources) = (buffers(contexts, BYTES), buffers(contexts, BYTES));
        let mut pageable = [vec![0_u8; BYTES], vec![0_u8; BYTES]];
        let hosts = |at: usize, pageable: &mut [Vec<u8>; 2]| {
            [pageable[at].as_mut_ptr(), pinned(BYTES)]
                .map(|address| Place { context: None, address: address as u64 })
        };
        let (hosts_to, hosts_from) = (hosts(0, &mut pageable), hosts(1, &mut pageable));
        let all_to: Vec<Place> = targets.iter().chain(&hosts_to).copied().collect();
        let all_from: Vec<Place> = sources.iter().chain(&hosts_from).copied().collect();
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
                    for &(name, form, function) in ANY.iter().chain(more) {
                        let (before, data) = (random(BYTES), random(BYTES));
                        put(to, &before);
                        put(from, &data);
                        current(context);
                        let ask = Ask::new(to, from, stream, copies % 2 == 0);
                        assert_eq!(function(&ask), 0, "{name}");
                        // Pinned memory is the program's again, or written, when the stream has come so far.
                        ok!(cuStreamSynchronize(stream));
                        ok!(cuStreamSynchronize(PER_THREAD));
                        assert!(take(to, BYTES) == form.expected(&before, &data), "{name} {form:?}");
                        assert!(take(from, BYTES) == data, "{name} changed its source");
                        copies += 1;
                    }
                }
            }
        }
        assert!(copies > 1000 * contexts.len(), "{copies}");
        free(&targets);
        free(&sources);
        for place in [hosts_to[1], hosts_from[1]] {
            ok!(cuMemFreeHost(host(place)));
        }
    });
}

#[test]
fn long_copies_between_devices_arrive_whole() {
    with_devices("devices::copies::long_copies_between_devices_arrive_whole", |contexts| {
        let places = buffers(contexts, LONG);
        let data = random(LONG);
        put(places[0], &data);
        let last = contexts.len() - 1;
        // Round by all devices, each hop by the last one's stream, and rows that are longer than a piece.
        current(contexts[last]);
        let stream = get!(CUstream, cuStreamCreate(0));
        for hop in 0..contexts.len() {
            let (from, to) = (places[hop], places[(hop + 1) % contexts.len()]);
            ok!(cuMemcpyDtoDAsync_v2(to.address, from.address, LONG, stream));
        }
        assert!(take(places[0], LONG) == data);
        let half = LONG / 2;
        let side = |place: Place| Side2D {
            x: 0,
            y: 0,
            memory_type: 4,
            host: ptr::null_mut(),
            device: place.address,
            array: 0,
            pitch: half + 7,
        };
        let width = (4 << 20) + 11;
        let rows = Memcpy2D { src: side(places[0]), dst: side(places[last]), width, height: 2 };
        let before = random(LONG);
        put(places[last], &before);
        current(contexts[0]);
        ok!(cuMemcpy2DUnaligned_v2(&raw const rows));
        let after = take(places[last], LONG);
        for row in 0..2 {
            let at = row * (half + 7);
            assert!(after[at..at + width] == data[at..at + width], "row {row}");
        }
        assert!(after[width..half + 7] == before[width..half + 7], "the gap");
        free(&places);
    });
}
