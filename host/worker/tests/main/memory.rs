//! Tests of the device memory of all sessions, and of sessions that need none.

use std::time::Instant;

use rustix::process::Signal;
use vgpu_host_testing::bench::MEMORY;
use vgpu_host_testing::commands::{allocate, try_load};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::body::copy::CopyDevice;
use vgpu_wire::body::memory::{MEM_MANAGED, MemAlloc, MemFree, MemInfo, MemInfoReply};
use vgpu_wire::body::module::ModuleUnload;
use vgpu_wire::body::session::WindowAlloc;
use vgpu_wire::registers::{V2_FREE_MIB, usage};
use zerocopy::FromBytes;

use crate::bench::{WorkerBench, worker_config};
use crate::data::wait_until_done;

const OUT_OF_MEMORY: u32 = 2;
const NOT_SUPPORTED: u32 = 801;

fn info(guest: &mut Guest) -> (u64, u64) {
    let (status, data) = guest.call(MemInfo { reply: 0, reserved: 0 }, &[]);
    assert_eq!(status, 0);
    let reply = MemInfoReply::read_from_bytes(&data).expect("an answer");
    (reply.free, reply.total)
}

pub fn who_only_looks_has_no_worker() {
    let bench = WorkerBench::new("soft");
    // As many processes as Ollama starts to query the device.
    for round in 0..15 {
        let mut guest = bench.guest(round % 8);
        guest.echo();
        let window = WindowAlloc { reply: 0, reserved: 0, bytes: 0x1_0000 };
        assert_eq!(guest.call(window, &[]).0, 0);
        assert_eq!(info(&mut guest), (MEMORY, MEMORY));
        wait_until_done(&guest);
        assert_eq!(bench.session(round % 8).worker, None);
        guest.detach();
    }
    assert_eq!(bench.workers(), (0, 0));
    let mut guest = bench.guest(0);
    allocate(&mut guest, 64);
    assert_eq!(bench.workers(), (1, 1));
    guest.detach();
    assert_eq!(bench.workers(), (1, 0));
}

pub fn memory_is_the_devices_and_comes_back() {
    for kind in ["soft", "null"] {
        let bench = WorkerBench::new(kind);
        let (mut one, mut two) = (bench.guest(0), bench.guest(1));
        let half = allocate(&mut one, MEMORY / 2);
        assert_eq!(info(&mut two), (MEMORY / 2, MEMORY));
        let refused = |guest: &mut Guest, bytes| {
            let (status, why) = guest.call(MemAlloc { reply: 0, flags: 0, bytes }, &[]);
            assert_eq!(status, OUT_OF_MEMORY, "{kind}");
            assert!(
                String::from_utf8_lossy(&why).contains("are free"),
                "{kind}: {}",
                String::from_utf8_lossy(&why)
            );
        };
        refused(&mut two, MEMORY / 2 + 512);
        let most = allocate(&mut two, MEMORY / 2);
        refused(&mut one, 512);
        refused(&mut one, u64::MAX);
        assert_eq!((info(&mut one).0, bench.status().allocated), (0, MEMORY), "{kind}");
        // Freed by a message that nobody waits for, and requested by the next.
        one.send(&MemFree { address: half }, &[]);
        let half = allocate(&mut one, MEMORY / 2);
        one.send(&MemFree { address: half }, &[]);
        assert_eq!(info(&mut one).0, MEMORY / 2, "{kind}");
        until("the register says so", || one.function.read(V2_FREE_MIB) == (MEMORY >> 21) as u32);
        two.send(&MemFree { address: most }, &[]);
        until("all is free", || bench.status().allocated == 0);
        assert_eq!((one.late(), two.late()), (None, None), "{kind}");
    }
}

/// An allocation that a worker has not carried out yet counts with its full size in units, so that no part of
/// it is promised to another session.
pub fn allocations_under_way_count_in_whole_units() {
    let bench = WorkerBench::new("soft");
    let unit = worker_config("soft").memory_unit;
    assert!(unit > 1, "a byte takes a page");
    let (mut one, mut two) = (bench.guest(0), bench.guest(1));
    allocate(&mut one, MEMORY - 2 * unit);
    allocate(&mut two, unit);
    crate::death::signal(bench.worker(0), Signal::STOP);
    let number = one.send(&MemAlloc { reply: 1, flags: 0, bytes: 1 }, &[]);
    until("it is under way", || bench.session(0).messages == number);
    let (status, _) = two.call(MemAlloc { reply: 0, flags: 0, bytes: 1 }, &[]);
    assert_eq!(status, OUT_OF_MEMORY, "the last page is the other session's");
    crate::death::signal(bench.worker(0), Signal::CONT);
    assert_eq!(one.answer(1, number).0, 0);
    assert_eq!(info(&mut two), (0, MEMORY));
}

