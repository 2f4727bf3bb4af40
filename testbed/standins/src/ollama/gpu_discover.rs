//! Stand-in for `ollama gpu-discover` of era C: prints the properties of each device according to GGML and
//! the driver, as JSON.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use super::backend::{self, Backend, Driver, GgmlDevice};
use super::paths;

/// Arguments after `gpu-discover`.
pub fn discover(arguments: &[&str]) -> Result<()> {
    let mut folders: Vec<PathBuf> = arguments
        .windows(2)
        .filter(|pair| pair[0] == "--lib-dir")
        .map(|pair| PathBuf::from(pair[1]))
        .collect();
    if folders.is_empty() {
        folders.push(paths::libraries()?);
    }
    let mut seen = Vec::new();
    let mut failed = None;
    for path in folders.iter().skip(1).filter_map(|folder| paths::backend(folder)) {
        match Backend::load(&folders[0], &path).and_then(|backend| backend.devices()) {
            Ok(devices) => seen.extend(devices),
            Err(error) => {
                eprintln!("load_backend: failed to load {}: {error:#}", path.display());
                failed = Some(error);
            }
        }
    }
    let cuda = folders
        .iter()
        .any(|folder| folder.file_name().is_some_and(|name| name.to_string_lossy().contains("cuda")));
    let drivers = if cuda { backend::drivers(Path::new("libcuda.so.1"), false) } else { Ok(Vec::new()) };
    let drivers = match (drivers, seen.is_empty()) {
        (Ok(drivers), _) => drivers,
        (Err(_), false) => Vec::new(),
        (Err(error), true) => return Err(failed.unwrap_or(error)).context("dlopen libcuda.so.1"),
    };
    let nvidia = backend::nvml_driver_major().unwrap_or(0);
    let devices: Vec<_> =
        seen.iter().enumerate().map(|(index, seen)| entry(index, seen, &drivers, nvidia)).collect();
    println!("{}", json!({ "devices": devices }));
    Ok(())
}

fn entry(index: usize, seen: &GgmlDevice, drivers: &[Driver], nvidia: u32) -> serde_json::Value {
    let driver = drivers.iter().find(|driver| driver.pci.eq_ignore_ascii_case(&seen.pci));
    let driver = driver.cloned().unwrap_or_default();
    let mut entry = json!({
        "library": "CUDA",
        "index": index,
        "index_matches_backend": true,
        "name": seen.name,
        "description": seen.description,
        "device_id": seen.pci,
        "integrated_known": true,
        "total_memory": seen.total,
        "free_memory": seen.free,
        "compute_major": driver.capability.0,
        "compute_minor": driver.capability.1,
        "cuda_driver_major": driver.version / 1000,
        "cuda_driver_minor": driver.version % 1000 / 10,
        "nvidia_driver_major": nvidia,
    });
    if driver.integrated {
        entry["integrated"] = true.into();
    }
    entry
}
