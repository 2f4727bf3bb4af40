//! What `vgpu-probe` says in its steps.

use serde::{Deserialize, Serialize};

use crate::messages;

/// How long a step took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Elapsed {
    /// In microseconds.
    pub elapsed_us: u64,
}

/// Why a step failed: a call with its code, or anything else in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Fault {
    /// The call that failed, as its library names it.
    pub call: String,
    /// Its error code. None if the call succeeded and its result is wrong.
    pub code: Option<i32>,
    /// The error in words: the library's own, or ours.
    pub error: String,
}

impl Fault {
    /// Returns a failure without a code: a wrong result, or a call that has none.
    pub fn wrong(call: &str, error: impl Into<String>) -> Self {
        Self { call: call.into(), code: None, error: error.into() }
    }

    /// Returns the code as it follows a sentence: ` (218)`.
    pub fn code_text(&self) -> String {
        self.code.map(|code| format!(" ({code})")).unwrap_or_default()
    }
}

/// How a step ended. A reader takes [`Elapsed`], [`Fault`] or what the step said from the line, as it needs.
#[derive(Debug, Serialize)]
pub struct Ended<T> {
    /// How long it took.
    #[serde(flatten)]
    pub elapsed: Elapsed,
    /// What it said; of a step that failed, as far as it came.
    #[serde(flatten)]
    pub said: T,
    /// Why it failed.
    #[serde(flatten)]
    pub fault: Option<Fault>,
}

/// A file in a process's map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Mapped {
    /// Its path; of a memory file `/memfd:NAME (deleted)`.
    pub path: String,
    /// Its device, as `/proc/PID/maps` writes it: `fd:01`.
    pub device: String,
    /// Its inode.
    pub inode: u64,
}

/// What the loader answers for a name. The step is called like the name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Resolved {
    /// The name by which the loader knows the file.
    pub path: String,
    /// The file, where it is mapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Mapped>,
}

/// A device as the driver, the runtime or NVML describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Gpu {
    /// The product's name.
    pub name: String,
    /// PCI address. NVML writes the domain with eight digits, CUDA with four.
    pub pci: String,
    /// UUID, as NVIDIA writes it.
    pub uuid: String,
    /// Compute capability, such as `6.1`.
    pub capability: String,
    /// Bytes of memory.
    pub total: u64,
    /// Of these, free.
    pub free: u64,
    /// Of these, in use. NVML alone says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// Bytes of memory as `cuDeviceTotalMem` says. The driver alone says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_total: Option<u64>,
    /// Bytes of memory as `cudaDeviceProp` says. The runtime alone says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties_total: Option<u64>,
    /// Whether it shares the host's memory. The driver alone says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub integrated: Option<bool>,
}

/// A device that a GGML backend describes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct BackendDevice {
    /// Its name, such as `CUDA0`.
    pub name: String,
    /// The product's name.
    pub description: String,
    /// Bytes of memory. None: the line does not say.
    pub total: Option<u64>,
    /// Of these, free.
    pub free: u64,
}

messages! {
    /// The devices that CUDA's driver describes.
    "driver" Driver {
        /// `cuDriverGetVersion`: 13000 is 13.0.
        version: i32,
        /// The devices.
        devices: Vec<Gpu>,
    }

    /// The devices that CUDA's runtime describes.
    "runtime" Runtime {
        /// The library that was asked.
        soname: String,
        /// `cudaRuntimeGetVersion`.
        runtime: i32,
        /// `cudaDriverGetVersion`.
        driver: i32,
        /// The devices.
        devices: Vec<Gpu>,
    }

    /// The devices that NVML describes.
    "nvml" Nvml {
        /// The driver's version.
        driver: String,
        /// The devices.
        devices: Vec<Gpu>,
    }

    /// A GGML backend was opened.
    "open" Opened {
        /// The name by which the loader knows its file.
        path: String,
        /// Its file.
        file: Option<Mapped>,
        /// All shared objects of the process, now that it is open.
        objects: Vec<Mapped>,
    }

    /// A GGML backend was started.
    "start" Started {
        /// Its name, such as `CUDA`.
        backend: String,
        /// How many devices it has.
        count: usize,
    }

    /// The devices that a backend describes.
    "devices" Devices {
        /// The devices.
        devices: Vec<BackendDevice>,
    }

    /// Device memory was allocated.
    "allocate" Allocated {
        /// How many bytes.
        bytes: usize,
    }

    /// A matrix product was compared with one by hand.
    "gemm" Product {
        /// The largest difference of an element.
        largest_difference: f64,
    }

    /// How fast copies are, in bytes per second.
    "bandwidth" Bandwidth {
        /// From ordinary memory to the device.
        pageable_to_device: u64,
        /// From the device to ordinary memory.
        pageable_to_host: u64,
        /// From pinned memory to the device.
        pinned_to_device: u64,
        /// From the device to pinned memory.
        pinned_to_host: u64,
    }

    /// How long small operations take, in nanoseconds.
    "latency" Latency {
        /// A read that waits for the host.
        read_ns: u64,
        /// A kernel that is waited for. 0: there was no kernel.
        launch_ns: u64,
    }
}
