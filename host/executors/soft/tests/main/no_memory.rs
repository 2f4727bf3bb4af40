//! The host has no memory for something that a session's limits permit. The session gets CUDA's
//! out-of-memory, the process survives, and another session continues.
//!
//! The device is in a process of its own whose address space is limited to a little more than it has already.

use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vgpu_device::{DeviceConfig, GpuConfig};
use vgpu_executor_soft::Soft;
use vgpu_host_testing::bench::{Bench, config, gpu};
use vgpu_host_testing::commands::{
    LAUNCH, allocate, copy_in, function, launch, params, read, read_u32, try_function, try_load, window,
};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::body::graph::GraphDefine;
use vgpu_wire::body::launch::{LAUNCH_COOPERATIVE, Launch};
use vgpu_wire::body::memory::MemAlloc;
use vgpu_wire::body::module::ModuleOpen;
use vgpu_wire::body::stream::StreamHold;
use vgpu_wire::{Mark, Span, area};

use crate::limits::{LOCAL, charged, late, stream};

const OUT_OF_MEMORY: u32 = 2;
/// Completion word of the waits in this module.
const WORD: u32 = 1001;
/// Number of bytes by which the process may grow once the limit is set: room for threads and messages, but
/// not for what the tests request.
const ROOM: u64 = 24 << 20;
/// Number of bytes of host memory that the tests request.
const LARGE: u64 = 40 << 20;
/// Number of bytes of device memory that the tests request: more than an arena makes writable at a time.
const DEVICE_MEMORY: u64 = 256 << 20;
/// Environment variable of the child process whose memory is limited.
const CHILD: &str = "VGPU_TEST_NO_MEMORY";

#[test]
fn the_device_goes_on_when_its_host_has_no_memory() {
    if std::env::var_os(CHILD).is_some() {
        return with_little_memory();
    }
    let mut command = Command::new(std::env::current_exe().expect("the test's own program"));
    command.args(["no_memory::the_device_goes_on_when_its_host_has_no_memory", "--exact", "--nocapture"]);
    // The allocator reserves address space for the arenas of threads, which would delay the end of memory.
    command.env(CHILD, "1").env("MALLOC_ARENA_MAX", "1");
    let status = command.status().expect("the process with little memory");
    assert!(status.success(), "{status}");
}

/// Limits the address space of this process (`RLIMIT_AS`), or removes the limit.
fn limit(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: bytes.or(maximum), maximum }).expect("the limit");
}

/// Returns the size of this process's address space in bytes.
fn size() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("the process's size");
    let pages: u64 = text.split(' ').next().and_then(|pages| pages.parse().ok()).expect("pages");
    pages * 4096
}

/// Limits the private writable memory of this process (`RLIMIT_DATA`), or removes the limit. Device memory is
/// reserved address space, which becomes writable when it is allocated.
fn limit_data(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Data).maximum;
    setrlimit(Resource::Data, Rlimit { current: bytes.or(maximum), maximum }).expect("the limit");
}

/// Returns the size of this process's private writable memory in bytes.
fn data_size() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("the process's status");
    let line = text.lines().find_map(|line| line.strip_prefix("VmData:")).expect("VmData");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Another session, which must not be affected.
struct Other {
    guest: Guest,
    address: u64,
    rounds: u8,
}

impl Other {
    fn new(bench: &Bench) -> Self {
        let mut guest = bench.guest(1);
        guest.send(&stream(1), &[]);
        try_load(&mut guest, 1, LOCAL).expect("the module");
        function(&mut guest, 2, "small");
        let address = allocate(&mut guest, 4096);
        Self { guest, address, rounds: 0 }
    }

    fn goes_on(&mut self, after: &str) {
        self.rounds += 1;
        let Self { guest, address, rounds } = self;
        copy_in(guest, 1, *address, &[*rounds; 900]);
        assert_eq!(read(guest, *address, 900), [*rounds; 900], "after {after}");
        launch(guest, Launch { function: 2, ..LAUNCH }, &params(*address, &[]));
        assert_eq!(read_u32(guest, *address), 7, "after {after}");
        assert_eq!(late(guest), None, "after {after}");
    }
}

/// Returns a kernel of this number of instructions.
fn long_kernel(instructions: usize) -> String {
    let head = ".version 8.4\n.target sm_61\n.address_size 64\n.visible .entry long(.param .u64 p) {\n.reg .b32 %r<4>;\n";
    head.to_owned() + &"add.u32 %r1, %r1, %r2;\n".repeat(instructions) + "ret;\n}\n"
}

