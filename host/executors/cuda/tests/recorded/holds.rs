//! Tests of holds: work that waits for the guest by a hold of another stream, copies beside it, and holds for
//! which a host function of the driver waits.

use serde_json::json;
use vgpu_host_testing::commands::{
    LAUNCH, allocate, function, launch, load, params, stream, synchronize, window,
};
use vgpu_host_testing::guest::Guest;
use vgpu_wire::body::copy::CopyIn;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::stream::{EventCreate, EventRecord, Signal, StreamHold, StreamRelease, StreamWait};
use vgpu_wire::{Mark, Span};

use crate::gpu::RecordedGpu;
use crate::products::product;

/// First completion word for marks of this module.
const WORD: u32 = 940;
/// More pieces of work than may wait for the guest.
const TOO_MANY: u32 = 1100;
/// Flag of a stream that neither waits for the legacy default stream nor is waited for by it.
const NON_BLOCKING: u32 = 1;

/// Holds a stream with hold 1.
fn hold(guest: &mut Guest, stream: u32) {
    guest.send(&StreamHold { stream, hold: 1, mark: Mark::NONE }, &[]);
}

/// Launches kernels on a stream, and returns the error of the first that is refused.
fn launches(guest: &mut Guest, memory: u64, stream: u32, count: u32) -> Option<u32> {
    let body = Launch { function: 1, stream, ..LAUNCH };
    let numbers: Vec<u64> = (0..count).map(|_| launch(guest, body, &params(memory, &[1, 2]))).collect();
    guest.echo();
    guest.late().filter(|(.., message)| *message >= numbers[0]).map(|(code, ..)| code)
}

/// Sends small copies on a stream.
fn copies(guest: &mut Guest, memory: u64, stream: u32, count: u32) {
    for _ in 0..count {
        let source = Span::inline(64);
        let body = CopyIn { stream, reserved: 0, destination: memory, source, read: Mark::NONE };
        guest.send(&body, &[7; 64]);
    }
}

/// Work that waits for a held stream by an event fills the driver's queues as that of the stream itself does.
#[test]
fn work_that_waits_by_an_event_is_refused_before_the_queues_are_full() {
    RecordedGpu::with_either_hold(|gpu, mut guest| {
        let memory = allocate(&mut guest, 4096);
        load(&mut guest, 1);
        function(&mut guest, 1, "scale");
        (1..5).for_each(|number| stream(&mut guest, number, NON_BLOCKING));
        for event in 1..3 {
            guest.send(&EventCreate { event, flags: 2 }, &[]);
        }
        hold(&mut guest, 1);
        // Stream 2 waits for stream 1, and stream 3 for stream 2.
        for (from, to) in [(1, 2), (2, 3)] {
            guest.send(&EventRecord { event: from, stream: from, mark: Mark::NONE }, &[]);
            guest.send(&StreamWait { stream: to, event: from }, &[]);
        }
        assert_eq!(launches(&mut guest, memory, 4, TOO_MANY), None, "a stream that does not wait");
        assert_eq!(launches(&mut guest, memory, 3, TOO_MANY), Some(2));
        assert_eq!(launches(&mut guest, memory, 2, 1), Some(2), "the room is for all streams together");
        guest.send(&StreamRelease { hold: 1, reserved: 0 }, &[]);
        assert_eq!(launches(&mut guest, memory, 3, TOO_MANY), None);
        synchronize(&mut guest);
        gpu.check();
    });
}

/// The legacy default stream waits for a held stream, and streams that wait for its work wait, too. Its work
/// may be a record of an event.
#[test]
fn work_that_waits_by_the_legacy_stream_is_refused_before_the_queues_are_full() {
    for records in [false, true] {
        let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
        let memory = allocate(&mut guest, 4096);
        load(&mut guest, 1);
        function(&mut guest, 1, "scale");
        (1..3).for_each(|number| stream(&mut guest, number, 0));
        stream(&mut guest, 3, NON_BLOCKING);
        guest.send(&EventCreate { event: 1, flags: 2 }, &[]);
        hold(&mut guest, 1);
        let free = launches(&mut guest, memory, 2, TOO_MANY);
        assert_eq!(free, None, "no work of the legacy stream lies between");
        if records {
            guest.send(&EventRecord { event: 1, stream: 0, mark: Mark::NONE }, &[]);
        } else {
            assert_eq!(launches(&mut guest, memory, 0, 10), None);
        }
        assert_eq!(launches(&mut guest, memory, 3, TOO_MANY), None);
        assert_eq!(launches(&mut guest, memory, 2, TOO_MANY), Some(2));
        guest.send(&StreamRelease { hold: 1, reserved: 0 }, &[]);
        assert_eq!(launches(&mut guest, memory, 2, TOO_MANY), None);
        synchronize(&mut guest);
        gpu.check();
    }
}

