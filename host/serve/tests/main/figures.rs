//! The figures that a device stores in its slot: they are those of what its guests did.

use rustix::process::{Pid, Signal, kill_process};
use vgpu_host_testing::bench::address;
use vgpu_host_testing::commands::{
    LAUNCH, allocate, copy_in, function, launch, load, node, params, patch, read, window,
};
use vgpu_host_testing::guest::{Function, Guest, until};
use vgpu_share::{Figure, GpuUuid, Gpus, SlotView};
use vgpu_wire::body::copy::CopyIn;
use vgpu_wire::body::graph::{GraphDefine, GraphLaunch, GraphUpdate};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::{Mark, Span};

use crate::shares::{CONTEXT, GIB, Gpu, OUT_OF_MEMORY, PART, ask_for};

impl Gpu {
    /// Returns the slot of the VM `name`, as everybody sees it.
    pub(crate) fn slot(&self, name: &str) -> SlotView {
        let gpus = Gpus::existing(&self.shares()).unwrap().unwrap();
        let gpu = gpus.existing_gpu(gpus.all().unwrap()[0]).unwrap();
        gpu.holders().unwrap().into_iter().find(|holder| holder.name() == name).unwrap()
    }
}

/// Waits until the device has stored these figures, which no later ones exceed.
fn expect<const N: usize>(slot: &SlotView, expected: [(Figure, u64); N]) {
    let now = || expected.map(|(figure, _)| (figure, slot.figure(figure)));
    let end = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while now() != expected {
        assert!(std::time::Instant::now() < end, "{:?} should be {expected:?}", now());
        std::thread::yield_now();
    }
}

/// Defines graph 1: two launches, and a copy of 4 bytes to the device, which an update makes one of 8 bytes.
fn define(guest: &mut Guest, p: u64) {
    let parameters = params(p, &[1]);
    let digit = Launch { function: 1, param_bytes: parameters.len() as u32, ..LAUNCH };
    let place = window(guest, 8);
    let copy = |bytes| CopyIn {
        stream: 0,
        reserved: 0,
        destination: p,
        source: Span::bar(place, bytes),
        read: Mark::NONE,
    };
    let (one, two) = (node(&[], &digit, &parameters), node(&[0], &digit, &parameters));
    let records = [one, two, node(&[1], &copy(4), &[])].concat();
    let records_of = Span::inline(records.len() as u64);
    guest.send(&GraphDefine { graph: 1, nodes: 3, flags: 0, records: records_of }, &records);
    guest.send(&GraphLaunch { graph: 1, stream: 0 }, &[]);
    let records = patch(2, &copy(8), &[]);
    let records_of = Span::inline(records.len() as u64);
    guest.send(&GraphUpdate { graph: 1, nodes: 1, reserved: 0, records: records_of }, &records);
    guest.send(&GraphLaunch { graph: 1, stream: 0 }, &[]);
}

#[test]
fn a_slot_has_the_figures_of_what_its_sessions_did() {
    let gpu = Gpu::start();
    let (served, _other) = (gpu.serve("vm1", Some("1G")), gpu.serve("vm2", Some("1G")));
    let (slot, other) = (gpu.slot("vm1"), gpu.slot("vm2"));
    let mut guest = Guest::attach_silently(Function::open(&gpu.bus_of("vm1"), address()), 0);
    let uuid = GpuUuid(guest.hello().facts.uuid);
    expect(&slot, [(Figure::Sessions, 1), (Figure::Connected, 1), (Figure::Used, 0)]);
    assert_eq!(slot.device_uuid(), uuid);
    let p = allocate(&mut guest, PART);
    expect(&slot, [(Figure::Used, CONTEXT + PART), (Figure::Contexts, 1)]);
    copy_in(&mut guest, 0, p, &[7; 1000]);
    assert_eq!(read(&mut guest, p, 24), [7; 24]);
    load(&mut guest, 1);
    function(&mut guest, 1, "digit");
    for _ in 0..3 {
        launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(p, &[1]));
    }
    define(&mut guest, p);
    assert_eq!(ask_for(&mut guest, 2 * GIB), OUT_OF_MEMORY);
    let done =
        [(Figure::Launches, 7), (Figure::CopiedIn, 1012), (Figure::CopiedOut, 24), (Figure::OutOfMemory, 1)];
    expect(&slot, done);

    // Time moves while a kernel runs, and stays when its session was ended.
    let time = || slot.figure(Figure::GpuTime);
    let mut endless = gpu.attach("vm1", 1);
    load(&mut endless, 1);
    function(&mut endless, 1, "endless");
    launch(&mut endless, Launch { function: 1, ..LAUNCH }, &params(0, &[]));
    endless.echo();
    let mut last = time();
    for _ in 0..3 {
        until("time has passed", || time() > last);
        last = time();
    }
    guest.detach();
    until("the first session has ended", || slot.figure(Figure::Sessions) == 1);
    gpu.end_session("vm1");
    expect(&slot, [(Figure::Sessions, 0), (Figure::Used, 0), (Figure::LostOperator, 1)]);
    assert!(time() >= last);

    // A session whose worker dies, and one that breaks the contract.
    let mut guest = gpu.attach("vm1", 0);
    allocate(&mut guest, PART);
    let worker = &gpu.answer("vm1")["devices"][0]["sessions"][0]["worker"];
    kill_process(Pid::from_raw(worker.as_i64().unwrap() as i32).unwrap(), Signal::KILL).unwrap();
    expect(&slot, [(Figure::LostWorker, 1)]);
    let mut wrong = gpu.attach("vm1", 1);
    wrong.send_bytes(&[0xff; 16]);
    expect(&slot, [(Figure::LostViolation, 1), (Figure::LostOperator, 1), (Figure::LostWorker, 1)]);
    guest.detach();
    wrong.detach();
    expect(&slot, [(Figure::Sessions, 0), (Figure::Connected, 0), (Figure::Contexts, 0)]);
    let [launches, others @ ..] = done;
    expect(&slot, [(launches.0, launches.1 + 1)]);
    expect(&slot, others);
    // The other VM did nothing.
    expect(&other, done.map(|(figure, _)| (figure, 0)));
    assert_eq!(other.figure(Figure::GpuTime), 0);
    served.end();
}
