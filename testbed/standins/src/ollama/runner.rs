//! Stand-in for `ollama runner` of eras A and B: loads the backends of `OLLAMA_LIBRARY_PATH`, reports the
//! devices over HTTP, and with a model allocates memory on the first device.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::backend::{self, Backend};
use super::{http, paths};

/// Memory of a model in MiB, unless a test sets another value.
const MODEL_MIB: usize = 8;

/// Key in the answer of `/health` for the model's bytes on the device. A real runner logs that number
/// instead.
pub const ON_DEVICE: &str = "on_device";

/// Returns the memory of a model in bytes.
pub fn model_bytes() -> Result<usize> {
    let mib = match std::env::var("STANDIN_MODEL_MIB") {
        Ok(text) => text.parse().context("STANDIN_MODEL_MIB")?,
        Err(_) => MODEL_MIB,
    };
    Ok(mib << 20)
}

/// Allocates a model's memory on the device, and takes the lock that a test names until the process ends.
/// Returns the number of allocated bytes.
pub fn load(backend: &Backend) -> Result<usize> {
    let bytes = model_bytes()?;
    backend.allocate(bytes)?;
    if let Some(path) = std::env::var_os("STANDIN_LOCK") {
        let file = std::fs::File::options().write(true).open(&path).context("STANDIN_LOCK")?;
        file.lock().context("STANDIN_LOCK")?;
        std::mem::forget(file);
    }
    Ok(bytes)
}

/// Writes the file of a model without layers, as a real runner does before it lists the devices.
fn dummy_model() -> Result<()> {
    let path = std::env::temp_dir().join(format!("{}.bin", std::process::id()));
    std::fs::write(&path, "GGUF").with_context(|| format!("open {}", path.display()))?;
    Ok(std::fs::remove_file(&path)?)
}

/// Arguments after `runner`.
pub fn serve_runner(arguments: &[&str]) -> Result<()> {
    let after = |name: &str| {
        let at = arguments.iter().position(|word| *word == name)?;
        arguments.get(at + 1).copied()
    };
    let port: u16 = after("--port").context("--port")?.parse().context("--port")?;
    let model = after("--model");
    let layers = after("--n-gpu-layers").unwrap_or("-1");
    let folders: Vec<PathBuf> =
        std::env::split_paths(&std::env::var_os("OLLAMA_LIBRARY_PATH").unwrap_or_default()).collect();
    let mut loaded = Vec::new();
    for folder in folders.iter().filter(|folder| folder.to_string_lossy().contains("lib/ollama")) {
        let Some(path) = paths::backend(folder) else { continue };
        // Like the real runner, prints nothing about a backend that fails to load.
        if let Ok(backend) = Backend::load(folders.first().map_or(Path::new("."), PathBuf::as_path), &path) {
            eprintln!("load_backend: loaded CUDA backend from {}", path.display());
            loaded.push(backend);
        }
    }
    // A backend of releases with llama-server loads, shows its devices, and has other structures than this
    // release's program thinks.
    if !loaded.is_empty() && folders.iter().any(|folder| folder.join("llama-server").exists()) {
        eprintln!("SIGSEGV: segmentation violation\nsignal arrived during cgo execution");
        std::process::exit(2);
    }
    let features: Vec<String> = loaded
        .iter()
        .flat_map(|backend| backend.features().unwrap_or_default())
        .map(|feature| format!("CUDA.0.{}", feature.replace(" = ", "=")))
        .collect();
    let processor = folders.first().is_some_and(|folder| paths::has_processor_backend(folder));
    let own = if processor { "CPU.0.LLAMAFILE=1 " } else { "" };
    eprintln!("msg=system {own}{} compiler=cgo(gcc)", features.join(" "));
    if model.is_some() && !processor {
        bail!("error loading model: make_cpu_buft_list: no CPU backend found");
    }
    let mut on_device = 0;
    if let Some(backend) = loaded.first().filter(|_| model.is_some() && layers != "0") {
        on_device = load(backend)?;
    }
    let devices = info(&loaded)?;
    http::answer(&http::listen(&format!("127.0.0.1:{port}"))?, &move |path, _| match path {
        "/info" => {
            dummy_model().context("failed to initialize baackend")?;
            Ok(devices.to_string())
        }
        "/health" => Ok(json!({ "status": 0, "progress": 1.0, ON_DEVICE: on_device }).to_string()),
        other => bail!("{other}: not found"),
    });
    Ok(())
}

/// Returns the answer of `/info`, which is Ollama's `ml.DeviceInfo` as JSON.
fn info(loaded: &[Backend]) -> Result<Value> {
    let mut list = Vec::new();
    for backend in loaded {
        let drivers = backend::drivers(Path::new("libcuda.so.1"), false)?;
        for seen in backend.devices()? {
            let driver = drivers.iter().find(|driver| driver.pci.eq_ignore_ascii_case(&seen.pci));
            let driver = driver.cloned().unwrap_or_default();
            list.push(json!({
                "id": driver.uuid,
                "backend": "CUDA",
                "name": seen.name,
                "description": seen.description,
                "pci_id": seen.pci,
                "total_memory": seen.total,
                "free_memory": seen.free,
                "ComputeMajor": driver.capability.0,
                "ComputeMinor": driver.capability.1,
                "driver_major": driver.version / 1000,
                "driver_minor": driver.version % 1000 / 10,
                "LibraryPath": [],
            }));
        }
    }
    Ok(Value::Array(list))
}
