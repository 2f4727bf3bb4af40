//! Tests of how graphs are carried out.

use serde_json::{Value, json};
use vgpu_host_testing::commands::{
    LAUNCH, allocate, function, load, node, params, patch, stream, synchronize, window,
};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::body::copy::{CopyIn, CopyOut, Fill};
use vgpu_wire::body::graph::{EDGE_PROGRAMMATIC, GraphDefine, GraphDestroy, GraphLaunch, GraphUpdate};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::module::ModuleUnload;
use vgpu_wire::body::session::WindowFree;
use vgpu_wire::facts::exec;
use vgpu_wire::{Mark, Span};

use crate::gpu::RecordedGpu;

/// Completion word for marks of this module.
const WORD: u32 = 902;
const SCALE: Launch = Launch { function: 1, param_bytes: 16, ..LAUNCH };

/// Defines graph 1: an upload with a mark, a fill, a kernel after both, and a download.
fn define(guest: &mut Guest, memory: u64, place: u64) {
    let (source, read) = (Span::bar(place, 64), Mark::new(WORD, 1));
    let up = CopyIn { stream: 0, reserved: 0, destination: memory, source, read };
    let destination = memory + 64;
    let (element, width, height) = (4, 16, 1);
    let fill = Fill { stream: 0, value: 7, element, reserved: 0, destination, pitch: 0, width, height };
    let destination = Span::bar(place + 64, 64);
    let down = CopyOut { stream: 0, reserved: 0, source: memory, destination, written: Mark::NONE };
    let records = [
        node(&[], &up, &[]),
        node(&[], &fill, &[]),
        node(&[0, 1], &SCALE, &params(memory, &[1, 2])),
        node(&[2], &down, &[]),
    ]
    .concat();
    let span = Span::inline(records.len() as u64);
    guest.send(&GraphDefine { graph: 1, nodes: 4, flags: 0, records: span }, &records);
}

fn prepared(gpu: &RecordedGpu) -> (Guest, u64, u64) {
    let mut guest = gpu.guest();
    let (memory, place) = (allocate(&mut guest, 4096), window(&mut guest, 4096));
    stream(&mut guest, 1, 1);
    load(&mut guest, 1);
    function(&mut guest, 1, "scale");
    (guest, memory, place)
}

const GO: GraphLaunch = GraphLaunch { graph: 1, stream: 1 };

/// A graph is captured node by node with the guest's dependencies. After that a launch is one call, and so is
/// a change of a kernel.
#[test]
fn a_graph_is_captured_once_and_changed_in_place() {
    let gpu = RecordedGpu::new(&json!({}));
    let (mut guest, memory, place) = prepared(&gpu);
    gpu.hold();
    define(&mut guest, memory, place);
    guest.send(&GO, &[]);
    let records = patch(2, &SCALE, &params(memory, &[3, 2]));
    let span = Span::inline(records.len() as u64);
    guest.send(&GraphUpdate { graph: 1, nodes: 1, reserved: 0, records: span }, &records);
    guest.send(&GO, &[]);
    until("the ring is read", || guest.done() == guest.number);
    gpu.release();
    guest.wait_word(WORD, 1);
    gpu.compare("graph.jsonl");
}

/// The guest's memory and code are not freed during a launch that uses them, and neither is the graph itself.
#[test]
fn what_a_graph_uses_lives_until_no_launch_uses_it() {
    let gpu = RecordedGpu::new(&json!({}));
    let (mut guest, memory, place) = prepared(&gpu);
    define(&mut guest, memory, place);
    guest.echo();
    gpu.hold();
    guest.send(&GO, &[]);
    guest.send(&WindowFree { offset: place }, &[]);
    guest.send(&ModuleUnload { module: 1, reserved: 0 }, &[]);
    guest.send(&GraphDestroy { graph: 1, reserved: 0 }, &[]);
    guest.echo();
    let gone = ["cuGraphExecDestroy", "cuGraphDestroy", "cuModuleUnload", "cuMemHostUnregister"];
    assert_eq!(gone.map(|call| gpu.count(call)), [0; 4]);
    gpu.release();
    until("all is given back", || gone.iter().all(|call| gpu.count(call) == 1));
    gpu.check_all(&guest);
}

/// Memory that the driver does not register is copied before and after the graph, through memory that belongs
/// to the graph. Two launches of the graph do not use that memory at once.
#[test]
fn memory_that_is_not_registered_is_relayed() {
    let gpu = RecordedGpu::new(&json!({ "host_register": false }));
    let (mut guest, memory, place) = prepared(&gpu);
    define(&mut guest, memory, place);
    guest.echo();
    // The GPU is held, so that the first launch is in progress when the second one arrives.
    gpu.hold();
    guest.send(&GO, &[]);
    stream(&mut guest, 2, 1);
    guest.send(&GraphLaunch { stream: 2, ..GO }, &[]);
    until("the ring is read", || guest.done() == guest.number);
    gpu.release();
    synchronize(&mut guest);
    guest.wait_word(WORD, 1);
    assert_eq!((gpu.count("cuLaunchHostFunc"), gpu.count("cuGraphLaunch")), (4, 2));
    assert!(gpu.count("cuStreamWaitEvent") > 0, "the second launch waits for the first one");
    // A registration is tried once for each range, and the refusals are expected.
    let refused: Vec<_> = gpu.calls().into_iter().filter(|line| !line["refused"].is_null()).collect();
    assert!(refused.iter().all(|line| line["call"] == "cuMemHostRegister_v2"), "{refused:?}");
    assert_eq!(guest.late(), None);
}

