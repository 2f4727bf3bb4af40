//! Tests of messages in the ring and of their replies.

use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_transport::{LateError, SessionError};
use vgpu_transport_bed::{Bed, allocate, echo, eventually, null, signal, soft};
use vgpu_wire::body::copy::Fill;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::memory::{MemFree, MemInfo, MemInfoReply};
use vgpu_wire::body::stream::{EventCreate, EventRecord, StreamCreate};
use vgpu_wire::{JOIN_ALL, Kind, Mark, area};
use zerocopy::{FromZeros, IntoBytes};

#[test]
fn many_threads_call_at_once() {
    let bed = Bed::of(null());
    let session = bed.attach();
    // There are more threads than reply slots.
    std::thread::scope(|scope| {
        for thread in 0..40u64 {
            let session = &session;
            scope.spawn(move || {
                for count in 0..200 {
                    echo(session, thread << 32 | count);
                }
            });
        }
    });
    let counters = session.counters();
    assert_eq!(counters.round_trips, 40 * 200 + 1);
    assert!(session.kinds().contains(&(Kind::Echo, 8000)), "{:?}", session.kinds());
}

#[test]
fn many_threads_send_and_wait() {
    let bed = Bed::of(null());
    let session = bed.attach();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let session = &session;
            scope.spawn(move || {
                let word = session.word().unwrap();
                for count in 1..=5_000u64 {
                    let mark = word.mark();
                    session.send(&signal(mark), &[]).unwrap();
                    if count % 97 == 0 {
                        session.wait(mark.word, mark.value).unwrap();
                        assert!(session.word_value(word.index()) >= mark.value);
                    }
                }
                session.wait(word.index(), word.last()).unwrap();
            });
        }
    });
    assert_eq!(session.counters().messages, 8 * 5_000 + 1);
    assert_eq!(session.late_error(), None);
}

#[test]
fn words_go_on_where_their_last_owner_stopped() {
    let bed = Bed::of(null());
    let session = bed.attach();
    let mut index = None;
    for round in 1..=3u64 {
        let word = session.word().unwrap();
        assert_eq!(*index.get_or_insert(word.index()), word.index());
        assert_eq!(word.last(), round - 1);
        let mark = word.mark();
        session.send(&signal(mark), &[]).unwrap();
        session.wait(mark.word, mark.value).unwrap();
        assert!(session.word_time(word.index()) > 0);
    }
    let words: Vec<_> = std::iter::from_fn(|| session.word()).collect();
    // All words are taken but word 0 and those of the staging buffers: small, large, and the channel's own.
    assert_eq!(words.len() as u32, area::WORDS - 1 - (4 + 16 + 2));
}

#[test]
fn a_full_ring_is_waited_for_in_order() {
    let bed = Bed::of(null());
    let session = bed.attach();
    let word = session.word().unwrap();
    let sent = AtomicU64::new(0);
    let mut launch = Launch::new_zeroed();
    (launch.function, launch.grid, launch.block) = (1, [1; 3], [1; 3]);
    bed.bus().hold();
    let waits = session.counters().waits;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for count in 0..4_000u64 {
                // The messages have all sizes, so that padding of all sizes is needed.
                let params = vec![1; (count * 37 % 5000) as usize];
                launch.param_bytes = params.len() as u32;
                session.send(&launch, &[&params]).unwrap();
                sent.store(count + 1, Ordering::Relaxed);
            }
            session.send(&signal(word.mark()), &[]).unwrap();
        });
        // The sender stops: no other thread waits, and the device is held.
        eventually("the ring is full", || session.counters().waits > waits);
        let before = sent.load(Ordering::Relaxed);
        assert!((50..4_000).contains(&before), "{before}");
        bed.bus().release();
        eventually("all is sent", || sent.load(Ordering::Relaxed) == 4_000);
    });
    session.wait(word.index(), word.last()).unwrap();
    // A mark is stored before its message is counted.
    eventually("all is counted", || bed.status().sessions[0].messages == session.done());
    assert!(session.done() > session.counters().messages, "padding is counted by the host");
    assert_eq!(session.late_error(), None);
}

#[test]
fn messages_above_the_longest_are_refused_and_nothing_is_sent() {
    let bed = Bed::of(null());
    let session = bed.attach();
    let before = session.counters().messages;
    let params = vec![0; area::MESSAGE_MAX as usize];
    let mut launch = Launch::new_zeroed();
    launch.param_bytes = params.len() as u32;
    let lost = session.send(&launch, &[&params]).unwrap_err();
    assert!(matches!(lost, SessionError::Misuse { .. }) && lost.code() == 1 && !lost.is_final(), "{lost}");
    assert!(matches!(session.wait(area::WORDS, 1), Err(SessionError::Misuse { .. })));
    assert_eq!(session.wait(0, 1), Ok(()));
    assert_eq!(session.counters().messages, before);
    echo(&session, 1);
}

