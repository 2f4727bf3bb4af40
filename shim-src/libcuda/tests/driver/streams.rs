//! Streams and events: order, what a synchronize waits for, and what it costs.

use std::ptr;
use std::time::Duration;

use vgpu_abi::driver::{CUcontext, CUevent, CUstream};

use crate::cuda::*;
use crate::host::{Host, is_guest, soft, with_device};

const LEGACY: CUstream = CUstream(1);
const PER_THREAD: CUstream = CUstream(2);
const NO_TIMING: u32 = 2;

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
        // The first use of the thread's own stream makes it.
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
        // And the copy back is one message and one wait, once there is memory to bring it through.
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
        // SAFETY: the host is held, so that the copy has not begun.
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

#[test]
fn events_order_and_tell() {
    with_device("streams::events_order_and_tell", device, || {
        begin();
        let (a, b) = (get!(CUstream, cuStreamCreate(1)), get!(CUstream, cuStreamCreate(1)));
        let address = alloc(4 << 20);
        let timed = [0; 2].map(|_| get!(CUevent, cuEventCreate(0)));
        let event = get!(CUevent, cuEventCreate(NO_TIMING));
        ok!(cuEventQuery(event));
        ok!(cuEventSynchronize(event));
        ok!(cuStreamWaitEvent(b, event, 0));
        assert_eq!(fails!(f32, cuEventElapsedTime(timed[0], timed[1])), 400, "never recorded");
        for round in 0..30_u8 {
            ok!(cuEventRecord(timed[0], a));
            ok!(cuMemsetD8Async(address, round, 4 << 20, a));
            ok!(cuEventRecord(timed[1], a));
            ok!(cuEventRecord(event, a));
            ok!(cuStreamWaitEvent(b, event, 0));
            let mut back = [0xff_u8; 100];
            ok!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), address + (3 << 20), 100, b));
            assert_eq!(back, [round; 100], "the other stream's work came first");
            ok!(cuEventSynchronize(timed[1]));
            let milliseconds = get!(f32, cuEventElapsedTime(timed[0], timed[1]));
            assert!((0.0..10_000.0).contains(&milliseconds), "{milliseconds} ms");
            assert!(get!(f32, cuEventElapsedTime(timed[1], timed[0])) <= 0.0);
            ok!(cuEventQuery(event));
            // What a synchronize that did not wait has covered is done for whoever asks.
            ok!(cuEventRecord(timed[0], a));
            ok!(cuMemsetD8Async(address, round, 4 << 20, a));
            ok!(cuEventRecord(timed[1], a));
            ok!(cuEventRecord(event, a));
            ok!(cuStreamWaitEvent(b, event, 0));
            ok!(cuStreamSynchronize(b));
            match round % 4 {
                0 => ok!(cuEventQuery(event)),
                1 => ok!(cuStreamQuery(a)),
                2 => ok!(cuStreamQuery(LEGACY)),
                _ => assert!(get!(f32, cuEventElapsedTime(timed[0], timed[1])) >= 0.0),
            }
        }
        assert_eq!(fails!(f32, cuEventElapsedTime(event, timed[0])), 400, "no timing");
        assert_eq!(fails!(CUevent, cuEventCreate(64)), 1);
        assert_eq!(fails!(CUevent, cuEventCreate(4 | 2)), 801, "no other process can have it");
        ok!(cuEventDestroy_v2(event));
        assert_eq!(cu!(cuEventRecord(event, a)), 400);
        assert_eq!(cu!(cuEventDestroy_v2(event)), 400);
        assert_eq!(cu!(cuEventRecord(CUevent(a.0), a)), 400, "a stream is no event");
        assert_eq!(cu!(cuStreamSynchronize(CUstream(timed[0].0))), 400);
    });
}

#[test]
fn more_timed_events_than_words() {
    with_device("streams::more_timed_events_than_words", device, || {
        begin();
        let streams = [0; 3].map(|_| get!(CUstream, cuStreamCreate(1)));
        let events: Vec<CUevent> = (0..3000).map(|_| get!(CUevent, cuEventCreate(0))).collect();
        for round in 0..3 {
            for (index, &event) in events.iter().enumerate() {
                ok!(cuEventRecord(event, streams[(index + round) % 3]));
                if index % 500 == 499 {
                    ok!(cuCtxSynchronize());
                }
            }
        }
        ok!(cuCtxSynchronize());
        for pair in events.windows(2) {
            get!(f32, cuEventElapsedTime(pair[0], pair[1]));
        }
        for event in events {
            ok!(cuEventDestroy_v2(event));
        }
    });
}

