//! Each limit of a session is exceeded. This returns CUDA's out-of-memory, has no effect on other sessions,
//! and leaves no charge behind.

use vgpu_device::{DeviceConfig, GpuConfig, Limits};
use vgpu_executor_soft::{Soft, SoftOptions};
use vgpu_host_testing::bench::{Bench, config, gpu};
use vgpu_host_testing::commands::{
    KERNELS, LAUNCH, allocate, copy_in, function, launch, log, node, params, read, read_u32, synchronize,
    try_function, try_load, window,
};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::body::graph::{GraphDefine, GraphDestroy, GraphLaunch};
use vgpu_wire::body::launch::{LAUNCH_COOPERATIVE, Launch};
use vgpu_wire::body::memory::{MemAlloc, MemCreate, MemFree, MemMap, MemRelease, MemReserve, MemUnmap};
use vgpu_wire::body::module::{ModuleOpen, ModuleUnload};
use vgpu_wire::body::session::WindowFree;
use vgpu_wire::body::stream::{
    EventCreate, EventDestroy, EventRecord, Signal, StreamCreate, StreamDestroy, StreamHold, StreamRelease,
    StreamWait,
};
use vgpu_wire::{Mark, Payload, Span, area};

const OUT_OF_MEMORY: u32 = 2;
const INVALID_HANDLE: u32 = 400;
/// Completion word of the waits in this module.
const WORD: u32 = 1000;

/// Returns a device whose sessions have these limits.
fn limited(limits: Limits) -> Bench {
    limited_with(limits, SoftOptions::default())
}

fn limited_with(limits: Limits, options: SoftOptions) -> Bench {
    let soft = Soft::with_options(&gpu(), options).expect("a soft executor");
    Bench::with(DeviceConfig { limits, ..config(soft) })
}

/// Returns the code and the message of the newest late error, once all messages have been read. Checks that
/// it is not sticky.
pub fn late(guest: &mut Guest) -> Option<(u32, u64)> {
    guest.echo();
    guest.late().map(|(code, flags, number)| {
        assert_eq!(flags, 0, "error {code} of message {number} is for good");
        (code, number)
    })
}

/// Sends a message that must be refused with `code`, as a late error.
fn refused<P: Payload>(guest: &mut Guest, code: u32, body: &P, tail: &[u8]) {
    let number = guest.send(body, tail);
    assert_eq!(late(guest), Some((code, number)), "{}", P::KIND.name());
}

pub fn charged(bench: &Bench) -> u64 {
    bench.bus.status().devices[0].charged_bytes
}

/// Checks that another session works as usual, and that both end with nothing charged.
fn others_go_on(bench: &Bench, guest: &Guest) {
    let mut other = bench.guest(1);
    other.send(&StreamCreate { stream: 1, flags: 1, priority: 0, reserved: 0 }, &[]);
    other.send(&EventCreate { event: 1, flags: 2 }, &[]);
    let address = allocate(&mut other, 4096);
    copy_in(&mut other, 1, address, &[7; 100]);
    assert_eq!(read(&mut other, address, 100), [7; 100]);
    assert_eq!(late(&mut other), None);
    other.detach();
    guest.detach();
    until("all that was charged is returned", || charged(bench) == 0);
    let status = bench.bus.status();
    assert_eq!(status.devices[0].allocated, 0);
}

pub fn stream(number: u32) -> StreamCreate {
    StreamCreate { stream: number, flags: 1, priority: 0, reserved: 0 }
}

/// Returns a mark that the host stores although the message is refused.
fn mark(value: u64) -> Mark {
    Mark::new(WORD, value)
}

#[test]
fn streams_beyond_the_limit_are_refused_and_their_messages_too() {
    let bench = limited(Limits { streams: 2, ..Limits::default() });
    let mut guest = bench.guest(0);
    guest.send(&stream(1), &[]);
    guest.send(&stream(2), &[]);
    assert_eq!(late(&mut guest), None);
    refused(&mut guest, OUT_OF_MEMORY, &stream(3), &[]);
    // A program that has not checked for errors waits for a mark of a refused message: it is stored.
    refused(&mut guest, INVALID_HANDLE, &Signal { stream: 3, reserved: 0, mark: mark(1) }, &[]);
    guest.wait_word(WORD, 1);
    refused(&mut guest, INVALID_HANDLE, &StreamDestroy { stream: 3, reserved: 0 }, &[]);
    // Destroying an object makes room for another, also under the number that was refused.
    guest.send(&StreamDestroy { stream: 1, reserved: 0 }, &[]);
    let before = late(&mut guest);
    guest.send(&stream(3), &[]);
    guest.send(&Signal { stream: 3, reserved: 0, mark: mark(2) }, &[]);
    guest.wait_word(WORD, 2);
    assert_eq!(late(&mut guest), before);
    others_go_on(&bench, &guest);
}

