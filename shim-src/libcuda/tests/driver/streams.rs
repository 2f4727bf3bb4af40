//! Tests of what a synchronize waits for, and how many messages it takes.

use std::time::Duration;

use vgpu_abi::driver::CUstream;
use vgpu_conformance::calls::*;

use crate::host::{Host, is_guest, soft, with_device};

const LEGACY: CUstream = CUstream(1);
const PER_THREAD: CUstream = CUstream(2);

fn device() -> vgpu_device::DeviceConfig {
    soft("0000:00:05.0", |_| ())
}

#[test]
fn a_synchronize_without_anything_to_bring_back_is_a_flag() {
    with_device("streams::a_synchronize_without_anything_to_bring_back_is_a_flag", device, || {
        begin();
        let stream = get!(CUstream, cuStreamCreate(1));
        let other = get!(CUstream, cuStreamCreate(1));
        let address = alloc(1 << 20);
        let data = random(8192);
        // The first use of the thread's own stream creates it.
        ok!(cuMemsetD8Async(address, 0, 16, PER_THREAD));
        // As GGML feeds its graphs: six small copies on the thread's own stream, each between synchronizes.
        let before = counters();
        for index in 0..6 {
            ok!(cuStreamSynchronize(stream));
            ok!(cuMemcpyHtoDAsync_v2(address + index * 64, data.as_ptr().cast(), 64, PER_THREAD));
            ok!(cuStreamSynchronize(PER_THREAD));
        }
        for _ in 0..50 {
            ok!(cuMemsetD8Async(address, 1, 16, stream));
        }
        ok!(cuStreamSynchronize(stream));
        ok!(cuStreamSynchronize(stream));
        ok!(cuStreamSynchronize(other));
        let after = counters();
        assert_eq!(after.messages - before.messages, 6 + 50, "no message for a synchronize");
        assert_eq!(after.round_trips, before.round_trips);
        assert_eq!(after.waits, before.waits);
        // A download is one message and one wait, once its staging buffers exist.
        download(address, 16);
        let before = counters();
        let back = download(address, 4096);
        let after = counters();
        assert_eq!(back[..16], [1; 16]);
        assert_eq!(after.messages - before.messages, 1);
    });
}

#[test]
fn pinned_copies_are_waited_for() {
    const NAME: &str = "streams::pinned_copies_are_waited_for";
    const BYTES: usize = 1 << 20;
    if is_guest(NAME) {
        begin();
        let stream = get!(CUstream, cuStreamCreate(1));
        let other = get!(CUstream, cuStreamCreate(1));
        let device = alloc(BYTES);
        let (host, small) = (pinned(BYTES), pinned(8192));
        ok!(cuMemsetD8_v2(device, 0x11, BYTES));
        // Takes what copies go through.
        ok!(cuMemcpyHtoDAsync_v2(device, small.cast(), 8192, stream));
        ok!(cuCtxSynchronize());
        // The host is held from here: nothing is carried out.
        std::fs::write(std::env::var_os("READY").unwrap(), "").unwrap();
        let held = std::path::PathBuf::from(std::env::var_os("HELD").unwrap());
        while !held.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let sent = messages(|| {
            ok!(cuMemcpyHtoDAsync_v2(device, small.cast(), 8192, stream));
            ok!(cuStreamSynchronize(stream));
            ok!(cuMemsetD8Async(device, 0x22, BYTES, other));
            ok!(cuStreamSynchronize(other));
        });
        assert_eq!(sent, 2, "sources that were copied at once, and work of the device alone: nobody waits");
        assert_eq!(messages(|| ok!(cuStreamQuery(stream))), 0, "a synchronize has covered it");
        ok!(cuMemsetD8Async(device, 0x22, 16, stream));
        let polls = messages(|| {
            for _ in 0..5 {
                assert_eq!(cu!(cuStreamQuery(stream)), 600);
            }
        });
        assert_eq!(polls, 1, "one mark is enough for all polls");
        let polls = messages(|| {
            for _ in 0..5 {
                assert_eq!(cu!(cuStreamQuery(LEGACY)), 600);
            }
        });
        assert_eq!(polls, 1);
        ok!(cuMemcpyDtoHAsync_v2(host.cast(), device, BYTES, other));
        // SAFETY: the host is held, so that the copy has not started.
        assert_eq!(unsafe { host.read_volatile() }, 0);
        std::fs::write(std::env::var_os("DONE").unwrap(), "").unwrap();
        ok!(cuStreamSynchronize(other));
        // SAFETY: the copy is over.
        assert!(unsafe { std::slice::from_raw_parts(host, BYTES) }.iter().all(|&byte| byte == 0x22));
        ok!(cuStreamSynchronize(stream));
        return;
    }
    let host = Host::serve(vec![device()]);
    let files = ["ready", "held", "done"].map(|name| host.path().join(name));
    let [ready, held, done] = files.each_ref().map(|path| path.to_str().unwrap());
    let guest = host.guest(NAME, &[("READY", ready), ("HELD", held), ("DONE", done)]).spawn().unwrap();
    let wait = |path: &std::path::Path| {
        for _ in 0..20_000 {
            if path.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the guest did not come to {}", path.display());
    };
    let bus = host.bus.as_ref().unwrap();
    wait(&files[0]);
    bus.hold();
    std::fs::write(&files[1], "").unwrap();
    wait(&files[2]);
    // The guest is about to wait.
    std::thread::sleep(Duration::from_millis(20));
    bus.release();
    crate::host::finish(guest);
}