/// A record of an event takes an entry of the driver's queue, too. The queue here has a few entries more than
/// work may wait for the guest, and the thread that reads the ring never waits for room.
#[test]
fn records_behind_a_held_stream_are_counted() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({ "queue": 800 }));
    let memory = allocate(&mut guest, 4096);
    load(&mut guest, 1);
    function(&mut guest, 1, "scale");
    stream(&mut guest, 1, NON_BLOCKING);
    guest.send(&EventCreate { event: 1, flags: 2 }, &[]);
    hold(&mut guest, 1);
    for _ in 0..TOO_MANY / 2 {
        launch(&mut guest, Launch { function: 1, stream: 1, ..LAUNCH }, &params(memory, &[1, 2]));
        guest.send(&EventRecord { event: 1, stream: 1, mark: Mark::NONE }, &[]);
    }
    guest.echo();
    assert_eq!(guest.late().map(|(code, ..)| code), Some(2));
    guest.send(&StreamRelease { hold: 1, reserved: 0 }, &[]);
    synchronize(&mut guest);
    gpu.check();
}

/// Copies of a stream that is not held are complete while others wait for the guest with all buffers that
/// they can get.
#[test]
fn copies_beside_a_held_stream_wait_for_nobody() {
    RecordedGpu::with_either_hold(|gpu, mut guest| {
        let memory = allocate(&mut guest, 4096);
        (1..4).for_each(|number| stream(&mut guest, number, NON_BLOCKING));
        guest.send(&EventCreate { event: 1, flags: 2 }, &[]);
        hold(&mut guest, 1);
        guest.send(&EventRecord { event: 1, stream: 1, mark: Mark::NONE }, &[]);
        guest.send(&StreamWait { stream: 2, event: 1 }, &[]);
        copies(&mut guest, memory, 2, TOO_MANY);
        guest.echo();
        let refused = guest.late().map(|(code, ..)| code);
        assert_eq!(refused, Some(2));
        let number = guest.late().map(|(.., number)| number);
        copies(&mut guest, memory, 3, 500);
        guest.send(&Signal { stream: 3, reserved: 0, mark: Mark::new(WORD, 1) }, &[]);
        guest.wait_word(WORD, 1);
        assert_eq!(guest.late().map(|(.., number)| number), number, "none of these was refused");
        guest.send(&StreamRelease { hold: 1, reserved: 0 }, &[]);
        synchronize(&mut guest);
        gpu.check();
    });
}

/// A buffer comes back when a fence after its copy is reached. Streams with few copies each have none yet
/// when all buffers are in use.
#[test]
fn buffers_that_several_streams_share_come_back() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let memory = allocate(&mut guest, 4096);
    for number in 1..9 {
        stream(&mut guest, number, NON_BLOCKING);
        copies(&mut guest, memory, number, 15);
    }
    guest.echo();
    assert_eq!(guest.late(), None);
    synchronize(&mut guest);
    gpu.check();
}

/// Streams have copied, and some wait for the guest before they have a fence. Their buffers come back all the
/// same, whether the copies precede the hold or follow it.
#[test]
fn buffers_of_streams_that_come_to_wait_for_the_guest_come_back() {
    for before in [true, false] {
        let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
        let memory = allocate(&mut guest, 4096);
        (1..10).for_each(|number| stream(&mut guest, number, NON_BLOCKING));
        guest.send(&EventCreate { event: 1, flags: 2 }, &[]);
        if !before {
            hold(&mut guest, 1);
        }
        (2..7).for_each(|number| copies(&mut guest, memory, number, 13));
        if before {
            hold(&mut guest, 1);
        }
        guest.send(&EventRecord { event: 1, stream: 1, mark: Mark::NONE }, &[]);
        for number in 2..7 {
            guest.send(&StreamWait { stream: number, event: 1 }, &[]);
        }
        copies(&mut guest, memory, 9, 100);
        guest.send(&Signal { stream: 9, reserved: 0, mark: Mark::new(WORD, 1) }, &[]);
        guest.wait_word(WORD, 1);
        assert_eq!(guest.late(), None);
        guest.send(&StreamRelease { hold: 1, reserved: 0 }, &[]);
        synchronize(&mut guest);
        gpu.check();
    }
}

