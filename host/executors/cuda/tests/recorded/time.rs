//! Tests of how long sessions have had work, on a GPU that works only on request.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use vgpu_device::SessionStatus;
use vgpu_host_testing::commands::{LAUNCH, allocate, function, launch, load, params, stream, synchronize};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::stream::{Join, StreamDestroy};

use crate::gpu::RecordedGpu;

/// Twice the interval at which unfinished work is counted.
const TWO_STEPS: Duration = Duration::from_millis(200);

fn session(gpu: &RecordedGpu, channel: u32) -> SessionStatus {
    gpu.bench.session(channel).expect("the session is there")
}

/// Waits until the session's time no longer changes, and returns it.
fn at_rest(gpu: &RecordedGpu, channel: u32) -> Duration {
    let mut busy = 0;
    until("the session's time stands still", || {
        busy = session(gpu, channel).busy_us;
        thread::sleep(TWO_STEPS);
        session(gpu, channel).busy_us == busy
    });
    Duration::from_micros(busy)
}

/// Launches a kernel on a stream, and does not wait for it.
fn kernel(guest: &mut Guest, memory: u64, stream: u32) {
    launch(guest, Launch { function: 1, stream, ..LAUNCH }, &params(memory, &[1, 2]));
}

fn start(guest: &mut Guest) -> u64 {
    let memory = allocate(guest, 4096);
    load(guest, 1);
    function(guest, 1, "scale");
    memory
}

#[test]
fn time_is_counted_while_work_is_under_way_and_no_longer() {
    let gpu = RecordedGpu::new(&json!({}));
    let (mut guest, mut other) = (gpu.guest(), gpu.bench.guest(1));
    other.echo();
    let memory = start(&mut guest);
    gpu.hold();
    let given = Instant::now();
    kernel(&mut guest, memory, 0);
    // The launch has no fence, and is counted while it runs.
    until("the first time is counted", || session(&gpu, 0).busy_us > 0);
    let first = session(&gpu, 0).busy_us;
    until("it goes on", || session(&gpu, 0).busy_us > first);
    // Another thread counts the time, possibly a little after this moment, but not before.
    let held = Duration::from_micros(session(&gpu, 0).busy_us);
    assert!(held <= given.elapsed(), "{held:?} of {:?}", given.elapsed());
    gpu.release();
    let busy = at_rest(&gpu, 0);
    assert!(busy >= held && busy <= given.elapsed(), "{held:?} {busy:?} of {:?}", given.elapsed());
    // Work for which a mark waits is counted like other work.
    kernel(&mut guest, memory, 0);
    synchronize(&mut guest);
    assert!(at_rest(&gpu, 0) > busy);
    let shown = (session(&gpu, 0).contexts, session(&gpu, 1).contexts, session(&gpu, 1).busy_us);
    assert_eq!(shown, (1, 0, 0));
    assert_eq!(gpu.bench.bus.status().devices[0].contexts, 1);
    guest.detach();
    assert_eq!(gpu.bench.bus.status().devices[0].contexts, 0);
    gpu.check();
}

/// A join has a fence that nobody waits for. The work of a destroyed stream is counted to its end.
#[test]
fn joins_and_destroyed_streams_come_to_rest() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let memory = start(&mut guest);
    for number in 1..=3 {
        stream(&mut guest, number, 1);
    }
    gpu.hold();
    kernel(&mut guest, memory, 1);
    guest.send(&Join { stream: 1, reserved: 0 }, &[]);
    kernel(&mut guest, memory, 2);
    kernel(&mut guest, memory, 3);
    guest.send(&StreamDestroy { stream: 3, reserved: 0 }, &[]);
    until("time is counted", || session(&gpu, 0).busy_us > 0);
    gpu.release();
    let busy = at_rest(&gpu, 0);
    kernel(&mut guest, memory, 2);
    until("later work is counted", || session(&gpu, 0).busy_us > busy.as_micros() as u64);
    at_rest(&gpu, 0);
    gpu.check();
}
