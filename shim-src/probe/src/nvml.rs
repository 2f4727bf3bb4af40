//! The NVML calls that Ollama makes: versions, and each device by its UUID.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use vgpu_probe_steps::{Fault, Gpu, Nvml};

use crate::driver::string;
use crate::library::{Library, Scope};
use crate::table;

type Status = c_int;
type Handle = *mut c_void;

table! {
    /// The functions of libnvidia-ml that the probe calls.
    Calls {
        nvmlInit_v2() -> Status;
        nvmlShutdown() -> Status;
        nvmlSystemGetDriverVersion(*mut c_char, c_uint) -> Status;
        nvmlDeviceGetHandleByUUID(*const c_char, *mut Handle) -> Status;
        nvmlDeviceGetName(Handle, *mut c_char, c_uint) -> Status;
        nvmlDeviceGetUUID(Handle, *mut c_char, c_uint) -> Status;
        nvmlDeviceGetMemoryInfo(Handle, *mut MemoryInfo) -> Status;
        nvmlDeviceGetPciInfo_v3(Handle, *mut PciInfo) -> Status;
        nvmlDeviceGetCudaComputeCapability(Handle, *mut c_int, *mut c_int) -> Status;
    }
}

/// `nvmlMemory_t`; all sizes in bytes.
#[derive(Default)]
#[repr(C)]
pub struct MemoryInfo {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlPciInfo_t`: the PCI address and ids of a device.
#[repr(C)]
pub struct PciInfo {
    legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    ids: [c_uint; 2],
    text: [c_char; 32],
}

const _: () = assert!(size_of::<PciInfo>() == 68 && size_of::<MemoryInfo>() == 24);

fn check(call: &str, status: Status) -> Result<(), Fault> {
    if status == 0 {
        Ok(())
    } else {
        Err(Fault { call: call.into(), code: Some(status), error: "an NVML error".into() })
    }
}

/// Reports the devices with these UUIDs, as NVML describes them.
pub fn describe(uuids: &[String], said: &mut Nvml) -> Result<(), Fault> {
    let calls = Calls::from_library(Library::open("libnvidia-ml.so.1".as_ref(), Scope::Local)?)?;
    // SAFETY: no arguments.
    check("nvmlInit_v2", unsafe { (calls.nvmlInit_v2)() })?;
    let mut text = [0; 80];
    // SAFETY: the buffer is as long as said.
    check("nvmlSystemGetDriverVersion", unsafe {
        (calls.nvmlSystemGetDriverVersion)(text.as_mut_ptr(), 80)
    })?;
    said.driver = string(&text);
    said.devices = uuids.iter().map(|uuid| device(&calls, uuid)).collect::<Result<_, _>>()?;
    // SAFETY: no arguments; no handle is used after it.
    check("nvmlShutdown", unsafe { (calls.nvmlShutdown)() })
}

fn device(calls: &Calls, uuid: &str) -> Result<Gpu, Fault> {
    let text = CString::new(uuid).map_err(|_| Fault::wrong("nvmlDeviceGetHandleByUUID", "not a UUID"))?;
    let mut handle = ptr::null_mut();
    // SAFETY: a C string, and a place for the handle.
    check("nvmlDeviceGetHandleByUUID", unsafe {
        (calls.nvmlDeviceGetHandleByUUID)(text.as_ptr(), &raw mut handle)
    })?;
    let (mut name, mut own) = ([0; 96], [0; 96]);
    // SAFETY: NVML's handle; the buffer is as long as said.
    check("nvmlDeviceGetName", unsafe { (calls.nvmlDeviceGetName)(handle, name.as_mut_ptr(), 96) })?;
    // SAFETY: the same.
    check("nvmlDeviceGetUUID", unsafe { (calls.nvmlDeviceGetUUID)(handle, own.as_mut_ptr(), 96) })?;
    let mut memory = MemoryInfo::default();
    // SAFETY: the structure is the call's.
    check("nvmlDeviceGetMemoryInfo", unsafe { (calls.nvmlDeviceGetMemoryInfo)(handle, &raw mut memory) })?;
    let mut pci = PciInfo { legacy: [0; 16], domain: 0, bus: 0, device: 0, ids: [0; 2], text: [0; 32] };
    // SAFETY: the structure is the call's.
    check("nvmlDeviceGetPciInfo_v3", unsafe { (calls.nvmlDeviceGetPciInfo_v3)(handle, &raw mut pci) })?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both places are there.
    let status =
        unsafe { (calls.nvmlDeviceGetCudaComputeCapability)(handle, &raw mut major, &raw mut minor) };
    check("nvmlDeviceGetCudaComputeCapability", status)?;
    Ok(Gpu {
        name: string(&name),
        pci: string(&pci.text),
        uuid: string(&own),
        capability: format!("{major}.{minor}"),
        total: memory.total,
        free: memory.free,
        used: Some(memory.used),
        ..Gpu::default()
    })
}