#[test]
fn events_beyond_the_limit_are_refused_and_their_messages_too() {
    let bench = limited(Limits { events: 1, ..Limits::default() });
    let mut guest = bench.guest(0);
    guest.send(&EventCreate { event: 1, flags: 2 }, &[]);
    assert_eq!(late(&mut guest), None);
    refused(&mut guest, OUT_OF_MEMORY, &EventCreate { event: 2, flags: 2 }, &[]);
    refused(&mut guest, INVALID_HANDLE, &EventRecord { event: 2, stream: 0, mark: mark(1) }, &[]);
    guest.wait_word(WORD, 1);
    refused(&mut guest, INVALID_HANDLE, &StreamWait { stream: 0, event: 2 }, &[]);
    guest.send(&EventDestroy { event: 1, reserved: 0 }, &[]);
    let before = late(&mut guest);
    guest.send(&EventCreate { event: 3, flags: 2 }, &[]);
    assert_eq!(late(&mut guest), before);
    others_go_on(&bench, &guest);
}

#[test]
fn holds_beyond_the_limit_are_refused_and_do_not_hold() {
    let bench = limited(Limits { holds: 1, ..Limits::default() });
    let mut guest = bench.guest(0);
    guest.send(&stream(1), &[]);
    guest.send(&StreamHold { stream: 1, hold: 1, mark: mark(1) }, &[]);
    guest.wait_word(WORD, 1);
    refused(&mut guest, OUT_OF_MEMORY, &StreamHold { stream: 1, hold: 2, mark: mark(2) }, &[]);
    guest.wait_word(WORD, 2);
    refused(&mut guest, INVALID_HANDLE, &StreamRelease { hold: 2, reserved: 0 }, &[]);
    guest.send(&StreamRelease { hold: 1, reserved: 0 }, &[]);
    synchronize(&mut guest);
    others_go_on(&bench, &guest);
}

/// Returns a `GraphDefine` of `count` nodes that do nothing, with its payload.
fn define(graph: u32, count: u32) -> (GraphDefine, Vec<u8>) {
    let nothing = Signal { stream: 0, reserved: 0, mark: Mark::NONE };
    let records = node(&[], &nothing, &[]).repeat(count as usize);
    let span = Span::inline(records.len() as u64);
    (GraphDefine { graph, nodes: count, flags: 0, records: span }, records)
}

#[test]
fn graphs_and_their_nodes_have_limits() {
    let bench = limited(Limits { graphs: 2, graph_nodes: 5, ..Limits::default() });
    let mut guest = bench.guest(0);
    let (body, records) = define(1, 3);
    guest.send(&body, &records);
    let (body, records) = define(2, 3);
    refused(&mut guest, OUT_OF_MEMORY, &body, &records);
    refused(&mut guest, INVALID_HANDLE, &GraphLaunch { graph: 2, stream: 0 }, &[]);
    let (body, records) = define(2, 2);
    guest.send(&body, &records);
    let (body, records) = define(3, 0);
    refused(&mut guest, OUT_OF_MEMORY, &body, &records);
    guest.send(&GraphDestroy { graph: 1, reserved: 0 }, &[]);
    let before = late(&mut guest);
    let (body, records) = define(3, 3);
    guest.send(&body, &records);
    guest.send(&GraphLaunch { graph: 3, stream: 0 }, &[]);
    assert_eq!(late(&mut guest), before);
    others_go_on(&bench, &guest);
}

