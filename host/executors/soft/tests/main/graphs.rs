//! Graphs.

use std::collections::BTreeSet;

use vgpu_host_testing::bench::Bench;
use vgpu_host_testing::commands::{
    LAUNCH, adversarial, allocate, copy_in, function, launch, load, node, params, patch, read_u32, stream,
    synchronize, window,
};
use vgpu_host_testing::guest::Guest;
use vgpu_wire::body::copy::{CopyIn, CopyOut};
use vgpu_wire::body::graph::{GraphDefine, GraphDestroy, GraphLaunch, GraphUpdate};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::session::WindowFree;
use vgpu_wire::body::stream::{Join, Signal};
use vgpu_wire::{Mark, Span};

const DIGIT: Launch = Launch { function: 1, param_bytes: 12, ..LAUNCH };

fn prepared(bench: &Bench) -> (Guest, u64) {
    let mut guest = bench.guest(0);
    load(&mut guest, 1);
    function(&mut guest, 1, "digit");
    stream(&mut guest, 1, 1);
    stream(&mut guest, 2, 1);
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
fn a_graph_is_defined_launched_changed_and_destroyed() {
    for bench in [Bench::soft(), adversarial(3)] {
        let (mut guest, p) = prepared(&bench);
        let data = 6u32.to_le_bytes();
        let copy =
            CopyIn { stream: 0, reserved: 0, destination: p, source: Span::inline(4), read: Mark::NONE };
        let nothing = Join { stream: 0, reserved: 0 };
        define(
            &mut guest,
            &[node(&[], &copy, &data), node(&[0], &nothing, &[]), digit(p, 1, &[1]), digit(p, 2, &[2])],
        );
        guest.send(&GraphLaunch { graph: 1, stream: 1 }, &[]);
        assert_eq!(read_u32(&mut guest, p), 612);
        let payload = patch(3, &DIGIT, &params(p, &[5]));
        let records = Span::inline(payload.len() as u64);
        // The launch before the update does not see it.
        guest.send(&GraphLaunch { graph: 1, stream: 1 }, &[]);
        guest.send(&GraphUpdate { graph: 1, nodes: 1, reserved: 0, records }, &payload);
        launch(&mut guest, Launch { function: 1, stream: 1, ..LAUNCH }, &params(p, &[9]));
        assert_eq!(read_u32(&mut guest, p), 6129);
        guest.send(&GraphLaunch { graph: 1, stream: 1 }, &[]);
        guest.send(&GraphDestroy { graph: 1, reserved: 0 }, &[]);
        assert_eq!(read_u32(&mut guest, p), 615);
        assert_eq!(guest.late(), None);
    }
}

#[test]
fn independent_nodes_are_reordered_and_dependent_ones_are_not() {
    let bench = adversarial(11);
    let (mut guest, p) = prepared(&bench);
    // 1 before 2 and 3, both before 4.
    define(&mut guest, &[digit(p, 1, &[]), digit(p, 2, &[0]), digit(p, 3, &[0]), digit(p, 4, &[1, 2])]);
    let mut seen = BTreeSet::new();
    for _ in 0..150 {
        copy_in(&mut guest, 1, p, &[0; 4]);
        guest.send(&GraphLaunch { graph: 1, stream: 1 }, &[]);
        launch(&mut guest, Launch { function: 1, stream: 1, ..LAUNCH }, &params(p, &[5]));
        seen.insert(read_u32(&mut guest, p));
    }
    assert_eq!(seen, BTreeSet::from([12345, 13245]));
    // Launches of one graph come one after the other, in whatever streams.
    copy_in(&mut guest, 1, p, &[0; 4]);
    synchronize(&mut guest);
    guest.send(&GraphLaunch { graph: 1, stream: 1 }, &[]);
    guest.send(&GraphLaunch { graph: 1, stream: 2 }, &[]);
    let digits = read_u32(&mut guest, p).to_string();
    let sorted = |text: &str| text.chars().collect::<BTreeSet<char>>().len();
    assert_eq!((digits.len(), sorted(&digits[..4]), sorted(&digits[4..])), (8, 4, 4), "{digits}");
    assert_eq!(guest.late(), None);
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
    // Window memory that may be another's by now is not touched.
    guest.send(&WindowFree { offset }, &[]);
    guest.send(&GraphLaunch { graph: 1, stream: 1 }, &[]);
    guest.ended();
}