/// Sends copies from a place in the window, which go through staging buffers.
fn staged_copies(guest: &mut Guest, memory: u64, place: u64, stream: u32, count: u32) {
    for _ in 0..count {
        let source = Span::bar(place, 4096);
        let body = CopyIn { stream, reserved: 0, destination: memory, source, read: Mark::NONE };
        guest.send(&body, &[]);
    }
}

/// The driver is given several pieces of work for one copy or product. Its queue here has a few entries more
/// than work may wait for the guest, and the thread that reads the ring never waits for room.
#[test]
fn work_behind_a_held_stream_is_counted_as_what_the_driver_is_given() {
    for memory_operations in [true, false] {
        let (gpu, mut guest) = RecordedGpu::with_guest(&json!({
            "queue": 800, "host_register": false, "memory_operations": memory_operations
        }));
        let (memory, place) = (allocate(&mut guest, 4096), window(&mut guest, 4096));
        stream(&mut guest, 1, NON_BLOCKING);
        guest.send(&product(1, memory), &[]);
        synchronize(&mut guest);
        let products = gpu.count("cublasGemmEx_64");
        hold(&mut guest, 1);
        staged_copies(&mut guest, memory, place, 1, TOO_MANY / 2);
        guest.echo();
        assert_eq!(guest.late().map(|(code, ..)| code), Some(2));
        guest.send(&StreamRelease { hold: 1, reserved: 0 }, &[]);
        synchronize(&mut guest);
        guest.send(&StreamHold { stream: 1, hold: 2, mark: Mark::NONE }, &[]);
        for _ in 0..TOO_MANY / 2 {
            guest.send(&product(1, memory), &[]);
        }
        guest.echo();
        // Each may be two kernels of cuBLAS.
        let accepted = gpu.count("cublasGemmEx_64") - products;
        assert!((378..=384).contains(&accepted), "{accepted}");
        guest.send(&StreamRelease { hold: 2, reserved: 0 }, &[]);
        synchronize(&mut guest);
        gpu.check_known(&["RegisterUnsupported"]);
    }
}

/// The driver calls functions of the host one after the other. The second stream comes to its hold first. If
/// the driver's thread waited for that one's release, which follows that of the first, the copy before the
/// first hold would never be carried out.
#[test]
fn holds_for_which_functions_wait_come_in_the_order_in_which_they_are_released() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({
        "memory_operations": false, "host_register": false, "order": "newest"
    }));
    let (memory, place) = (allocate(&mut guest, 4096), window(&mut guest, 4096));
    (1..4).for_each(|number| stream(&mut guest, number, NON_BLOCKING));
    gpu.hold();
    staged_copies(&mut guest, memory, place, 1, 1);
    for hold in 1..4 {
        let mark = Mark::new(WORD + 1 + hold, 1);
        guest.send(&StreamHold { stream: hold, hold, mark }, &[]);
        guest.send(&Signal { stream: hold, reserved: 0, mark: Mark::new(WORD + 5 + hold, 1) }, &[]);
    }
    guest.echo();
    gpu.release();
    for hold in 1..4 {
        guest.wait_word(WORD + 1 + hold, 1);
        assert_eq!(guest.word(WORD + 5 + hold), 0, "stream {hold} is held");
        guest.send(&StreamRelease { hold, reserved: 0 }, &[]);
        guest.wait_word(WORD + 5 + hold, 1);
    }
    synchronize(&mut guest);
    assert_eq!(guest.late(), None);
    gpu.check_known(&["RegisterUnsupported"]);
}

/// A context is lost while a function of the host waits for the guest, in the driver's only thread for
/// functions. It returns, and the session ends.
#[test]
fn a_session_that_loses_its_context_while_it_holds_a_stream_ends() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({
        "memory_operations": false, "fault": { "launch": 1, "status": 719 }
    }));
    let memory = allocate(&mut guest, 4096);
    load(&mut guest, 1);
    function(&mut guest, 1, "scale");
    (1..3).for_each(|number| stream(&mut guest, number, NON_BLOCKING));
    hold(&mut guest, 1);
    launches(&mut guest, memory, 2, 1);
    guest.send(&Signal { stream: 1, reserved: 0, mark: Mark::new(WORD, 1) }, &[]);
    guest.wait_word(WORD, 1);
    assert_eq!(guest.late().map(|(code, ..)| code), Some(719));
    guest.detach();
    assert_eq!(gpu.bench.allocated(), 0);
}