#[test]
fn joins_ride_on_the_next_message() {
    let bed = Bed::of(null());
    let session = bed.attach();
    for stream in 1..=20 {
        session.send(&StreamCreate { stream, flags: 0, priority: 0, reserved: 0 }, &[]).unwrap();
    }
    let before = session.counters().messages;
    session.join(1);
    session.join(1);
    assert_eq!(session.counters().messages, before, "a join sends nothing");
    echo(&session, 1);
    assert_eq!(session.counters().messages, before + 1);
    // Three joins take two messages of their own.
    (1..=3).for_each(|stream| session.join(stream));
    echo(&session, 2);
    assert_eq!(session.counters().messages, before + 4);
    // More joins than are remembered one by one become a join of all streams.
    (1..=20).for_each(|stream| session.join(stream));
    echo(&session, 3);
    assert!(session.counters().messages <= before + 4 + 8 + 1);
    session.join(JOIN_ALL);
    echo(&session, 4);
    assert_eq!(session.late_error(), None);
}

#[test]
fn state_is_answered_without_a_message() {
    let bed = Bed::of(null());
    let session = bed.attach();
    let word = session.word().unwrap();
    let before = session.counters();
    for _ in 0..1000 {
        assert_eq!(session.late_error(), None);
        assert_eq!(session.word_value(word.index()), 0);
        session.check().unwrap();
        session.done();
    }
    assert_eq!(session.counters(), before);
}

#[test]
fn a_late_error_is_handed_out_once() {
    let bed = Bed::of(soft("late"));
    let session = bed.attach();
    let number = session.send(&MemFree { address: 0x1234 }, &[]).unwrap();
    echo(&session, 1);
    let error = LateError { code: 1, sticky: false, ended: false, message: number };
    assert_eq!(session.late_error(), Some(error));
    assert_eq!(session.late_error(), None);
    // The same error of another message is a new error.
    let number = session.send(&MemFree { address: 0x1234 }, &[]).unwrap();
    echo(&session, 2);
    assert_eq!(session.late_error(), Some(LateError { message: number, ..error }));
    session.check().unwrap();
}

#[test]
fn a_sticky_error_stays_and_nobody_waits_in_vain() {
    let bed = Bed::of(soft("sticky"));
    let session = bed.attach();
    let word = session.word().unwrap();
    let fill = Fill {
        stream: 0,
        value: 0,
        element: 1,
        reserved: 0,
        destination: 0x10,
        pitch: 16,
        width: 16,
        height: 1,
    };
    let number = session.send(&fill, &[]).unwrap();
    echo(&session, 1);
    let error = LateError { code: 700, sticky: true, ended: false, message: number };
    assert_eq!([session.late_error(), session.late_error()], [Some(error); 2]);
    assert_eq!(session.check(), Err(SessionError::Ended { code: 700, message: number }));
    // No mark has this value, so the wait ends with the error.
    assert_eq!(session.wait(word.index(), 5), Err(SessionError::Ended { code: 700, message: number }));
    let mut info = MemInfoReply::new_zeroed();
    let answer = session.call(MemInfo { reply: 0, reserved: 0 }, &[], info.as_mut_bytes()).unwrap();
    assert_eq!(answer.status, 700);
}

#[test]
fn a_broken_contract_ends_the_session_and_no_other() {
    let bed = Bed::of(soft("violated"));
    let (session, other) = (bed.attach(), bed.attach());
    let word = session.word().unwrap();
    allocate(&session, 1 << 20);
    let pinned = session.window_alloc(1 << 16).unwrap().unwrap();
    // SAFETY: mapped for its length; nobody else uses it.
    unsafe { pinned.ptr().write_bytes(7, 1 << 16) };
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| session.wait(word.index(), 1));
        eventually("it sleeps", || session.counters().sleeps >= 1);
        // An event that was never created.
        let number = session.send(&EventRecord { event: 9, stream: 77, mark: Mark::NONE }, &[]).unwrap();
        let ended = SessionError::Ended { code: 999, message: number };
        assert_eq!(waiter.join().unwrap(), Err(ended));
        let late = LateError { code: 999, sticky: true, ended: true, message: number };
        assert_eq!(session.late_error(), Some(late));
        assert_eq!(session.send(&EventCreate { event: 1, flags: 0 }, &[]), Err(ended));
        assert_eq!(ended.code(), 999);
    });
    echo(&other, 1);
    // The program still has pointers to its memory, which no other session gets until it detaches.
    let theirs = other.window_alloc(1 << 16).unwrap().unwrap();
    assert_ne!(theirs.offset(), pinned.offset());
    // SAFETY: mapped for its length.
    unsafe { pinned.ptr().write_bytes(9, 1 << 16) };
    // SAFETY: as above.
    assert_eq!(unsafe { theirs.ptr().read_volatile() }, 0);
    let offset = pinned.offset();
    drop(pinned);
    drop(session);
    eventually("only the other is left", || bed.status().sessions.len() == 1);
    assert_eq!(other.window_alloc(1 << 16).unwrap().unwrap().offset(), offset);
    assert_eq!(bed.status().allocated, 0);
    echo(&bed.attach(), 1);
}

#[test]
fn answers_are_cut_to_the_caller() {
    let bed = Bed::of(soft("cut"));
    let session = bed.attach();
    let mut half = [0xaa; 12];
    let answer = session.call(MemInfo { reply: 0, reserved: 0 }, &[], &mut half).unwrap();
    assert_eq!((answer.status, answer.bytes), (0, 16));
    assert_eq!(u64::from_le_bytes(half[..8].try_into().unwrap()), 1 << 30);
    let answer = session.call(MemInfo { reply: 0, reserved: 0 }, &[], &mut []).unwrap();
    assert_eq!((answer.status, answer.bytes), (0, 16));
}
