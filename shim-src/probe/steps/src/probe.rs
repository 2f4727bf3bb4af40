//! Results that `vgpu-probe` reports in its steps.

use serde::{Deserialize, Serialize};

use crate::messages;

/// Time that a step took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Elapsed {
    /// Time in microseconds.
    pub elapsed_us: u64,
}

/// Reason why a step failed: a call with its code, or a description.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Fault {
    /// Name of the call that failed, in its library.
    pub call: String,
    /// Error code of the call; `None` if the call succeeded and its result is wrong.
    pub code: Option<i32>,
    /// Description of the error, the library's own or the probe's.
    pub error: String,
}

impl Fault {
    /// Creates a failure without a code: a wrong result, or a call that has none.
    pub fn wrong(call: &str, error: impl Into<String>) -> Self {
        Self { call: call.into(), code: None, error: error.into() }
    }

    /// Returns the code in the form in which it follows a sentence: ` (218)`.
    pub fn code_text(&self) -> String {
        self.code.map(|code| format!(" ({code})")).unwrap_or_default()
    }
}

/// Outcome of a step. A reader takes [`Elapsed`], [`Fault`] or the results from the line, as it needs.
#[derive(Debug, Serialize)]
pub struct Ended<T> {
    /// Time that the step took.
    #[serde(flatten)]
    pub elapsed: Elapsed,
    /// Results of the step; those of a step that failed may be incomplete.
    #[serde(flatten)]
    pub said: T,
    /// Reason of the failure, if the step failed.
    #[serde(flatten)]
    pub fault: Option<Fault>,
}

/// A file in the map of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Mapped {
    /// Path of the file; `/memfd:NAME (deleted)` for a memory file.
    pub path: String,
    /// Device of the file, as `/proc/PID/maps` writes it: `fd:01`.
    pub device: String,
    /// Inode of the file.
    pub inode: u64,
}

/// The file that the loader uses for a name. The name of the step is that name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Resolved {
    /// Path by which the loader knows the file.
    pub path: String,
    /// The file as it is mapped, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Mapped>,
}

/// A device as the driver, the runtime or NVML describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Gpu {
    /// Product name of the device.
    pub name: String,
    /// PCI address of the device. NVML writes the domain with eight digits, CUDA with four.
    pub pci: String,
    /// UUID in the form in which NVIDIA writes it.
    pub uuid: String,
    /// Compute capability, such as `6.1`.
    pub capability: String,
    /// Size of the device memory in bytes.
    pub total: u64,
    /// Free device memory in bytes.
    pub free: u64,
    /// Used device memory in bytes. Only NVML reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// Size of the device memory in bytes, as `cuDeviceTotalMem` returns it. Only the driver reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_total: Option<u64>,
    /// Size of the device memory in bytes, as in `cudaDeviceProp`. Only the runtime reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties_total: Option<u64>,
    /// Whether the device shares the host's memory. Only the driver reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub integrated: Option<bool>,
}

/// A device that a GGML backend describes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct BackendDevice {
    /// Name of the device, such as `CUDA0`.
    pub name: String,
    /// Product name of the device.
    pub description: String,
    /// Size of the device memory in bytes; `None` if the line does not state it.
    pub total: Option<u64>,
    /// Free device memory in bytes.
    pub free: u64,
}

messages! {
    /// The devices that CUDA's driver describes.
    "driver" Driver {
        /// Version that `cuDriverGetVersion` returns: 13000 is 13.0.
        version: i32,
        /// Devices, in the order of their ordinals.
        devices: Vec<Gpu>,
    }

    /// The devices that CUDA's runtime describes.
    "runtime" Runtime {
        /// SONAME of the library that was asked.
        soname: String,
        /// Version that `cudaRuntimeGetVersion` returns.
        runtime: i32,
        /// Version that `cudaDriverGetVersion` returns.
        driver: i32,
        /// Devices, in the order of their ordinals.
        devices: Vec<Gpu>,
    }

    /// The devices that NVML describes.
    "nvml" Nvml {
        /// Version of the driver, as text.
        driver: String,
        /// Devices, in the order of the driver's.
        devices: Vec<Gpu>,
    }

    /// The GGML backend that was opened.
    "open" Opened {
        /// Path by which the loader knows the backend's file.
        path: String,
        /// The backend's file as it is mapped, if it is.
        file: Option<Mapped>,
        /// All shared objects of the process after the backend was opened.
        objects: Vec<Mapped>,
    }

    /// The GGML backend that was started.
    "start" Started {
        /// Name of the backend, such as `CUDA`.
        backend: String,
        /// Number of the backend's devices.
        count: usize,
    }

    /// The devices that a backend describes.
    "devices" Devices {
        /// Devices, in the backend's order.
        devices: Vec<BackendDevice>,
    }

    /// The device memory that was allocated.
    "allocate" Allocated {
        /// Number of bytes allocated.
        bytes: usize,
    }

    /// The comparison of a matrix product with one computed by the probe.
    "gemm" Product {
        /// Largest difference of an element.
        largest_difference: f64,
    }

    /// Speed of copies, in bytes per second.
    "bandwidth" Bandwidth {
        /// Speed of copies from ordinary memory to the device.
        pageable_to_device: u64,
        /// Speed of copies from the device to ordinary memory.
        pageable_to_host: u64,
        /// Speed of copies from pinned memory to the device.
        pinned_to_device: u64,
        /// Speed of copies from the device to pinned memory.
        pinned_to_host: u64,
    }

    /// Duration of small operations, in nanoseconds.
    "latency" Latency {
        /// Duration of a read, which waits for the host.
        read_ns: u64,
        /// Duration of a kernel's launch and the wait for it; 0 if there was no kernel.
        launch_ns: u64,
    }
}
