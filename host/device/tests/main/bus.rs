//! Tests of the bus: its directory, the register socket, the control socket.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vgpu_device::{BusStatus, DeviceConfig, SimBus, SimError};
use vgpu_executor_soft::Soft;
use vgpu_host_testing::bench::{Bench, CHANNELS, WINDOW, address, config, folder, gpu};
use vgpu_host_testing::guest::{Function, until};
use vgpu_wire::body::memory::MemFree;
use vgpu_wire::registers::{self as reg, channel};
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION, area};

use crate::memory::allocate;

fn ask(bus: &SimBus, line: &str) -> String {
    let mut stream = UnixStream::connect(bus.folder().join("control")).expect("the control socket");
    writeln!(stream, "{line}").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer
}

#[test]
fn the_folder_looks_like_sysfs() {
    let bench = Bench::soft();
    let dir = bench.folder().join("bus/pci/devices/0000:00:05.0");
    let text = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(text("vendor"), "0x10de\n");
    assert_eq!(text("device"), "0x2331\n");
    assert_eq!(text("class"), "0x030200\n");
    assert_eq!(text("subsystem_vendor"), "0x10de\n");
    assert_eq!(text("subsystem_device"), "0x16c1\n");
    assert_eq!(text("revision"), "0xa1\n");
    assert_eq!(text("enable"), "1\n");
    assert!(text("resource").starts_with("0x00000000fe"));
    assert!(fs::metadata(dir.join("resource0")).unwrap().file_type().is_socket());
    let (window, wc) =
        (fs::metadata(dir.join("resource2")).unwrap(), fs::metadata(dir.join("resource2_wc")).unwrap());
    assert_eq!((window.len(), window.ino()), (WINDOW, wc.ino()));
    assert!(window.blocks() * 512 < WINDOW / 2, "sparse");
    assert_eq!(window.mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(dir.parent().unwrap()).unwrap().count(), 1, "nothing half made is left");
}

/// Every register of the device has the same value in the page and over the socket at any time.
#[test]
fn the_page_says_what_the_socket_says() {
    let bench = Bench::soft();
    let path = bench.folder().join("bus/pci/devices/0000:00:05.0/resource0_ro");
    let function = Function::open(bench.folder(), address());
    let page = |offset: u32| {
        let bytes = fs::read(&path).unwrap();
        u32::from_le_bytes(bytes[offset as usize..offset as usize + 4].try_into().unwrap())
    };
    let agree = |when: &str| {
        for offset in (0..reg::V2_PAGE_BYTES).step_by(4) {
            assert_eq!(page(offset), function.read(offset), "{offset:#x} {when}");
        }
        (page(reg::V2_ATTACHED_LO), page(reg::V2_FREE_MIB))
    };
    let (attached, free) = agree("at first");
    assert_eq!(attached, 0);
    let mut guest = bench.guest(1);
    let memory = allocate(&mut guest, 3 << 20).unwrap();
    assert_eq!(agree("with a session"), (2, free - 3));
    guest.send(&MemFree { address: memory }, &[]);
    until("the memory is free", || page(reg::V2_FREE_MIB) == free);
    allocate(&mut guest, 2 << 20).unwrap();
    guest.detach();
    assert_eq!(agree("after the session"), (0, free));
    let lock = fs::File::open(&path).unwrap();
    assert!(lock.try_lock_shared().is_err(), "the device holds the lock");
}

