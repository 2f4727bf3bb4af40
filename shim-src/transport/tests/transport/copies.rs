//! Tests of copies and window memory.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use vgpu_transport::{Session, SessionError};
use vgpu_transport_bed::{Bed, allocate, echo, pattern, soft};
use vgpu_wire::body::copy::{CopyIn, CopyOut};
use vgpu_wire::{Mark, Span};

fn copy_in(session: &Session, address: u64, source: &[u8]) -> Result<(), SessionError> {
    // SAFETY: a slice is readable.
    unsafe { session.copy_in(0, address, source.as_ptr(), source.len()) }
}

fn copy_out(session: &Session, address: u64, bytes: usize) -> Result<Vec<u8>, SessionError> {
    let mut target = vec![0xcc; bytes];
    // SAFETY: the vector has that many bytes and is used by nobody else.
    unsafe { session.copy_out(0, address, target.as_mut_ptr(), bytes) }.map(|()| target)
}

#[test]
fn every_size_comes_back_as_it_went() {
    let bed = Bed::of(soft("copies"));
    let session = bed.attach();
    let room = 64 << 20;
    let address = allocate(&session, room as u64);
    // Lengths at which one method of copying ends and the next starts.
    let edges = [0, 1, 4096, 4097, 64 << 10, 256 << 10, 512 << 10, 2 << 20, 64 << 20];
    for edge in edges {
        for bytes in [edge - usize::from(edge > 0), edge, (edge + 1).min(room)] {
            let source = pattern(bytes as u64, bytes);
            copy_in(&session, address, &source).unwrap();
            assert!(copy_out(&session, address, bytes).unwrap() == source, "{bytes} bytes");
        }
    }
    let mut runner = TestRunner::new(ProptestConfig::with_cases(60));
    let sizes = (any::<u64>(), 0u32..27, 0usize..1 << 20)
        .prop_map(|(seed, power, offset)| (seed, (seed as usize % (1 << power)).min(room - offset), offset));
    runner
        .run(&sizes, |(seed, bytes, offset)| {
            let source = pattern(seed, bytes);
            copy_in(&session, address + offset as u64, &source).unwrap();
            let back = copy_out(&session, address + offset as u64, bytes).unwrap();
            prop_assert!(back == source, "{} bytes at {}", bytes, offset);
            Ok(())
        })
        .unwrap();
    let counters = session.counters();
    assert_eq!(counters.bytes_in, counters.bytes_out);
}

#[test]
fn threads_copy_at_once_and_do_not_mix() {
    let bed = Bed::of(soft("threads"));
    let session = bed.attach();
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let session = &session;
            scope.spawn(move || {
                let address = allocate(session, 4 << 20);
                for count in 0..25 {
                    let bytes = (thread * 1_234_567 + count * 777_777) as usize % (4 << 20);
                    let source = pattern(thread << 8 | count, bytes);
                    copy_in(session, address, &source).unwrap();
                    // It may be overwritten as soon as the copy has returned.
                    let copied = source.clone();
                    drop(source);
                    assert!(copy_out(session, address, bytes).unwrap() == copied);
                }
            });
        }
    });
    // Two staging areas, however many copies there were.
    assert!(bed.status().sessions[0].window_bytes <= 9 << 20);
}

#[test]
fn window_memory_is_shared_with_the_device() {
    let bed = Bed::of(soft("pinned"));
    let session = bed.attach();
    let address = allocate(&session, 1 << 20);
    let pinned = session.window_alloc(1_000_000).unwrap().unwrap();
    assert_eq!(pinned.bytes(), 1 << 20);
    let source = pattern(9, 1 << 20);
    // SAFETY: mapped for its length, and the device does not use it yet.
    unsafe { pinned.ptr().copy_from_nonoverlapping(source.as_ptr(), source.len()) };
    let span = Span::bar(pinned.offset(), pinned.bytes());
    let body = CopyIn { stream: 0, reserved: 0, destination: address, source: span, read: Mark::NONE };
    session.send(&body, &[]).unwrap();
    assert!(copy_out(&session, address, 1 << 20).unwrap() == source);

    let changed = pattern(10, 1 << 20);
    copy_in(&session, address, &changed).unwrap();
    let word = session.word().unwrap();
    let written = word.mark();
    let body = CopyOut { stream: 0, reserved: 0, source: address, destination: span, written };
    session.send(&body, &[]).unwrap();
    session.wait(written.word, written.value).unwrap();
    let mut seen = vec![0; 1 << 20];
    // SAFETY: mapped for its length, and the device has finished.
    unsafe { pinned.ptr().copy_to_nonoverlapping(seen.as_mut_ptr(), seen.len()) };
    assert!(seen == changed);
}

#[test]
fn a_full_window_gives_none_and_copies_go_on() {
    let bed = Bed::of(soft("full"));
    let session = bed.attach();
    let address = allocate(&session, 8 << 20);
    let mut held = Vec::new();
    for bytes in [64 << 20, 16 << 20, 1 << 20, 1 << 16] {
        while let Some(memory) = session.window_alloc(bytes).unwrap() {
            held.push(memory);
        }
    }
    let total: u64 = held.iter().map(vgpu_transport::WindowMemory::bytes).sum();
    assert_eq!(total, bed.status().sessions[0].window_bytes);
    assert!(total > 200 << 20, "{total}");
    let mut ranges: Vec<(u64, u64)> = held.iter().map(|memory| (memory.offset(), memory.bytes())).collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    assert!(session.window_alloc(1 << 40).unwrap().is_none());

    // Without window memory, uploads go through the ring and downloads through the channel's own buffers.
    for (seed, bytes) in [(1, 3 << 20), (2, 16), (3, 32 << 10), (4, (64 << 10) + 1)] {
        let source = pattern(seed, bytes);
        copy_in(&session, address, &source).unwrap();
        assert!(copy_out(&session, address, bytes).unwrap() == source);
    }
    assert_eq!(total, bed.status().sessions[0].window_bytes, "nothing was taken");
    let source = pattern(5, 3 << 20);
    copy_in(&session, address, &source).unwrap();
    drop(held);
    assert!(copy_out(&session, address, source.len()).unwrap() == source);
    assert!(session.window_alloc(64 << 20).unwrap().is_some());
}

#[test]
fn a_copy_does_not_wait_for_the_device_longer_than_it_must() {
    let bed = Bed::of(soft("pipelined"));
    let session = bed.attach();
    let address = allocate(&session, 1 << 20);
    let source = pattern(4, 200 << 10);
    copy_in(&session, address, &source).unwrap();
    echo(&session, 1);
    bed.bus().hold();
    // There are enough buffers for this copy: it returns while the device executes nothing.
    let returned = std::thread::scope(|scope| {
        let copy = scope.spawn(|| copy_in(&session, address, &source));
        let end = Instant::now() + Duration::from_secs(30);
        while !copy.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let returned = copy.is_finished();
        bed.bus().release();
        copy.join().unwrap().unwrap();
        returned
    });
    assert!(returned, "it waited for the device");
    assert!(copy_out(&session, address, source.len()).unwrap() == source);
}
