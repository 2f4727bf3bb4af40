//! Several devices in one process (issue 13, point 6): under unified addressing every copy and fill reaches the memory of every device,
//! whichever device is current and whichever the stream is of, in the order that CUDA promises. The executors do what has no order in
//! an order of their own choice, so that an order that is missing shows in the bytes.

use std::ffi::c_void;
use std::ptr;

use rand::{Rng, RngExt};
use vgpu_abi::driver::{CUcontext, CUevent, CUgraph, CUstream, Memcpy2D, Memcpy3D, Side2D, Side3D};
use vgpu_device::{DeviceConfig, GpuConfig};
use vgpu_executor_soft::Soft;

use crate::cuda::*;
use crate::host::{Host, is_guest};

const LEGACY: CUstream = CUstream(1);
const PER_THREAD: CUstream = CUstream(2);
const NO_STREAM: CUstream = CUstream(0);
/// Bytes of each buffer.
const BYTES: usize = 90_000;
/// More than what goes between devices at a time.
const LONG: usize = (9 << 20) + 123;

fn adversarial(index: usize) -> DeviceConfig {
    let mut gpu = GpuConfig::new("Test GPU").unwrap();
    gpu.memory_bytes = 256 << 20;
    let executor = Soft::adversarial(&gpu, index as u64 + 1).unwrap();
    DeviceConfig::new(format!("0000:00:{:02x}.0", 5 + index).parse().unwrap(), std::sync::Arc::new(executor))
}

/// Runs `guest` in processes that see two devices and three.
fn with_devices(name: &str, guest: impl FnOnce(&[CUcontext])) {
    if is_guest(name) {
        ok!(cuInit(0));
        let contexts: Vec<CUcontext> = (0..get!(i32, cuDeviceGetCount()))
            .map(|device| get!(CUcontext, cuDevicePrimaryCtxRetain(device)))
            .collect();
        return guest(&contexts);
    }
    for count in [2, 3] {
        let host = Host::serve((0..count).map(adversarial).collect());
        host.run(name, &[]);
        let left = host.bus.as_ref().unwrap().status();
        assert!(left.devices.iter().all(|device| device.allocated == 0), "memory is left behind: {left:?}");
    }
}

/// A buffer on a device, or of the host.
#[derive(Clone, Copy)]
struct Place {
    /// `None`: of the host.
    context: Option<CUcontext>,
    address: u64,
}

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

fn host(place: Place) -> *mut c_void {
    place.address as *mut c_void
}

fn current(context: CUcontext) {
    ok!(cuCtxSetCurrent(context));
}

/// Buffers, one on each device.
fn buffers(contexts: &[CUcontext], bytes: usize) -> Vec<Place> {
    let buffer = |&context: &CUcontext| {
        current(context);
        Place { context: Some(context), address: alloc(bytes) }
    };
    contexts.iter().map(buffer).collect()
}

fn free(places: &[Place]) {
    for place in places {
        ok!(cuMemFree_v2(place.address));
    }
}

fn put(place: Place, data: &[u8]) {
    match place.context {
        Some(context) => {
            current(context);
            upload(place.address, data);
        }
        // SAFETY: a host's place is memory of the test's of at least this size.
        None => unsafe { ptr::copy_nonoverlapping(data.as_ptr(), place.address as *mut u8, data.len()) },
    }
}

fn take(place: Place, bytes: usize) -> Vec<u8> {
    match place.context {
        Some(context) => {
            current(context);
            download(place.address, bytes)
        }
        // SAFETY: as in `put`.
        None => unsafe { std::slice::from_raw_parts(place.address as *const u8, bytes) }.to_vec(),
    }
}

/// A context that is current, and a stream, which may be of another device.
fn scenes(contexts: &[CUcontext]) -> Vec<(CUcontext, CUstream)> {
    let mut scenes = Vec::new();
    for &context in contexts {
        current(context);
        let own = get!(CUstream, cuStreamCreate(1));
        scenes.extend([LEGACY, PER_THREAD, own].map(|stream| (context, stream)));
        scenes.push((contexts[0], own));
    }
    scenes
}