#[test]
fn the_copy_of_a_graphs_records_is_charged() {
    let bench = limited(Limits { host_bytes: 1 << 20, ..Limits::default() });
    let mut guest = bench.guest(0);
    let offset = window(&mut guest, 2 << 20);
    let records = Span::bar(offset, (1 << 20) + 8);
    refused(&mut guest, OUT_OF_MEMORY, &GraphDefine { graph: 1, nodes: 1, flags: 0, records }, &[]);
    guest.send(&WindowFree { offset }, &[]);
    others_go_on(&bench, &guest);
}

#[test]
fn device_memory_has_a_limit_of_bytes_and_of_allocations() {
    let bench = limited(Limits { device_bytes: 1 << 20, allocations: 4, ..Limits::default() });
    let mut guest = bench.guest(0);
    let ask = |guest: &mut Guest, bytes| guest.call(MemAlloc { reply: 0, flags: 0, bytes }, &[]);
    assert_eq!(ask(&mut guest, (1 << 20) + 1).0, OUT_OF_MEMORY);
    let first = allocate(&mut guest, 4096);
    for _ in 1..4 {
        allocate(&mut guest, 4096);
    }
    assert_eq!(ask(&mut guest, 4096).0, OUT_OF_MEMORY);
    guest.send(&MemFree { address: first }, &[]);
    allocate(&mut guest, 4096);
    assert_eq!(late(&mut guest), None);
    others_go_on(&bench, &guest);
}

/// Two sessions make more allocations of 4 KiB than Linux allows mappings of a process, and a third session
/// still works.
#[test]
fn mappings_of_the_process_are_not_used_up_by_allocations() {
    let gpu = GpuConfig { memory_bytes: 1 << 30, ..gpu() };
    let bench = Bench::with(config(Soft::new(&gpu).expect("a soft executor")));
    let mappings = || std::fs::read_to_string("/proc/self/maps").expect("the mappings").lines().count();
    let before = mappings();
    let mut guests = [bench.guest(0), bench.guest(2)];
    for guest in &mut guests {
        for _ in 0..33_000 {
            allocate(guest, 4096);
        }
    }
    // Other tests in this process have mappings, too.
    assert!(mappings() < before + 2000, "{} after {before}", mappings());
    let [one, two] = guests;
    two.detach();
    others_go_on(&bench, &one);
}

#[test]
fn virtual_memory_has_limits_of_handles_reservations_and_mappings() {
    const GRANULE: u64 = 2 << 20;
    let limits = Limits { physical: 2, reservations: 1, mappings: 2, ..Limits::default() };
    let bench = limited(limits);
    let mut guest = bench.guest(0);
    let reserve = MemReserve { reply: 0, reserved: 0, bytes: 8 * GRANULE, alignment: 0, hint: 0 };
    let (status, data) = guest.call(reserve, &[]);
    assert_eq!(status, 0);
    let address = u64::from_le_bytes(data.try_into().expect("an address"));
    assert_eq!(guest.call(reserve, &[]).0, OUT_OF_MEMORY);
    let create = |handle| MemCreate { reply: 0, handle, bytes: GRANULE };
    assert_eq!(guest.call(create(1), &[]).0, 0);
    assert_eq!(guest.call(create(2), &[]).0, 0);
    assert_eq!(guest.call(create(3), &[]).0, OUT_OF_MEMORY);
    let map = |at: u64| MemMap {
        handle: 1,
        reserved: 0,
        address: address + at * GRANULE,
        bytes: GRANULE,
        offset: 0,
    };
    guest.send(&map(0), &[]);
    guest.send(&map(2), &[]);
    assert_eq!(late(&mut guest), None);
    refused(&mut guest, OUT_OF_MEMORY, &map(4), &[]);
    guest.send(&MemRelease { handle: 2, reserved: 0 }, &[]);
    assert_eq!(guest.call(create(3), &[]).0, 0);
    guest.send(&MemUnmap { address, bytes: GRANULE }, &[]);
    let before = late(&mut guest);
    guest.send(&map(4), &[]);
    assert_eq!(late(&mut guest), before);
    others_go_on(&bench, &guest);
}

