//! Tests which devices a program finds, and what it reads of them.

use std::ptr;

use rand::Rng;
use vgpu_abi::CUresult;

use crate::host::{self, Host, is_guest, null, soft, with_device};
use vgpu_conformance::calls::*;

fn count() -> i32 {
    get!(i32, cuDeviceGetCount())
}

fn uuid_text(uuid: [u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(uuid));
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[test]
fn before_init_little_works() {
    with_device(
        "discovery::before_init_little_works",
        || soft("0000:00:05.0", |gpu| gpu.driver_version = 12_080),
        || {
            let mut value = 77;
            assert_eq!(cu!(cuDeviceGetCount(&raw mut value)), 3);
            assert_eq!(value, 77, "nothing is stored");
            assert_eq!(cu!(cuDeviceGet(&raw mut value, 0)), 3);
            assert_eq!(cu!(cuDeviceGetAttribute(&raw mut value, 75, 0)), 3);
            assert_eq!(cu!(cuCtxGetDevice(&raw mut value)), 3);
            let mut address = 0;
            assert_eq!(cu!(cuMemAlloc_v2(&raw mut address, 16)), 3);
            assert_eq!(cu!(cuCtxSynchronize()), 3);
            assert_eq!(cu!(cuInit(1)), 1);
            assert_eq!(error_name(100), "CUDA_ERROR_NO_DEVICE");
            assert_eq!(cu!(cuDriverGetVersion(ptr::null_mut())), 1);
            assert_eq!(get!(i32, cuDriverGetVersion()), 12_080, "the device's");
            assert_eq!(cu!(cuDeviceGetCount(&raw mut value)), 3, "still");
            ok!(cuInit(0));
            ok!(cuInit(0));
            assert_eq!(count(), 1);
            assert_eq!(cu!(cuCtxGetDevice(&raw mut value)), 201);
        },
    );
}

#[test]
fn without_a_device() {
    const NAME: &str = "discovery::without_a_device";
    if is_guest(NAME) {
        let mut version = 7;
        assert_eq!(cu!(cuDriverGetVersion(&raw mut version)), 100);
        assert_eq!(version, 7);
        assert_eq!(cu!(cuInit(0)), 100);
        assert_eq!(cu!(cuInit(0)), 100);
        assert_eq!(cu!(cuDeviceGetCount(&raw mut version)), 3);
        return;
    }
    let empty = tempfile::tempdir().unwrap();
    host::finish(host::guest(empty.path(), NAME, &[]).spawn().unwrap());
}

#[test]
fn a_device_that_does_not_answer_is_not_ready() {
    const NAME: &str = "discovery::a_device_that_does_not_answer_is_not_ready";
    if is_guest(NAME) {
        assert_eq!(cu!(cuInit(0)), 802);
        let mut version = 0;
        assert_eq!(cu!(cuDriverGetVersion(&raw mut version)), 802);
        return;
    }
    // A function whose register socket is not there any more.
    let host = Host::serve(vec![soft("0000:00:05.0", |_| ())]);
    let function = host.path().join("bus/pci/devices/0000:00:05.0");
    std::fs::remove_file(function.join("resource0")).unwrap();
    host.run(NAME, &[]);
}

#[test]
fn facts_are_the_devices() {
    const NAME: &str = "discovery::facts_are_the_devices";
    if is_guest(NAME) {
        let expected = |key: &str| std::env::var(key).unwrap();
        ok!(cuInit(0));
        assert_eq!(count(), 1);
        let device = get!(i32, cuDeviceGet(0));
        assert_eq!(text_of(|text, bytes| cu!(cuDeviceGetName(text, bytes, device))), expected("NAME"));
        assert_eq!(uuid_text(get!([u8; 16], cuDeviceGetUuid(device))), expected("UUID"));
        assert_eq!(uuid_text(get!([u8; 16], cuDeviceGetUuid_v2(device))), expected("UUID"));
        assert_eq!(get!(usize, cuDeviceTotalMem_v2(device)).to_string(), expected("BYTES"));
        let attribute = |id| get!(i32, cuDeviceGetAttribute(id, device));
        assert_eq!(format!("{}.{}", attribute(75), attribute(76)), expected("CC"));
        assert_eq!([attribute(50), attribute(33), attribute(34)], [2, 0x1a, 0x0b], "PCI ids are the guest's");
        assert_eq!([attribute(19), attribute(83), attribute(99)], [0, 0, 0], "not in a guest");
        let pci = text_of(|text, bytes| cu!(cuDeviceGetPCIBusId(text, bytes, device)));
        assert_eq!(pci, "0002:1a:0b.0");
        let text = std::ffi::CString::new(pci).unwrap();
        assert_eq!(get!(i32, cuDeviceGetByPCIBusId(text.as_ptr())), 0);
        assert_eq!(fails!(i32, cuDeviceGetByPCIBusId(c"0000:00:01.0".as_ptr())), 101);
        assert_eq!(fails!(i32, cuDeviceGetByPCIBusId(c"nonsense".as_ptr())), 1);
        assert_eq!(get!(i32, cuDriverGetVersion()), 13_000);

        let mut short = [0x55_u8; 8];
        ok!(cuDeviceGetName(short.as_mut_ptr().cast(), 5, device));
        assert_eq!(&short[..4], &expected("NAME").as_bytes()[..4]);
        assert_eq!(&short[4..], [0, 0x55, 0x55, 0x55], "cut, ended, and not beyond");
        for (wrong, status) in [(-1, 101), (1, 101)] {
            assert_eq!(fails!(i32, cuDeviceGet(wrong)), status);
            assert_eq!(fails!(usize, cuDeviceTotalMem_v2(wrong)), status);
        }
        assert_eq!(fails!(i32, cuDeviceGetAttribute(0, device)), 1);
        assert_eq!(fails!(i32, cuDeviceGetAttribute(5000, device)), 1);
        assert_eq!(cu!(cuDeviceGetCount(ptr::null_mut())), 1);
        return;
    }
    let mut random = rand::rng();
    let name = format!("GPU {:x}", random.next_u64());
    let uuid: [u8; 16] = std::array::from_fn(|_| random.next_u32() as u8);
    let memory = (64 + u64::from(random.next_u32() % 1000)) << 20;
    let major_minor = [(5, 0), (6, 1), (7, 5), (8, 9), (9, 0), (12, 0)][random.next_u32() as usize % 6];
    let host = Host::serve(vec![null("0002:1a:0b.0", |gpu| {
        gpu.name.clone_from(&name);
        gpu.uuid = uuid;
        gpu.memory_bytes = memory;
        gpu.compute_capability = major_minor;
    })]);
    let cc = format!("{}.{}", major_minor.0, major_minor.1);
    host.run(
        NAME,
        &[("NAME", &name), ("UUID", &uuid_text(uuid)), ("BYTES", &memory.to_string()), ("CC", &cc)],
    );
}

#[test]
fn visible_devices_choose_and_order() {
    const NAME: &str = "discovery::visible_devices_choose_and_order";
    if is_guest(NAME) {
        let expected = std::env::var("EXPECTED").unwrap();
        if expected.is_empty() {
            assert_eq!(cu!(cuInit(0)), 100);
            let mut devices = 0;
            // SAFETY: a live place.
            assert_eq!(unsafe { (table().device_count)(&raw mut devices) }, CUresult::SUCCESS);
            assert_eq!(devices, 2, "the other shims see all");
            return;
        }
        ok!(cuInit(0));
        let uuids: Vec<String> =
            (0..count()).map(|device| uuid_text(get!([u8; 16], cuDeviceGetUuid(device)))).collect();
        assert_eq!(uuids.join(","), expected);
        for device in 0..count() {
            let mut index = -1;
            // SAFETY: a live place.
            assert_eq!(unsafe { (table().visible)(device, &raw mut index) }, CUresult::SUCCESS);
            let mut found = ptr::null();
            // SAFETY: a live place.
            assert_eq!(unsafe { (table().device)(index, &raw mut found) }, CUresult::SUCCESS);
            // SAFETY: the driver answers the address of what lives as long as the process.
            assert_eq!(uuid_text(unsafe { &*found }.facts.uuid), uuids[device as usize]);
        }
        return;
    }
    let (first, second) = ([0x11; 16], [0x22; 16]);
    let host = Host::serve(vec![
        soft("0000:00:06.0", |gpu| gpu.uuid = second),
        soft("0000:00:05.0", |gpu| gpu.uuid = first),
    ]);
    let (first, second) = (&*uuid_text(first), &*uuid_text(second));
    let both = &*format!("{first},{second}");
    let turned = &*format!("{second},{first}");
    host.run(NAME, &[("EXPECTED", both)]);
    for (value, expected) in [
        ("0", first),
        ("1", second),
        ("1,0", turned),
        ("0,7,1", first),
        ("-1", ""),
        ("", ""),
        (second, second),
        ("GPU-2,GPU-1", turned),
        ("GPU-3", ""),
    ] {
        host.run(NAME, &[("EXPECTED", expected), ("CUDA_VISIBLE_DEVICES", value)]);
    }
}

const ROUNDS: u32 = 100_000;

#[test]
fn state_queries_send_nothing() {
    with_device(
        "discovery::state_queries_send_nothing",
        || soft("0000:00:05.0", |_| ()),
        || {
            let context = begin();
            let mut current = context;
            let mut value = 0;
            let mut nanoseconds = Vec::new();
            let sent = messages(|| {
                for _ in 0..9 {
                    let begin = std::time::Instant::now();
                    for _ in 0..ROUNDS {
                        ok!(cuCtxGetCurrent(&raw mut current));
                        ok!(cuCtxGetDevice(&raw mut value));
                        ok!(cuDeviceGetAttribute(&raw mut value, 16, 0));
                        ok!(cuCtxSetCurrent(context));
                    }
                    nanoseconds.push(begin.elapsed().as_nanos() as u32 / (4 * ROUNDS));
                }
            });
            assert_eq!(sent, 0);
            nanoseconds.sort_unstable();
            eprintln!("a state query takes {} ns (median of 9 x {})", nanoseconds[4], 4 * ROUNDS);
        },
    );
}

#[test]
fn the_private_table_is_there() {
    with_device(
        "discovery::the_private_table_is_there",
        || soft("0000:00:05.0", |_| ()),
        || {
            let mut wrong = ptr::null();
            let unknown = [7; 16];
            assert_eq!(cu!(cuGetExportTable(&raw mut wrong, &raw const unknown)), 500);
            let table = table();
            assert_eq!(table.bytes, size_of_val(table));
            // SAFETY: calls without arguments, or with live places.
            unsafe {
                assert_eq!((table.life)(), CUresult::SUCCESS);
            }
            let (mut free, mut total) = (0, 0);
            // SAFETY: live places.
            assert_eq!(unsafe { (table.memory_info)(0, &raw mut free, &raw mut total) }, CUresult::SUCCESS);
            assert_eq!((free, total), (1 << 30, 1 << 30));
            assert_eq!(counters().messages, 0, "who only looks says nothing");
            // SAFETY: no pointers.
            assert_eq!(unsafe { (table.echo)(0) }, CUresult::SUCCESS, "the first message attaches");
            let before = counters();
            // SAFETY: no pointers.
            assert_eq!(unsafe { (table.echo)(0) }, CUresult::SUCCESS);
            let after = counters();
            assert_eq!((after.messages - before.messages, after.round_trips - before.round_trips), (1, 1));
            // SAFETY: no pointers.
            assert_eq!(unsafe { (table.echo)(1) }, CUresult::INVALID_DEVICE);
            let mut done = 0;
            // SAFETY: a live place.
            assert_eq!(unsafe { (table.done)(&raw mut done) }, CUresult::NOT_INITIALIZED);
            begin();
            let begin = std::time::Instant::now();
            while done < 3 {
                // SAFETY: a live place.
                assert_eq!(unsafe { (table.done)(&raw mut done) }, CUresult::SUCCESS);
                assert!(begin.elapsed().as_secs() < 60, "greeting and two echoes");
            }
        },
    );
}

#[test]
fn who_only_looks_opens_no_session() {
    with_device(
        "discovery::who_only_looks_opens_no_session",
        || soft("0000:00:05.0", |_| ()),
        || {
            begin();
            let (mut free, mut total) = (0, 0);
            ok!(cuMemGetInfo_v2(&raw mut free, &raw mut total));
            assert_eq!((free, total), (1 << 30, 1 << 30));
            ok!(cuCtxSynchronize());
            ok!(cuStreamSynchronize(vgpu_abi::driver::CUstream(0)));
            ok!(cuStreamQuery(vgpu_abi::driver::CUstream(0)));
            ok!(cuMemFree_v2(0));
            ok!(cuDevicePrimaryCtxReset_v2(0));
            ok!(cuDevicePrimaryCtxRelease_v2(0));
            assert_eq!(counters().messages, 0);
        },
    );
}
