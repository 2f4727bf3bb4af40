//! Device memory: allocation, frees under load, and memory that the guest manages itself.

use vgpu_host_testing::bench::MEMORY;
use vgpu_host_testing::commands::{allocate, read_u32, stream, synchronize, window};
use vgpu_host_testing::guest::Guest;
use vgpu_wire::body::copy::CopyIn;
use vgpu_wire::body::memory::{
    Address, MemAlloc, MemCreate, MemFree, MemInfo, MemInfoReply, MemMap, MemRelease, MemReserve,
    MemSetAccess, MemUnmap, MemUnreserve,
};
use vgpu_wire::body::session::{WindowAlloc, WindowAllocReply, WindowFree};
use vgpu_wire::{Mark, Span};
use zerocopy::FromBytes;

use crate::place::looped;

const GRANULE: u64 = 2 << 20;

fn free_bytes(guest: &mut Guest) -> u64 {
    let (_, data) = guest.call(MemInfo { reply: 0, reserved: 0 }, &[]);
    MemInfoReply::read_from_bytes(&data).expect("an answer").free
}

/// Requests `bytes` of window memory. Returns its offset in the window, or `None` if there is no room.
fn ask_window(guest: &mut Guest, bytes: u64) -> Option<u64> {
    let (status, data) = guest.call(WindowAlloc { reply: 0, reserved: 0, bytes }, &[]);
    assert!(status == 0 || status == 2, "{status}");
    (status == 0).then(|| WindowAllocReply::read_from_bytes(&data).expect("an offset").offset)
}

#[test]
fn allocations_are_counted_and_come_back() {
    looped("memory::allocations_are_counted_and_come_back", |looped| {
        let mut guest = looped.bench.guest(0);
        let sizes = [1, 511, 512, 4096, 100_000, 1 << 19, (1 << 19) + 1, 3 << 20, GRANULE];
        let held = sizes.map(|bytes| allocate(&mut guest, bytes));
        assert!(held.iter().all(|address| address % 512 == 0), "{held:x?}");
        let gauge = looped.bench.session(0).unwrap();
        assert_eq!((gauge.allocations, gauge.allocated), (9, looped.bench.allocated()));
        for address in held {
            guest.send(&MemFree { address }, &[]);
        }
        synchronize(&mut guest);
        // One block for small allocations is kept.
        assert_eq!(free_bytes(&mut guest), MEMORY - GRANULE);
        assert_eq!(guest.call(MemAlloc { reply: 0, flags: 0, bytes: MEMORY }, &[]).0, 2);
        assert_eq!(guest.call(MemAlloc { reply: 0, flags: 0, bytes: u64::MAX }, &[]).0, 2);
        assert_eq!(guest.call(MemAlloc { reply: 0, flags: 0, bytes: 0 }, &[]).0, 1);
        assert_eq!(guest.late(), None);
        let number = guest.send(&MemFree { address: 0x1234 }, &[]);
        guest.echo();
        assert_eq!(guest.late(), Some((1, 0, number)));
    });
}

/// An allocation that needs memory which was freed before waits until that is unmapped.
#[test]
fn freed_memory_is_there_for_the_next_allocation() {
    looped("memory::freed_memory_is_there_for_the_next_allocation", |looped| {
        let mut guest = looped.bench.guest(0);
        for round in 0..100 {
            let bytes = MEMORY - 2 * GRANULE;
            let (status, data) = guest.call(MemAlloc { reply: 0, flags: 0, bytes }, &[]);
            assert_eq!(status, 0, "in round {round}");
            let address = Address::read_from_bytes(&data).expect("an address").address;
            guest.send(&MemFree { address }, &[]);
        }
        assert_eq!(guest.late(), None);
    });
}

#[test]
fn window_memory_is_freed_when_earlier_work_is_complete() {
    looped("memory::window_memory_is_freed_when_earlier_work_is_complete", |looped| {
        let mut guest = looped.bench.guest(0);
        let result = allocate(&mut guest, 4);
        stream(&mut guest, 1, 1);
        // If no window memory is free, the guest waits for its earlier work.
        for round in 0..12_u8 {
            let offset = ask_window(&mut guest, 1 << 20).unwrap_or_else(|| {
                synchronize(&mut guest);
                window(&mut guest, 1 << 20)
            });
            guest.function.put(offset, &[round; 64]);
            let source = Span::bar(offset, 4);
            let copy = CopyIn { stream: 1, reserved: 0, destination: result, source, read: Mark::NONE };
            guest.send(&copy, &[]);
            guest.send(&WindowFree { offset }, &[]);
        }
        assert_eq!(read_u32(&mut guest, result), 0x0b0b_0b0b);
        assert_eq!(guest.late(), None);
    });
}

#[test]
fn a_guest_manages_memory_itself() {
    looped("memory::a_guest_manages_memory_itself", |looped| {
        let mut guest = looped.bench.guest(0);
        let reserve = |hint| MemReserve { reply: 0, reserved: 0, bytes: 4 * GRANULE, alignment: 0, hint };
        let (status, data) = guest.call(reserve(0), &[]);
        assert_eq!(status, 0);
        let p = Address::read_from_bytes(&data).unwrap().address;
        let (_, data) = guest.call(reserve(p + (1 << 30)), &[]);
        assert_eq!(Address::read_from_bytes(&data).unwrap().address, p + (1 << 30), "where it is wished for");
        assert_eq!(guest.call(MemReserve { bytes: GRANULE / 2, ..reserve(0) }, &[]).0, 1);
        for handle in [1, 2] {
            assert_eq!(guest.call(MemCreate { reply: 0, handle, bytes: GRANULE }, &[]).0, 0);
        }
        let map = |handle, address| MemMap { handle, reserved: 0, address, bytes: GRANULE, offset: 0 };
        guest.send(&map(1, p), &[]);
        guest.send(&map(2, p + GRANULE), &[]);
        guest.send(&MemSetAccess { address: p, bytes: 2 * GRANULE, access: 3, reserved: 0 }, &[]);
        assert_eq!(guest.late(), None);
        for (body, why) in
            [(map(1, p), "taken"), (map(1, p - GRANULE), "not reserved"), (map(9, p), "no memory")]
        {
            let number = guest.send(&body, &[]);
            guest.echo();
            assert_eq!(guest.late(), Some((1, 0, number)), "{why}");
        }
        let number = guest.send(&MemUnmap { address: p, bytes: GRANULE / 2 }, &[]);
        guest.echo();
        assert_eq!(guest.late(), Some((1, 0, number)));
        guest.send(&MemUnmap { address: p, bytes: 2 * GRANULE }, &[]);
        guest.send(&MemUnreserve { address: p, bytes: 4 * GRANULE }, &[]);
        for handle in [1, 2] {
            guest.send(&MemRelease { handle, reserved: 0 }, &[]);
        }
        synchronize(&mut guest);
        assert_eq!(guest.late(), Some((1, 0, number)), "nothing new");
        assert_eq!(free_bytes(&mut guest), MEMORY);
    });
}