/// Two kernels with local memory: one takes 64 KiB of each thread, the other waits for its whole grid and
/// takes little.
pub const LOCAL: &str = ".version 8.4
.target sm_61
.address_size 64
.visible .entry local(.param .u64 p) {
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    .local .align 8 .b8 depot[65536];
    mov.u64 %rd1, depot;
    mov.u32 %r1, %tid.x;
    st.local.u32 [%rd1+65528], %r1;
    ld.local.u32 %r2, [%rd1+65528];
    ld.param.u64 %rd2, [p];
    st.global.u32 [%rd2], %r2;
    ret;
}
.visible .entry small(.param .u64 p) {
    .reg .b64 %rd<4>;
    ld.param.u64 %rd2, [p];
    st.global.u32 [%rd2], 7;
    ret;
}
";

/// Returns a guest with the kernels above as functions 1 and 2, and memory.
fn with_local(bench: &Bench) -> (Guest, u64) {
    let mut guest = bench.guest(0);
    try_load(&mut guest, 1, LOCAL).expect("the module");
    function(&mut guest, 1, "local");
    function(&mut guest, 2, "small");
    let address = allocate(&mut guest, 4096);
    (guest, address)
}

/// The local memory of a launch is charged to its session, as host memory. A launch that exceeds the limit is
/// refused, and one that fits runs.
#[test]
fn local_memory_of_a_kernel_is_charged_for_its_launch() {
    let bench = limited(Limits { host_bytes: 16 << 20, ..Limits::default() });
    let (mut guest, address) = with_local(&bench);
    // The first launch of a size takes a row of the session's profile, which stays.
    launch(&mut guest, Launch { function: 1, ..LAUNCH }, &address.to_le_bytes());
    assert!(read_u32(&mut guest, address) < 32);
    let before = charged(&bench);
    // 1024 threads of 64 KiB are 64 MiB; a warp of them has 2 MiB.
    let large = Launch { function: 1, block: [1024, 1, 1], ..LAUNCH };
    let number = launch(&mut guest, large, &address.to_le_bytes());
    assert_eq!(late(&mut guest), Some((OUT_OF_MEMORY, number)));
    launch(&mut guest, Launch { function: 1, ..LAUNCH }, &address.to_le_bytes());
    assert!(read_u32(&mut guest, address) < 32);
    assert_eq!(late(&mut guest), Some((OUT_OF_MEMORY, number)));
    assert_eq!(charged(&bench), before, "all of it is returned");
    others_go_on(&bench, &guest);
}

#[test]
fn blocks_of_a_cooperative_grid_are_charged_each() {
    let bench = limited(Limits { host_bytes: 4 << 20, ..Limits::default() });
    let (mut guest, address) = with_local(&bench);
    // Each block has 256 KiB of shared memory, and all are under way together.
    let grid = |blocks| Launch { function: 2, grid: [blocks, 1, 1], flags: LAUNCH_COOPERATIVE, ..LAUNCH };
    let number = launch(&mut guest, grid(20), &address.to_le_bytes());
    assert_eq!(late(&mut guest), Some((OUT_OF_MEMORY, number)));
    launch(&mut guest, grid(4), &address.to_le_bytes());
    assert_eq!(read_u32(&mut guest, address), 7);
    assert_eq!(late(&mut guest), Some((OUT_OF_MEMORY, number)));
    others_go_on(&bench, &guest);
}

#[test]
fn modules_and_functions_have_limits_and_images_are_charged() {
    let bench = limited(Limits { modules: 2, functions: 1, host_bytes: 1 << 20, ..Limits::default() });
    let mut guest = bench.guest(0);
    assert_eq!(try_load(&mut guest, 1, LOCAL), Ok(false));
    assert_eq!(try_load(&mut guest, 2, LOCAL), Ok(true), "it is known, and charged all the same");
    assert!(charged(&bench) >= 2 * LOCAL.len() as u64);
    assert_eq!(try_load(&mut guest, 3, LOCAL), Err(OUT_OF_MEMORY));
    function(&mut guest, 1, "local");
    assert_eq!(try_function(&mut guest, 1, 2, "small"), Err(OUT_OF_MEMORY));
    guest.send(&ModuleUnload { module: 1, reserved: 0 }, &[]);
    assert_eq!(charged(bench_after(&mut guest, &bench)), LOCAL.len() as u64);
    try_function(&mut guest, 2, 2, "small").expect("the other went with its module");
    // An image that is not cached is charged the size that the message states.
    let long = ModuleOpen { reply: 0, module: 4, image: 1, reserved: 0, bytes: 2 << 20, digest: [7; 32] };
    assert_eq!(guest.call(long, &[]).0, OUT_OF_MEMORY);
    assert_eq!(guest.call(ModuleOpen { bytes: u64::MAX, ..long }, &[]).0, OUT_OF_MEMORY);
    assert_eq!(late(&mut guest), None);
    assert!(bench.bus.status().devices[0].kept_image_bytes >= LOCAL.len() as u64, "the device keeps it");
    others_go_on(&bench, &guest);
    assert!(bench.bus.status().devices[0].kept_image_bytes >= LOCAL.len() as u64, "charged to nobody");
}

