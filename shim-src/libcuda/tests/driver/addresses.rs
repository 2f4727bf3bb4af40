//! Tests of device addresses: each function has a range, which every process that uses the function reserves,
//! so that nothing else of the process is in it.

use std::path::Path;

use vgpu_abi::driver::CUcontext;
use vgpu_device::{Addresses, DeviceConfig};
use vgpu_wire::AddressRange;
use vgpu_wire::facts::DeviceFacts;

use crate::executor::changed;
use crate::host::{Host, is_guest, null, soft, with_device};
use vgpu_conformance::calls::*;

/// `CUDA_ERROR_DEVICE_UNAVAILABLE`
const UNAVAILABLE: Status = 46;

/// Returns start, end and permissions of each mapping of this process that lies in a device's range.
fn reserved() -> Vec<(u64, u64, String)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let bands: Vec<AddressRange> = (0..vgpu_device::ADDRESS_RANGES).map(range).collect();
    let parse = |line: &str| {
        let mut words = line.split([' ', '-']);
        let mut number = || u64::from_str_radix(words.next()?, 16).ok();
        let (start, end) = (number()?, number()?);
        Some((start, end, line.split(' ').nth(1)?.to_owned()))
    };
    let inside = |(start, end, _): &(u64, u64, String)| {
        bands.iter().any(|band| band.overlaps(&AddressRange { base: *start, bytes: end - start }))
    };
    maps.lines().filter_map(parse).filter(inside).collect()
}

/// Returns the range that is chosen for the device with an index.
fn range(index: u32) -> AddressRange {
    Addresses::chosen(index, None).unwrap().range()
}

/// Returns the primary context of each device.
fn contexts() -> Vec<CUcontext> {
    ok!(cuInit(0));
    (0..get!(i32, cuDeviceGetCount()))
        .map(|device| get!(CUcontext, cuDevicePrimaryCtxRetain(device)))
        .collect()
}

/// Returns a device with the null executor that announces a range.
fn announcing(address: &str, announced: AddressRange) -> DeviceConfig {
    changed(address, |facts: &mut DeviceFacts| facts.set_addresses(announced))
}

