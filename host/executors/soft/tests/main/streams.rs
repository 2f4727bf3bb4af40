//! Tests of order: streams, events, joins and holds, with tasks in the order of the ring and in that of an
//! adversary.

use std::collections::BTreeSet;

use vgpu_host_testing::bench::{Bench, MEMORY, SHARED};
use vgpu_host_testing::commands::{
    LAUNCH, adversarial, allocate, copy_in, function, launch, load, params, read_u32, stream, synchronize,
    window,
};
use vgpu_host_testing::guest::Guest;
use vgpu_wire::body::copy::{CopyIn, CopyOut, Fill};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::memory::{MemAlloc, MemFree, MemInfo, MemInfoReply};
use vgpu_wire::body::session::{WindowAlloc, WindowFree};
use vgpu_wire::body::stream::{EventCreate, Join, Signal, StreamHold, StreamRelease};
use vgpu_wire::{Mark, Span};
use zerocopy::FromBytes;

/// Returns a guest with the kernel `digit` as function 1, two non-blocking streams, 1 and 2, two blocking
/// ones, 3 and 4, event 1, and a number.
fn prepared(bench: &Bench) -> (Guest, u64) {
    let mut guest = bench.guest(0);
    load(&mut guest, 1);
    function(&mut guest, 1, "digit");
    for (number, flags) in [(1, 1), (2, 1), (3, 0), (4, 0)] {
        stream(&mut guest, number, flags);
    }
    guest.send(&EventCreate { event: 1, flags: 2 }, &[]);
    let p = allocate(&mut guest, 4);
    (guest, p)
}

fn digit(guest: &mut Guest, stream: u32, p: u64, digit: u32) {
    launch(guest, Launch { function: 1, stream, ..LAUNCH }, &params(p, &[digit]));
}

/// Returns the values that the program's number can end with, over many rounds under an adversary.
fn outcomes(rounds: u32, program: impl Fn(&mut Guest, u64)) -> BTreeSet<u32> {
    let bench = adversarial(7);
    let (mut guest, p) = prepared(&bench);
    let outcomes = (0..rounds)
        .map(|_| {
            synchronize(&mut guest);
            copy_in(&mut guest, 0, p, &[0; 4]);
            synchronize(&mut guest);
            program(&mut guest, p);
            read_u32(&mut guest, p)
        })
        .collect();
    assert_eq!(guest.late(), None);
    outcomes
}

#[test]
fn an_adversary_finds_every_order_that_streams_permit() {
    let unordered = outcomes(200, |guest, p| {
        digit(guest, 1, p, 1);
        digit(guest, 2, p, 2);
        digit(guest, 1, p, 3);
    });
    assert_eq!(unordered, BTreeSet::from([123, 213, 132]), "a stream's own order is kept");
    let apart = outcomes(200, |guest, p| {
        digit(guest, 1, p, 1);
        digit(guest, 0, p, 2);
    });
    assert_eq!(apart, BTreeSet::from([12, 21]), "stream 0 does not wait for non-blocking ones");
}

/// Holds stream 1, so that its later work waits until the guest releases the hold.
fn hold(guest: &mut Guest, hold: u32) {
    guest.send(&StreamHold { stream: 1, hold, mark: Mark::new(20, hold.into()) }, &[]);
    guest.wait_word(20, hold.into());
}

fn release(guest: &mut Guest, hold: u32) {
    guest.send(&StreamRelease { hold, reserved: 0 }, &[]);
}

