//! Tests NVML over libcuda, the transport and two devices, whose facts are random and must be reported
//! unchanged; then one of them is removed.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::RngExt as _;
use vgpu_abi::CUresult;
use vgpu_abi::driver::CUuuid;
use vgpu_abi::nvml::{Memory, NvmlReturn, PciInfo, ProcessInfoV2};
use vgpu_abi::table::Table;
use vgpu_device::{DeviceConfig, GpuConfig, SimBus};
use vgpu_executor_soft::Soft;
use vgpu_libcuda as _;
use vgpu_libnvidia_ml as _;

type Handle = *const c_void;
type GetText = unsafe extern "C" fn(Handle, *mut c_char, u32) -> NvmlReturn;

unsafe extern "C" {
    fn cuGetExportTable(table: *mut *const c_void, uuid: *const CUuuid) -> CUresult;
    fn nvmlInit_v2() -> NvmlReturn;
    fn nvmlShutdown() -> NvmlReturn;
    fn nvmlSystemGetDriverVersion(text: *mut c_char, length: u32) -> NvmlReturn;
    fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> NvmlReturn;
    fn nvmlDeviceGetCount_v2(count: *mut u32) -> NvmlReturn;
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: *mut Handle) -> NvmlReturn;
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut Handle) -> NvmlReturn;
    fn nvmlDeviceGetName(device: Handle, text: *mut c_char, length: u32) -> NvmlReturn;
    fn nvmlDeviceGetUUID(device: Handle, text: *mut c_char, length: u32) -> NvmlReturn;
    fn nvmlDeviceGetPciInfo_v3(device: Handle, pci: *mut PciInfo) -> NvmlReturn;
    fn nvmlDeviceGetMemoryInfo(device: Handle, memory: *mut Memory) -> NvmlReturn;
    fn nvmlDeviceGetCudaComputeCapability(device: Handle, major: *mut c_int, minor: *mut c_int)
    -> NvmlReturn;
    fn nvmlDeviceGetComputeRunningProcesses_v3(
        device: Handle,
        count: *mut u32,
        infos: *mut ProcessInfoV2,
    ) -> NvmlReturn;
}

const SUCCESS: NvmlReturn = NvmlReturn::SUCCESS;

fn text(get: GetText, device: Handle) -> String {
    let mut place = [0; 96];
    // SAFETY: a place of that length.
    assert_eq!(unsafe { get(device, place.as_mut_ptr(), 96) }, SUCCESS);
    // SAFETY: a text that ends with zero was stored.
    unsafe { CStr::from_ptr(place.as_ptr()) }.to_string_lossy().into_owned()
}

fn handle(index: u32) -> Handle {
    let mut device = ptr::null();
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { nvmlDeviceGetHandleByIndex_v2(index, &raw mut device) }, SUCCESS);
    device
}

fn memory(device: Handle) -> Result<Memory, NvmlReturn> {
    let mut memory = Memory { total: 0, free: 0, used: 0 };
    // SAFETY: a place for the answer.
    let status = unsafe { nvmlDeviceGetMemoryInfo(device, &raw mut memory) };
    status.ok().map(|()| memory)
}

fn processes(device: Handle) -> Vec<u32> {
    let none = ProcessInfoV2 { pid: 0, used_memory: 0, gpu_instance: 0, compute_instance: 0 };
    let mut infos = [none; 16];
    let mut count = 16;
    let place = infos.as_mut_ptr();
    // SAFETY: places for the answers.
    let status = unsafe { nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, place) };
    assert_eq!(status, SUCCESS);
    infos[..count as usize].iter().map(|info| info.pid).collect()
}

fn draw(number: u32) -> GpuConfig {
    let mut random = rand::rng();
    GpuConfig {
        uuid: random.random(),
        compute_capability: [(6, 1), (7, 5), (8, 9), (9, 0)][random.random_range(0..4)],
        memory_bytes: random.random_range(64..4096) << 20,
        driver_text: "577.12.34".into(),
        driver_version: 12090,
        ..GpuConfig::new(&format!("Device {number} of {}", random.random::<u32>())).expect("a GPU")
    }
}

