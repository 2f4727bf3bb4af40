//! Tests of attach and detach, the ring, sleeping and waking, and window memory.

use std::sync::atomic::Ordering;
use std::time::Duration;

use vgpu_host_testing::bench::{Bench, CHANNELS, SHARED, address};
use vgpu_host_testing::guest::{Function, Guest, message, until};
use vgpu_wire::body::copy::CopyIn;
use vgpu_wire::body::memory::MemAlloc;
use vgpu_wire::body::session::{Echo, WindowAlloc, WindowAllocReply, WindowFree};
use vgpu_wire::body::stream::Signal;
use vgpu_wire::registers::{self as reg, Refusal, channel};
use vgpu_wire::{Mark, Span, TABLE_DIGEST, WIRE_VERSION, area};
use zerocopy::{FromBytes, IntoBytes};

pub fn signal(word: u32, value: u64) -> Signal {
    Signal { stream: 0, reserved: 0, mark: Mark::new(word, value) }
}

pub fn window_alloc(guest: &mut Guest, bytes: u64) -> Option<WindowAllocReply> {
    let (status, data) = guest.call(WindowAlloc { reply: 0, reserved: 0, bytes }, &[]);
    match status {
        0 => Some(WindowAllocReply::read_from_bytes(&data).unwrap()),
        2 => None,
        other => panic!("status {other}"),
    }
}

#[test]
fn versions_and_tables_must_agree() {
    let bench = Bench::soft();
    let mut function = Function::open(bench.folder(), address());
    for (version, digest, why) in [
        (WIRE_VERSION + 1, TABLE_DIGEST, Refusal::Version),
        (0, TABLE_DIGEST, Refusal::Version),
        (WIRE_VERSION, TABLE_DIGEST ^ 1, Refusal::Digest),
        (WIRE_VERSION, TABLE_DIGEST ^ 1 << 63, Refusal::Digest),
    ] {
        let Err((refusal, back)) = Guest::try_attach(function, 0, version, digest) else {
            panic!("attached")
        };
        function = back;
        assert_eq!(refusal, why as u32);
        assert_eq!(function.read(channel::base(0) + channel::STATE), channel::STATE_FREE);
        assert_eq!(function.read(channel::base(0) + channel::SESSION), 0);
        // The values that the guest stated can be read, so that either end can name both.
        assert_eq!(function.read(channel::base(0) + channel::GUEST_VERSION), version);
    }
    function.write(channel::base(0) + channel::RETURN_GPA_HI, 1);
    let Err((refusal, function)) = Guest::try_attach(function, 0, WIRE_VERSION, TABLE_DIGEST) else {
        panic!("attached")
    };
    assert_eq!(refusal, Refusal::ReturnArea as u32);
    function.write(channel::base(0) + channel::RETURN_GPA_HI, 0);
    let guest = Guest::attach_silently(function, 0);
    assert_eq!(guest.register(channel::ERROR), 0);
    assert_ne!(guest.register(channel::SESSION), 0);
}

#[test]
fn hello_brings_the_facts() {
    let bench = Bench::soft();
    let function = Function::open(bench.folder(), address());
    let mut guest = Guest::attach_silently(function, 2);
    let hello = guest.hello();
    assert_eq!(hello.session, guest.register(channel::SESSION));
    assert_eq!(hello.generation, guest.function.read(reg::V2_GENERATION));
    assert_eq!(hello.window_bytes, SHARED);
    assert_eq!(&hello.facts.name[..15], b"VGPU-STUB test\0");
    assert_eq!(hello.facts.total_bytes, vgpu_host_testing::bench::MEMORY);
    assert_eq!((hello.facts.cc_major, hello.facts.cc_minor), (6, 1));
    assert_eq!((hello.facts.attributes[10], hello.facts.attributes[75]), (32, 6));
    guest.echo();
    until("both messages to be counted", || guest.done() == 2);
}

#[test]
fn channels_are_taken_and_given_back() {
    let bench = Bench::soft();
    let guests: Vec<Guest> = (0..CHANNELS).map(|channel| bench.guest(channel)).collect();
    let sessions: std::collections::HashSet<u32> =
        guests.iter().map(|guest| guest.register(channel::SESSION)).collect();
    assert_eq!(sessions.len(), CHANNELS as usize);
    let function = &guests[0].function;
    assert_eq!(function.read(reg::V2_ATTACHED_LO), 0xff);
    guests[5].detach();
    assert_eq!(function.read(reg::V2_ATTACHED_LO), 0xdf);
    assert_eq!(guests[5].register(channel::STATE), channel::STATE_FREE);
    assert_eq!(guests[5].register(channel::SESSION), 0);
    guests[5].detach();
    for unknown in [0, 2, 77] {
        guests[5].control(unknown);
    }
    assert_eq!(guests[5].register(channel::STATE), channel::STATE_FREE);
    assert_eq!(bench.bus.status().devices[0].free_channels, 1);
}