/// Returns the bench, once all that the guest has sent has been read.
fn bench_after<'a>(guest: &mut Guest, bench: &'a Bench) -> &'a Bench {
    guest.echo();
    bench
}

#[test]
fn nodes_of_graphs_are_charged() {
    let bench = limited(Limits { host_bytes: 16 << 10, ..Limits::default() });
    let mut guest = bench.guest(0);
    let (body, records) = define(1, 2);
    guest.send(&body, &records);
    assert!(charged(bench_after(&mut guest, &bench)) > 0);
    let (body, records) = define(2, 200);
    refused(&mut guest, OUT_OF_MEMORY, &body, &records);
    refused(&mut guest, INVALID_HANDLE, &GraphLaunch { graph: 2, stream: 0 }, &[]);
    guest.send(&GraphLaunch { graph: 1, stream: 0 }, &[]);
    synchronize(&mut guest);
    others_go_on(&bench, &guest);
}

/// The tasks that wait behind a held stream are limited. Later work would be wrong without those that are
/// left out, so the session is lost; all marks are stored.
#[test]
fn queued_work_beyond_the_limit_costs_the_session() {
    for limits in [
        Limits { queued: 20, ..Limits::default() },
        // Each queued task is charged 1 KiB and its tail.
        Limits { host_bytes: 30 << 10, ..Limits::default() },
    ] {
        let bench = limited(limits);
        let mut guest = bench.guest(0);
        guest.send(&stream(1), &[]);
        let address = allocate(&mut guest, 4096);
        guest.send(&StreamHold { stream: 1, hold: 1, mark: mark(1) }, &[]);
        guest.wait_word(WORD, 1);
        for _ in 0..100 {
            copy_in(&mut guest, 1, address, &[1; 64]);
        }
        // The mark is stored although the stream is held, because the session is lost.
        guest.send(&Signal { stream: 1, reserved: 0, mark: mark(2) }, &[]);
        guest.wait_word(WORD, 2);
        let (code, flags, _) = guest.late().expect("an error");
        assert_eq!((code, flags), (OUT_OF_MEMORY, area::ERROR_STICKY));
        assert_eq!(guest.call(MemAlloc { reply: 0, flags: 0, bytes: 1 }, &[]).0, OUT_OF_MEMORY);
        assert!(charged(&bench) <= 64 << 10, "what waits is bounded");
        others_go_on(&bench, &guest);
    }
}

/// A kernel that prints again and again writes a limited number of lines to the log, and one that tells that
/// others are dropped.
#[test]
fn lines_that_kernels_print_have_a_limit() {
    log();
    let bench = limited(Limits { log_lines: 5, log_lines_per_minute: 0, ..Limits::default() });
    let mut guest = bench.guest(0);
    try_load(&mut guest, 1, &KERNELS.replace("entry say", "entry say_often")).expect("the module");
    function(&mut guest, 1, "say_often");
    for number in 0..50 {
        launch(&mut guest, Launch { function: 1, block: [1, 1, 1], ..LAUNCH }, &params(0, &[number]));
    }
    synchronize(&mut guest);
    let session = format!("session={}", bench.session(0).expect("the session").session);
    let log = log();
    let said = |what: &str| log.lines().filter(|line| line.contains(what)).count();
    assert_eq!(said("say_often"), 5, "{log}");
    let dropped = log.lines().filter(|line| line.contains(&session) && line.contains("the rest is dropped"));
    // Other devices of this process have sessions of the same number.
    assert!(dropped.count() >= 1, "{log}");
    others_go_on(&bench, &guest);
}
