//! Several devices in one process. Under unified addressing every copy ([`copies`]) and fill ([`fills`])
//! reaches the memory of every device, whichever device is current and whichever the stream is of, in the
//! order that CUDA promises ([`order`]). The executors do what has no order in an order of their own choice,
//! so that an order that is missing shows in the bytes.

mod copies;
mod fills;
mod order;

use std::ffi::c_void;
use std::ptr;

use vgpu_abi::driver::{CUcontext, CUgraph, CUstream};
use vgpu_device::{DeviceConfig, GpuConfig};
use vgpu_executor_soft::Soft;

use crate::cuda::*;
use crate::host::{Host, is_guest};

const LEGACY: CUstream = CUstream(1);
const PER_THREAD: CUstream = CUstream(2);
/// Bytes of each buffer.
const BYTES: usize = 90_000;

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

/// A graph is one device's: a capture that meets another's memory ends as CUDA says for what cannot be
/// captured.
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