/// If the driver refuses an update, the graph is instantiated again.
#[test]
fn a_refused_update_makes_the_graph_anew() {
    let gpu = RecordedGpu::new(&json!({ "failures": [
        { "call": "cuGraphExecKernelNodeSetParams_v2", "nth": 1, "status": 910 },
        { "call": "cuGraphExecUpdate_v2", "nth": 1, "status": 910 },
    ] }));
    let (mut guest, memory, place) = prepared(&gpu);
    define(&mut guest, memory, place);
    guest.send(&GO, &[]);
    let records = patch(2, &SCALE, &params(memory, &[3, 2]));
    let span = Span::inline(records.len() as u64);
    guest.send(&GraphUpdate { graph: 1, nodes: 1, reserved: 0, records: span }, &records);
    guest.send(&GO, &[]);
    synchronize(&mut guest);
    assert_eq!((gpu.count("cuGraphInstantiateWithFlags"), gpu.count("cuGraphLaunch")), (2, 2));
    gpu.check_all(&guest);
}

/// Defines graph 1: three kernels. The second may start before the first has ended, and the third waits for
/// the end of the second.
fn define_early(guest: &mut Guest, memory: u64) {
    let scale = |after: &[u32]| node(after, &SCALE, &params(memory, &[1, 2]));
    let records = [scale(&[]), scale(&[EDGE_PROGRAMMATIC]), scale(&[1])].concat();
    let span = Span::inline(records.len() as u64);
    guest.send(&GraphDefine { graph: 1, nodes: 3, flags: 0, records: span }, &records);
}

/// Returns the edge data of the nodes that have any.
fn edge_data(gpu: &RecordedGpu) -> Vec<Value> {
    let with_data = |line: &&Value| line["call"] == "cuStreamUpdateCaptureDependencies_v2";
    gpu.calls().iter().filter(with_data).map(|line| line["args"]["edges"].clone()).collect()
}

/// A programmatic dependency of the guest is one of the driver's graph, and stays one when the graph changes.
#[test]
fn kernels_overlap_where_the_guest_permits_it() {
    let gpu = RecordedGpu::new(&json!({ "failures": [
        { "call": "cuGraphExecKernelNodeSetParams_v2", "nth": 1, "status": 910 },
    ] }));
    assert_ne!(gpu.abilities & exec::EDGES, 0);
    let (mut guest, memory, _) = prepared(&gpu);
    define_early(&mut guest, memory);
    guest.send(&GO, &[]);
    let programmatic = |count| vec![json!([[1, 0, 1, 0, 0, 0, 0, 0]]); count];
    synchronize(&mut guest);
    assert_eq!(edge_data(&gpu), programmatic(1));
    // The driver refuses the change in place, so that the graph is captured again.
    let records = patch(2, &SCALE, &params(memory, &[3, 2]));
    let span = Span::inline(records.len() as u64);
    guest.send(&GraphUpdate { graph: 1, nodes: 1, reserved: 0, records: span }, &records);
    guest.send(&GO, &[]);
    synchronize(&mut guest);
    assert_eq!(edge_data(&gpu), programmatic(2));
    assert_eq!((gpu.count("cuGraphExecUpdate_v2"), gpu.count("cuGraphInstantiateWithFlags")), (1, 1));
    gpu.check_all(&guest);
}

/// A driver that refuses programmatic edges gets full ones, and is not asked again.
#[test]
fn a_driver_that_refuses_programmatic_edges_orders_kernels_fully() {
    let gpu = RecordedGpu::new(&json!({ "failures": [
        { "call": "cuStreamUpdateCaptureDependencies_v2", "nth": 1, "status": 801 },
    ] }));
    let (mut guest, memory, _) = prepared(&gpu);
    for _ in 0..2 {
        define_early(&mut guest, memory);
        guest.send(&GO, &[]);
        guest.send(&GraphDestroy { graph: 1, reserved: 0 }, &[]);
    }
    synchronize(&mut guest);
    assert_eq!(gpu.count("cuStreamUpdateCaptureDependencies_v2"), 1);
    assert_eq!((gpu.count("cuGraphInstantiateWithFlags"), gpu.count("cuGraphLaunch")), (2, 2));
    gpu.check_all(&guest);
}
