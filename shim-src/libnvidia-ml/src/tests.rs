//! Tests of the exports as a C program calls them, on a [`crate::fake`] libcuda.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use vgpu_abi::nvml::{Memory, MemoryV2, NvmlReturn, PciInfo, PciInfoExt, ProcessInfoV2, Uuid};
use vgpu_abi::{CUresult, call};

use crate::fake::Scene;
use crate::{clocks, compute, find, identity, init, memory, pci, processes, system};

type Status = c_uint;
type Handle = *const c_void;

fn begin() -> Status {
    // SAFETY: no arguments.
    unsafe { init::nvmlInit_v2() }.0
}

fn end() -> Status {
    // SAFETY: no arguments.
    unsafe { init::nvmlShutdown() }.0
}

fn handle(index: c_uint) -> Handle {
    let mut device = ptr::null();
    let status =
        call!(find::nvmlDeviceGetHandleByIndex_v2 as fn(c_uint, *mut Handle), index, &raw mut device);
    assert_eq!(status, 0);
    device
}

fn count() -> (Status, c_uint) {
    let mut count = 77;
    (call!(find::nvmlDeviceGetCount_v2 as fn(*mut c_uint), &raw mut count), count)
}

fn text(bytes: &[u8]) -> &str {
    CStr::from_bytes_until_nul(bytes).ok().and_then(|text| text.to_str().ok()).unwrap_or("not a text")
}

fn name(device: Handle, room: c_uint) -> (Status, String) {
    let mut name = [0xffu8; 96];
    let status = call!(
        identity::nvmlDeviceGetName as fn(Handle, *mut c_char, c_uint),
        device,
        name.as_mut_ptr().cast(),
        room
    );
    (status, text(&name).to_owned())
}

#[test]
fn initialisation_is_counted() {
    let _scene = Scene::new();
    assert_eq!(count(), (1, 77));
    assert_eq!(end(), 0);
    assert_eq!(begin(), 0);
    assert_eq!(begin(), 0);
    assert_eq!(count(), (0, 2));
    assert_eq!(end(), 0);
    assert_eq!(count(), (0, 2));
    assert_eq!(end(), 0);
    assert_eq!(count(), (1, 77));
    assert_eq!(end(), 0);
    assert_eq!(begin(), 0);
    assert_eq!(count(), (0, 2));
    assert_eq!(end(), 0);
}

#[test]
fn what_stops_libcuda_stops_initialisation() {
    let scene = Scene::new();
    for (cuda, nvml) in [(100, 9), (802, 27), (803, 18), (46, 15), (3, 1), (4, 1), (2, 20), (999, 999)] {
        scene.devices(CUresult(cuda));
        assert_eq!(begin(), nvml, "CUresult {cuda}");
        assert_eq!(count().0, 1);
    }
    scene.devices(CUresult::NO_DEVICE);
    // SAFETY: no pointers.
    assert_eq!(unsafe { init::nvmlInitWithFlags(1) }.0, 0);
    assert_eq!(count(), (0, 0));
    let mut text = [0u8; 80];
    let status =
        call!(system::nvmlSystemGetDriverVersion as fn(*mut c_char, c_uint), text.as_mut_ptr().cast(), 80);
    assert_eq!(status, 9);
    assert_eq!(end(), 0);
}

#[test]
fn a_forked_child_and_an_ending_process_are_not_initialised() {
    let scene = Scene::new();
    assert_eq!(begin(), 0);
    let device = handle(0);
    for state in [CUresult::NOT_INITIALIZED, CUresult::DEINITIALIZED] {
        scene.life(state);
        assert_eq!(name(device, 96).0, 1);
        assert_eq!(count().0, 1);
    }
    scene.life(CUresult::SUCCESS);
    assert_eq!(name(device, 96), (0, "Test GPU".into()));
    assert_eq!(end(), 0);
    assert_eq!(name(device, 96).0, 1);
}

