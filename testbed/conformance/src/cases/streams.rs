//! Streams and events: order, what a synchronize waits for, and what it costs.

use std::ptr;

use vgpu_abi::driver::{CUcontext, CUevent, CUstream};

use crate::calls::*;
use crate::case::{Case, cases};

pub const CASES: &[Case] = cases![
    "streams":
    events_order_and_tell,
    more_timed_events_than_words,
    default_streams_are_taken,
    destroyed_streams_finish_their_work,
    threads_share_a_context,
    wrong_handles_are_told,
];

const LEGACY: CUstream = CUstream(1);
const PER_THREAD: CUstream = CUstream(2);
const NO_TIMING: u32 = 2;

fn events_order_and_tell() {
    begin();
    let (a, b) = (get!(CUstream, cuStreamCreate(1)), get!(CUstream, cuStreamCreate(1)));
    let address = alloc(4 << 20);
    let timed = [0; 2].map(|_| get!(CUevent, cuEventCreate(0)));
    let event = get!(CUevent, cuEventCreate(NO_TIMING));
    ok!(cuEventQuery(event));
    ok!(cuEventSynchronize(event));
    ok!(cuStreamWaitEvent(b, event, 0));
    assert_eq!(fails!(f32, cuEventElapsedTime(timed[0], timed[1])), 400, "never recorded");
    let mut at_once = 0;
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
        assert!((0.0..600_000.0).contains(&milliseconds), "{milliseconds} ms");
        assert!(get!(f32, cuEventElapsedTime(timed[1], timed[0])) <= 0.0);
        // A host that has no processor for a while stores the second mark later than the library waits for it.
        match cu!(cuEventQuery(event)) {
            0 => at_once += 1,
            status => assert_eq!(status, 600),
        }
        ok!(cuEventSynchronize(event));
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
    assert!(at_once >= 15, "{at_once} of 30 were known at once");
    assert_eq!(fails!(f32, cuEventElapsedTime(event, timed[0])), 400, "no timing");
    assert_eq!(fails!(CUevent, cuEventCreate(64)), 1);
    assert_eq!(fails!(CUevent, cuEventCreate(4 | 2)), 801, "no other process can have it");
    ok!(cuEventDestroy_v2(event));
    assert_eq!(cu!(cuEventRecord(event, a)), 400);
    assert_eq!(cu!(cuEventDestroy_v2(event)), 400);
    assert_eq!(cu!(cuEventRecord(CUevent(a.0), a)), 400, "a stream is no event");
    assert_eq!(cu!(cuStreamSynchronize(CUstream(timed[0].0))), 400);
}

fn more_timed_events_than_words() {
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
}

fn default_streams_are_taken() {
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
}

fn destroyed_streams_finish_their_work() {
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
}

fn threads_share_a_context() {
    let context = begin();
    // The block that serves small allocations stays.
    ok!(cuMemFree_v2(alloc(1)));
    let before = memory_info().0;
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
    wait_for_free_memory(before);
}

fn wrong_handles_are_told() {
    let context = begin();
    let stream = get!(CUstream, cuStreamCreate(0));
    for wrong in
        [3, 16, 0x1000, context.0, stream.0 + 16, stream.0 | 1, usize::MAX, ptr::from_ref(&stream) as usize]
    {
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
}
