//! Tests that the registers show the time of work while it goes on, and the VM's share of the GPU's time.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use vgpu_device::{DeviceConfig, ShareSource};
use vgpu_executor_null::{Null, NullOptions};
use vgpu_host_testing::bench::{Bench, address, config, gpu};
use vgpu_host_testing::commands::{LAUNCH, function, launch, load, params};
use vgpu_host_testing::guest::{Function, Guest, until};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::registers::{self as reg, usage};
use vgpu_wire::share::VmShare;

/// Reads a register of the file that a guest reads without waking the device.
fn on_page(bench: &Bench, offset: u32) -> u32 {
    let bytes = fs::read(bench.folder().join("bus/pci/devices/0000:00:05.0/resource0_ro")).unwrap();
    u32::from_le_bytes(bytes[offset as usize..offset as usize + 4].try_into().unwrap())
}

/// Returns the microseconds of the session on channel 0: on the page, by the socket, and in the report.
fn times(bench: &Bench, guest: &Guest) -> [u64; 3] {
    let register = usage::base(0) + usage::USAGE_BUSY_LO;
    let (page, socket) = (on_page(bench, register), guest.function.read(register));
    [page.into(), socket.into(), bench.session(0).unwrap().busy_us]
}

/// Waits until all three have grown, several times, while one launch goes on.
fn grows_while_it_runs(bench: &Bench, guest: &Guest) {
    for _ in 0..3 {
        let before = times(bench, guest);
        until("the time grows", || {
            times(bench, guest).iter().zip(before).all(|(now, before)| *now >= before + 50_000)
        });
    }
}

#[test]
fn time_grows_while_the_soft_executor_runs_one_kernel() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    load(&mut guest, 1);
    function(&mut guest, 1, "endless");
    assert!(times(&bench, &guest).iter().all(|time| *time < 50_000));
    launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(0, &[]));
    grows_while_it_runs(&bench, &guest);
    guest.detach();
}

/// The GPU works for the session whose kernel it runs, until the session ends.
#[test]
fn time_grows_while_the_null_executor_runs_one_kernel() {
    let options = NullOptions { complete_after: Some(Duration::from_hours(1)) };
    let bench = Bench::with(config(Null::with(&gpu(), options).unwrap()));
    let (mut guest, mut other) = (bench.guest(0), bench.guest(1));
    launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(0, &[]));
    grows_while_it_runs(&bench, &guest);
    other.echo();
    assert_eq!(bench.session(1).unwrap().busy_us, 0, "it does nothing for the other");
    guest.detach();
}

/// The share of a VM, as a test sets it.
#[derive(Debug, Default)]
struct Shown(Mutex<VmShare>);

impl ShareSource for Shown {
    fn share(&self) -> VmShare {
        *self.0.lock().unwrap()
    }
}

#[test]
fn a_guest_reads_its_share() {
    let shown = Arc::new(Shown::default());
    let share = Arc::clone(&shown) as Arc<dyn ShareSource>;
    let bench = Bench::with(DeviceConfig { share: Some(share), ..config(Null::new(&gpu()).unwrap()) });
    let function = Function::open(bench.folder(), address());
    let expected = reg::CAP_BASIC | reg::CAP_V2 | reg::CAP_USAGE | reg::CAP_SHARE;
    assert_eq!((function.read(reg::CAPABILITIES), on_page(&bench, reg::CAPABILITIES)), (expected, expected));
    let on_page = || VmShare::from_words(VmShare::REGISTERS.map(|offset| on_page(&bench, offset)));
    assert_eq!(on_page(), VmShare::default());
    let mut share = VmShare { enforced: true, ppm: 333_333, charged_us: 5 << 32 | 7, waited_us: u64::MAX };
    for _ in 0..2 {
        *shown.0.lock().unwrap() = share;
        assert_eq!(VmShare::from_words(VmShare::REGISTERS.map(|offset| function.read(offset))), share);
        until("the page shows it", || on_page() == share);
        share.enforced = false;
    }
    function.write(reg::V2_SHARE_PPM, 1_000_000);
    assert_eq!(function.read(reg::V2_SHARE_PPM), 333_333, "a guest does not choose its share");
}

#[test]
fn a_device_without_a_share_shows_none() {
    let bench = Bench::null();
    let function = Function::open(bench.folder(), address());
    assert_eq!(function.read(reg::CAPABILITIES) & reg::CAP_SHARE, 0);
    assert_eq!(VmShare::REGISTERS.map(|offset| function.read(offset)), [0; 6]);
}
