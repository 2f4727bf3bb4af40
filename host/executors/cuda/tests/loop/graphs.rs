//! Graphs of messages, captured into graphs of the driver: marks, window memory, updates in place and
//! refusals.

use std::collections::BTreeSet;

use vgpu_host_testing::commands::{
    self, LAUNCH, allocate, copy_in, function, launch, load, node, params, patch, read, read_u32, stream,
    synchronize, window,
};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::body::copy::{CopyDevice, CopyIn, CopyOut, CopyRows, Fill};
use vgpu_wire::body::gemm::Gemm;
use vgpu_wire::body::graph::{GraphDefine, GraphLaunch, GraphUpdate};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::matmul::MatmulLt;
use vgpu_wire::body::memory::MemFree;
use vgpu_wire::body::session::WindowFree;
use vgpu_wire::body::stream::{EventCreate, EventRecord, Join, Signal, StreamDestroy, StreamWait};
use vgpu_wire::{Mark, Payload, Span};
use zerocopy::FromZeros;

use crate::place::{adversarial, looped};

const DIGIT: Launch = Launch { function: 1, param_bytes: 12, ..LAUNCH };

/// Number of rounds after which a test takes the orders that it has seen for all possible ones.
const ROUNDS: u32 = 400;

/// Returns a cell that kernels add digits to, and streams 1 and 2.
fn prepared(guest: &mut Guest) -> u64 {
    load(guest, 1);
    function(guest, 1, "digit");
    stream(guest, 1, 1);
    stream(guest, 2, 1);
    let p = allocate(guest, 4);
    copy_in(guest, 0, p, &[0; 4]);
    synchronize(guest);
    p
}

fn define(guest: &mut Guest, records: &[Vec<u8>]) {
    let payload = records.concat();
    let records_of = Span::inline(payload.len() as u64);
    let body = GraphDefine { graph: 1, nodes: records.len() as u32, flags: 0, records: records_of };
    guest.send(&body, &payload);
}

fn update<P: Payload>(guest: &mut Guest, node: u32, body: &P, tail: &[u8]) {
    let payload = patch(node, body, tail);
    let records = Span::inline(payload.len() as u64);
    guest.send(&GraphUpdate { graph: 1, nodes: 1, reserved: 0, records }, &payload);
}

fn go(guest: &mut Guest, stream: u32) -> u64 {
    guest.send(&GraphLaunch { graph: 1, stream }, &[])
}

fn digit(p: u64, digit: u32, after: &[u32]) -> Vec<u8> {
    node(after, &DIGIT, &params(p, &[digit]))
}

fn inline(p: u64, bytes: u64) -> CopyIn {
    CopyIn { stream: 0, reserved: 0, destination: p, source: Span::inline(bytes), read: Mark::NONE }
}

const NOTHING: Join = Join { stream: 0, reserved: 0 };

#[test]
fn guest_memory_is_copied_marks_are_stored_and_spans_are_looked_at_anew() {
    let name = "graphs::guest_memory_is_copied_marks_are_stored_and_spans_are_looked_at_anew";
    looped(name, |looped| {
        let mut guest = looped.bench.guest(0);
        let p = prepared(&mut guest);
        let offset = window(&mut guest, 4096);
        let copy = CopyIn { source: Span::bar(offset, 4), read: Mark::new(8, 1), ..inline(p, 4) };
        let destination = Span::bar(offset + 64, 4);
        let out = CopyOut { stream: 0, reserved: 0, source: p, destination, written: Mark::new(9, 1) };
        let signal = Signal { stream: 0, reserved: 0, mark: Mark::new(10, 1) };
        define(
            &mut guest,
            &[node(&[], &copy, &[]), digit(p, 3, &[0]), node(&[1], &out, &[]), node(&[2], &signal, &[])],
        );
        for value in [8_u32, 9] {
            guest.function.put(offset, &value.to_le_bytes());
            go(&mut guest, 1);
            for word in 8..=10 {
                guest.wait_word(word, 1);
            }
            synchronize(&mut guest);
            assert_eq!(guest.function.get(offset + 64, 4), (10 * value + 3).to_le_bytes());
        }
        // The updated graph copies from another place in the window, and to another.
        guest.function.put(offset + 8, &4_u32.to_le_bytes());
        update(&mut guest, 0, &CopyIn { source: Span::bar(offset + 8, 4), ..copy }, &[]);
        update(&mut guest, 2, &CopyOut { destination: Span::bar(offset + 128, 4), ..out }, &[]);
        go(&mut guest, 2);
        synchronize(&mut guest);
        assert_eq!(guest.function.get(offset + 128, 4), 43_u32.to_le_bytes());
        assert_eq!(guest.late(), None);
        // A launch that names freed window memory ends the session, because another may have that memory by
        // now.
        guest.send(&WindowFree { offset }, &[]);
        go(&mut guest, 1);
        guest.ended();
    });
}

