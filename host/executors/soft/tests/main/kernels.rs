//! Launches: what they compute, and how they fail.

use std::time::Duration;

use vgpu_device::{KernelProfile, Profile};
use vgpu_executor_soft::{Features, SoftOptions, TestHooks};
use vgpu_host_testing::bench::Bench;
use vgpu_host_testing::commands::{
    KERNELS, LAUNCH, allocate, bench_hooked, bench_with, copy_in, function, launch, load, params, product,
    read, read_u32, synchronize, try_function, try_load,
};
use vgpu_wire::area;
use vgpu_wire::body::gemm::Gemm;
use vgpu_wire::body::launch::{LAUNCH_COOPERATIVE, Launch};
use vgpu_wire::registers::channel;

/// The device counts a session's launches by kernel and size, and its other work by kind. The work of other
/// sessions is not included.
#[test]
fn work_is_counted_by_session() {
    let bench = bench_with(SoftOptions { features: Features::interpreted(), ..SoftOptions::default() });
    let (mut guest, mut other) = (bench.guest(0), bench.guest(1));
    for guest in [&mut guest, &mut other] {
        load(guest, 1);
        function(guest, 1, "scale");
        let p = allocate(guest, 4000);
        copy_in(guest, 0, p, &[0; 4000]);
        launch(guest, Launch { function: 1, block: [64, 1, 1], ..LAUNCH }, &params(p, &[1000, 3]));
        synchronize(guest);
    }
    let p = allocate(&mut guest, 4000);
    for blocks in [5, 8, 9] {
        let shape = Launch { function: 1, grid: [blocks, 1, 1], block: [64, 1, 1], ..LAUNCH };
        launch(&mut guest, shape, &params(p, &[1000, 3]));
    }
    synchronize(&mut guest);
    let profiles = bench.bus.devices()[0].device().expect("a device of version 2").profiles();
    let [first, second] = &profiles[..] else { panic!("{profiles:?}") };
    let rows = |profile: &Profile| {
        let row = |row: &KernelProfile| {
            assert_eq!((row.kernel.as_str(), row.threads, row.handed), ("scale", 64, 0));
            assert_eq!((row.warps, row.interpreted), (2 * row.blocks, row.launches));
            assert!(row.ns > 0);
            (row.most_blocks, row.launches, row.blocks)
        };
        let mut rows: Vec<_> = profile.kernels.iter().map(row).collect();
        rows.sort_unstable();
        rows
    };
    assert_eq!(rows(&first.profile), [(1, 1, 1), (8, 2, 13), (16, 1, 9)]);
    assert_eq!(rows(&second.profile), [(1, 1, 1)]);
    assert_eq!(first.profile.tasks["copy_in"].count, 1);
    assert!(first.profile.messages_ns >= first.profile.kernels.iter().map(|row| row.ns).sum());
}

#[test]
fn launches_that_cannot_be_are_refused_and_work_goes_on() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    load(&mut guest, 1);
    function(&mut guest, 1, "digit");
    function(&mut guest, 2, "small");
    let p = allocate(&mut guest, 4);
    let good = params(p, &[1]);
    let digit = Launch { function: 1, ..LAUNCH };
    for (body, bytes, code) in [
        (Launch { grid: [0, 1, 1], ..digit }, &good[..], 1),
        (Launch { grid: [1, 65536, 1], ..digit }, &good, 1),
        (Launch { block: [1025, 1, 1], ..digit }, &good, 1),
        (Launch { block: [32, 32, 2], ..digit }, &good, 1),
        (Launch { block: [1, 1, 65], ..digit }, &good, 1),
        (Launch { shared_bytes: (48 << 10) + 1, ..digit }, &good, 1),
        (digit, &good[..8], 1),
        (Launch { cluster: [2, 1, 1], grid: [2, 1, 1], ..digit }, &good, 912),
        (Launch { function: 2, block: [65, 1, 1], ..LAUNCH }, &good[..8], 701),
        (Launch { flags: LAUNCH_COOPERATIVE, grid: [1 << 20, 1, 1], ..digit }, &good, 720),
    ] {
        let number = launch(&mut guest, body, bytes);
        guest.echo();
        assert_eq!(guest.late(), Some((code, 0, number)), "{body:?}");
    }
    launch(&mut guest, Launch { cluster: [1; 3], ..digit }, &good);
    assert_eq!(read_u32(&mut guest, p), 1, "only this one ran");
}

#[test]
fn a_kernel_that_does_not_end_is_ended() {
    let bench =
        bench_with(SoftOptions { kernel_timeout: Some(Duration::from_millis(50)), ..SoftOptions::default() });
    let mut guest = bench.guest(0);
    load(&mut guest, 1);
    function(&mut guest, 1, "endless");
    let number = launch(&mut guest, Launch { function: 1, grid: [3, 1, 1], ..LAUNCH }, &params(0, &[]));
    synchronize(&mut guest);
    assert_eq!(guest.late(), Some((702, area::ERROR_STICKY, number)));
}