#[test]
fn the_ring_goes_round() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    let (status, data) = guest.call(MemAlloc { reply: 0, flags: 0, bytes: 1 << 20 }, &[]);
    assert_eq!(status, 0);
    let destination = u64::from_le_bytes(data.try_into().unwrap());
    let mut random = 0x1234_5678u64;
    let mut expected = vec![0u8; 1 << 20];
    while guest.tail < 5 * area::RING_BYTES {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bytes = match random >> 62 {
            0 => random >> 50 & 0xfff,
            1 => 60_000,
            _ => random >> 50 & 0x3f,
        };
        let at = random >> 20 & 0x7_ffff;
        let data: Vec<u8> = (0..bytes).map(|i| (random >> (i % 57)) as u8).collect();
        expected[at as usize..(at + bytes) as usize].copy_from_slice(&data);
        let body = CopyIn {
            stream: 0,
            reserved: 0,
            destination: destination + at,
            source: Span::inline(bytes),
            read: Mark::NONE,
        };
        guest.send(&body, &data);
    }
    let number = guest.send(&signal(1, 9), &[]);
    guest.wait_word(1, 9);
    until("the count of done messages", || guest.done() == number);
    assert_eq!(guest.head(), guest.tail);
    assert_eq!(guest.late(), None);
    let read = crate::memory::read_back(&mut guest, destination, 1 << 20);
    assert!(read == expected, "what was copied through the ring is there");
}

#[test]
fn eight_guests_at_once() {
    let bench = Bench::soft();
    std::thread::scope(|scope| {
        for channel in 0..CHANNELS {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..3 {
                    let mut guest = bench.guest(channel);
                    crate::memory::round_trips(&mut guest, u64::from(channel) * 1000 + round, 40);
                    assert_eq!(guest.late(), None);
                    guest.detach();
                }
            });
        }
    });
    assert_eq!(bench.allocated(), 0);
    assert_eq!(bench.bus.status().devices[0].free_channels, CHANNELS as usize);
}

#[test]
fn detach_and_the_next_attach_free_what_a_session_held() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    guest.call(MemAlloc { reply: 0, flags: 0, bytes: 8 << 20 }, &[]);
    window_alloc(&mut guest, SHARED).unwrap();
    assert_eq!(bench.allocated(), 8 << 20);
    let session = bench.session(0).unwrap();
    assert_eq!((session.allocated, session.allocations, session.window_bytes), (8 << 20, 1, SHARED));
    guest.detach();
    assert_eq!((bench.allocated(), bench.session(0)), (0, None));

    let mut guest = bench.guest(0);
    guest.call(MemAlloc { reply: 0, flags: 0, bytes: 8 << 20 }, &[]);
    window_alloc(&mut guest, SHARED).unwrap();
    // The process dies without a detach. The next owner of the channel's lock attaches.
    drop(guest);
    assert_eq!(bench.allocated(), 8 << 20);
    let mut next = bench.guest(0);
    assert_eq!(bench.allocated(), 0);
    assert!(window_alloc(&mut next, SHARED).is_some());
    assert_eq!(next.late(), None);
    until("all messages to be counted", || next.done() == next.number);
}

#[test]
fn an_attach_finds_a_clean_area() {
    let bench = Bench::soft();
    let mut guest = bench.guest(1);
    guest.send(&signal(7, 70), &[]);
    guest.wait_word(7, 70);
    guest.detach();
    // A session starts with a cleared area, whatever the area holds while nobody is attached.
    let function = Function::open(bench.folder(), address());
    function.put(area::AREA_BYTES, &vec![0xff; 0x2_0000]);
    let guest = Guest::attach_silently(function, 1);
    assert!(guest.function.get(guest.area, area::SUBMIT + 0x1000).iter().all(|&byte| byte == 0));
    let returns = guest.function.get(guest.returns(), area::RETURN_BYTES);
    // The host may sleep already, which its flag shows. Everything else is zero.
    let set: Vec<usize> = (0..returns.len()).filter(|&at| returns[at] != 0).collect();
    assert!(set.is_empty() || set == [area::RETURN_HOST_SLEEPS as usize], "{set:?}");
}

#[test]
fn what_a_session_leaves_behind_is_nobody_elses_to_see() {
    let bench = Bench::soft();
    let guest = bench.guest(1);
    let places =
        [(area::SUBMIT + 0x800, 8), (area::STAGING, area::STAGING_BYTES), (area::RING, area::RING_BYTES)];
    for (place, bytes) in places {
        guest.function.put(guest.area + place, &vec![0xa5; bytes as usize]);
    }
    guest.detach();
    let function = Function::open(bench.folder(), address());
    for (place, bytes) in places {
        let left = function.get(area::AREA_BYTES + place, bytes);
        assert!(left.iter().all(|&byte| byte == 0), "at {place:#x}");
    }
}

#[test]
fn the_host_sleeps_and_the_doorbell_wakes_it() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    // A doorbell that is rung before the host has fallen asleep does not count as one of its sleeps.
    for _ in 0..1000 {
        if bench.session(0).unwrap().host_sleeps >= 20 {
            break;
        }
        let sleeps = guest.function.u32_at(guest.returns() + area::RETURN_HOST_SLEEPS);
        until("the host to sleep", || sleeps.load(Ordering::SeqCst) == 1);
        guest.echo();
    }
    assert!(bench.session(0).unwrap().host_sleeps >= 20);
}