#[test]
fn memory_that_is_freed_is_not_touched() {
    looped("graphs::memory_that_is_freed_is_not_touched", |looped| {
        let mut guest = looped.bench.guest(0);
        let p = prepared(&mut guest);
        let (q, other) = (allocate(&mut guest, 4096), allocate(&mut guest, 4096));
        let copy = CopyDevice { stream: 0, reserved: 0, destination: q, source: p, bytes: 4 };
        define(&mut guest, &[digit(p, 7, &[]), node(&[0], &copy, &[])]);
        go(&mut guest, 1);
        assert_eq!(read_u32(&mut guest, q), 7);
        // A free of memory that the graph does not name does not affect the graph.
        guest.send(&MemFree { address: other }, &[]);
        go(&mut guest, 1);
        assert_eq!((read_u32(&mut guest, q), guest.late()), (77, None));
        guest.send(&MemFree { address: q }, &[]);
        let number = go(&mut guest, 1);
        synchronize(&mut guest);
        assert_eq!(guest.late(), Some((1, 0, number)));
        assert_eq!(read_u32(&mut guest, p), 77, "nothing of the graph ran");
    });
}

const fn fill(value: f32, p: u64) -> Fill {
    Fill {
        stream: 0,
        value: value.to_bits(),
        element: 4,
        reserved: 0,
        destination: p,
        pitch: 0,
        width: 1024,
        height: 1,
    }
}