#[test]
fn a_session_that_ends_stops_its_kernels() {
    for adversary in [None, Some(1)] {
        let bench = bench_hooked(TestHooks { adversary, ..TestHooks::default() });
        let mut guest = bench.guest(0);
        load(&mut guest, 1);
        function(&mut guest, 1, "endless");
        let read = guest.number + 1;
        launch(&mut guest, Launch { function: 1, grid: [3, 1, 1], ..LAUNCH }, &params(0, &[]));
        vgpu_host_testing::guest::until("the launch is read", || guest.done() >= read - 1);
        // The detach returns once nothing of the session is left.
        guest.detach();
        assert_eq!(guest.register(channel::STATE), channel::STATE_FREE);
        assert_eq!(bench.allocated(), 0);
    }
}

#[test]
fn blocks_of_a_cooperative_grid_meet() {
    const BLOCKS: u32 = 40;
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    load(&mut guest, 1);
    function(&mut guest, 1, "meet");
    let bytes = 4 * (1 + u64::from(BLOCKS));
    let p = allocate(&mut guest, bytes);
    for round in 1..=3u32 {
        let shape = Launch { function: 1, flags: LAUNCH_COOPERATIVE, grid: [BLOCKS, 1, 1], ..LAUNCH };
        launch(&mut guest, shape, &params(p, &[BLOCKS]));
        let expected = (BLOCKS * round).to_le_bytes().repeat(1 + BLOCKS as usize);
        assert_eq!(read(&mut guest, p, bytes), expected, "the workspace is fresh in round {round}");
    }
    assert_eq!(guest.late(), None);
}

#[test]
fn products_are_the_streams_work() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    let p = allocate(&mut guest, 48);
    let floats = |numbers: &[f32]| -> Vec<u8> { numbers.iter().flat_map(|x| x.to_le_bytes()).collect() };
    copy_in(&mut guest, 0, p, &floats(&[1., 2., 3., 4., 10., 20., 30., 40.]));
    let gemm = product(2, [p, p + 16, p + 32]);
    guest.send(&gemm, &[]);
    assert_eq!(read(&mut guest, p + 32, 16), floats(&[70., 100., 150., 220.]));
    assert_eq!(guest.late(), None);
    let number = guest.send(&Gemm { matrix: [p, p + 16, p + 40], ..gemm }, &[]);
    synchronize(&mut guest);
    assert_eq!(guest.late(), Some((700, area::ERROR_STICKY, number)));
    let (kernel, reason, address) = guest.why(number).unwrap();
    assert!(kernel.is_empty() && reason.contains("are not the program's"), "{kernel}: {reason}");
    assert_eq!(address, Some(p + 40));
}

/// The guest learns which kernel failed, where, and at which address.
#[test]
fn a_launch_that_faults_is_explained_to_the_guest() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    load(&mut guest, 1);
    function(&mut guest, 1, "poke");
    let number = launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(0x1230, &[]));
    synchronize(&mut guest);
    assert_eq!(guest.late(), Some((700, area::ERROR_STICKY, number)));
    let (kernel, reason, address) = guest.why(number).unwrap();
    assert_eq!((&*kernel, address), ("poke", Some(0x1230)));
    assert!(reason.starts_with("illegal write at 0x1230: line ") && !reason.contains("poke"), "{reason}");
    assert_eq!(guest.why(number + 1), None);
}

#[test]
fn the_log_says_what_kernels_print_and_where_they_fail() {
    vgpu_host_testing::commands::log();
    let text = KERNELS.replace("entry say", "entry say_it").replace("entry poke", "entry poke_it");
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    try_load(&mut guest, 1, &text).unwrap();
    function(&mut guest, 1, "say_it");
    function(&mut guest, 2, "poke_it");
    assert_eq!(try_function(&mut guest, 1, 3, "unknown"), Err(218));
    launch(&mut guest, Launch { function: 1, block: [1, 1, 1], ..LAUNCH }, &params(0, &[42]));
    let number =
        launch(&mut guest, Launch { function: 2, block: [1, 2, 1], ..LAUNCH }, &params(0xdead_0000, &[]));
    synchronize(&mut guest);
    let log = vgpu_host_testing::commands::log();
    let says = |parts: &[&str]| log.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(says(&["INFO", "say_it", "hi 42"]), "{log}");
    let message = format!("number={number}");
    let at = text.lines().position(|line| line.contains("st.global.u32 [%d0], %r0;")).unwrap() + 1;
    let line = format!("line {at}");
    let place = ["block (0, 0, 0)", "thread (0, 0, 0)"];
    assert!(
        says(&["WARN", "code=700", "kernel poke_it", "0xdead0000", &message, &line, place[0], place[1]]),
        "{log}"
    );
    assert!(says(&["WARN", "code=218", "kernel=\"unknown\"", "foo.bar"]), "{log}");
}