#[test]
fn devices_are_found() {
    let _scene = Scene::new();
    assert_eq!(begin(), 0);
    let devices = [handle(0), handle(1)];
    assert_ne!(devices[0], devices[1]);
    let mut found = ptr::null();
    let place = &raw mut found;
    assert_eq!(call!(find::nvmlDeviceGetHandleByIndex as fn(c_uint, *mut Handle), 2, place), 2);
    assert_eq!(call!(find::nvmlDeviceGetHandleByIndex as fn(c_uint, *mut Handle), u32::MAX, place), 2);
    assert_eq!(call!(find::nvmlDeviceGetHandleByIndex as fn(c_uint, *mut Handle), 0, ptr::null_mut()), 2);

    let by_uuid = |uuid: *const c_char, place| {
        call!(find::nvmlDeviceGetHandleByUUID as fn(*const c_char, *mut Handle), uuid, place)
    };
    assert_eq!(by_uuid(c"GPU-02020202-0202-0202-0202-020202020202".as_ptr(), place), 0);
    assert_eq!(by_uuid(c"GPU-03020202-0202-0202-0202-020202020202".as_ptr(), place), 6);
    assert_eq!(by_uuid(c"GPU-02".as_ptr(), place), 2);
    assert_eq!(by_uuid(ptr::null(), place), 2);
    assert_eq!(by_uuid(c"GPU-02020202-0202-0202-0202-020202020202".as_ptr(), ptr::null_mut()), 2);
    assert_eq!(found, devices[1]);

    let mut value = [0; 41];
    value[..16].fill(1);
    let mut uuid = Uuid { version: Uuid::VERSION, kind: 2, value };
    let by_record = |uuid: *mut Uuid, place| {
        call!(find::nvmlDeviceGetHandleByUUIDV as fn(*mut Uuid, *mut Handle), uuid, place)
    };
    assert_eq!(by_record(&raw mut uuid, place), 0);
    assert_eq!(found, devices[0]);
    uuid.value[..41].copy_from_slice(b"GPU-02020202-0202-0202-0202-020202020202\0");
    uuid.kind = 1;
    assert_eq!(by_record(&raw mut uuid, place), 0);
    assert_eq!(found, devices[1]);
    uuid.kind = 3;
    assert_eq!(by_record(&raw mut uuid, place), 2);
    uuid.version += 1;
    assert_eq!(by_record(&raw mut uuid, place), 25);
    assert_eq!(by_record(ptr::null_mut(), place), 2);

    let by_address = |text: *const c_char, place| {
        call!(find::nvmlDeviceGetHandleByPciBusId_v2 as fn(*const c_char, *mut Handle), text, place)
    };
    for address in [c"0010:ab:05.0", c"00000010:AB:05.0"] {
        assert_eq!(by_address(address.as_ptr(), place), 0, "{address:?}");
        assert_eq!(found, devices[0]);
    }
    assert_eq!(by_address(c"0010:ab:06.0".as_ptr(), place), 6);
    assert_eq!(by_address(c"next door".as_ptr(), place), 2);
    assert_eq!(by_address(ptr::null(), place), 2);

    for (number, device) in devices.into_iter().enumerate() {
        let mut index = 9;
        assert_eq!(call!(find::nvmlDeviceGetIndex as fn(Handle, *mut c_uint), device, &raw mut index), 0);
        assert_eq!(index as usize, number);
    }
    assert_eq!(end(), 0);
}

#[test]
fn foreign_handles_are_never_followed() {
    let _scene = Scene::new();
    assert_eq!(begin(), 0);
    let device = handle(0);
    let inside = device.wrapping_byte_add(8);
    for foreign in [ptr::null(), ptr::without_provenance(1), ptr::without_provenance(usize::MAX), inside] {
        assert_eq!(name(foreign, 96).0, 2, "{foreign:?}");
        let mut place = [0u64; 5];
        let memory = place.as_mut_ptr();
        assert_eq!(call!(memory::nvmlDeviceGetMemoryInfo as fn(Handle, *mut u64), foreign, memory), 2);
    }
    assert_eq!(end(), 0);
}

#[test]
fn texts_need_room() {
    let _scene = Scene::new();
    assert_eq!(begin(), 0);
    let device = handle(0);
    assert_eq!(name(device, 9), (0, "Test GPU".into()));
    assert_eq!(name(device, 8).0, 7);
    assert_eq!(name(device, 0).0, 7);
    let get = identity::nvmlDeviceGetUUID;
    let mut uuid = [0xffu8; 41];
    let mut ask = |room| {
        let place = uuid.as_mut_ptr().cast();
        call!(get as fn(Handle, *mut c_char, c_uint), device, place, room)
    };
    assert_eq!(ask(40), 7);
    assert_eq!(ask(41), 0);
    assert_eq!(text(&uuid), "GPU-01010101-0101-0101-0101-010101010101");
    assert_eq!(call!(get as fn(Handle, *mut c_char, c_uint), device, ptr::null_mut(), 96), 2);
    assert_eq!(end(), 0);
}