/// Maps a page at an address, as a program may that chooses its addresses itself.
fn take(address: u64) {
    let at = std::ptr::without_provenance_mut(address as usize);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping at an address where nothing is.
    let got = unsafe { libc::mmap(at, 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert_eq!(got, at);
}

/// Returns the lines of the log that contain a word.
fn logged(path: &Path, word: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter(|line| line.contains(word)).map(str::to_owned).collect()
}

#[test]
fn a_range_is_reserved_once_by_who_uses_a_device() {
    let device = || soft("0000:00:05.0", |gpu| gpu.addresses = Addresses::chosen(7, None).unwrap());
    with_device("addresses::a_range_is_reserved_once_by_who_uses_a_device", device, || {
        let context = begin();
        let mut bytes = 0;
        ok!(cuDeviceTotalMem_v2(&raw mut bytes, 0));
        ok!(cuCtxSynchronize());
        assert_eq!((bytes, reserved()), (1 << 30, Vec::new()), "who only looks reserves nothing");
        let address = alloc(1 << 20);
        let range = range(7);
        let whole = vec![(range.base, range.end(), "---p".to_owned())];
        assert!(range.holds(address, 1 << 20), "{address:#x}");
        assert_eq!(reserved(), whole);
        // Large, ordered and reserved memory comes from it as well.
        for address in [
            alloc(300 << 20),
            get!(u64, cuMemAllocAsync(1 << 20, vgpu_abi::driver::CUstream(0))),
            get!(u64, cuMemAddressReserve(4 << 20, 0, 0, 0)),
        ] {
            assert!(range.holds(address, 1 << 20), "{address:#x}");
        }
        ok!(cuCtxSetCurrent(context));
        let data = random(1 << 20);
        upload(address, &data);
        assert!(download(address, 1 << 20) == data);
        assert_eq!(reserved(), whole, "once");
        // SAFETY: the child looks at its mappings and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = i32::from(!reserved().is_empty());
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "a child inherits no reservation");
        assert!(download(address, 1 << 20) == data);
    });
}

#[test]
fn a_null_executors_addresses_are_in_its_range() {
    let device = || null("0000:00:05.0", |gpu| gpu.addresses = Addresses::chosen(8, None).unwrap());
    with_device("addresses::a_null_executors_addresses_are_in_its_range", device, || {
        begin();
        for _ in 0..300 {
            let address = alloc(7 << 30);
            assert!(range(8).holds(address, 7 << 30), "{address:#x}");
            ok!(cuMemFree_v2(address));
        }
        assert_eq!(reserved().len(), 1);
    });
}

#[test]
fn memory_of_the_program_in_a_devices_range_refuses_the_device() {
    const NAME: &str = "addresses::memory_of_the_program_in_a_devices_range_refuses_the_device";
    let range = range(9);
    if is_guest(NAME) {
        take(range.base + (5 << 30));
        begin();
        for _ in 0..3 {
            assert_eq!(fails!(u64, cuMemAlloc_v2(4096)), UNAVAILABLE);
        }
        assert_eq!(get!(i32, cuDeviceGetCount()), 1);
        return;
    }
    let device = soft("0000:00:05.0", |gpu| gpu.addresses = Addresses::chosen(9, None).unwrap());
    let host = Host::serve(vec![device]);
    let log = host.path().join("log");
    host.run(NAME, &[("VGPU_LOG", "warn"), ("VGPU_LOG_FILE", log.to_str().unwrap())]);
    let told = logged(&log, "device addresses");
    assert_eq!(told.len(), 1, "{told:?}");
    let place = range.base + (5 << 30);
    let expected = format!(
        "{range}, are taken in this process by what is mapped from {place:#x} to {:#x}",
        place + 4096
    );
    assert!(told[0].contains("0000:00:05.0") && told[0].contains(&expected), "{told:?}");
    let left = host.bus.as_ref().unwrap().status();
    assert!(left.devices[0].sessions.is_empty(), "{left:?}");
}

#[test]
fn functions_that_share_addresses_are_not_used_by_one_process() {
    const NAME: &str = "addresses::functions_that_share_addresses_are_not_used_by_one_process";
    if is_guest(NAME) {
        let contexts = contexts();
        assert_eq!(contexts.len(), 3);
        let mut refused = Vec::new();
        for &context in &contexts {
            ok!(cuCtxSetCurrent(context));
            refused.push(fails!(u64, cuMemAlloc_v2(4096)));
        }
        // The second shares with the first; the third is apart from both.
        assert_eq!(refused, [0, UNAVAILABLE, 0]);
        ok!(cuCtxSetCurrent(contexts[0]));
        alloc(4096);
        return;
    }
    let devices = [("05", 10), ("06", 10), ("07", 12)].map(|(slot, index)| {
        let addresses = Addresses::chosen(index, None).unwrap();
        null(&format!("0000:00:{slot}.0"), |gpu| gpu.addresses = addresses)
    });
    let host = Host::serve(devices.into());
    let log = host.path().join("log");
    host.run(NAME, &[("VGPU_LOG", "warn"), ("VGPU_LOG_FILE", log.to_str().unwrap())]);
    let told = logged(&log, "are also those of 0000:00:05.0");
    assert!(told.len() == 1 && told[0].contains("0000:00:06.0"), "{told:?}");
}

#[test]
fn what_a_host_announces_is_not_believed() {
    const NAME: &str = "addresses::what_a_host_announces_is_not_believed";
    if is_guest(NAME) {
        for (context, expected) in contexts().into_iter().zip([UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, 999, 0])
        {
            ok!(cuCtxSetCurrent(context));
            assert_eq!(fails!(u64, cuMemAlloc_v2(4096)), expected);
        }
        return;
    }
    let devices = [
        ("05", AddressRange { base: 0x4000_0000_0001, bytes: 1 << 40 }),
        ("06", AddressRange { base: 1 << 47, bytes: 4096 }),
        // Programs and libraries lie here.
        ("07", AddressRange { base: 1 << 20, bytes: (1 << 47) - (1 << 21) }),
        // Not the addresses that its executor answers.
        ("08", AddressRange { base: 0x5400_0000_0000, bytes: 1 << 30 }),
        // A host from before there were ranges.
        ("09", AddressRange { base: 0, bytes: 0 }),
    ];
    let devices = devices.map(|(slot, range)| announcing(&format!("0000:00:{slot}.0"), range));
    let host = Host::serve(devices.into());
    let log = host.path().join("log");
    host.run(NAME, &[("VGPU_LOG", "warn"), ("VGPU_LOG_FILE", log.to_str().unwrap())]);
    assert_eq!(logged(&log, "which no process can have").len(), 2);
    assert_eq!(logged(&log, "are taken in this process").len(), 1);
    assert_eq!(logged(&log, "outside of the device's addresses").len(), 1);
}
