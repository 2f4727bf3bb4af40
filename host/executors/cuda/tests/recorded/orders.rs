//! Tests of which calls the executor makes, and in which order.

use std::sync::atomic::Ordering;

use serde_json::json;
use vgpu_host_testing::commands::{
    LAUNCH, allocate, function, launch, load, params, stream, synchronize, window,
};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::body::copy::{CopyIn, CopyOut};
use vgpu_wire::body::memory::MemFree;
use vgpu_wire::body::session::WindowFree;
use vgpu_wire::body::stream::{EventCreate, EventRecord, Join, Signal};
use vgpu_wire::{JOIN_ALL, Mark, Span, area};

use crate::gpu::RecordedGpu;

/// Completion word for marks of this module.
const WORD: u32 = 900;

fn signal(guest: &mut Guest, stream: u32, value: u64) {
    guest.send(&Signal { stream, reserved: 0, mark: Mark::new(WORD, value) }, &[]);
}

/// A program that only queries the device costs no context.
#[test]
fn an_attach_makes_no_context() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    guest.echo();
    window(&mut guest, 4096);
    guest.detach();
    gpu.compare("attach.jsonl");
    assert_eq!(gpu.count("cuCtxCreate_v2"), 0);
}

/// Data is copied from the guest's pages to the GPU and back, with a kernel in between.
#[test]
fn copies_and_a_launch() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let memory = allocate(&mut guest, 1 << 20);
    let place = window(&mut guest, 8192);
    stream(&mut guest, 1, 1);
    load(&mut guest, 1);
    function(&mut guest, 1, "scale");
    // No event is free for reuse before all work has been submitted.
    gpu.hold();
    let (source, read) = (Span::bar(place, 4096), Mark::new(WORD, 1));
    guest.send(&CopyIn { stream: 1, reserved: 0, destination: memory, source, read }, &[]);
    launch(
        &mut guest,
        vgpu_wire::body::launch::Launch { function: 1, stream: 1, ..LAUNCH },
        &params(memory, &[1, 2]),
    );
    let (destination, written) = (Span::bar(place + 4096, 4096), Mark::new(WORD, 2));
    guest.send(&CopyOut { stream: 1, reserved: 0, source: memory, destination, written }, &[]);
    until("the ring is read", || guest.done() == guest.number);
    gpu.release();
    guest.wait_word(WORD, 2);
    gpu.compare("copies_and_launch.jsonl");
}

/// Events with timing have marks with times. Events without timing are words that the GPU stores.
#[test]
fn events_with_times() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    allocate(&mut guest, 4096);
    guest.send(&EventCreate { event: 1, flags: 0 }, &[]);
    guest.send(&EventCreate { event: 2, flags: 2 }, &[]);
    gpu.hold();
    for (event, value) in [(1, 1), (2, 2), (1, 3)] {
        guest.send(&EventRecord { event, stream: 0, mark: Mark::new(WORD + event, value) }, &[]);
    }
    until("the ring is read", || guest.done() == guest.number);
    gpu.release();
    guest.wait_word(WORD + 1, 3);
    guest.wait_word(WORD + 2, 2);
    assert_ne!(guest.word_time(WORD + 1), 0);
    gpu.compare("event_timing.jsonl");
}

/// A join makes work of another stream wait once, and does not affect streams without work.
#[test]
fn a_join_between_streams() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let (memory, place) = (allocate(&mut guest, 4096), window(&mut guest, 4096));
    gpu.hold();
    for number in 1..=3 {
        stream(&mut guest, number, 1);
    }
    let copy = |guest: &mut Guest, stream: u32| {
        let source = Span::bar(place, 64);
        guest.send(&CopyIn { stream, reserved: 0, destination: memory, source, read: Mark::NONE }, &[])
    };
    copy(&mut guest, 1);
    guest.send(&Join { stream: 1, reserved: 0 }, &[]);
    copy(&mut guest, 2);
    copy(&mut guest, 2);
    signal(&mut guest, JOIN_ALL, 1);
    until("the ring is read", || guest.done() == guest.number);
    gpu.compare("join.jsonl");
    gpu.release();
    guest.wait_word(WORD, 1);
}

