//! Tests of the soft executor's memory, as a guest sees it.

use vgpu_host_testing::bench::{Bench, MEMORY, address};
use vgpu_host_testing::commands::FILL;
use vgpu_host_testing::guest::{Function, Guest, until};
use vgpu_wire::body::copy::{CopyDevice, CopyIn, CopyOut, CopyRows, Fill};
use vgpu_wire::body::memory::{
    MEM_MANAGED, MemAlloc, MemAllocAsync, MemFree, MemFreeAsync, MemInfo, MemInfoReply, MemUnmap,
};
use vgpu_wire::body::stream::{
    EventCreate, EventDestroy, EventRecord, Join, StreamCreate, StreamDestroy, StreamWait,
};
use vgpu_wire::registers::channel;
use vgpu_wire::{JOIN_ALL, Mark, Span, area};
use zerocopy::FromBytes;

use crate::sessions::{signal, window_alloc};

const ILLEGAL_ADDRESS: u32 = 700;
const NOT_SUPPORTED: u32 = 801;
/// Completion word for waits of this module.
const WORD: u32 = 1000;

pub fn allocate(guest: &mut Guest, bytes: u64) -> Result<u64, u32> {
    let (status, data) = guest.call(MemAlloc { reply: 0, flags: 0, bytes }, &[]);
    if status == 0 { Ok(u64::from_le_bytes(data.try_into().unwrap())) } else { Err(status) }
}

pub fn copy_in(guest: &mut Guest, destination: u64, source: Span, tail: &[u8], read: Mark) -> u64 {
    guest.send(&CopyIn { stream: 0, reserved: 0, destination, source, read }, tail)
}

pub fn copy_out(guest: &mut Guest, source: u64, destination: Span, written: Mark) -> u64 {
    guest.send(&CopyOut { stream: 0, reserved: 0, source, destination, written }, &[])
}

/// Reads device memory by way of window memory that is allocated for it.
pub fn read_back(guest: &mut Guest, source: u64, bytes: u64) -> Vec<u8> {
    let window = window_alloc(guest, bytes).expect("window memory");
    let value = guest.number + 1;
    copy_out(guest, source, Span::bar(window.offset, bytes), Mark::new(WORD, value));
    guest.wait_word(WORD, value);
    let data = guest.function.get(window.offset, bytes);
    guest.send(&vgpu_wire::body::session::WindowFree { offset: window.offset }, &[]);
    data
}

fn noise(seed: u64, bytes: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// Allocates, copies in both directions, copies on the device, compares and frees, `count` times.
pub fn round_trips(guest: &mut Guest, seed: u64, count: u64) {
    for round in 0..count {
        let data = noise(seed + round, 1 + (seed + round) * 7919 % 60_000);
        let bytes = data.len() as u64;
        let (a, b) = (allocate(guest, bytes).unwrap(), allocate(guest, bytes).unwrap());
        if round % 2 == 0 {
            copy_in(guest, a, Span::inline(bytes), &data, Mark::NONE);
        } else {
            let window = window_alloc(guest, bytes).expect("window memory");
            guest.function.put(window.offset, &data);
            let value = guest.number + 1;
            copy_in(guest, a, Span::bar(window.offset, bytes), &[], Mark::new(WORD, value));
            guest.wait_word(WORD, value);
            guest.function.put(window.offset, &vec![0; data.len()]);
            guest.send(&vgpu_wire::body::session::WindowFree { offset: window.offset }, &[]);
        }
        guest.send(&CopyDevice { stream: 0, reserved: 0, destination: b, source: a, bytes }, &[]);
        assert!(read_back(guest, b, bytes) == data, "round {round}");
        guest.send(&MemFree { address: a }, &[]);
        guest.send(&MemFree { address: b }, &[]);
    }
}

#[test]
fn data_comes_back_as_it_went() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    round_trips(&mut guest, 42, 60);
    guest.echo();
    assert_eq!(guest.late(), None);
    assert_eq!(bench.allocated(), 0);
}

