//! Tests of how contexts are lost, how sessions end, and what a session without a context is told.

use serde_json::json;
use vgpu_host_testing::commands::{LAUNCH, allocate, function, launch, load, params, synchronize};
use vgpu_host_testing::guest::Guest;
use vgpu_wire::body::copy::Fill;
use vgpu_wire::body::memory::{MemAlloc, MemInfo};
use vgpu_wire::body::stream::Signal;
use vgpu_wire::{Mark, area};

use crate::gpu::RecordedGpu;

/// Completion word for marks of this module.
const WORD: u32 = 920;

fn fill(guest: &mut Guest, memory: u64) -> u64 {
    let (element, width, height, pitch) = (4, 16, 1, 0);
    let body = Fill { stream: 0, value: 7, element, reserved: 0, destination: memory, pitch, width, height };
    guest.send(&body, &[])
}

/// A call that returns a code after which CUDA carries out nothing more ends the session. A call that returns
/// another code only fails itself.
#[test]
fn codes_that_lose_a_context_lose_the_session() {
    for (status, lost) in [(46, true), (220, true), (810, true), (999, false), (720, false)] {
        let (gpu, mut guest) = RecordedGpu::with_guest(&json!({
            "failures": [{ "call": "cuMemsetD32Async", "nth": 1, "status": status }]
        }));
        let memory = allocate(&mut guest, 4096);
        let number = fill(&mut guest, memory);
        guest.echo();
        let flags = if lost { area::ERROR_STICKY } else { 0 };
        assert_eq!(guest.late(), Some((status, flags, number)));
        fill(&mut guest, memory);
        // No thread waits in vain.
        guest.send(&Signal { stream: 0, reserved: 0, mark: Mark::new(WORD, 1) }, &[]);
        guest.wait_word(WORD, 1);
        let expected = if lost { (status, 1) } else { (0, 2) };
        let answer = guest.call(MemInfo { reply: 0, reserved: 0 }, &[]).0;
        assert_eq!((answer, gpu.count("cuMemsetD32Async")), expected, "{status}");
        guest.detach();
    }
}

/// Code and graphs are kept until the context's work is complete.
#[test]
fn code_goes_when_the_work_of_an_ended_session_is_over() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let memory = allocate(&mut guest, 4096);
    load(&mut guest, 1);
    function(&mut guest, 1, "scale");
    launch(&mut guest, vgpu_wire::body::launch::Launch { function: 1, ..LAUNCH }, &params(memory, &[1, 2]));
    // The work has reached the driver.
    guest.echo();
    guest.detach();
    let calls = gpu.calls();
    let at = |call: &str| calls.iter().position(|line| line["call"] == call).expect(call);
    let order = ["cuLaunchKernel", "cuCtxSynchronize", "cuModuleUnload", "cuCtxDestroy_v2"].map(at);
    assert!(order.is_sorted(), "{order:?}");
    assert!(gpu.recording.refused().unwrap().is_empty());
}

/// A process can use the device's addresses only once. A second session is told so, and gets them when the
/// first ends.
#[test]
fn one_session_at_a_time_has_a_context_without_workers() {
    let gpu = RecordedGpu::new(&json!({}));
    let mut first = gpu.guest();
    let memory = allocate(&mut first, 4096);
    let mut second = gpu.bench.guest(1);
    second.echo();
    let alloc = MemAlloc { reply: 0, flags: 0, bytes: 4096 };
    let (status, why) = second.call(alloc, &[]);
    let why = String::from_utf8(why).unwrap();
    assert_eq!(status, 46);
    assert!(why.contains("serves one session at a time") && why.contains("--worker"), "{why}");
    assert_eq!(second.late().map(|(code, flags, _)| (code, flags)), Some((46, area::ERROR_STICKY)));
    second.detach();
    assert_eq!(gpu.count("cuCtxCreate_v2"), 1);

    fill(&mut first, memory);
    synchronize(&mut first);
    assert_eq!(first.late(), None);
    first.detach();
    let mut third = gpu.bench.guest(1);
    allocate(&mut third, 4096);
    assert_eq!((third.late(), gpu.count("cuCtxCreate_v2")), (None, 2));
}