fn f32s(guest: &mut Guest, p: u64, count: u64) -> Vec<f32> {
    let bytes = read(guest, p, 4 * count);
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

#[test]
fn fills_and_copies_of_every_shape_are_nodes() {
    adversarial("graphs::fills_and_copies_of_every_shape_are_nodes", |looped| {
        let mut guest = looped.bench.guest(0);
        prepared(&mut guest);
        let [a, b] = [0; 2].map(|_| allocate(&mut guest, 4096));
        // 3 rows of 2 elements, 5 apart, and 2 slices of 2 rows, of which those of `slice` 28 are no whole
        // rows apart.
        let some = Fill { pitch: 20, width: 2, height: 3, ..fill(7.0, a) };
        let rows = |slice| CopyRows {
            stream: 0,
            reserved: 0,
            destination: b,
            destination_pitch: 8,
            destination_slice: 16,
            source: a,
            source_pitch: 20,
            source_slice: slice,
            width: 8,
            height: 2,
            depth: 2,
        };
        let nothing = Fill { width: 0, ..some };
        let empty = CopyIn { source: Span::inline(0), ..inline(b, 0) };
        let copy = CopyDevice { stream: 0, reserved: 0, destination: a + 2048, source: b, bytes: 32 };
        define(
            &mut guest,
            &[
                node(&[], &fill(1.0, a), &[]),
                node(&[], &fill(2.0, b), &[]),
                node(&[0], &some, &[]),
                node(&[0, 1, 2, 2], &NOTHING, &[]),
                node(&[3], &nothing, &[]),
                node(&[4, 3], &rows(40), &[]),
                node(&[5], &empty, &[]),
                node(&[6], &copy, &[]),
            ],
        );
        go(&mut guest, 1);
        assert_eq!(f32s(&mut guest, a, 12), [7., 7., 1., 1., 1., 7., 7., 1., 1., 1., 7., 7.]);
        assert_eq!(f32s(&mut guest, b, 9), [7., 7., 7., 7., 7., 7., 1., 1., 2.]);
        assert_eq!(f32s(&mut guest, a + 2048, 9), [7., 7., 7., 7., 7., 7., 1., 1., 1.]);
        let before = looped.cuda.instantiations();
        update(&mut guest, 5, &rows(28), &[]);
        update(&mut guest, 7, &CopyDevice { bytes: 8, ..copy }, &[]);
        go(&mut guest, 2);
        assert_eq!(f32s(&mut guest, b, 9), [7., 7., 7., 7., 1., 1., 1., 1., 2.]);
        assert_eq!(f32s(&mut guest, a + 2048, 4), [7., 7., 1., 1.]);
        // Slices that are copied one by one are more nodes than one copy, so the graph is instantiated again.
        assert_eq!(looped.cuda.instantiations() - before, 1);
        assert_eq!(guest.late(), None);
    });
}

/// Returns a product of two matrices of 32 by 32 `f32`.
fn product(a: u64, b: u64, c: u64) -> Gemm {
    commands::product(32, [a, b, c])
}

/// Returns the same product by cuBLASLt, with the epilogue that replaces negative elements by 0.
fn rectified(a: u64, b: u64, c: u64) -> MatmulLt {
    let Gemm { compute, batch, size, alpha, .. } = product(a, b, c);
    let (leading, matrix, epilogue) = ([32; 4], [a, b, c, c], 2);
    MatmulLt { compute, batch, size, alpha, leading, matrix, epilogue, ..MatmulLt::new_zeroed() }
}

#[test]
fn products_are_nodes_too() {
    adversarial("graphs::products_are_nodes_too", |looped| {
        let mut guest = looped.bench.guest(0);
        prepared(&mut guest);
        let [a, b, c, d, other] = [0; 5].map(|_| allocate(&mut guest, 4096));
        let copy = CopyDevice { stream: 0, reserved: 0, destination: c, source: d, bytes: 4 };
        let nothing = Gemm { size: [0, 32, 32], ..product(a, b, c) };
        define(
            &mut guest,
            &[
                node(&[], &fill(2.0, a), &[]),
                node(&[], &fill(3.0, b), &[]),
                node(&[0, 1], &product(a, b, c), &[]),
                node(&[2], &product(a, c, d), &[]),
                node(&[3], &copy, &[]),
                node(&[0, 4], &nothing, &[]),
            ],
        );
        let sums = |guest: &mut Guest| {
            go(guest, 1);
            [c, d].map(|p| f32::from_bits(read_u32(guest, p)) as u32)
        };
        // 32 terms of 2 * 3, then 32 of 2 * 192; the copy comes last.
        assert_eq!(sums(&mut guest), [12_288; 2]);
        update(&mut guest, 1, &fill(5.0, b), &[]);
        assert_eq!(sums(&mut guest), [20_480; 2]);
        update(&mut guest, 3, &product(c, c, d), &[]);
        assert_eq!(sums(&mut guest), [3_276_800; 2]);
        update(&mut guest, 4, &CopyDevice { source: a, ..copy }, &[]);
        assert_eq!(sums(&mut guest), [2, 3_276_800]);
        // Memory that the graph does not name is freed. The launch checks all addresses again, and finds them
        // valid.
        guest.send(&MemFree { address: other }, &[]);
        assert_eq!(sums(&mut guest), [2, 3_276_800]);
        assert_eq!((looped.cuda.instantiations(), guest.late()), (1, None));
        // A launch fails if a product names an address without memory, and none of the graph's nodes runs.
        update(&mut guest, 0, &fill(1.0, a), &[]);
        update(&mut guest, 3, &product(a, c, d + (1 << 30)), &[]);
        let number = go(&mut guest, 1);
        guest.echo();
        assert_eq!(guest.late(), Some((700, 1, number)));
    });
}

#[test]
fn products_of_parallel_branches_keep_apart() {
    adversarial("graphs::products_of_parallel_branches_keep_apart", |looped| {
        let mut guest = looped.bench.guest(0);
        prepared(&mut guest);
        let [a, ones, sums] = [0; 3].map(|_| allocate(&mut guest, 16 * 4096));
        let nodes = (0..16_u16).flat_map(|branch| {
            let at = |p: u64| p + 4096 * u64::from(branch);
            let first = 3 * u32::from(branch);
            [
                node(&[], &fill(branch.into(), at(a)), &[]),
                node(&[], &fill(1.0, at(ones)), &[]),
                if branch % 2 == 0 {
                    node(&[first, first + 1], &product(at(a), at(ones), at(sums)), &[])
                } else {
                    node(&[first, first + 1], &rectified(at(a), at(ones), at(sums)), &[])
                },
            ]
        });
        define(&mut guest, &nodes.collect::<Vec<_>>());
        for stream in [1, 2, 1] {
            go(&mut guest, stream);
        }
        let found = f32s(&mut guest, sums, 16 * 1024);
        let expected = (0..16_u16).flat_map(|branch| [32.0 * f32::from(branch); 1024]);
        assert!(found.into_iter().eq(expected));
        assert_eq!(guest.late(), None);
    });
}

#[test]
fn what_a_graph_lacks_is_refused_and_nobody_waits_in_vain() {
    looped("graphs::what_a_graph_lacks_is_refused_and_nobody_waits_in_vain", |looped| {
        let mut guest = looped.bench.guest(0);
        let p = prepared(&mut guest);
        let offset = window(&mut guest, 4096);
        let signal = Signal { stream: 0, reserved: 0, mark: Mark::new(10, 1) };
        // This window is not registered with the second device, and a graph cannot read bytes of such a
        // window that it has written before.
        let down = |offset| CopyOut {
            stream: 0,
            reserved: 0,
            source: p,
            destination: Span::bar(offset, 4),
            written: Mark::new(9, 1),
        };
        let up = CopyIn { source: Span::bar(offset + 2, 4), ..inline(p, 4) };
        define(
            &mut guest,
            &[
                node(&[], &down(offset), &[]),
                node(&[0], &up, &[]),
                node(&[], &signal, &[]),
                digit(p, 1, &[1]),
            ],
        );
        synchronize(&mut guest);
        assert_eq!(guest.late(), None);
        let number = go(&mut guest, 1);
        guest.wait_word(9, 1);
        guest.wait_word(10, 1);
        assert_eq!(guest.late(), Some((801, 0, number)));
        assert_eq!(read_u32(&mut guest, p), 0, "nothing of it ran");
        // It can read bytes beside them.
        update(&mut guest, 0, &down(offset + 8), &[]);
        guest.function.put(offset + 2, &4_u32.to_le_bytes());
        go(&mut guest, 1);
        assert_eq!(read_u32(&mut guest, p), 41);
    });
}

#[test]
fn window_memory_that_comes_back_is_used_anew() {
    looped("graphs::window_memory_that_comes_back_is_used_anew", |looped| {
        let mut guest = looped.bench.guest(0);
        let p = prepared(&mut guest);
        let offset = window(&mut guest, 4096);
        let up = CopyIn { source: Span::bar(offset, 4), ..inline(p, 4) };
        define(&mut guest, &[node(&[], &up, &[]), digit(p, 1, &[0])]);
        guest.function.put(offset, &4_u32.to_le_bytes());
        go(&mut guest, 1);
        guest.send(&WindowFree { offset }, &[]);
        assert_eq!(read_u32(&mut guest, p), 41);
        // The window memory can be allocated again when its registration has ended. Until then an allocation
        // gets other memory.
        until("the memory comes back", || window(&mut guest, 4096) == offset);
        guest.function.put(offset, &5_u32.to_le_bytes());
        go(&mut guest, 1);
        assert_eq!(read_u32(&mut guest, p), 51);
        assert_eq!(guest.late(), None);
    });
}

#[test]
fn events_of_graphs_order_streams_and_a_refused_update_makes_the_graph_anew() {
    let name = "graphs::events_of_graphs_order_streams_and_a_refused_update_makes_the_graph_anew";
    adversarial(name, |looped| {
        let mut guest = looped.bench.guest(0);
        let p = prepared(&mut guest);
        for event in [1, 2, 3] {
            guest.send(&EventCreate { event, flags: 0 }, &[]);
        }
        let record = |event, word| EventRecord { event, stream: 0, mark: Mark::new(word, 1) };
        let wait = |event| StreamWait { stream: 0, event };
        // The second digit comes after what event 1 stands for, and not after the first.
        define(
            &mut guest,
            &[digit(p, 3, &[]), node(&[0], &record(2, 11), &[]), node(&[], &wait(1), &[]), digit(p, 4, &[2])],
        );
        // Rounds run until all possible orders are seen: 1 and 2 as the round launches them, then 3 and 4 in
        // either order.
        let all = BTreeSet::from([1234, 1243, 2134, 2143]);
        let (mut seen, mut after) = (BTreeSet::new(), BTreeSet::new());
        let (mut round, mut left) = (0, 20);
        while left > 0 {
            if seen.len() == all.len() || round == ROUNDS {
                if left == 20 {
                    // Now the node waits for the record of the same launch. That changes dependencies, which
                    // no update in place does.
                    update(&mut guest, 2, &wait(2), &[]);
                }
                left -= 1;
            }
            round += 1;
            copy_in(&mut guest, 0, p, &[0; 4]);
            synchronize(&mut guest);
            let own = Launch { function: 1, stream: 2, ..LAUNCH };
            launch(&mut guest, own, &params(p, &[1 + round % 2]));
            launch(&mut guest, own, &params(p, &[2 - round % 2]));
            guest.send(&EventRecord { event: 1, stream: 2, mark: Mark::NONE }, &[]);
            guest.send(&StreamWait { stream: 1, event: 1 }, &[]);
            go(&mut guest, 1);
            guest.send(&StreamWait { stream: 2, event: 2 }, &[]);
            launch(&mut guest, own, &params(p, &[5]));
            guest.wait_word(11, 1);
            let digits = read_u32(&mut guest, p);
            assert_eq!(digits % 10, 5, "stream 2 waits for the graph: {digits}");
            let of = if left < 20 { &mut after } else { &mut seen };
            of.insert(digits / 10);
        }
        assert_eq!((seen, after), (all, BTreeSet::from([1234, 2134])));
        assert_eq!(looped.cuda.instantiations(), 2);
        // The stream of the newest launch is destroyed, and the graph can still be launched.
        go(&mut guest, 2);
        guest.send(&StreamDestroy { stream: 2, reserved: 0 }, &[]);
        go(&mut guest, 1);
        synchronize(&mut guest);
        assert_eq!(guest.late(), None);
    });
}