#[test]
fn what_the_devices_say_is_what_a_program_gets() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let gpus = [draw(0), draw(1)];
    let config = |(gpu, address): (&GpuConfig, &str)| {
        DeviceConfig::new(
            address.parse().expect("an address"),
            Arc::new(Soft::new(gpu).expect("an executor")),
        )
    };
    let configs = gpus.iter().zip(["0000:00:1f.0", "0001:c1:02.0"]).map(config).collect();
    let bus = SimBus::serve(folder.path(), configs).expect("a bus");
    // SAFETY: the only test of this program; the bus's threads do not look at the environment.
    unsafe { std::env::set_var("VGPU_SYSFS", folder.path()) };
    // What CUDA is allowed to see does not concern NVML.
    // SAFETY: as above.
    unsafe { std::env::set_var("CUDA_VISIBLE_DEVICES", "-1") };

    // SAFETY: the libcuda that is linked in.
    let table = unsafe { Table::ask(cuGetExportTable) }.expect("the table of this build");

    let mut count = 0;
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { nvmlDeviceGetCount_v2(&raw mut count) }, NvmlReturn::UNINITIALIZED);
    // SAFETY: no arguments.
    assert_eq!(unsafe { nvmlInit_v2() }, SUCCESS);
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { nvmlDeviceGetCount_v2(&raw mut count) }, SUCCESS);
    assert_eq!(count, 2);
    let mut driver = [0; 80];
    // SAFETY: a place of that length.
    assert_eq!(unsafe { nvmlSystemGetDriverVersion(driver.as_mut_ptr(), 80) }, SUCCESS);
    // SAFETY: a text that ends with zero was stored.
    assert_eq!(unsafe { CStr::from_ptr(driver.as_ptr()) }, c"577.12.34");
    let mut version = 0;
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { nvmlSystemGetCudaDriverVersion_v2(&raw mut version) }, SUCCESS);
    assert_eq!(version, 12090);

    for ((gpu, bus_id), index) in gpus.iter().zip(["00000000:00:1F.0", "00000001:C1:02.0"]).zip(0..) {
        let device = handle(index);
        assert_eq!(text(nvmlDeviceGetName, device), gpu.name);
        let hex: Vec<String> = gpu.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let groups = [0..4, 4..6, 6..8, 8..10, 10..16].map(|group| hex[group].concat());
        let uuid = format!("GPU-{}", groups.join("-"));
        assert_eq!(text(nvmlDeviceGetUUID, device), uuid);
        let mut found = ptr::null();
        let c_uuid = std::ffi::CString::new(uuid).expect("no zero in it");
        // SAFETY: a text, and a place for the answer.
        assert_eq!(unsafe { nvmlDeviceGetHandleByUUID(c_uuid.as_ptr(), &raw mut found) }, SUCCESS);
        assert_eq!(found, device);
        let info = memory(device).expect("memory");
        assert_eq!((info.total, info.free, info.used), (gpu.memory_bytes, gpu.memory_bytes, 0));
        let (mut major, mut minor) = (0, 0);
        // SAFETY: places for the answers.
        let status = unsafe { nvmlDeviceGetCudaComputeCapability(device, &raw mut major, &raw mut minor) };
        assert_eq!(status, SUCCESS);
        assert_eq!((major.cast_unsigned(), minor.cast_unsigned()), gpu.compute_capability);
        let mut pci = std::mem::MaybeUninit::<PciInfo>::zeroed();
        // SAFETY: a place for the answer.
        assert_eq!(unsafe { nvmlDeviceGetPciInfo_v3(device, pci.as_mut_ptr()) }, SUCCESS);
        // SAFETY: all zeros are a value of it.
        let pci = unsafe { pci.assume_init() };
        // SAFETY: a text that ends with zero was stored.
        assert_eq!(unsafe { CStr::from_ptr(pci.bus_id.as_ptr()) }.to_str(), Ok(bus_id));
        assert!(processes(device).is_empty(), "who only looks holds nothing");
        // SAFETY: takes no pointers. A message makes a session.
        let status = unsafe { (table.echo)(index.cast_signed()) };
        assert_eq!(status, CUresult::SUCCESS);
        assert_eq!(processes(device), [std::process::id()]);
        let info = memory(device).expect("memory, by message");
        assert_eq!((info.total, info.free, info.used), (gpu.memory_bytes, gpu.memory_bytes, 0));
    }

    // A device that disappears is reported as lost within about a second.
    let device = handle(0);
    drop(bus);
    let gone = Instant::now();
    let status = loop {
        match memory(device) {
            Err(status) => break status,
            Ok(_) => assert!(gone.elapsed() < Duration::from_mins(1), "nobody noticed"),
        }
    };
    assert_eq!(status, NvmlReturn::GPU_IS_LOST);
    // About a second, on a machine that has a processor for it.
    assert!(gone.elapsed() < Duration::from_secs(20), "it took {:?}", gone.elapsed());
    // Facts that were known of it are still reported.
    assert_eq!(text(nvmlDeviceGetName, device), gpus[0].name);
    // SAFETY: no arguments.
    assert_eq!(unsafe { nvmlShutdown() }, SUCCESS);
}
