//! Result of a search for devices, and the log lines about it.

use std::path::{Path, PathBuf};

use super::log;

/// A device that the search found.
#[derive(Clone, Debug)]
pub struct Device {
    /// Index of the device, or its UUID in older releases.
    pub id: String,
    /// Value for CUDA_VISIBLE_DEVICES, if it differs from the id.
    pub filter: String,
    /// Major and minor number of the compute capability.
    pub capability: (i32, i32),
    /// GGML's name of the device, such as `CUDA0`.
    pub name: String,
    /// Product name of the GPU.
    pub description: String,
    /// Version of the driver as text.
    pub driver: String,
    /// PCI address of the device.
    pub pci: String,
    /// Total memory in bytes.
    pub total: u64,
    /// Free memory in bytes.
    pub free: u64,
    /// Directory of the variant that found the device.
    pub variant: PathBuf,
}

/// Formats a number of bytes as Ollama's log does.
pub fn size(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    if bytes == 0 {
        return "0 B".to_owned();
    }
    if bytes < GIB {
        return format!("{}.{} MiB", bytes >> 20, ((bytes & 0xf_ffff) * 10) >> 20);
    }
    format!("{}.{} GiB", bytes / GIB, bytes % GIB * 10 / GIB)
}

/// Formats a driver version such as `13.0`.
pub fn driver_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Logs the `inference compute` line of a device, in the form used since 0.12.4.
pub fn report(device: &Device) {
    let compute = format!("{}.{}", device.capability.0, device.capability.1);
    let libraries = super::paths::names(&[Path::new("ollama"), &device.variant]);
    log::info(
        "types.go:42",
        "inference compute",
        &[
            ("id", &device.id),
            ("filter_id", &device.filter),
            ("library", "CUDA"),
            ("compute", &compute),
            ("name", &device.name),
            ("description", &device.description),
            ("libdirs", &libraries),
            ("driver", &device.driver),
            ("pci_id", &device.pci),
            ("type", "discrete"),
            ("total", &size(device.total)),
            ("available", &size(device.free)),
        ],
    );
}

/// Logs the line for a system without a device, in the form used since 0.12.4.
pub fn report_cpu() {
    log::info(
        "types.go:60",
        "inference compute",
        &[
            ("id", "cpu"),
            ("library", "cpu"),
            ("compute", ""),
            ("name", "cpu"),
            ("description", "cpu"),
            ("libdirs", "ollama"),
            ("driver", ""),
            ("pci_id", ""),
            ("type", ""),
            ("total", &size(16 << 30)),
            ("available", &size(15 << 30)),
        ],
    );
}

/// Logs the line about the default context, which follows those of the devices.
pub fn report_context(devices: &[Device]) {
    let total: u64 = devices.iter().map(|device| device.total).sum();
    let context = match total >> 30 {
        47.. => "262144",
        23.. => "32768",
        _ => "4096",
    };
    let fields = [("total_vram", size(total)), ("default_num_ctx", context.to_owned())];
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, text)| (*name, text.as_str())).collect();
    log::info("routes.go:1920", "vram-based default context", &fields);
}

/// Keeps one entry for each device: that of the newest variant.
pub fn newest(mut found: Vec<Device>) -> Vec<Device> {
    found.sort_by(|left, right| right.variant.cmp(&left.variant).then(left.id.cmp(&right.id)));
    let mut kept: Vec<Device> = Vec::new();
    for device in found {
        if kept.iter().all(|other| other.pci != device.pci) {
            kept.push(device);
        }
    }
    kept
}