#[test]
fn every_copy_reaches_every_device() {
    with_devices("devices::every_copy_reaches_every_device", |contexts| {
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

#[test]
fn every_fill_reaches_every_device() {
    with_devices("devices::every_fill_reaches_every_device", |contexts| {
        let targets = buffers(contexts, BYTES);
        for (context, stream) in scenes(contexts) {
            for &to in &targets {
                for &(name, element, rows, function) in FILLS {
                    let mut expected = random(BYTES);
                    put(to, &expected);
                    current(context);
                    assert_eq!(function(to.address + 8, stream), 0, "{name}");
                    ok!(cuStreamSynchronize(stream));
                    ok!(cuStreamSynchronize(PER_THREAD));
                    for row in 0..if rows { FILL_HEIGHT } else { 1 } {
                        for chunk in
                            expected[8 + row * FILL_PITCH..][..FILL_WIDTH * element].chunks_mut(element)
                        {
                            chunk.copy_from_slice(&FILL_VALUE.to_le_bytes()[..element]);
                        }
                    }
                    assert!(take(to, BYTES) == expected, "{name}");
                }
            }
        }
        free(&targets);
    });
}

#[test]
fn long_copies_between_devices_arrive_whole() {
    with_devices("devices::long_copies_between_devices_arrive_whole", |contexts| {
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

/// Streams are ordered by events alone; each step works on memory of any device.
#[test]
fn events_order_copies_between_devices() {
    with_devices("devices::events_order_copies_between_devices", |contexts| {
        let mut random_number = rand::rng();
        let places = buffers(contexts, BYTES);
        let mut model: Vec<Vec<u8>> = places.iter().map(|_| random(BYTES)).collect();
        for (&place, data) in places.iter().zip(&model) {
            put(place, data);
        }
        let streams: Vec<(CUcontext, CUstream, CUevent)> = contexts
            .iter()
            .map(|&context| {
                current(context);
                (context, get!(CUstream, cuStreamCreate(1)), get!(CUevent, cuEventCreate(2)))
            })
            .collect();
        let mut before = 0;
        for _ in 0..600 {
            let next = random_number.random_range(0..streams.len());
            let (_, earlier, event) = streams[before];
            let (context, stream, _) = streams[next];
            ok!(cuEventRecord(event, earlier));
            current(context);
            ok!(cuStreamWaitEvent(stream, event, 0));
            before = next;
            let start = random_number.random_range(0..BYTES);
            let length = random_number.random_range(0..=(BYTES - start).min(20_000));
            let (to, from) =
                (random_number.random_range(0..places.len()), random_number.random_range(0..places.len()));
            let at = |index: usize| places[index].address + start as u64;
            match random_number.random_range(0..3) {
                0 => {
                    let value = random_number.next_u32() as u8;
                    ok!(cuMemsetD8Async(at(to), value, length, stream));
                    model[to][start..start + length].fill(value);
                }
                1 if to != from => {
                    ok!(cuMemcpyAsync(at(to), at(from), length, stream));
                    let piece = model[from][start..start + length].to_vec();
                    model[to][start..start + length].copy_from_slice(&piece);
                }
                _ => {
                    let data = random(length);
                    ok!(cuMemcpyHtoDAsync_v2(at(to), data.as_ptr().cast(), length, stream));
                    model[to][start..start + length].copy_from_slice(&data);
                }
            }
        }
        let (_, last, _) = streams[before];
        ok!(cuStreamSynchronize(last));
        for (&place, expected) in places.iter().zip(&model) {
            assert!(take(place, BYTES) == *expected);
        }
        free(&places);
    });
}

/// The legacy stream's copies between devices wait for the work of both devices, and their later work for them.
#[test]
fn the_legacy_stream_orders_copies_with_both_devices() {
    with_devices("devices::the_legacy_stream_orders_copies_with_both_devices", |contexts| {
        let mut random_number = rand::rng();
        let places = buffers(contexts, BYTES);
        let streams: Vec<CUstream> = contexts
            .iter()
            .map(|&context| {
                current(context);
                get!(CUstream, cuStreamCreate(1))
            })
            .collect();
        let mut model: Vec<Vec<u8>> = places.iter().map(|_| vec![0; BYTES]).collect();
        for (&place, data) in places.iter().zip(&model) {
            put(place, data);
        }
        for round in 0..150 {
            for (index, place) in places.iter().enumerate() {
                let value = random_number.next_u32() as u8;
                ok!(cuMemsetD8Async(place.address, value, BYTES, streams[index]));
                model[index].fill(value);
            }
            let to = random_number.random_range(0..places.len());
            let from = (to + random_number.random_range(1..places.len())) % places.len();
            current(contexts[random_number.random_range(0..contexts.len())]);
            let length = random_number.random_range(1..BYTES);
            let (there, here) = (places[to].address, places[from].address);
            match round % 3 {
                0 => ok!(cuMemcpyDtoD_v2(there, here, length)),
                1 => ok!(cuMemcpyPeer(there, contexts[to], here, contexts[from], length)),
                _ => ok!(cuMemcpyAsync(there, here, length, NO_STREAM)),
            }
            let piece = model[from][..length].to_vec();
            model[to][..length].copy_from_slice(&piece);
            // What comes after it, in a stream that waits for no other.
            ok!(cuMemsetD8Async(there, 0x77, 100.min(length), streams[to]));
            model[to][..100.min(length)].fill(0x77);
            let mut back = vec![0; BYTES];
            ok!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), there, BYTES, streams[to]));
            assert!(back == model[to], "round {round}");
        }
        free(&places);
    });
}

/// A graph is one device's: a capture that meets another's memory ends as CUDA says for what cannot be captured.
#[test]
fn captures_refuse_other_devices_by_their_code() {
    with_devices("devices::captures_refuse_other_devices_by_their_code", |contexts| {
        let places = buffers(contexts, BYTES);
        current(contexts[0]);
        let stream = get!(CUstream, cuStreamCreate(1));
        let (own, other) = (places[0].address, places[1].address);
        let calls: [&dyn Fn() -> Status; 4] = [
            &|| cu!(cuMemcpyAsync(own, other, BYTES, stream)),
            &|| cu!(cuMemcpyDtoDAsync_v2(other, other + 4096, 4096, stream)),
            &|| cu!(cuMemsetD8Async(other, 1, BYTES, stream)),
            &|| cu!(cuMemcpyPeerAsync(other, contexts[1], own, contexts[0], BYTES, stream)),
        ];
        for call in calls {
            ok!(cuStreamBeginCapture_v2(stream, 2));
            assert_eq!(call(), 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED");
            let mut graph = CUgraph::NULL;
            assert_eq!(cu!(cuStreamEndCapture(stream, &raw mut graph)), 901, "the capture is void");
        }
        free(&places);
    });
}

#[test]
fn memory_of_no_device_is_refused() {
    with_devices("devices::memory_of_no_device_is_refused", |contexts| {
        let places = buffers(contexts, BYTES);
        let (own, other) = (places[0].address, places[1].address);
        current(contexts[0]);
        let sent = messages(|| {
            assert_eq!(cu!(cuMemcpyDtoD_v2(own, other, BYTES + 4096)), 1, "too long");
            assert_eq!(cu!(cuMemcpyDtoD_v2(own, other + (1 << 30), 1)), 1, "nobody's");
            assert_eq!(cu!(cuMemsetD8_v2(other + BYTES as u64, 0, 8192)), 1);
            let swapped = cu!(cuMemcpyPeer(own, contexts[1], other, contexts[0], 16));
            assert_eq!(swapped, 1, "contexts and addresses disagree");
        });
        assert_eq!(sent, 0);
        free(&places);
    });
}
