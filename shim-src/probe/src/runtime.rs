//! The calls of the runtime API that describe a device.

use std::ffi::{c_char, c_int};

use vgpu_probe_steps::{Fault, Gpu, Runtime};

use crate::driver::{string, uuid_text};
use crate::library::{Library, Scope};
use crate::table;

type Status = c_int;

table! {
    /// The functions of libcudart that the probe calls, the same in CUDA 12 and 13.
    Calls {
        cudaRuntimeGetVersion(*mut c_int) -> Status;
        cudaDriverGetVersion(*mut c_int) -> Status;
        cudaGetDeviceCount(*mut c_int) -> Status;
        cudaSetDevice(c_int) -> Status;
        cudaMemGetInfo(*mut usize, *mut usize) -> Status;
        cudaDeviceGetPCIBusId(*mut c_char, c_int, c_int) -> Status;
    }
}

/// Size in bytes of a buffer for `cudaDeviceProp`, more than any CUDA needs (1,032 bytes in 12, 1,008 in 13).
const PROPERTIES: usize = 4096;
/// Size in bytes of `name`, the first field.
const NAME: usize = 256;
/// Offset of `totalGlobalMem`, after name, UUID, LUID and its mask.
const TOTAL: usize = 288;
/// Offset of `major` and `minor`, the same in CUDA 12 and 13.
const CAPABILITY: usize = 360;

/// A buffer for the `cudaDeviceProp` of any CUDA release.
#[repr(C, align(16))]
struct Properties([u8; PROPERTIES]);

impl Properties {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|index| self.0[at + index])
    }
}

fn check(call: &str, status: Status) -> Result<(), Fault> {
    if status == 0 {
        Ok(())
    } else {
        Err(Fault { call: call.into(), code: Some(status), error: "a CUDA error".into() })
    }
}

/// Reports all devices, as the runtime with this SONAME describes them.
pub fn describe(soname: &str, said: &mut Runtime) -> Result<(), Fault> {
    soname.clone_into(&mut said.soname);
    let library = Library::open(soname.as_ref(), Scope::Local)?;
    let calls = Calls::from_library(library)?;
    // CUDA 12 has both functions, and the one without a suffix writes an older structure.
    // SAFETY: the type of both, in the header of the CUDA that has the name.
    let properties = unsafe {
        library
            .function::<unsafe extern "C" fn(*mut Properties, c_int) -> Status>(c"cudaGetDeviceProperties_v2")
    }
    // SAFETY: the same.
    .or_else(|_| unsafe { library.function(c"cudaGetDeviceProperties") })?;
    let mut count = 0;
    // SAFETY: the place is there.
    check("cudaRuntimeGetVersion", unsafe { (calls.cudaRuntimeGetVersion)(&raw mut said.runtime) })?;
    // SAFETY: the place is there.
    check("cudaDriverGetVersion", unsafe { (calls.cudaDriverGetVersion)(&raw mut said.driver) })?;
    // SAFETY: the place is there.
    check("cudaGetDeviceCount", unsafe { (calls.cudaGetDeviceCount)(&raw mut count) })?;
    let mut devices = Vec::new();
    for device in 0..count {
        let mut text = [0; 64];
        // SAFETY: the buffer is as long as said.
        check("cudaDeviceGetPCIBusId", unsafe {
            (calls.cudaDeviceGetPCIBusId)(text.as_mut_ptr(), 64, device)
        })?;
        let mut found = Box::new(Properties([0; PROPERTIES]));
        // SAFETY: the place is larger than the structure of any release.
        check("cudaGetDeviceProperties", unsafe { properties(&raw mut *found, device) })?;
        // SAFETY: no pointers.
        check("cudaSetDevice", unsafe { (calls.cudaSetDevice)(device) })?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both places are there.
        check("cudaMemGetInfo", unsafe { (calls.cudaMemGetInfo)(&raw mut free, &raw mut total) })?;
        let name: [u8; NAME] = found.array(0);
        let [major, minor] = [CAPABILITY, CAPABILITY + 4].map(|at| i32::from_le_bytes(found.array(at)));
        devices.push(Gpu {
            name: string(&name.map(|byte| byte as c_char)),
            pci: string(&text),
            uuid: uuid_text(found.array(NAME)),
            capability: format!("{major}.{minor}"),
            properties_total: Some(u64::from_le_bytes(found.array(TOTAL))),
            total: total as u64,
            free: free as u64,
            ..Gpu::default()
        });
    }
    said.devices = devices;
    Ok(())
}
