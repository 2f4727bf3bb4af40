//! What `vgpu-probe` says in its steps, as far as the links read it. The probe's own `say.rs` writes it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::messages::{Message, messages};

/// Why a step of the probe failed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Fault {
    /// The call that failed.
    pub call: String,
    /// Its error code. None if the call succeeded and its result is wrong.
    pub code: Option<i64>,
    /// The error in words.
    pub error: String,
}

impl Fault {
    /// The code as it follows a sentence: ` (218)`.
    pub fn code_text(&self) -> String {
        self.code.map(|code| format!(" ({code})")).unwrap_or_default()
    }
}

/// What the loader answers for a name. The step is called like the name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Resolved {
    /// The name by which the loader knows the file.
    pub path: String,
    /// The file, where it is mapped.
    pub file: Option<Mapped>,
    /// Why there is none.
    pub error: String,
}

/// A file in a process's map.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Mapped {
    /// Its path.
    pub path: String,
    /// Its device, as `/proc/PID/maps` writes it.
    pub device: String,
    /// Its inode.
    pub inode: u64,
}

messages! {
    /// The devices that CUDA's driver describes.
    "driver" Driver {
        /// `cuDriverGetVersion`.
        version: u64,
        /// The devices: see [`Gpu`].
        devices: Vec<Value>,
    }

    /// The devices that CUDA's runtime describes.
    "runtime" Runtime {
        /// The devices: see [`Gpu`].
        devices: Vec<Value>,
    }

    /// The devices that NVML describes.
    "nvml" Nvml {
        /// The driver's version.
        driver: String,
        /// The devices: see [`Gpu`].
        devices: Vec<Value>,
    }

    /// The devices that a backend describes.
    "devices" Devices {
        /// The devices.
        devices: Vec<BackendDevice>,
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
        /// A kernel that is waited for.
        launch_ns: u64,
    }
}

/// A device that a backend describes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct BackendDevice {
    /// Its name, such as `CUDA0`.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Bytes of memory.
    pub total: Option<u64>,
    /// Of these, free.
    pub free: u64,
}

/// What is compared of a device that the driver, the runtime and NVML describe.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// PCI address.
    pub pci: String,
    /// UUID.
    pub uuid: String,
    /// Compute capability.
    pub capability: String,
    /// Bytes of memory.
    pub total: u64,
}

/// How long a step took.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Elapsed {
    /// In microseconds.
    pub elapsed_us: u64,
}
