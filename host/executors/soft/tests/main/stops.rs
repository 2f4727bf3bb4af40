//! Work of every kind stops when its session ends, and at the deadline if there is one.

use std::time::Duration;

use vgpu_executor_soft::{SoftOptions, TestHooks};
use vgpu_host_testing::bench::Bench;
use vgpu_host_testing::commands::{
    LAUNCH, allocate, bench_hooked, bench_with, function, launch, load, node, product, synchronize, try_load,
};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::area;
use vgpu_wire::body::copy::Fill;
use vgpu_wire::body::gemm::Gemm;
use vgpu_wire::body::graph::GraphLaunch;
use vgpu_wire::body::launch::Launch;

use crate::graphs::define;

/// The largest grid that CUDA permits, in blocks by axis.
const LARGEST: [u32; 3] = [0x7fff_ffff, 65_535, 65_535];

/// Returns a batch of as many products as a message can have.
fn products(p: u64) -> Gemm {
    Gemm { batch: u32::MAX, alpha: [0; 16], ..product(1, [p; 3]) }
}

/// Starts work without an end, or far from it, and returns the number of its first message.
type Work = fn(&mut Guest) -> u64;

fn empty_kernel(guest: &mut Guest) -> u64 {
    let text = ".version 8.0\n.target sm_61\n.address_size 64\n.entry none()\n{\nret;\n}\n";
    try_load(guest, 1, text).expect("a module");
    function(guest, 1, "none");
    launch(guest, Launch { function: 1, grid: LARGEST, block: [1, 1, 1], ..LAUNCH }, &[])
}

fn line_of_sleeps(guest: &mut Guest) -> u64 {
    let line = "nanosleep.u32 1000000;\n".repeat(2000);
    let text = format!(".version 8.0\n.target sm_61\n.address_size 64\n.entry line()\n{{\n{line}ret;\n}}\n");
    try_load(guest, 1, &text).expect("a module");
    function(guest, 1, "line");
    launch(guest, Launch { function: 1, grid: LARGEST, block: [1024, 1, 1], ..LAUNCH }, &[])
}

fn batch(guest: &mut Guest) -> u64 {
    let p = allocate(guest, 4);
    guest.send(&products(p), &[])
}

fn fills(guest: &mut Guest) -> u64 {
    let bytes = 16 << 20;
    let destination = allocate(guest, bytes);
    let fill = Fill {
        stream: 0,
        value: 1,
        element: 1,
        reserved: 0,
        destination,
        pitch: 2,
        width: 1,
        height: bytes / 2,
    };
    let first = guest.send(&fill, &[]);
    for _ in 0..256 {
        guest.send(&fill, &[]);
    }
    first
}

fn graph(guest: &mut Guest) -> u64 {
    load(guest, 1);
    function(guest, 1, "endless");
    let endless = Launch { function: 1, param_bytes: 8, ..LAUNCH };
    let records: Vec<Vec<u8>> = (0..20).map(|_| node(&[], &endless, &[0; 8])).collect();
    define(guest, &records);
    guest.send(&GraphLaunch { graph: 1, stream: 0 }, &[])
}

#[test]
fn work_without_an_end_ends_with_its_session() {
    let works: [(&str, Work); 5] = [
        ("an empty kernel in the largest grid", empty_kernel),
        ("a line of nanosleeps", line_of_sleeps),
        ("a product of 2^32-1 matrices", batch),
        ("fills", fills),
        ("a graph", graph),
    ];
    for (name, work) in works {
        for adversary in [None, Some(1)] {
            let bench: Bench = bench_hooked(TestHooks { adversary, ..TestHooks::default() });
            let mut guest = bench.guest(0);
            let number = work(&mut guest);
            until(name, || guest.done() >= number - 1);
            let busy = || bench.bus.status().devices[0].sessions[0].busy_us;
            let before = busy();
            until("the GPU time moves before the work ends", || busy() > before);
            guest.detach();
            assert_eq!(bench.allocated(), 0, "{name}");
        }
    }
}

#[test]
fn work_without_an_end_ends_at_the_deadline() {
    let works: [(&str, Work); 3] = [
        ("an empty kernel in the largest grid", empty_kernel),
        ("a line of nanosleeps", line_of_sleeps),
        ("a product of 2^32-1 matrices", batch),
    ];
    for (name, work) in works {
        let limit = Some(Duration::from_millis(50));
        let bench = bench_with(SoftOptions { kernel_timeout: limit, ..SoftOptions::default() });
        let mut guest = bench.guest(0);
        let number = work(&mut guest);
        synchronize(&mut guest);
        assert_eq!(guest.late(), Some((702, area::ERROR_STICKY, number)), "{name}");
    }
}
