//! Tests of graphs whose nodes have marks and spans of window memory.

use vgpu_host_testing::bench::Bench;
use vgpu_host_testing::commands::{LAUNCH, allocate, function, load, node, params, stream, window};
use vgpu_host_testing::guest::Guest;
use vgpu_wire::body::copy::{CopyIn, CopyOut};
use vgpu_wire::body::graph::{GraphDefine, GraphLaunch};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::session::WindowFree;
use vgpu_wire::body::stream::Signal;
use vgpu_wire::{Mark, Span};

const DIGIT: Launch = Launch { function: 1, param_bytes: 12, ..LAUNCH };

fn prepared(bench: &Bench) -> (Guest, u64) {
    let mut guest = bench.guest(0);
    load(&mut guest, 1);
    function(&mut guest, 1, "digit");
    stream(&mut guest, 1, 1);
    let p = allocate(&mut guest, 4);
    (guest, p)
}

pub fn define(guest: &mut Guest, records: &[Vec<u8>]) {
    let payload = records.concat();
    let body = GraphDefine {
        graph: 1,
        nodes: records.len() as u32,
        flags: 0,
        records: Span::inline(payload.len() as u64),
    };
    guest.send(&body, &payload);
}

fn digit(p: u64, digit: u32, after: &[u32]) -> Vec<u8> {
    node(after, &DIGIT, &params(p, &[digit]))
}

#[test]
fn marks_are_stored_by_each_launch_and_spans_are_looked_at_anew() {
    let bench = Bench::soft();
    let (mut guest, p) = prepared(&bench);
    let offset = window(&mut guest, 4096);
    guest.function.put(offset, &8u32.to_le_bytes());
    let source = Span::bar(offset, 4);
    let copy = CopyIn { stream: 0, reserved: 0, destination: p, source, read: Mark::NONE };
    let destination = Span::bar(offset + 64, 4);
    let out = CopyOut { stream: 0, reserved: 0, source: p, destination, written: Mark::new(9, 1) };
    let signal = Signal { stream: 0, reserved: 0, mark: Mark::new(10, 1) };
    define(
        &mut guest,
        &[node(&[], &copy, &[]), digit(p, 3, &[0]), node(&[1], &out, &[]), node(&[2], &signal, &[])],
    );
    guest.send(&GraphLaunch { graph: 1, stream: 1 }, &[]);
    guest.wait_word(9, 1);
    guest.wait_word(10, 1);
    assert_eq!(guest.function.get(offset + 64, 4), 83u32.to_le_bytes());
    guest.echo();
    assert_eq!(guest.late(), None);
    // A launch of the graph must not touch window memory that has been freed, as another session may have it.
    guest.send(&WindowFree { offset }, &[]);
    guest.send(&GraphLaunch { graph: 1, stream: 1 }, &[]);
    guest.ended();
}
