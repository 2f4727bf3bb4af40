//! Tests of what the executor does on a driver that blocks, refuses, and answers queries at a cost: which
//! calls it makes beside those of the ring, and how many.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vgpu_host_testing::bench::{Bench, config};
use vgpu_host_testing::commands::{
    LAUNCH, allocate, function, launch, load, params, send_module, stream, synchronize, window,
};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::body::copy::CopyIn;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::module::{ModuleLoad, ModuleUnload};
use vgpu_wire::body::session::WindowFree;
use vgpu_wire::body::stream::{EventCreate, EventRecord, Signal};
use vgpu_wire::{Mark, Span};

use crate::gpu::RecordedGpu;
use crate::locks;

/// First completion word for marks of this module.
const WORD: u32 = 930;
/// Least time between two queries of the driver about errors.
const PULSE: Duration = Duration::from_millis(1);
/// Calls that query the driver about events and streams.
const QUERIES: [&str; 2] = ["cuEventQuery", "cuStreamQuery"];

fn start(guest: &mut Guest) -> u64 {
    let memory = allocate(guest, 4096);
    load(guest, 1);
    function(guest, 1, "scale");
    memory
}

fn kernel(guest: &mut Guest, memory: u64, stream: u32) {
    launch(guest, Launch { function: 1, stream, ..LAUNCH }, &params(memory, &[1, 2]));
}

fn signal(guest: &mut Guest, stream: u32, value: u64) {
    guest.send(&Signal { stream, reserved: 0, mark: Mark::new(WORD + stream, value) }, &[]);
}

/// Returns the number of queries so far.
fn queries(gpu: &RecordedGpu) -> usize {
    QUERIES.iter().map(|call| gpu.count(call)).sum()
}

/// While work runs after which the GPU stores a word, the driver is asked at the pace of the pulse, by one
/// thread, and not by the thread that reads the ring.
#[test]
fn the_driver_is_asked_at_the_pace_of_the_pulse() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let memory = start(&mut guest);
    synchronize(&mut guest);
    gpu.hold();
    kernel(&mut guest, memory, 0);
    signal(&mut guest, 0, 1);
    guest.echo();
    let (begun, before) = (Instant::now(), queries(&gpu));
    until("the driver has been asked 100 times", || queries(&gpu) >= before + 100);
    let (asked, passed) = (queries(&gpu) - before, begun.elapsed());
    // A pulse asks about the event. Each millisecond also asks about streams without one.
    let most = 2 * (passed.as_micros() / PULSE.as_micros()) as usize + 2;
    assert!(asked <= most, "{asked} queries in {passed:?}");
    gpu.release();
    guest.wait_word(WORD, 1);
    let calls = gpu.calls();
    let ring = calls.iter().find(|line| line["call"] == "cuLaunchKernel").map(|line| &line["thread"]);
    let of_ring = |line: &&Value| Some(&line["thread"]) == ring && line["call"] == "cuEventQuery";
    assert_eq!(calls.iter().find(of_ring), None);
    gpu.check();
}

/// Launches for whose end a program waits cost a few queries each, and others none but those of the pulse.
#[test]
fn launches_cost_few_queries() {
    const LAUNCHES: usize = 200;
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let memory = start(&mut guest);
    synchronize(&mut guest);
    for (waits, each) in [(true, 6), (false, 0)] {
        let (begun, before) = (Instant::now(), queries(&gpu));
        for number in 1..=LAUNCHES {
            kernel(&mut guest, memory, 0);
            if waits {
                signal(&mut guest, 0, number as u64);
                guest.wait_word(WORD, number as u64);
            }
        }
        synchronize(&mut guest);
        let (asked, passed) = (queries(&gpu) - before, begun.elapsed());
        let most = each * LAUNCHES + 2 * (passed.as_micros() / PULSE.as_micros()) as usize + 8;
        assert!(asked <= most, "{asked} queries for {LAUNCHES} launches in {passed:?}");
    }
    gpu.check();
}

/// While a query of the completion thread does not return, launches, events and answers go on: no lock that
/// they need is held across it.
#[test]
fn no_launch_waits_for_a_query() {
    for call in QUERIES {
        let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
        let memory = start(&mut guest);
        stream(&mut guest, 1, 1);
        gpu.hold();
        kernel(&mut guest, memory, 0);
        if call == "cuEventQuery" {
            signal(&mut guest, 0, 1);
        }
        gpu.recording.hold_call(call).unwrap();
        until("the driver is asked", || gpu.recording.has_held(call));
        let before = gpu.count("cuLaunchKernel");
        for stream in [0, 1] {
            kernel(&mut guest, memory, stream);
            signal(&mut guest, stream, 2);
        }
        guest.echo();
        assert_eq!(gpu.count("cuLaunchKernel"), before + 2, "{call}");
        gpu.recording.release_call(call).unwrap();
        gpu.release();
        guest.wait_word(WORD, 2);
        guest.wait_word(WORD + 1, 2);
        gpu.check();
    }
}

