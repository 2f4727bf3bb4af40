//! Calls about the system: versions, names of processes, and units.

use std::ffi::{c_int, c_uint};
use std::fs;
use std::io::ErrorKind;

use vgpu_abi::export;
use vgpu_abi::nvml::NvmlReturn;
use vgpu_wire::facts::DeviceFacts;

use crate::arg::{Out, Text, padded};
use crate::{Result, driver, session};

/// Returns the facts of the first device that answers, for the driver's version.
fn facts() -> Result<&'static DeviceFacts> {
    let mut devices = driver::gpus()?;
    let first = devices.next().unwrap_or(Err(NvmlReturn::DRIVER_NOT_LOADED));
    let gpu = first.or_else(|status| devices.find_map(Result::ok).ok_or(status))?;
    Ok(&gpu.device.facts)
}

/// Returns the name under which a process was started.
fn process_name(pid: c_uint) -> Result<Vec<u8>> {
    let read = |file| {
        fs::read(format!("/proc/{pid}/{file}")).map_err(|error| match error.kind() {
            ErrorKind::NotFound => NvmlReturn::NOT_FOUND,
            ErrorKind::PermissionDenied => NvmlReturn::NO_PERMISSION,
            // The process ended while its name was read.
            _ if error.raw_os_error() == Some(libc::ESRCH) => NvmlReturn::NOT_FOUND,
            _ => NvmlReturn::UNKNOWN,
        })
    };
    let command = read("cmdline")?;
    match padded(&command) {
        // A kernel thread, or a process that is ending.
        [] => Ok(read("comm")?.trim_ascii_end().to_vec()),
        name => Ok(name.to_vec()),
    }
}

export! {
    /// Stores the driver's version, from the device's facts.
    pub fn nvmlSystemGetDriverVersion(version: Text, length: c_uint) -> NvmlReturn {
        session::required()?;
        version.set(padded(&facts()?.driver_text), length)
    }

    /// Stores the version of NVML as NVIDIA writes it: the CUDA major and the driver's version. It works
    /// before initialisation if there is a device, from which the driver's version is read.
    pub fn nvmlSystemGetNVMLVersion(version: Text, length: c_uint) -> NvmlReturn {
        let facts = facts()?;
        let text = [(facts.driver_version / 1000).to_string().as_bytes(), padded(&facts.driver_text)].join(&b'.');
        version.set(&text, length)
    }

    /// Stores the newest CUDA version that the driver supports: 1000 * major + 10 * minor.
    pub fn nvmlSystemGetCudaDriverVersion(version: Out<c_int>) -> NvmlReturn {
        session::required()?;
        version.check()?.set(driver::cuda_version()?)
    }

    /// Stores the newest CUDA version that the driver supports: 1000 * major + 10 * minor.
    pub fn nvmlSystemGetCudaDriverVersion_v2(version: Out<c_int>) -> NvmlReturn {
        session::required()?;
        version.check()?.set(driver::cuda_version()?)
    }

    /// Stores the name under which a process was started, truncated to the buffer.
    pub fn nvmlSystemGetProcessName(pid: c_uint, name: Text, length: c_uint) -> NvmlReturn {
        session::required()?;
        name.set_cropped(&[], length)?;
        name.set_cropped(&process_name(pid)?, length)
    }

    /// Stores the number of S-class units, which is 0.
    pub fn nvmlUnitGetCount(count: Out<c_uint>) -> NvmlReturn {
        session::required()?;
        count.set(0)
    }

    /// Stores the number of devices that an administrator has excluded, which is 0, because libcuda shows
    /// all.
    pub fn nvmlGetExcludedDeviceCount(count: Out<c_uint>) -> NvmlReturn {
        count.set(0)
    }
}