#[test]
fn identity_registers_stand_where_both_generations_look() {
    let bench = Bench::soft();
    let function = Function::open(bench.folder(), address());
    assert_eq!(function.read(reg::PROTOCOL_VER), reg::PROTOCOL_V2);
    assert_eq!(function.read(reg::CAPABILITIES), reg::CAP_BASIC | reg::CAP_V2 | reg::CAP_USAGE);
    assert_eq!(function.read(reg::V2_WIRE_VERSION), WIRE_VERSION);
    assert_eq!(function.read(reg::V2_DIGEST_LO), TABLE_DIGEST as u32);
    assert_eq!(function.read(reg::V2_DIGEST_HI), (TABLE_DIGEST >> 32) as u32);
    assert_eq!(function.read(reg::V2_CHANNELS), CHANNELS);
    assert_eq!(function.read(reg::V2_AREA_STRIDE), area::AREA_BYTES as u32);
    assert_eq!(function.read(reg::V2_WAKE), reg::WAKE_FUTEX);
    assert_eq!(function.read(reg::V2_EXECUTOR), reg::EXECUTOR_READY);
    assert_eq!(function.read(reg::V2_WINDOW_MIB), (WINDOW >> 20) as u32);
    let generation = function.read(reg::V2_GENERATION);
    assert!(generation != 0 && generation != reg::ALL_ONES);
    assert_eq!(generation, bench.bus.devices()[0].device().unwrap().generation());
    // Unknown, read-only and unaligned registers, and those of channels that do not exist.
    for offset in
        [0, 0x18, 0x21, 0x80, 0x988, 0xffc, channel::base(CHANNELS) + channel::STATE, 0x1fff, u32::MAX]
    {
        function.write(offset, 0x5555_5555);
        assert_eq!(function.read(offset), 0, "{offset:#x}");
    }
    function.write(reg::V2_GENERATION, 1);
    assert_eq!(function.read(reg::V2_GENERATION), generation);
}

#[test]
fn a_packet_holds_accesses_in_their_order() {
    let bench = Bench::soft();
    let function = Function::open(bench.folder(), address());
    let at = |register| channel::base(0) + register;
    let packet: Vec<u8> =
        [[2, at(channel::PROCESS), 77], [1, at(channel::PROCESS), 0], [1, reg::PROTOCOL_VER, 0]]
            .as_flattened()
            .iter()
            .flat_map(|word: &u32| word.to_le_bytes())
            .collect();
    let answer: Vec<u8> =
        [0, 77, 0, 77, 0, reg::PROTOCOL_V2].iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    assert_eq!(function.packet(&packet).as_deref(), Some(&answer[..]));
    // Twenty-five accesses are more than a packet holds.
    assert_eq!(function.packet(&[1u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].repeat(25)), None);
}

#[test]
fn what_is_no_register_access_ends_the_connection_and_nothing_else() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    for packet in [&[1u8, 0, 0, 0][..], &[1; 13], &[0; 12], &[3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]] {
        let function = Function::open(bench.folder(), address());
        assert_eq!(function.packet(packet), None, "{packet:?}");
        assert_eq!(function.read(reg::PROTOCOL_VER), reg::ALL_ONES);
    }
    guest.echo();
    assert_eq!(guest.register(channel::STATE), channel::STATE_ATTACHED);
}

#[test]
fn a_folder_is_served_by_one_process_and_left_clean() {
    let dir = folder();
    // A path that is longer than a socket address.
    let deep = dir.path().join("x".repeat(100)).join("y".repeat(60));
    let serve = || SimBus::serve(&deep, vec![config(Soft::new(&gpu()).unwrap())]);
    let bus = serve().unwrap();
    assert!(matches!(serve(), Err(SimError::Served { .. })));
    let function = Function::open(&deep, address());
    let generation = function.read(reg::V2_GENERATION);
    drop(bus);
    assert_eq!(function.read(reg::V2_GENERATION), reg::ALL_ONES, "gone is what says so");
    assert_eq!(fs::read_dir(deep.join("bus/pci/devices")).unwrap().count(), 0);
    assert!(!deep.join("control").exists());
    let bus = serve().unwrap();
    let again = Function::open(bus.folder(), address()).read(reg::V2_GENERATION);
    assert_ne!(again, generation);
}