#[test]
fn default_streams_are_taken() {
    with_device("streams::default_streams_are_taken", device, || {
        begin();
        let address = alloc(1 << 16);
        for stream in [CUstream(0), LEGACY, PER_THREAD] {
            ok!(cuMemsetD8Async(address, 9, 1 << 16, stream));
            ok!(cuStreamSynchronize(stream));
            ok!(cuStreamQuery(stream));
            let mut priority = 9;
            ok!(cuStreamGetPriority(stream, &raw mut priority));
            assert_eq!(priority, 0);
            assert_eq!(cu!(cuStreamDestroy_v2(stream)), 400);
        }
        ok!(cuCtxSynchronize());
        ok!(cuStreamQuery(LEGACY));
        // Threads have streams of their own, and give them to the next when they end.
        for _ in 0..3 {
            let context = get!(CUcontext, cuCtxGetCurrent());
            let threads: Vec<_> = (0..4_u8)
                .map(|index| {
                    std::thread::spawn(move || {
                        ok!(cuCtxSetCurrent(context));
                        let mine = address + u64::from(index) * 1024;
                        ok!(cuMemsetD8Async(mine, index, 1024, PER_THREAD));
                        ok!(cuStreamSynchronize(PER_THREAD));
                        assert_eq!(download(mine, 1024), [index; 1024]);
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
        }
        ok!(cuMemFree_v2(address));
    });
}

#[test]
fn destroyed_streams_finish_their_work() {
    with_device("streams::destroyed_streams_finish_their_work", device, || {
        begin();
        let address = alloc(8 << 20);
        let event = get!(CUevent, cuEventCreate(NO_TIMING));
        for value in 0..50_u8 {
            let stream = get!(CUstream, cuStreamCreate(0));
            ok!(cuMemsetD8Async(address, value, 8 << 20, stream));
            ok!(cuEventRecord(event, stream));
            ok!(cuStreamSynchronize(stream));
            ok!(cuStreamDestroy_v2(stream));
            assert_eq!(cu!(cuStreamSynchronize(stream)), 400);
            ok!(cuEventSynchronize(event));
            assert_eq!(download(address + (8 << 20) - 8, 8), [value; 8]);
        }
    });
}

#[test]
fn threads_share_a_context() {
    with_device("streams::threads_share_a_context", device, || {
        let context = begin();
        let threads: Vec<_> = (0..6_usize)
            .map(|index| {
                std::thread::spawn(move || {
                    ok!(cuCtxSetCurrent(context));
                    let stream = get!(CUstream, cuStreamCreate(u32::from(index % 2 == 0)));
                    let event = get!(CUevent, cuEventCreate(if index % 3 == 0 { 0 } else { NO_TIMING }));
                    for round in 0..40 {
                        let bytes = 1 + (index * 7919 + round * 104_729) % 300_000;
                        let data = random(bytes);
                        let (a, b) = (alloc(bytes), alloc(bytes));
                        ok!(cuMemcpyHtoDAsync_v2(a, data.as_ptr().cast(), bytes, stream));
                        ok!(cuMemcpyDtoDAsync_v2(b, a, bytes, stream));
                        ok!(cuEventRecord(event, stream));
                        ok!(cuEventSynchronize(event));
                        let mut back = vec![0; bytes];
                        ok!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), b, bytes, stream));
                        assert!(back == data);
                        ok!(cuMemFree_v2(a));
                        ok!(cuMemFree_v2(b));
                    }
                    ok!(cuEventDestroy_v2(event));
                    ok!(cuStreamDestroy_v2(stream));
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let (mut free, mut total) = (0, 0);
        ok!(cuMemGetInfo_v2(&raw mut free, &raw mut total));
        assert_eq!(free, total);
    });
}

#[test]
fn wrong_handles_are_told() {
    with_device("streams::wrong_handles_are_told", device, || {
        let context = begin();
        let stream = get!(CUstream, cuStreamCreate(0));
        for wrong in [
            3,
            16,
            0x1000,
            context.0,
            stream.0 + 16,
            stream.0 | 1,
            usize::MAX,
            ptr::from_ref(&stream) as usize,
        ] {
            assert_eq!(cu!(cuStreamSynchronize(CUstream(wrong))), 400, "{wrong:#x}");
            assert_eq!(cu!(cuStreamDestroy_v2(CUstream(wrong))), 400);
            assert_eq!(cu!(cuEventQuery(CUevent(wrong))), 400);
            if wrong != context.0 {
                assert_eq!(cu!(cuCtxSetCurrent(CUcontext(wrong))), 201);
                assert_eq!(cu!(cuCtxPushCurrent_v2(CUcontext(wrong))), 201);
            }
        }
        assert_eq!(fails!(CUstream, cuStreamCreate(2)), 1);
        // The stack of contexts.
        let second = get!(CUcontext, cuCtxCreate_v2(0, 0));
        assert_eq!(get!(CUcontext, cuCtxGetCurrent()), second);
        ok!(cuCtxPushCurrent_v2(context));
        assert_eq!(get!(CUcontext, cuCtxPopCurrent_v2()), context);
        assert_eq!(get!(CUcontext, cuCtxPopCurrent_v2()), second);
        assert_eq!(get!(CUcontext, cuCtxGetCurrent()), context);
        ok!(cuCtxSetCurrent(CUcontext(0)));
        assert_eq!(get!(CUcontext, cuCtxGetCurrent()), CUcontext(0));
        assert_eq!(fails!(CUcontext, cuCtxPopCurrent_v2()), 201);
        assert_eq!(cu!(cuStreamSynchronize(stream)), 201, "no context");
        ok!(cuCtxSetCurrent(second));
        ok!(cuStreamSynchronize(stream));
        let address = alloc(64);
        ok!(cuMemsetD8_v2(address, 1, 64));
        ok!(cuCtxDestroy_v2(second));
        // Primary contexts are retained and released.
        let state = || {
            let (mut flags, mut active) = (9, 9);
            ok!(cuDevicePrimaryCtxGetState(0, &raw mut flags, &raw mut active));
            active
        };
        assert_eq!(state(), 1);
        ok!(cuDevicePrimaryCtxRelease_v2(0));
        assert_eq!(state(), 0);
        assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(0)), 201);
        assert_eq!(cu!(cuCtxSetCurrent(context)), 709);
        assert_eq!(get!(CUcontext, cuDevicePrimaryCtxRetain(0)), context);
        ok!(cuCtxSetCurrent(context));
        assert_eq!(cu!(cuStreamSynchronize(stream)), 400, "it ended with the context");
        ok!(cuDevicePrimaryCtxReset_v2(0));
    });
}
