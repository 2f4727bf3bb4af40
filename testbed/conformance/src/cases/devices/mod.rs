//! Memory of every device in one process. Under unified addressing every copy ([`copies`]) and fill
//! ([`fills`]) reaches the memory of every device, whichever device is current and whichever the stream
//! belongs to, in the order that CUDA promises ([`order`]). A soft device may execute unordered work in a
//! random order, so that missing order shows in the bytes.

mod buffers;
pub mod copies;
pub mod fills;
pub mod order;

use vgpu_abi::driver::{CUgraph, CUstream};

use self::buffers::{BYTES, allocate_buffers, contexts, free_buffers, make_current};
use crate::calls::*;
use crate::case::{Case, cases};

pub const CASES: &[Case] = cases![
    "devices":
    captures_refuse_other_devices_by_their_code,
    memory_of_no_device_is_refused,
];

/// A graph belongs to one device. A capture that meets another device's memory ends with the code for work
/// that cannot be captured.
fn captures_refuse_other_devices_by_their_code() {
    let contexts = &contexts(2);
    let buffers = allocate_buffers(contexts, BYTES);
    make_current(contexts[0]);
    let stream = get!(CUstream, cuStreamCreate(1));
    let (own, other) = (buffers[0].address, buffers[1].address);
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
    free_buffers(&buffers);
}

fn memory_of_no_device_is_refused() {
    let contexts = &contexts(2);
    let buffers = allocate_buffers(contexts, BYTES);
    let (own, other) = (buffers[0].address, buffers[1].address);
    make_current(contexts[0]);
    let sent = messages(|| {
        assert_eq!(cu!(cuMemcpyDtoD_v2(own, other, BYTES + 4096)), 1, "too long");
        assert_eq!(cu!(cuMemcpyDtoD_v2(own, other + (1 << 30), 1)), 1, "nobody's");
        assert_eq!(cu!(cuMemsetD8_v2(other + BYTES as u64, 0, 8192)), 1);
        let swapped = cu!(cuMemcpyPeer(own, contexts[1], other, contexts[0], 16));
        assert_eq!(swapped, 1, "contexts and addresses disagree");
    });
    assert_eq!(sent, 0);
    free_buffers(&buffers);
}