#[test]
fn memory_is_the_hosts() {
    let scene = Scene::new();
    assert_eq!(begin(), 0);
    let device = handle(1);
    let mut one = Memory { total: 0, free: 0, used: 0 };
    let v1 = |place| call!(memory::nvmlDeviceGetMemoryInfo as fn(Handle, *mut Memory), device, place);
    assert_eq!(v1(&raw mut one), 0);
    assert_eq!((one.total, one.free, one.used), (8 << 30, (7 << 30) + 1, (1 << 30) - 1));
    assert_eq!(v1(ptr::null_mut()), 2);
    let mut two = MemoryV2 { version: MemoryV2::VERSION, total: 0, reserved: 9, free: 0, used: 0 };
    let v2 = |place| call!(memory::nvmlDeviceGetMemoryInfo_v2 as fn(Handle, *mut MemoryV2), device, place);
    assert_eq!(v2(&raw mut two), 0);
    assert_eq!((two.total, two.reserved, two.free, two.used), (8 << 30, 0, (7 << 30) + 1, (1 << 30) - 1));
    assert_eq!(two.version, 0x0200_0028);
    two.version = 0x0100_0018;
    assert_eq!(v2(&raw mut two), 25);
    assert_eq!(v2(ptr::null_mut()), 2);
    scene.memory(CUresult::DEVICE_UNAVAILABLE);
    assert_eq!(v1(&raw mut one), NvmlReturn::GPU_IS_LOST.0);
    assert_eq!(end(), 0);
}

#[test]
fn addresses_have_nvmls_form() {
    let _scene = Scene::new();
    assert_eq!(begin(), 0);
    let device = handle(1);
    // The old versions write no more than their structure has.
    let mut room = [0xffu8; 80];
    assert_eq!(call!(pci::nvmlDeviceGetPciInfo_v2 as fn(Handle, *mut u8), device, room.as_mut_ptr()), 0);
    assert_eq!(room[36..], [0xff; 44]);
    assert_eq!(room[32..36], 0x16c1_10de_u32.to_le_bytes());
    room.fill(0xff);
    assert_eq!(call!(pci::nvmlDeviceGetPciInfo as fn(Handle, *mut u8), device, room.as_mut_ptr()), 0);
    assert_eq!(room[32..], [0xff; 48]);
    assert_eq!(text(&room), "0010:AB:1F.0");

    let mut info = std::mem::MaybeUninit::<PciInfo>::zeroed();
    assert_eq!(call!(pci::nvmlDeviceGetPciInfo_v3 as fn(Handle, *mut PciInfo), device, info.as_mut_ptr()), 0);
    // SAFETY: all zeros are a value of it, and the call has succeeded.
    let info = unsafe { info.assume_init() };
    let bus_id = info.bus_id.map(i8::cast_unsigned);
    assert_eq!(text(&bus_id), "00000010:AB:1F.0");
    let (first, subsystem) = (info.second.first, info.second.subsystem);
    assert_eq!((first.domain, first.bus, first.device), (0x10, 0xab, 0x1f));
    assert_eq!((first.id, subsystem), (0x2331_10de, 0x16c1_10de));
    assert_eq!(call!(pci::nvmlDeviceGetPciInfo_v3 as fn(Handle, *mut PciInfo), device, ptr::null_mut()), 2);

    let mut words = [0u32; 16];
    words[0] = PciInfoExt::VERSION;
    let extended = words.as_mut_ptr();
    assert_eq!(call!(pci::nvmlDeviceGetPciInfoExt as fn(Handle, *mut u32), device, extended), 0);
    assert_eq!(words[1..8], [0x10, 0xab, 0x1f, 0x2331_10de, 0x16c1_10de, 3, 2]);
    words[0] = 1;
    let extended = words.as_mut_ptr();
    assert_eq!(call!(pci::nvmlDeviceGetPciInfoExt as fn(Handle, *mut u32), device, extended), 25);
    assert_eq!(end(), 0);
}

