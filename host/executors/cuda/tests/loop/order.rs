//! Order: of streams, of the default stream, of events and joins, on a device that keeps no order that it
//! need not keep.

use vgpu_host_testing::commands::{
    LAUNCH, allocate, copy_in, function, launch, load, params, read_u32, stream, synchronize,
};
use vgpu_host_testing::guest::Guest;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::stream::{EventCreate, EventRecord, Join, Signal, StreamDestroy, StreamWait};
use vgpu_wire::{JOIN_ALL, Mark};

use crate::place::{adversarial, looped};

/// A memory cell that kernels add digits to.
fn cell(guest: &mut Guest) -> u64 {
    load(guest, 1);
    function(guest, 1, "digit");
    function(guest, 2, "scale");
    let p = allocate(guest, 4);
    copy_in(guest, 0, p, &[0; 4]);
    synchronize(guest);
    p
}

fn digit(guest: &mut Guest, stream: u32, p: u64, digit: u32) {
    launch(guest, Launch { function: 1, stream, ..LAUNCH }, &params(p, &[digit]));
}

#[test]
fn joins_order_all_later_work() {
    adversarial("order::joins_order_all_later_work", |looped| {
        let mut guest = looped.bench.guest(0);
        let p = cell(&mut guest);
        for number in 1..=4 {
            stream(&mut guest, number, 1);
        }
        for round in 0..8 {
            copy_in(&mut guest, 1, p, &[0; 4]);
            digit(&mut guest, 1, p, 1);
            guest.send(&Join { stream: 1, reserved: 0 }, &[]);
            digit(&mut guest, 2, p, 2);
            guest.send(&Join { stream: JOIN_ALL, reserved: 0 }, &[]);
            // A stream that had no work, and one that is made after the join.
            digit(&mut guest, 3 + round % 2, p, 3);
            guest.send(&Join { stream: JOIN_ALL, reserved: 0 }, &[]);
            stream(&mut guest, 9, 1);
            digit(&mut guest, 9, p, 4);
            guest.send(&StreamDestroy { stream: 9, reserved: 0 }, &[]);
            guest.send(&Join { stream: JOIN_ALL, reserved: 0 }, &[]);
            digit(&mut guest, 1, p, 5);
            assert_eq!(read_u32(&mut guest, p), 12345, "round {round}");
        }
        // A mark of a stream without work comes after the join too.
        copy_in(&mut guest, 1, p, &[0; 4]);
        digit(&mut guest, 1, p, 7);
        guest.send(&Join { stream: 1, reserved: 0 }, &[]);
        guest.send(&Signal { stream: 4, reserved: 0, mark: Mark::new(5, 1) }, &[]);
        guest.wait_word(5, 1);
        assert_eq!(read_u32(&mut guest, p), 7);
        assert_eq!(guest.late(), None);
    });
}

#[test]
fn the_default_stream_waits_for_blocking_streams_and_they_for_it() {
    adversarial("order::the_default_stream_waits_for_blocking_streams_and_they_for_it", |looped| {
        let mut guest = looped.bench.guest(0);
        let p = cell(&mut guest);
        stream(&mut guest, 1, 0);
        stream(&mut guest, 2, 0);
        for round in 0..8_u64 {
            copy_in(&mut guest, 0, p, &[0; 4]);
            digit(&mut guest, 1, p, 1);
            digit(&mut guest, 0, p, 2);
            digit(&mut guest, 2, p, 3);
            // Its mark tells that the blocking streams' work before it is complete.
            guest.send(&Signal { stream: 0, reserved: 0, mark: Mark::new(5, round + 1) }, &[]);
            guest.wait_word(5, round + 1);
            assert_eq!(read_u32(&mut guest, p), 123, "round {round}");
        }
        assert_eq!(guest.late(), None);
    });
}

#[test]
fn events_order_streams_and_know_their_time() {
    adversarial("order::events_order_streams_and_know_their_time", |looped| {
        let mut guest = looped.bench.guest(0);
        let p = cell(&mut guest);
        for number in 1..=3 {
            stream(&mut guest, number, 1);
        }
        for (event, flags) in [(1, 0), (2, 2), (3, 0)] {
            guest.send(&EventCreate { event, flags }, &[]);
        }
        for round in 1..=6 {
            copy_in(&mut guest, 1, p, &[0; 4]);
            guest.send(&EventRecord { event: 1, stream: 1, mark: Mark::new(11, round) }, &[]);
            digit(&mut guest, 1, p, 1);
            guest.send(&EventRecord { event: 2, stream: 1, mark: Mark::new(12, round) }, &[]);
            guest.send(&StreamWait { stream: 2, event: 2 }, &[]);
            digit(&mut guest, 2, p, 2);
            guest.send(&EventRecord { event: 3, stream: 2, mark: Mark::new(13, round) }, &[]);
            guest.send(&StreamWait { stream: 3, event: 3 }, &[]);
            guest.send(&StreamWait { stream: 1, event: 3 }, &[]);
            digit(&mut guest, 3, p, 3);
            guest.send(&EventRecord { event: 2, stream: 3, mark: Mark::new(14, round) }, &[]);
            guest.send(&StreamWait { stream: 1, event: 2 }, &[]);
            digit(&mut guest, 1, p, 4);
            guest.send(&Signal { stream: 1, reserved: 0, mark: Mark::new(15, round) }, &[]);
            for word in 11..=15 {
                guest.wait_word(word, round);
            }
            assert_eq!(read_u32(&mut guest, p), 1234, "round {round}");
            let (first, second) = (guest.word_time(11), guest.word_time(13));
            assert!(first > 0 && first <= second, "{first} {second}");
        }
        assert_eq!(guest.late(), None);
    });
}

#[test]
fn times_of_events_go_forward() {
    looped("order::times_of_events_go_forward", |looped| {
        let mut guest = looped.bench.guest(0);
        let p = cell(&mut guest);
        guest.send(&EventCreate { event: 1, flags: 0 }, &[]);
        let mut earlier = 0;
        for round in 1..=20 {
            digit(&mut guest, 0, p, 1);
            guest.send(&EventRecord { event: 1, stream: 0, mark: Mark::new(21, round) }, &[]);
            guest.wait_word(21, round);
            let at = guest.word_time(21);
            assert!(earlier < at, "{earlier} {at}");
            earlier = at;
        }
    });
}