#[test]
fn several_devices_are_several_functions() {
    let dir = folder();
    let at = |address: &str| DeviceConfig {
        address: address.parse().unwrap(),
        ..config(Soft::new(&gpu()).unwrap())
    };
    assert!(matches!(SimBus::serve(dir.path(), vec![]), Err(SimError::Devices { .. })));
    assert!(matches!(
        SimBus::serve(dir.path(), vec![at("0000:00:06.0"), at("0000:00:06.0")]),
        Err(SimError::Devices { .. })
    ));
    let bus = SimBus::serve(dir.path(), vec![at("0000:00:06.0"), at("0000:00:05.0")]).unwrap();
    let status = bus.status();
    let addresses: Vec<&str> = status.devices.iter().map(|device| device.address.as_str()).collect();
    assert_eq!(addresses, ["0000:00:05.0", "0000:00:06.0"]);
    let one = Function::open(bus.folder(), "0000:00:05.0".parse().unwrap());
    let two = Function::open(bus.folder(), "0000:00:06.0".parse().unwrap());
    assert_ne!(one.read(reg::V2_GENERATION), two.read(reg::V2_GENERATION));
    one.put(0x40_0000, b"one's");
    assert_eq!(two.get(0x40_0000, 5), [0; 5]);
}

#[test]
fn devices_that_cannot_be_are_refused() {
    let dir = folder();
    let soft = || Arc::new(Soft::new(&gpu()).unwrap());
    for (channels, window_bytes) in [(0, WINDOW), (65, 64 << 20), (64, 16 << 20), (8, WINDOW + 4096)] {
        let config = DeviceConfig { channels, window_bytes, ..DeviceConfig::new(address(), soft()) };
        assert!(matches!(SimBus::serve(dir.path(), vec![config]), Err(SimError::Device { .. })));
        assert_eq!(fs::read_dir(dir.path().join("bus/pci/devices")).unwrap().count(), 0);
    }
}

#[test]
fn the_control_socket_says_what_is_allocated_and_takes_orders() {
    let bench = Bench::soft();
    let mut guest = bench.guest(3);
    let sleeps = guest.function.u32_at(guest.returns() + area::RETURN_HOST_SLEEPS);
    until("the host to sleep", || sleeps.load(Ordering::SeqCst) == 1);
    let mut status = bench.bus.status();
    // The host may nap meanwhile, which is counted.
    until("the same is said in both ways", || {
        let answer = ask(&bench.bus, r#"{"cmd":"status"}"#);
        status = serde_json::from_str::<BusStatus>(&answer).unwrap();
        status == bench.bus.status()
    });
    let device = &status.devices[0];
    assert_eq!((device.executor.as_str(), device.free_channels), ("soft", CHANNELS as usize - 1));
    let session = &device.sessions[0];
    assert_eq!(
        (session.channel, session.process, session.state.as_str()),
        (3, std::process::id(), "attached")
    );
    assert!(ask(&bench.bus, r#"{"cmd":"hold"}"#).contains("ok"));
    assert_eq!(bench.session(3).unwrap().state, "held");
    assert!(ask(&bench.bus, r#"{"cmd":"release"}"#).contains("ok"));
    guest.echo();
    for bad in ["", "{}", "nonsense", r#"{"cmd":"fly"}"#, r#"{"cmd":"status","x":1}"#] {
        assert!(ask(&bench.bus, bad).contains("error"), "{bad}");
    }
    // Several requests on one connection.
    let mut stream = UnixStream::connect(bench.bus.folder().join("control")).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for _ in 0..3 {
        writeln!(stream, r#"{{"cmd":"status"}}"#).unwrap();
        assert!(lines.next().unwrap().unwrap().starts_with(r#"{"devices""#));
    }
    assert!(!bench.bus.wait_for_exit(Some(Duration::ZERO)));
    assert!(ask(&bench.bus, r#"{"cmd":"exit"}"#).contains("ok"));
    assert!(bench.bus.wait_for_exit(None));
}

#[test]
fn an_exit_can_be_asked_for_by_another_thread() {
    let bench = Bench::null();
    let handle = bench.bus.exit_handle();
    let thread = std::thread::spawn(move || handle.request());
    assert!(bench.bus.wait_for_exit(None));
    thread.join().unwrap();
    let guest = bench.guest(0);
    drop(bench);
    assert_eq!(guest.register(channel::STATE), reg::ALL_ONES);
}
