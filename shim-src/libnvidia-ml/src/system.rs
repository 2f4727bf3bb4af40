//! What concerns the system: versions, names of processes, units.

use std::ffi::{c_int, c_uint};
use std::fs;
use std::io::ErrorKind;

use vgpu_abi::export;
use vgpu_abi::nvml::NvmlReturn;
use vgpu_wire::facts::DeviceFacts;

use crate::arg::{Out, Text, padded};
use crate::{Result, driver, session};

/// What the first device that answers says of the driver.
fn facts() -> Result<&'static DeviceFacts> {
    let mut devices = driver::gpus()?;
    let first = devices.next().unwrap_or(Err(NvmlReturn::DRIVER_NOT_LOADED));
    let gpu = first.or_else(|status| devices.find_map(Result::ok).ok_or(status))?;
    Ok(&gpu.device.facts)
}

/// The name that a process was started by.
fn process_name(pid: c_uint) -> Result<Vec<u8>> {
    let read = |file| {
        fs::read(format!("/proc/{pid}/{file}")).map_err(|error| match error.kind() {
            ErrorKind::NotFound => NvmlReturn::NOT_FOUND,
            ErrorKind::PermissionDenied => NvmlReturn::NO_PERMISSION,
            // A process that ends while it is looked at.
            _ if error.raw_os_error() == Some(libc::ESRCH) => NvmlReturn::NOT_FOUND,
            _ => NvmlReturn::UNKNOWN,
        })
    };
    let command = read("cmdline")?;
    match padded(&command) {
        // A thread of the kernel, or a process that ends.
        [] => Ok(read("comm")?.trim_ascii_end().to_vec()),
        name => Ok(name.to_vec()),
    }
}

export! {
    /// The driver's version, a fact of the device.
    pub fn nvmlSystemGetDriverVersion(version: Text, length: c_uint) -> NvmlReturn {
        session::required()?;
        version.set(padded(&facts()?.driver_text), length)
    }

    /// The version of NVML: the CUDA major and the driver's version, as NVIDIA writes it. Works before
    /// initialisation if a device is there, since its driver's version is what this library has.
    pub fn nvmlSystemGetNVMLVersion(version: Text, length: c_uint) -> NvmlReturn {
        let facts = facts()?;
        let text = [(facts.driver_version / 1000).to_string().as_bytes(), padded(&facts.driver_text)].join(&b'.');
        version.set(&text, length)
    }

    /// The newest CUDA that the driver supports: 1000 * major + 10 * minor.
    pub fn nvmlSystemGetCudaDriverVersion(version: Out<c_int>) -> NvmlReturn {
        session::required()?;
        version.check()?.set(driver::cuda_version()?)
    }

    /// The newest CUDA that the driver supports: 1000 * major + 10 * minor.
    pub fn nvmlSystemGetCudaDriverVersion_v2(version: Out<c_int>) -> NvmlReturn {
        session::required()?;
        version.check()?.set(driver::cuda_version()?)
    }

    /// The name that a process was started by, cropped to the buffer.
    pub fn nvmlSystemGetProcessName(pid: c_uint, name: Text, length: c_uint) -> NvmlReturn {
        session::required()?;
        name.set_cropped(&[], length)?;
        name.set_cropped(&process_name(pid)?, length)
    }

    /// How many S-class units there are: none.
    pub fn nvmlUnitGetCount(count: Out<c_uint>) -> NvmlReturn {
        session::required()?;
        count.set(0)
    }

    /// How many devices an administrator has excluded: none, libcuda shows all.
    pub fn nvmlGetExcludedDeviceCount(count: Out<c_uint>) -> NvmlReturn {
        count.set(0)
    }
}
