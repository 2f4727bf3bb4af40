//! Tests of what the arbiter of a GPU's time is told: whether work is in flight on the GPU.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use vgpu_device::{DeviceConfig, Gate, GateMode, GateReport};
use vgpu_host_testing::bench::{Bench, config};
use vgpu_host_testing::commands::{allocate, stream, synchronize};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::Mark;
use vgpu_wire::body::copy::Fill;
use vgpu_wire::body::stream::{Signal, StreamHold, StreamRelease};

use crate::gpu::RecordedGpu;

/// First completion word for marks of this module.
const WORD: u32 = 940;

/// A device with a gate, whose newest report is known.
struct Arbitrated {
    gpu: RecordedGpu,
    gate: Arc<Gate>,
    told: Arc<Mutex<GateReport>>,
}

impl Arbitrated {
    fn new() -> Self {
        Self::with(&json!({}))
    }

    /// Creates a device whose libcuda has these options.
    fn with(options: &Value) -> Self {
        let (gate, told) = (Arc::<Gate>::default(), Arc::new(Mutex::new(GateReport::default())));
        let newest = Arc::clone(&told);
        gate.set_listener(Box::new(move |report| *newest.lock().unwrap() = report));
        let own = Arc::clone(&gate);
        let gpu = RecordedGpu::with_bus(options, |executor| {
            Bench::with(DeviceConfig { gate: own, ..config(executor) })
        });
        Self { gpu, gate, told }
    }

    fn told(&self) -> GateReport {
        *self.told.lock().unwrap()
    }

    fn until_told(&self, turn: u32, work: bool, in_flight: bool) {
        let report = GateReport { turn, work, in_flight };
        until(&format!("{report:?}"), || self.told() == report);
    }
}

fn fill(guest: &mut Guest, stream: u32, destination: u64) -> u64 {
    let (element, width, height, pitch) = (4, 16, 1, 0);
    guest.send(&Fill { stream, value: 7, element, reserved: 0, destination, pitch, width, height }, &[])
}

#[test]
fn work_is_in_flight_until_the_gpu_has_done_it() {
    let device = Arbitrated::new();
    let mut guest = device.gpu.guest();
    let memory = allocate(&mut guest, 4096);
    device.gate.arbitrate(1, GateMode::Metered);
    device.until_told(1, false, false);
    device.gpu.hold();
    fill(&mut guest, 0, memory);
    guest.echo();
    device.until_told(1, true, true);
    // More waits at the gate, while the work before it is not complete.
    device.gate.arbitrate(2, GateMode::Shut);
    let shut = fill(&mut guest, 0, memory);
    device.until_told(2, true, true);
    device.gpu.release();
    device.until_told(2, true, false);
    assert!(guest.done() < shut, "it was carried out");
    device.gate.arbitrate(3, GateMode::Metered);
    synchronize(&mut guest);
    device.until_told(3, false, false);
    device.gpu.check_all(&guest);
}

#[test]
fn what_waits_for_the_guest_is_not_in_flight() {
    for memory_operations in [true, false] {
        let device = Arbitrated::with(&json!({ "memory_operations": memory_operations }));
        let mut guest = device.gpu.guest();
        let memory = allocate(&mut guest, 4096);
        stream(&mut guest, 1, 1);
        device.gate.arbitrate(1, GateMode::Metered);
        device.gpu.hold();
        // The work before a hold counts.
        fill(&mut guest, 1, memory);
        guest.send(&StreamHold { stream: 1, hold: 1, mark: Mark::new(WORD, 1) }, &[]);
        fill(&mut guest, 1, memory);
        guest.send(&Signal { stream: 1, reserved: 0, mark: Mark::new(WORD + 1, 1) }, &[]);
        guest.echo();
        device.until_told(1, true, true);
        assert_eq!(guest.word(WORD), 0);
        device.gpu.release();
        guest.wait_word(WORD, 1);
        device.until_told(1, false, false);
        assert_eq!(guest.word(WORD + 1), 0, "the stream is held");
        guest.send(&StreamRelease { hold: 1, reserved: 0 }, &[]);
        guest.wait_word(WORD + 1, 1);
        device.until_told(1, false, false);
        device.gpu.check_all(&guest);
    }
}

/// The default stream waits for a stream that is ordered with it. Its work from before the hold does not.
#[test]
fn work_of_the_default_stream_before_a_hold_is_in_flight() {
    for memory_operations in [true, false] {
        let device = Arbitrated::with(&json!({ "memory_operations": memory_operations }));
        let mut guest = device.gpu.guest();
        let memory = allocate(&mut guest, 4096);
        stream(&mut guest, 1, 0);
        device.gate.arbitrate(1, GateMode::Metered);
        device.gpu.hold();
        fill(&mut guest, 0, memory);
        guest.send(&StreamHold { stream: 1, hold: 1, mark: Mark::new(WORD + 2, 1) }, &[]);
        fill(&mut guest, 0, memory);
        guest.send(&Signal { stream: 0, reserved: 0, mark: Mark::new(WORD + 3, 1) }, &[]);
        guest.echo();
        // While the gate is shut, a session without messages is told apart from one that carries some out.
        device.gate.arbitrate(2, GateMode::Shut);
        device.until_told(2, false, true);
        device.gpu.release();
        device.until_told(2, false, false);
        device.gate.arbitrate(3, GateMode::Metered);
        guest.send(&StreamRelease { hold: 1, reserved: 0 }, &[]);
        guest.wait_word(WORD + 3, 1);
        device.until_told(3, false, false);
        device.gpu.check_all(&guest);
    }
}

/// Nobody counts while the gate is open, so work in flight is found when the arbiter begins to meter.
#[test]
fn work_from_before_the_arbiter_is_found() {
    let device = Arbitrated::new();
    let mut guest = device.gpu.guest();
    let memory = allocate(&mut guest, 4096);
    device.gpu.hold();
    fill(&mut guest, 0, memory);
    guest.echo();
    assert_eq!(device.told(), GateReport::default());
    device.gate.arbitrate(7, GateMode::Shut);
    device.until_told(7, false, true);
    device.gpu.release();
    device.until_told(7, false, false);
    device.gate.arbitrate(8, GateMode::Open);
    synchronize(&mut guest);
    device.gpu.check_all(&guest);
}

/// A session that ends has no work in flight, however it ends.
#[test]
fn a_session_that_ends_has_no_work() {
    let device = Arbitrated::new();
    let mut guest = device.gpu.guest();
    let memory = allocate(&mut guest, 4096);
    device.gate.arbitrate(1, GateMode::Shut);
    fill(&mut guest, 0, memory);
    device.until_told(1, true, false);
    guest.detach();
    device.until_told(1, false, false);
}