/// What completed work used is dropped while other work waits for the guest. Driver 580 does not return from
/// these calls meanwhile, and lets no other thread submit work. Neither launches nor marks wait for them
/// here, though the executor stores the marks.
#[test]
fn drops_that_block_keep_no_mark_waiting() {
    for call in ["cuMemHostUnregister", "cuModuleUnload"] {
        let (gpu, mut guest) = RecordedGpu::with_guest(&json!({ "memory_operations": false }));
        let (memory, place) = (start(&mut guest), window(&mut guest, 4096));
        load(&mut guest, 2);
        // The registration is used.
        let source = Span::bar(place, 4096);
        guest.send(&CopyIn { stream: 0, reserved: 0, destination: memory, source, read: Mark::NONE }, &[]);
        gpu.recording.hold_call(call).unwrap();
        if call == "cuModuleUnload" {
            guest.send(&ModuleUnload { module: 2, reserved: 0 }, &[]);
        } else {
            guest.send(&WindowFree { offset: place }, &[]);
        }
        until("the drop has begun", || gpu.recording.has_held(call));
        kernel(&mut guest, memory, 0);
        signal(&mut guest, 0, 1);
        guest.wait_word(WORD, 1);
        gpu.recording.release_call(call).unwrap();
        until("the drop has ended", || gpu.count(call) > 0);
        gpu.check_all(&guest);
    }
}

/// Each call that is made under a lock on purpose is noticed, so the watch works and the list is no longer than
/// it must be.
#[test]
fn calls_under_a_lock_are_noticed() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let memory = start(&mut guest);
    guest.send(&EventCreate { event: 1, flags: 0 }, &[]);
    kernel(&mut guest, memory, 0);
    guest.send(&EventRecord { event: 1, stream: 0, mark: Mark::new(WORD, 1) }, &[]);
    guest.wait_word(WORD, 1);
    assert_eq!(locks::not_made(), []);
    gpu.check_all(&guest);
}

/// A text of a version that the driver does not know is refused with CUDA's code and the compiler's words.
#[test]
fn ptx_that_is_too_new_is_refused_with_its_reason() {
    const NEW: &str = ".version 8.9\n.target sm_61\n.address_size 64\n.visible .entry k() { ret; }\n";
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({ "ptx_version": 88 }));
    let memory = start(&mut guest);
    assert_eq!(send_module(&mut guest, 2, NEW), Ok(false));
    let (status, why) = guest.call(ModuleLoad { reply: 0, module: 2 }, &[]);
    let why = String::from_utf8_lossy(&why).into_owned();
    assert_eq!(status, 222, "{why}");
    assert!(why.contains("8.9"), "{why}");
    kernel(&mut guest, memory, 0);
    synchronize(&mut guest);
    gpu.check_all(&guest);
}

/// A driver registers no file of a disk. Copies of a window that lies on one go through pinned buffers.
#[test]
fn a_window_on_a_disk_is_copied_through_buffers() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a directory on a disk");
    let gpu = RecordedGpu::with_bus(&json!({}), |executor| Bench::within(folder, config(executor)));
    let mut guest = gpu.guest();
    let (memory, place) = (allocate(&mut guest, 4096), window(&mut guest, 4096));
    let (source, read) = (Span::bar(place, 4096), Mark::new(WORD, 1));
    guest.send(&CopyIn { stream: 0, reserved: 0, destination: memory, source, read }, &[]);
    guest.wait_word(WORD, 1);
    assert_eq!(guest.late(), None);
    let refused = gpu.recording.refused().expect("a record");
    assert!(refused.iter().all(|line| line["refused"] == "FileOnDisk") && !refused.is_empty(), "{refused:?}");
    let copies = gpu.calls().into_iter().filter(|line| line["call"] == "cuMemcpyHtoDAsync_v2");
    let sources: Vec<Value> = copies.map(|line| line["args"]["from"].clone()).collect();
    assert!(sources.iter().all(|from| from.to_string().contains("pinned#")), "{sources:?}");
    assert_eq!(sources.len(), 1);
}
