//! Discovery of era A: the server opens the driver's library itself, by its path.

use std::path::{Path, PathBuf};

use super::device::{self, Device};
use super::{backend, log, paths};

/// Directories that Ollama searches after its own directory and LD_LIBRARY_PATH.
const USUAL: [&str; 8] = [
    "/usr/local/cuda/lib64",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/wsl/lib",
    "/opt/cuda/lib64",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
];

/// Resolves links by their text, as Ollama does. The text of a link to a memory file is not a valid path.
fn resolved(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..40 {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path =
            if target.is_absolute() { target } else { path.parent().unwrap_or(Path::new("/")).join(target) };
    }
    path
}

/// Returns the paths of all `libcuda.so*` in search order, with links resolved.
fn candidates(libraries: &Path) -> Vec<PathBuf> {
    let given = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut found = Vec::new();
    let folders = std::iter::once(libraries.to_owned())
        .chain(std::env::split_paths(&given))
        .chain(USUAL.iter().map(PathBuf::from));
    for folder in folders.filter(|folder| !folder.as_os_str().is_empty()) {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut names: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("libcuda.so"))
            .map(|entry| resolved(&entry.path()))
            .collect();
        names.sort();
        for name in names {
            if !found.contains(&name) {
                found.push(name);
            }
        }
    }
    found
}

/// Looks, and says what it found.
pub fn find_devices(libraries: &Path) -> Vec<Device> {
    let paths = candidates(libraries);
    let list = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ");
    log::debug("gpu.go:558", "discovered GPU libraries", &[("paths", &format!("[{list}]"))]);
    for path in &paths {
        match backend::drivers(path, true) {
            // The first that starts is taken, whatever it shows.
            Ok(found) if found.is_empty() => break,
            Ok(found) => return report(libraries, &found),
            Err(error) => {
                let text = format!("Unable to load cudart library {}: {error:#}", path.display());
                log::info("gpu.go:612", &text, &[]);
            }
        }
    }
    log::info("gpu.go:396", "no compatible GPUs were discovered", &[]);
    let fields =
        [("id", "0"), ("library", "cpu"), ("variant", ""), ("compute", ""), ("driver", "0.0"), ("name", "")];
    let sizes = [("total", device::size(16 << 30)), ("available", device::size(15 << 30))];
    let fields: Vec<(&str, &str)> =
        fields.into_iter().chain(sizes.iter().map(|(name, text)| (*name, text.as_str()))).collect();
    log::info("types.go:131", "inference compute", &fields);
    Vec::new()
}

fn report(libraries: &Path, found: &[backend::Driver]) -> Vec<Device> {
    // From 0.12 on one old device keeps all on CUDA 12.
    let old = found.iter().any(|driver| driver.version < 13_000 || driver.capability < (7, 5));
    let both = paths::variants(libraries);
    let name = if old { "v12" } else { "v13" };
    let variant = libraries.join(format!("cuda_{name}"));
    let variant = if both.contains(&variant) { variant } else { both.into_iter().next().unwrap_or(variant) };
    let mut devices = Vec::new();
    for (index, driver) in found.iter().enumerate() {
        let compute = format!("{}.{}", driver.capability.0, driver.capability.1);
        if driver.capability.0 < 5 {
            let text = format!("[{index}] CUDA GPU is too old. Compute Capability detected: {compute}");
            log::info("gpu.go:301", &text, &[]);
            continue;
        }
        let (version, total, free) =
            (device::driver_text(driver.version), device::size(driver.total), device::size(driver.free));
        log::info(
            "types.go:131",
            "inference compute",
            &[
                ("id", &driver.uuid),
                ("library", "cuda"),
                ("variant", name),
                ("compute", &compute),
                ("driver", &version),
                ("name", &driver.name),
                ("total", &total),
                ("available", &free),
            ],
        );
        devices.push(Device {
            id: driver.uuid.clone(),
            filter: String::new(),
            capability: driver.capability,
            name: format!("CUDA{index}"),
            description: driver.name.clone(),
            driver: version,
            pci: driver.pci.clone(),
            total: driver.total,
            free: driver.free,
            variant: variant.clone(),
        });
    }
    devices
}