#[test]
fn interior_pointers_reach_what_they_point_at() {
    let bench = Bench::soft();
    let function = Function::open(bench.folder(), address());
    let mut guest = Guest::attach_silently(function, 0);
    let range = guest.hello().facts.addresses().unwrap();
    let a = allocate(&mut guest, 10_000).unwrap();
    assert_eq!(a % 512, 0);
    assert!(range.holds(a, 10_000), "{a:#x} is none of {range:x?}");
    copy_in(&mut guest, a + 9_990, Span::inline(10), b"0123456789", Mark::NONE);
    assert_eq!(read_back(&mut guest, a + 9_985, 15), b"\0\0\0\0\x000123456789");
    let fill =
        Fill { value: 0x0403_0201, element: 4, destination: a + 8, pitch: 16, width: 2, height: 2, ..FILL };
    guest.send(&fill, &[]);
    let rows = CopyRows {
        stream: 0,
        reserved: 0,
        destination: a + 100,
        destination_pitch: 8,
        destination_slice: 16,
        source: a + 8,
        source_pitch: 16,
        source_slice: 32,
        width: 8,
        height: 2,
        depth: 1,
    };
    guest.send(&rows, &[]);
    assert_eq!(read_back(&mut guest, a + 99, 18), [&[0][..], &[1, 2, 3, 4].repeat(4), &[0]].concat());
    assert_eq!(guest.late(), None);
}

#[test]
fn memory_is_the_devices_and_runs_out() {
    let bench = Bench::soft();
    let (mut one, mut two) = (bench.guest(0), bench.guest(1));
    let info = |guest: &mut Guest| {
        let (status, data) = guest.call(MemInfo { reply: 0, reserved: 0 }, &[]);
        assert_eq!(status, 0);
        MemInfoReply::read_from_bytes(&data).unwrap()
    };
    assert_eq!(info(&mut one), MemInfoReply { free: MEMORY, total: MEMORY });
    allocate(&mut one, MEMORY / 2).unwrap();
    let b = allocate(&mut two, MEMORY / 2).unwrap();
    assert_eq!((allocate(&mut one, 1), allocate(&mut two, 1)), (Err(2), Err(2)));
    assert_eq!(allocate(&mut one, u64::MAX), Err(2));
    assert_eq!(allocate(&mut one, 0), Err(1));
    assert_eq!(one.late(), None, "out of memory is no late error");
    two.send(&MemFree { address: b }, &[]);
    two.echo();
    assert_eq!(info(&mut one).free, MEMORY / 2);
    assert!(allocate(&mut one, MEMORY / 2).is_ok());
    let managed = one.call(MemAlloc { reply: 0, flags: MEM_MANAGED, bytes: 4096 }, &[]);
    assert_eq!(managed, (NOT_SUPPORTED, vec![]));
}

#[test]
fn another_sessions_memory_is_out_of_reach() {
    let bench = Bench::soft();
    let (mut one, mut two) = (bench.guest(0), bench.guest(1));
    let a = allocate(&mut one, 4096).unwrap();
    copy_in(&mut one, a, Span::inline(6), b"secret", Mark::NONE);
    one.echo();
    let window = window_alloc(&mut two, 4096).unwrap();
    let number = copy_out(&mut two, a, Span::bar(window.offset, 6), Mark::new(5, 1));
    // The mark is stored nevertheless, so that nobody waits in vain. The error is stored before it.
    two.wait_word(5, 1);
    assert_eq!(two.late(), Some((ILLEGAL_ADDRESS, area::ERROR_STICKY, number)));
    assert_eq!(two.function.get(window.offset, 6), [0; 6]);
    // From here on no work is carried out, and every request is answered with the error.
    assert_eq!(allocate(&mut two, 16), Err(ILLEGAL_ADDRESS));
    copy_in(&mut two, a, Span::inline(5), b"known", Mark::NONE);
    two.send(&signal(6, 1), &[]);
    two.wait_word(6, 1);
    assert_eq!(two.late(), Some((ILLEGAL_ADDRESS, area::ERROR_STICKY, number)));
    assert_eq!(two.register(channel::STATE), channel::STATE_ATTACHED, "the session itself lives");
    one.echo();
    assert_eq!(one.late(), None);
    assert_eq!(read_back(&mut one, a, 6), b"secret");
}