/// Managed memory is refused as unsupported, and reserves no memory in the meantime.
pub fn managed_memory_is_not_reserved() {
    let bench = WorkerBench::new("soft");
    let mut guest = bench.guest(0);
    let (status, _) = guest.call(MemAlloc { reply: 0, flags: MEM_MANAGED, bytes: 2 * MEMORY }, &[]);
    assert_eq!(status, NOT_SUPPORTED);
    assert_eq!(info(&mut guest), (MEMORY, MEMORY));
}

pub fn what_a_session_holds_is_shown_to_its_guest() {
    let bench = WorkerBench::new("soft");
    let (mut one, mut two) = (bench.guest(0), bench.guest(1));
    let shown = |guest: &Guest, channel| guest.function.read(usage::base(channel) + usage::USAGE_MEMORY_KIB);
    let most = allocate(&mut one, 3 << 20);
    until("it is shown", || (shown(&one, 0), shown(&one, 1)) == (3 << 10, 0));
    allocate(&mut two, 4096);
    until("the other's is, too", || (shown(&one, 0), shown(&one, 1)) == (3 << 10, 4));
    one.send(&MemFree { address: most }, &[]);
    until("it is gone", || shown(&one, 0) == 0);
    crate::death::kill(bench.worker(1));
    two.ended();
    two.detach();
    until("so is what the dead had", || shown(&one, 1) == 0);
}

pub fn what_a_worker_has_worked_is_shown() {
    let bench = WorkerBench::new("soft");
    let (mut one, mut two) = (bench.guest(0), bench.guest(1));
    let shown = |guest: &Guest, channel| {
        let read = |register| u64::from(guest.function.read(usage::base(channel) + register));
        let (high, low) = (read(usage::USAGE_BUSY_HI), read(usage::USAGE_BUSY_LO));
        high << 32 | low
    };
    let start = Instant::now();
    let (half, _) = (MEMORY / 2, allocate(&mut two, 4096));
    let memory = allocate(&mut one, half);
    until("it is shown", || {
        let body = CopyDevice {
            stream: 0,
            reserved: 0,
            destination: memory,
            source: memory + half / 2,
            bytes: half / 2,
        };
        one.send(&body, &[]);
        crate::data::wait_until_done(&one);
        shown(&one, 0) > 0
    });
    // Read in this order, because the value grows.
    let (register, report) = (shown(&one, 0), bench.session(0).busy_us);
    let passed = start.elapsed().as_micros() as u64;
    assert!(register <= report && report <= passed, "{register} {report} {passed}");
    assert_eq!((shown(&one, 1), bench.session(1).busy_us), (0, 0), "the other has done nothing");
}

/// Variables of modules are memory that no message requests: the worker asks for it.
pub fn variables_of_modules_are_the_devices_memory() {
    const TEXT: &str =
        ".version 8.0\n.target sm_61\n.address_size 64\n.global .align 8 .b8 table[16777216];\n";
    let bench = WorkerBench::new("soft");
    let (mut one, mut two) = (bench.guest(0), bench.guest(1));
    let most = allocate(&mut one, MEMORY - (17 << 20));
    assert_eq!(try_load(&mut two, 1, TEXT), Ok(false));
    assert_eq!((info(&mut one), bench.session(1).allocated), ((1 << 20, MEMORY), 16 << 20));
    assert!(
        try_load(&mut two, 2, TEXT) == Err(OUT_OF_MEMORY)
            && try_load(&mut one, 2, TEXT) == Err(OUT_OF_MEMORY)
    );
    assert_eq!(info(&mut two).0, 1 << 20);
    one.send(&MemFree { address: most }, &[]);
    assert_eq!(info(&mut one).0, MEMORY - (16 << 20));
    assert!(try_load(&mut one, 3, TEXT).is_ok());
    two.send(&ModuleUnload { module: 1, reserved: 0 }, &[]);
    until("the variables are gone", || bench.status().allocated == 16 << 20);
    crate::death::kill(bench.worker(0));
    one.ended();
    until("its memory is free", || bench.status().allocated == 0);
}

pub fn what_a_dead_worker_had_is_free() {
    let bench = WorkerBench::new("soft");
    let (mut one, mut two) = (bench.guest(0), bench.guest(1));
    allocate(&mut one, MEMORY);
    two.echo();
    crate::death::kill(bench.worker(0));
    one.ended();
    until("its memory is free", || bench.status().allocated == 0);
    allocate(&mut two, MEMORY);
}