fn with_little_memory() {
    let gpu = GpuConfig { memory_bytes: 1 << 30, ..gpu() };
    let soft = Soft::new(&gpu).expect("a soft executor");
    let bench = Bench::with(DeviceConfig { window_bytes: 128 << 20, ..config(soft) });
    let mut guest = bench.guest(0);
    let mut other = Other::new(&bench);
    try_load(&mut guest, 1, LOCAL).expect("the module");
    function(&mut guest, 1, "local");
    let address = allocate(&mut guest, 4096);
    let records = Span::bar(window(&mut guest, LARGE), LARGE);
    guest.send(&stream(1), &[]);
    // Everything that is allocated only once has been allocated.
    let local = Launch { function: 1, ..LAUNCH };
    launch(&mut guest, local, &address.to_le_bytes());
    read_u32(&mut guest, address);
    let kernel = long_kernel(150_000);
    other.goes_on("the first time");
    limit_data(Some(data_size() + ROOM));
    let refused = guest.call(MemAlloc { reply: 0, flags: 0, bytes: DEVICE_MEMORY }, &[]).0;
    limit_data(None);
    assert_eq!(refused, OUT_OF_MEMORY, "device memory");
    other.goes_on("device memory");
    // The host has memory again, and the refused requests are not charged to the session.
    allocate(&mut guest, DEVICE_MEMORY);

    limit(Some(size() + ROOM));

    let digest = [7; 32];
    let open = ModuleOpen { reply: 0, module: 9, image: 1, reserved: 0, bytes: LARGE, digest };
    assert_eq!(guest.call(open, &[]).0, OUT_OF_MEMORY, "an image");
    other.goes_on("an image");

    let mut newest = None;
    let mut refused = |guest: &mut Guest, number: u64, what: &str| {
        let found = late(guest);
        assert_ne!(found, newest, "{what} is refused");
        assert_eq!(found, Some((OUT_OF_MEMORY, number)), "{what}");
        newest = found;
    };
    let number = guest.send(&GraphDefine { graph: 1, nodes: 1, flags: 0, records }, &[]);
    refused(&mut guest, number, "a graph");
    other.goes_on("a graph");

    // Each thread takes 64 KiB.
    let number = launch(&mut guest, Launch { block: [1024, 1, 1], ..local }, &address.to_le_bytes());
    read_u32(&mut guest, address);
    refused(&mut guest, number, "local memory");
    other.goes_on("local memory");

    let together = Launch { grid: [4, 1, 1], block: [256, 1, 1], flags: LAUNCH_COOPERATIVE, ..local };
    let number = launch(&mut guest, together, &address.to_le_bytes());
    read_u32(&mut guest, address);
    refused(&mut guest, number, "a cooperative grid");
    other.goes_on("a cooperative grid");

    // The host has memory for the text, but not for the program.
    try_load(&mut guest, 2, &kernel).expect("its text");
    assert_eq!(try_function(&mut guest, 2, 5, "long"), Err(OUT_OF_MEMORY), "a long kernel");
    other.goes_on("a long kernel");

    // The session keeps its objects.
    launch(&mut guest, local, &address.to_le_bytes());
    assert!(read_u32(&mut guest, address) < 32);
    assert_eq!(late(&mut guest), newest);

    // Queued tasks: later work would be wrong without those that are left out, so the session is lost.
    guest.send(&StreamHold { stream: 1, hold: 1, mark: Mark::new(WORD, 1) }, &[]);
    guest.wait_word(WORD, 1);
    let mut sent = 0_u64;
    let lost = loop {
        for _ in 0..100 {
            copy_in(&mut guest, 1, address, &[1; 1000]);
        }
        sent += 100;
        guest.echo();
        match guest.late() {
            Some((code, flags, _)) if flags == area::ERROR_STICKY => break code,
            _ => assert!(sent * 1000 < 2 * ROOM, "{sent} pieces of work wait"),
        }
    };
    assert_eq!(lost, OUT_OF_MEMORY, "queued work");
    // Queued tasks are kept until their session ends. Then the other session can have the memory.
    guest.detach();
    until("the session has ended", || bench.session(0).is_none());
    other.goes_on("queued work");

    limit(None);
    other.guest.detach();
    until("all that was charged is returned", || charged(&bench) == 0);
}