#[test]
fn what_is_not_known_is_not_supported() {
    let _scene = Scene::new();
    assert_eq!(begin(), 0);
    let device = handle(0);
    let clock = |kind| {
        let mut clock = 0;
        let status = call!(
            clocks::nvmlDeviceGetMaxClockInfo as fn(Handle, c_uint, *mut c_uint),
            device,
            kind,
            &raw mut clock
        );
        (status, clock)
    };
    assert_eq!(
        [clock(0), clock(1), clock(2), clock(3), clock(4)],
        [(0, 1500), (0, 1500), (3, 0), (3, 0), (2, 0)]
    );
    let mut value = 0;
    let place = &raw mut value;
    assert_eq!(call!(memory::nvmlDeviceGetMemoryBusWidth as fn(Handle, *mut c_uint), device, place), 0);
    assert_eq!(value, 256);
    assert_eq!(call!(compute::nvmlDeviceGetNumGpuCores as fn(Handle, *mut c_uint), device, place), 0);
    assert_eq!(value, 2560);
    assert_eq!(call!(compute::nvmlDeviceGetComputeMode as fn(Handle, *mut c_uint), device, place), 0);
    assert_eq!(value, 0);
    assert_eq!(call!(identity::nvmlDeviceGetArchitecture as fn(Handle, *mut c_uint), device, place), 0);
    assert_eq!(value, 4);
    let (mut major, mut minor) = (0, 0);
    let capability = compute::nvmlDeviceGetCudaComputeCapability;
    let (one, two): (*mut c_int, *mut c_int) = (&raw mut major, &raw mut minor);
    assert_eq!(call!(capability as fn(Handle, *mut c_int, *mut c_int), device, one, two), 0);
    assert_eq!((major, minor), (6, 1));
    assert_eq!(call!(capability as fn(Handle, *mut c_int, *mut c_int), device, one, ptr::null_mut()), 2);
    assert_eq!(end(), 0);
}

#[test]
fn processes_that_cannot_be_listed_are_not_supported() {
    let _scene = Scene::new();
    assert_eq!(begin(), 0);
    let device = handle(0);
    // The stand-in device has no file whose locks could be listed.
    let some = processes::nvmlDeviceGetComputeRunningProcesses_v3;
    let mut count = 3;
    let place = &raw mut count;
    assert_eq!(call!(some as fn(Handle, *mut c_uint, *mut ProcessInfoV2), device, place, ptr::null_mut()), 3);
    let no_count = ptr::null_mut();
    assert_eq!(
        call!(some as fn(Handle, *mut c_uint, *mut ProcessInfoV2), device, no_count, ptr::null_mut()),
        2
    );
    let none = processes::nvmlDeviceGetGraphicsRunningProcesses_v3;
    let place = &raw mut count;
    assert_eq!(call!(none as fn(Handle, *mut c_uint, *mut ProcessInfoV2), device, place, ptr::null_mut()), 0);
    assert_eq!(count, 0);
    assert_eq!(end(), 0);
}

#[test]
fn versions_and_names() {
    let _scene = Scene::new();
    assert_eq!(begin(), 0);
    let mut room = [0xffu8; 80];
    let place: *mut c_char = room.as_mut_ptr().cast();
    assert_eq!(call!(system::nvmlSystemGetDriverVersion as fn(*mut c_char, c_uint), place, 80), 0);
    assert_eq!(text(&room), "580.65.06");
    assert_eq!(call!(system::nvmlSystemGetDriverVersion as fn(*mut c_char, c_uint), place, 9), 7);
    assert_eq!(call!(system::nvmlSystemGetNVMLVersion as fn(*mut c_char, c_uint), place, 80), 0);
    assert_eq!(text(&room), "13.580.65.06");
    let mut version = 0;
    assert_eq!(call!(system::nvmlSystemGetCudaDriverVersion_v2 as fn(*mut c_int), &raw mut version), 0);
    assert_eq!(version, 13000);

    let own = std::process::id();
    let name = system::nvmlSystemGetProcessName;
    assert_eq!(call!(name as fn(c_uint, *mut c_char, c_uint), own, place, 80), 0);
    let started = std::env::args().next().unwrap_or_default();
    assert_eq!(text(&room), &started[..started.len().min(79)]);
    assert_eq!(call!(name as fn(c_uint, *mut c_char, c_uint), own, place, 4), 0);
    assert_eq!(text(&room), &started[..3]);
    assert_eq!(call!(name as fn(c_uint, *mut c_char, c_uint), own, place, 0), 2);
    assert_eq!(call!(name as fn(c_uint, *mut c_char, c_uint), own, ptr::null_mut(), 4), 2);
    assert_eq!(call!(name as fn(c_uint, *mut c_char, c_uint), u32::MAX, place, 4), 6);
    // SAFETY: any number may be asked for.
    let lost = unsafe { init::nvmlErrorString(NvmlReturn(15)) };
    // SAFETY: the answer is a constant text.
    assert_eq!(unsafe { CStr::from_ptr(lost) }, c"GPU is lost");
    assert_eq!(end(), 0);
}