#[test]
fn a_held_stream_waits_for_the_guest_and_others_do_not() {
    let bench = Bench::soft();
    let (mut guest, p) = prepared(&bench);
    digit(&mut guest, 1, p, 1);
    hold(&mut guest, 1);
    digit(&mut guest, 1, p, 2);
    guest.send(&Signal { stream: 1, reserved: 0, mark: Mark::new(21, 1) }, &[]);
    digit(&mut guest, 2, p, 3);
    guest.send(&Signal { stream: 2, reserved: 0, mark: Mark::new(22, 1) }, &[]);
    guest.wait_word(22, 1);
    // A join orders the later messages, but they are still read from the ring.
    guest.send(&Join { stream: 1, reserved: 0 }, &[]);
    digit(&mut guest, 2, p, 4);
    guest.send(&Signal { stream: 2, reserved: 0, mark: Mark::new(22, 2) }, &[]);
    guest.echo();
    assert_eq!((guest.word(21), guest.word(22)), (0, 1));
    release(&mut guest, 1);
    guest.wait_word(22, 2);
    assert_eq!(guest.word(21), 1);
    assert_eq!(read_u32(&mut guest, p), 1324);
    // The guest releases the hold before the stream reaches it.
    hold(&mut guest, 2);
    guest.send(&StreamHold { stream: 1, hold: 3, mark: Mark::new(20, 3) }, &[]);
    release(&mut guest, 3);
    digit(&mut guest, 1, p, 5);
    guest.echo();
    assert_eq!(guest.word(20), 2);
    release(&mut guest, 2);
    assert_eq!(read_u32(&mut guest, p), 13245);
    assert_eq!((guest.word(20), guest.late()), (3, None));
}

#[test]
fn a_session_ends_though_a_stream_is_held() {
    let bench = Bench::soft();
    let (mut guest, p) = prepared(&bench);
    hold(&mut guest, 1);
    digit(&mut guest, 1, p, 2);
    guest.send(&MemFree { address: p }, &[]);
    guest.echo();
    guest.detach();
    assert_eq!(bench.allocated(), 0);
}

#[test]
fn memory_that_work_still_needs_is_free_later_and_who_asks_waits() {
    let bench = Bench::soft();
    let (mut guest, p) = prepared(&bench);
    let big = allocate(&mut guest, MEMORY / 2);
    hold(&mut guest, 1);
    let fill = Fill {
        stream: 1,
        value: 7,
        element: 1,
        reserved: 0,
        destination: big,
        pitch: 0,
        width: MEMORY / 2,
        height: 1,
    };
    guest.send(&fill, &[]);
    digit(&mut guest, 1, p, 1);
    guest.send(&MemFree { address: big }, &[]);
    // The device has too little memory now, but a queued free will return it.
    let ask = guest.send(&MemAlloc { reply: 5, flags: 0, bytes: MEMORY / 2 + (1 << 20) }, &[]);
    let info = guest.send(&MemInfo { reply: 6, reserved: 0 }, &[]);
    guest.echo();
    assert!(bench.allocated() >= MEMORY / 2, "still used");
    release(&mut guest, 1);
    assert_eq!(guest.answer(5, ask).0, 0);
    let (status, data) = guest.answer(6, info);
    let free = MemInfoReply::read_from_bytes(&data).unwrap().free;
    assert!(status == 0 && free < MEMORY / 2, "{free:#x}");
    assert_eq!((read_u32(&mut guest, p), guest.late()), (1, None));
}

#[test]
fn window_memory_is_nobody_elses_while_work_refers_to_it() {
    let bench = Bench::soft();
    let (mut guest, p) = prepared(&bench);
    let offset = window(&mut guest, SHARED);
    let span = Span::bar(offset, 4);
    guest.function.put(offset, &77u32.to_le_bytes());
    hold(&mut guest, 1);
    guest.send(&CopyIn { stream: 1, reserved: 0, destination: p, source: span, read: Mark::new(23, 1) }, &[]);
    let out = Span::bar(offset + 8, 4);
    guest.send(
        &CopyOut { stream: 1, reserved: 0, source: p, destination: out, written: Mark::new(24, 1) },
        &[],
    );
    guest.send(&WindowFree { offset }, &[]);
    let ask = |guest: &mut Guest| guest.call(WindowAlloc { reply: 0, reserved: 0, bytes: SHARED }, &[]).0;
    assert_eq!(ask(&mut guest), 2, "all of the window is still in use");
    assert_eq!(guest.word(23), 0);
    release(&mut guest, 1);
    guest.wait_word(24, 1);
    vgpu_host_testing::guest::until("the window is free", || ask(&mut guest) == 0);
    assert_eq!(guest.late(), None);
}
