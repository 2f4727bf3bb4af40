//! Tests of calls about streams and events.

use vgpu_wire::v1::call::{EVENTS_MAX, Op, STREAMS_MAX};

use crate::driver::{guest, pattern, soft, wide};

#[test]
fn streams_are_made_used_and_ended() {
    let mut guest = guest(soft());
    let stream = guest.call(Op::StreamCreateWithFlags, &[1, 0], &[]).one();
    assert!(stream > 2);
    let with_priority = guest.call(Op::StreamCreateWithPriority, &[0, 0, (-1_i32) as u32, 0], &[]).one();
    assert_ne!(stream, with_priority);
    assert_eq!(guest.call(Op::StreamCreate, &[2], &[]).failed(), 1, "no such flag");
    for handle in [stream, with_priority, 0, 1, 2, 12345] {
        guest.call(Op::StreamSynchronize, &wide(&[handle]), &[]).nothing();
        guest.call(Op::StreamQuery, &wide(&[handle]), &[]).nothing();
    }
    let address = guest.alloc(100_000);
    let data = pattern(1, 100_000);
    for stream in [stream, 0, 12345] {
        guest.call(Op::MemcpyHtoDAsync, &wide(&[address, 100_000, stream]), &data).nothing();
        guest.call(Op::CtxSynchronize, &[], &[]).nothing();
        assert!(guest.get(address, 100_000) == data);
    }
    guest.call(Op::StreamDestroy, &wide(&[stream]), &[]).nothing();
    assert_eq!(guest.call(Op::StreamDestroy, &wide(&[stream]), &[]).failed(), 400);
    assert_eq!(guest.call(Op::StreamDestroy, &wide(&[1]), &[]).failed(), 400);
}

#[test]
fn a_copy_that_looks_like_a_fat_binary_is_dropped() {
    let mut guest = guest(soft());
    let address = guest.alloc(16);
    let container = [0x50, 0xed, 0x55, 0xba, 1, 2, 3, 4];
    guest.call(Op::MemcpyHtoDAsync, &wide(&[address, 8, 0]), &container).nothing();
    assert_eq!(guest.get(address, 8), [0; 8], "Q19");
    guest.put(address, &container).nothing();
    assert_eq!(guest.get(address, 8), container);
}

#[test]
fn events_are_recorded_waited_for_and_timed() {
    let mut guest = guest(soft());
    let stream = guest.call(Op::StreamCreate, &[0], &[]).one();
    let mut event = |flags: u32| guest.call(Op::EventCreateWithFlags, &[flags, 0], &[]).one();
    let (start, end, untimed) = (event(0), event(1), event(2));
    assert_eq!(guest.call(Op::EventCreate, &[8], &[]).failed(), 1);
    guest.call(Op::EventQuery, &wide(&[start]), &[]).nothing();
    let elapsed = |from: u64, to: u64| (Op::EventElapsedTime, wide(&[from, to]));
    let (op, args) = elapsed(start, end);
    assert_eq!(guest.call(op, &args, &[]).failed(), 400, "not recorded");
    guest.call(Op::EventRecord, &wide(&[start, 0]), &[]).nothing();
    let address = guest.alloc(1 << 20);
    let mut fill = wide(&[address]);
    fill.extend([1, 0]);
    fill.extend(wide(&[1 << 20]));
    guest.call(Op::MemsetD8, &fill, &[]).nothing();
    for event in [end, untimed] {
        guest.call(Op::EventRecord, &wide(&[event, stream]), &[]).nothing();
        guest.call(Op::EventSynchronize, &wide(&[event]), &[]).nothing();
        guest.call(Op::EventQuery, &wide(&[event]), &[]).nothing();
    }
    let (op, args) = elapsed(start, end);
    let milliseconds = f32::from_bits(guest.call(op, &args, &[]).one() as u32);
    assert!(milliseconds > 0.0 && milliseconds < 600_000.0, "{milliseconds}");
    let (op, args) = elapsed(start, untimed);
    assert_eq!(guest.call(op, &args, &[]).failed(), 400);
    guest.call(Op::StreamWaitEvent, &[&wide(&[stream, end])[..], &[0, 0]].concat(), &[]).nothing();
    guest.call(Op::StreamWaitEvent, &[&wide(&[0, end])[..], &[0, 0]].concat(), &[]).nothing();
    let unknown = guest.call(Op::StreamWaitEvent, &[&wide(&[12345, end])[..], &[0, 0]].concat(), &[]);
    assert_eq!(unknown.failed(), 400);
    assert_eq!(guest.call(Op::EventRecord, &wide(&[end, 12345]), &[]).failed(), 400);
    guest.call(Op::EventDestroy, &wide(&[end]), &[]).nothing();
    assert_eq!(guest.call(Op::EventDestroy, &wide(&[end]), &[]).failed(), 400);
    assert_eq!(guest.call(Op::EventQuery, &wide(&[end]), &[]).failed(), 400);
}

#[test]
fn tables_of_streams_and_events_have_an_end() {
    let mut guest = guest(soft());
    let mut made = |op: Op, most: usize| -> Vec<u64> {
        let handles = (0..most).map(|_| guest.call(op, &[0], &[]).one()).collect();
        assert_eq!(guest.call(op, &[0], &[]).failed(), 2, "{} {most}", op.name());
        handles
    };
    let streams = made(Op::StreamCreate, STREAMS_MAX);
    let events = made(Op::EventCreate, EVENTS_MAX);
    guest.call(Op::StreamDestroy, &wide(&[streams[5]]), &[]).nothing();
    guest.call(Op::EventDestroy, &wide(&[events[200]]), &[]).nothing();
    let stream = guest.call(Op::StreamCreate, &[0], &[]).one();
    let event = guest.call(Op::EventCreate, &[0], &[]).one();
    assert!(!streams.contains(&stream) && !events.contains(&event), "no handle is used again");
    guest.call(Op::EventRecord, &wide(&[event, stream]), &[]).nothing();
    guest.call(Op::EventSynchronize, &wide(&[event]), &[]).nothing();
}