/// If a guest stores the word of a mark itself, the driver is queried, and nothing is reported earlier.
#[test]
fn a_word_that_the_guest_stores_is_not_believed() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let (memory, place) = (allocate(&mut guest, 4 << 20), window(&mut guest, 4096));
    gpu.hold();
    let source = Span::bar(place, 4096);
    guest.send(&CopyIn { stream: 0, reserved: 0, destination: memory, source, read: Mark::NONE }, &[]);
    guest.send(&MemFree { address: memory }, &[]);
    signal(&mut guest, 0, 1);
    until("the ring is read", || guest.done() == guest.number);
    let asked = gpu.count("cuEventQuery");
    let word = guest.returns() + area::RETURN_WORDS + u64::from(WORD) * area::WORD_BYTES;
    guest.function.u64_at(word + area::WORD_VALUE).store(1, Ordering::Release);
    until("the driver has been asked", || gpu.count("cuEventQuery") > asked + 50);
    assert_eq!(gpu.count("cuMemUnmap"), 0);
    gpu.release();
    until("the memory is free", || gpu.count("cuMemUnmap") > 0);
}

/// Memory is freed when the work that may use it is complete. The ring is read meanwhile.
#[test]
fn a_free_under_load() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    // The allocation is as large as a mapping, so that the free ends a mapping.
    let (memory, place) = (allocate(&mut guest, 4 << 20), window(&mut guest, 4096));
    gpu.hold();
    let source = Span::bar(place, 4096);
    guest.send(&CopyIn { stream: 0, reserved: 0, destination: memory, source, read: Mark::NONE }, &[]);
    guest.send(&MemFree { address: memory }, &[]);
    guest.send(&WindowFree { offset: place }, &[]);
    guest.echo();
    assert_eq!((gpu.count("cuMemUnmap"), gpu.count("cuMemHostUnregister")), (0, 0));
    gpu.release();
    until("the memory is free", || gpu.count("cuMemUnmap") > 0 && gpu.count("cuMemHostUnregister") > 0);
    gpu.compare("free_under_load.jsonl");
}

/// A fault ends the session for CUDA: later marks are stored, and no more work reaches the GPU.
#[test]
fn a_fault() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({ "fault": { "launch": 1, "status": 700 } }));
    let memory = allocate(&mut guest, 4096);
    load(&mut guest, 1);
    function(&mut guest, 1, "scale");
    let body = vgpu_wire::body::launch::Launch { function: 1, ..LAUNCH };
    gpu.hold();
    launch(&mut guest, body, &params(memory, &[1, 2]));
    signal(&mut guest, 0, 1);
    until("the ring is read", || guest.done() == guest.number);
    gpu.release();
    guest.wait_word(WORD, 1);
    until("the fault is told", || guest.late().is_some());
    let (code, flags, _) = guest.late().expect("a late error");
    assert_eq!((code, flags), (700, 1));
    let calls = gpu.count("cuLaunchKernel") + gpu.count("cuLaunchKernelEx");
    launch(&mut guest, body, &params(memory, &[1, 2]));
    synchronize(&mut guest);
    assert_eq!(gpu.count("cuLaunchKernel") + gpu.count("cuLaunchKernelEx"), calls);
    gpu.compare("fault.jsonl");
}

/// If the GPU's streams have no operations on words, completion is polled, and never assumed.
#[test]
fn completion_without_memory_operations() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({ "memory_operations": false }));
    let (memory, place) = (allocate(&mut guest, 4096), window(&mut guest, 4096));
    gpu.hold();
    let (source, read) = (Span::bar(place, 4096), Mark::new(WORD, 1));
    guest.send(&CopyIn { stream: 0, reserved: 0, destination: memory, source, read }, &[]);
    guest.echo();
    until("the executor asks", || gpu.count("cuEventQuery") > 2);
    assert_eq!(guest.word(WORD), 0);
    gpu.release();
    guest.wait_word(WORD, 1);
    assert_eq!(gpu.count("cuStreamWriteValue64_v2"), 0);
    gpu.check();
}

/// The device has its own addresses for the guest's memory, and the executor queries them.
#[test]
fn addresses_of_registered_memory_are_asked_for() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({ "host_pointers": false }));
    let (memory, place) = (allocate(&mut guest, 4096), window(&mut guest, 4096));
    let (source, read) = (Span::bar(place, 4096), Mark::new(WORD, 1));
    guest.send(&CopyIn { stream: 0, reserved: 0, destination: memory, source, read }, &[]);
    guest.wait_word(WORD, 1);
    gpu.check();
}

/// The driver's refusals are passed on as CUDA's errors. The executor may try again after it has freed what
/// it can.
#[test]
fn memory_that_is_not_there_is_refused() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({ "failures": [
        { "call": "cuMemCreate", "nth": 2, "status": 2 },
        { "call": "cuMemCreate", "nth": 3, "status": 2 },
    ] }));
    allocate(&mut guest, 2 << 20);
    let body = vgpu_wire::body::memory::MemAlloc { reply: 0, flags: 0, bytes: 64 << 20 };
    assert_eq!(guest.call(body, &[]).0, 2);
    guest.echo();
    allocate(&mut guest, 2 << 20);
    gpu.check();
}