#[test]
fn accesses_beyond_an_allocation_are_illegal() {
    for beyond in 0..5 {
        let bench = Bench::soft();
        let mut guest = bench.guest(0);
        let a = allocate(&mut guest, 1000).unwrap();
        let fill = Fill { destination: a, width: 1001, ..FILL };
        let copy = CopyDevice { stream: 0, reserved: 0, destination: a, source: a + 500, bytes: 501 };
        let number = match beyond {
            0 => copy_in(&mut guest, a + 996, Span::inline(5), b"12345", Mark::NONE),
            1 => copy_in(&mut guest, 0xdead_0000, Span::inline(1), b"1", Mark::NONE),
            2 => guest.send(&fill, &[]),
            3 => guest.send(&copy, &[]),
            _ => {
                guest.send(&MemFree { address: a }, &[]);
                copy_in(&mut guest, a, Span::inline(1), b"1", Mark::NONE)
            }
        };
        guest.echo();
        assert_eq!(guest.late(), Some((ILLEGAL_ADDRESS, area::ERROR_STICKY, number)), "case {beyond}");
    }
}

#[test]
fn errors_that_are_not_sticky_are_told_and_work_goes_on() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    let a = allocate(&mut guest, 4096).unwrap();
    let number = guest.send(&MemFree { address: a + 512 }, &[]);
    guest.echo();
    assert_eq!(guest.late(), Some((1, 0, number)));
    guest.send(&MemFree { address: 0 }, &[]);
    guest.echo();
    assert_eq!(guest.late(), Some((1, 0, number)), "to free nothing is no error");
    let number = guest.send(&MemUnmap { address: a, bytes: 4096 }, &[]);
    guest.echo();
    assert_eq!(guest.late(), Some((1, 0, number)), "an allocation is no mapping");
    let (kernel, reason, address) = guest.why(number).unwrap();
    assert!(kernel.is_empty() && !reason.is_empty(), "{kernel}: {reason}");
    assert_eq!(address, None);
    copy_in(&mut guest, a, Span::inline(2), b"ok", Mark::NONE);
    assert_eq!(read_back(&mut guest, a, 2), b"ok");
}

#[test]
fn streams_and_events_keep_order_and_time() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    for stream in [1, 2] {
        guest.send(&StreamCreate { stream, flags: 1, priority: 0, reserved: 0 }, &[]);
    }
    guest.send(&EventCreate { event: 1, flags: 0 }, &[]);
    guest.send(&EventCreate { event: 2, flags: 0 }, &[]);
    let (status, data) = guest.call(MemAllocAsync { reply: 0, stream: 1, bytes: 32 << 20 }, &[]);
    assert_eq!(status, 0);
    let a = u64::from_le_bytes(data.try_into().unwrap());
    guest.send(&EventRecord { event: 1, stream: 1, mark: Mark::new(10, 1) }, &[]);
    let fill = Fill { stream: 1, value: 7, destination: a, width: 32 << 20, ..FILL };
    guest.send(&fill, &[]);
    guest.send(&EventRecord { event: 2, stream: 1, mark: Mark::new(11, 1) }, &[]);
    guest.send(&StreamWait { stream: 2, event: 2 }, &[]);
    guest.send(&Join { stream: JOIN_ALL, reserved: 0 }, &[]);
    guest.send(&MemFreeAsync { stream: 2, reserved: 0, address: a }, &[]);
    guest.wait_word(11, 1);
    assert!(guest.word_time(11) > guest.word_time(10));
    let session = bench.session(0).unwrap();
    assert_eq!((session.streams, session.events), (2, 2));
    guest.send(&StreamDestroy { stream: 1, reserved: 0 }, &[]);
    guest.send(&EventDestroy { event: 1, reserved: 0 }, &[]);
    guest.echo();
    until("the count", || {
        bench.session(0).is_some_and(|session| (session.streams, session.events) == (1, 1))
    });
    assert_eq!((guest.late(), bench.allocated()), (None, 0));
}