#[test]
fn a_guest_that_sleeps_is_woken() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    let mut slept = 0;
    for value in 1..=50 {
        bench.bus.hold();
        guest.send(&signal(3, value), &[]);
        std::thread::scope(|scope| {
            let sleepers = guest.function.u32_at(guest.area + area::SUBMIT_SLEEPERS);
            let waiter = scope.spawn(|| guest.sleep_for_word(3, value));
            until("the guest to count itself", || sleepers.load(Ordering::SeqCst) == 1);
            bench.bus.release();
            slept += waiter.join().unwrap();
        });
    }
    assert!(slept > 0, "at least one of the waits should have slept");
}

#[test]
fn a_held_session_has_read_and_not_done() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    until("the greeting to be counted", || guest.done() == 1);
    bench.bus.hold();
    let first = guest.send(&signal(1, 1), &[]);
    for value in 2..=10 {
        guest.send(&signal(1, value), &[]);
    }
    until("the message to be read", || bench.session(0).unwrap().messages == first);
    assert!(guest.head() > 0);
    assert_eq!((guest.done(), guest.word(1)), (first - 1, 0));
    let session = bench.session(0).unwrap();
    assert_eq!((session.state.as_str(), session.done), ("held", first - 1));
    // Other sessions are held too, and can be detached nevertheless.
    let mut other = Guest::attach_silently(Function::open(bench.folder(), address()), 1);
    other.send(&vgpu_wire::body::session::Hello { reply: 0, process: 1, reserved: 0 }, &[]);
    other.detach();
    bench.bus.release();
    guest.wait_word(1, 10);
    assert_eq!(guest.late(), None);
}

#[test]
fn window_memory_has_one_owner() {
    let bench = Bench::soft();
    let (mut one, mut two) = (bench.guest(0), bench.guest(1));
    let first = window_alloc(&mut one, 1).unwrap();
    assert_eq!(first.bytes, area::WINDOW_GRANULE);
    assert_eq!(first.offset % area::WINDOW_GRANULE, 0);
    let rest = window_alloc(&mut two, SHARED - area::WINDOW_GRANULE).unwrap();
    assert_eq!(window_alloc(&mut one, 1), None);
    assert_eq!(one.call(WindowAlloc { reply: 0, reserved: 0, bytes: 0 }, &[]).0, 1);
    assert_eq!(window_alloc(&mut one, u64::MAX), None);
    assert!(first.offset + first.bytes <= rest.offset || rest.offset + rest.bytes <= first.offset);
    // Memory that is freed goes to the next owner, and reads as zeros.
    two.function.put(rest.offset, &[9; 4096]);
    two.send(&WindowFree { offset: rest.offset }, &[]);
    two.echo();
    let again = window_alloc(&mut one, rest.bytes).unwrap();
    assert_eq!(again.offset, rest.offset);
    assert!(one.function.get(again.offset, 4096).iter().all(|&byte| byte == 0));
    // Freeing memory of another session is a violation, and frees nothing.
    let number = two.send(&WindowFree { offset: first.offset }, &[]);
    assert_eq!(two.ended(), (999, area::ERROR_STICKY | area::ERROR_ENDED, number));
    assert_eq!(bench.session(0).unwrap().window_bytes, SHARED);
    one.echo();
}

#[test]
fn answers_go_to_their_slots() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    let numbers: Vec<(u32, u64)> = (0..area::REPLIES)
        .map(|slot| {
            (slot, guest.send(&Echo { reply: slot, reserved: 0, cookie: 0xabc0 + u64::from(slot) }, &[]))
        })
        .collect();
    for (slot, number) in numbers {
        let (status, data) = guest.answer(slot, number);
        assert_eq!((status, data.as_slice()), (0, (0xabc0 + u64::from(slot)).as_bytes()));
    }
}

#[test]
fn a_guest_that_publishes_without_the_doorbell_is_served_by_the_next_ring() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    let sleeps = guest.function.u32_at(guest.returns() + area::RETURN_HOST_SLEEPS);
    // Naps end by themselves, and are counted. The sleep after them does not end.
    let asleep = || (sleeps.load(Ordering::SeqCst), bench.session(0).unwrap().host_sleeps);
    until("the host to sleep", || {
        let before = asleep();
        std::thread::sleep(Duration::from_millis(200));
        before.0 == 1 && asleep() == before
    });
    guest.number += 1;
    let bytes = message(&signal(2, 5), &[], guest.number as u32);
    guest.write(&bytes);
    let tail = guest.function.u64_at(guest.area + area::SUBMIT_TAIL);
    tail.store(guest.tail, Ordering::Release);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(guest.word(2), 0, "the host sleeps and nobody woke it");
    guest.function.write(channel::base(0) + channel::DOORBELL, 0);
    guest.wait_word(2, 5);
}
