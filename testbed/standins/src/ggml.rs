//! Loads the real libggml-cuda.so through GGML's public C API and prints the devices that it reports.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use serde_json::json;

/// Type `struct ggml_backend_dev_props` of ggml-backend.h (GGML_BACKEND_API_VERSION 2).
#[repr(C)]
struct DeviceProps {
    name: *const c_char,
    description: *const c_char,
    memory_free: usize,
    memory_total: usize,
    kind: c_int,
    device_id: *const c_char,
    /// Field of type `struct ggml_backend_dev_caps`: four bools in this version, with room for more.
    caps: [u8; 64],
}

/// Log of GGML during its initialisation, the only source of compute capabilities.
static LOG: Mutex<String> = Mutex::new(String::new());

extern "C" fn keep_log(_level: c_int, text: *const c_char, _user: *mut c_void) {
    // SAFETY: GGML passes a zero-ended string that lives as long as the call.
    let text = unsafe { CStr::from_ptr(text) };
    if let Ok(mut log) = LOG.lock() {
        log.push_str(&text.to_string_lossy());
    }
}

fn open(path: &Path) -> Result<Library> {
    // SAFETY: the library is GGML's own, or CUDA's; its initialisers are those that any user of it runs.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    library.with_context(|| format!("load {}", path.display()))
}

/// Looks a function up by name.
///
/// # Safety
///
/// `T` is the function's type in the library's header.
unsafe fn function<T: Copy>(library: &Library, name: &str) -> Result<T> {
    // SAFETY: upheld by the caller.
    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
    Ok(*symbol.with_context(|| format!("find {name}"))?)
}

fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: GGML's strings are zero-ended and live as long as the device, which is never freed.
    let text = unsafe { CStr::from_ptr(pointer) };
    Some(text.to_string_lossy().into_owned())
}

fn find(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .with_context(|| format!("list {}", folder.display()))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| wanted(name))
        .collect();
    names.sort();
    let name = names.first().with_context(|| format!("no such library in {}", folder.display()))?;
    Ok(folder.join(name))
}

type Load = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type Count = unsafe extern "C" fn(*mut c_void) -> usize;
type Get = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Props = unsafe extern "C" fn(*mut c_void, *mut DeviceProps);
type SetLog = unsafe extern "C" fn(extern "C" fn(c_int, *const c_char, *mut c_void), *mut c_void);
type UuidOf = unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int;

/// Parses the compute capability `M.m` from each `Device N:` line of the log.
fn capabilities(log: &str) -> Vec<String> {
    log.lines()
        .filter(|line| line.trim_start().starts_with("Device "))
        .filter_map(|line| line.split("compute capability ").nth(1))
        .filter_map(|rest| rest.split(',').next())
        .map(str::to_owned)
        .collect()
}

/// Returns the UUID of the device with this CUDA ordinal, from the libcuda that the process loads by its
/// SONAME.
fn uuid(ordinal: c_int) -> Result<String> {
    let cuda = open(Path::new("libcuda.so.1"))?;
    // SAFETY: cuda.h declares `CUresult cuDeviceGetUuid(CUuuid *, CUdevice)`.
    let get = unsafe { function::<UuidOf>(&cuda, "cuDeviceGetUuid") }?;
    let mut bytes = [0; 16];
    // SAFETY: the call writes 16 bytes.
    let status = unsafe { get(&raw mut bytes, ordinal) };
    if status != 0 {
        bail!("cuDeviceGetUuid returned {status}");
    }
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// Prints the devices, the milliseconds from the dlopen of the backend to their list, and the mapped CUDA
/// libraries.
pub fn print_devices(backend: &Path, base: Option<&Path>) -> Result<ExitCode> {
    let folder = base.or(backend.parent()).context("the backend has no folder")?;
    let _base = open(&find(folder, |name| name == "libggml-base.so")?)?;
    let ggml = open(&find(folder, |name| name.starts_with("libggml.") && name.contains(".so"))?)?;
    // SAFETY: ggml.h: `void ggml_log_set(ggml_log_callback, void *)`, defined in libggml-base, global.
    let set_log = unsafe { function::<SetLog>(&ggml, "ggml_log_set") }?;
    // SAFETY: ggml-backend.h: `ggml_backend_reg_t ggml_backend_load(const char *)`.
    let load = unsafe { function::<Load>(&ggml, "ggml_backend_load") }?;
    // SAFETY: `size_t ggml_backend_reg_dev_count(ggml_backend_reg_t)`.
    let count = unsafe { function::<Count>(&ggml, "ggml_backend_reg_dev_count") }?;
    // SAFETY: `ggml_backend_dev_t ggml_backend_reg_dev_get(ggml_backend_reg_t, size_t)`.
    let get = unsafe { function::<Get>(&ggml, "ggml_backend_reg_dev_get") }?;
    // SAFETY: `void ggml_backend_dev_get_props(ggml_backend_dev_t, struct ggml_backend_dev_props *)`.
    let props = unsafe { function::<Props>(&ggml, "ggml_backend_dev_get_props") }?;

    // SAFETY: the callback is a function that lives as long as the program.
    unsafe { set_log(keep_log, std::ptr::null_mut()) };
    let path = CString::new(backend.as_os_str().as_encoded_bytes())?;
    let start = Instant::now();
    // SAFETY: the path is zero-ended.
    let registry = unsafe { load(path.as_ptr()) };
    if registry.is_null() {
        let log = LOG.lock().map(|log| log.clone()).unwrap_or_default();
        bail!("ggml_backend_load({}) failed: {}", backend.display(), log.trim());
    }
    // SAFETY: `registry` is what GGML returned.
    let devices = unsafe { count(registry) };
    let mut found = Vec::new();
    for index in 0..devices {
        // SAFETY: the index is below the count.
        let device = unsafe { get(registry, index) };
        // SAFETY: all fields are integers or pointers, for which zero is a value.
        let mut filled: DeviceProps = unsafe { std::mem::zeroed() };
        // SAFETY: `device` is what GGML returned; the structure is as large as GGML's or larger.
        unsafe { props(device, &raw mut filled) };
        found.push(filled);
    }
    let ms = start.elapsed().as_secs_f64() * 1e3;

    let log = LOG.lock().map(|log| log.clone()).unwrap_or_default();
    let capabilities = capabilities(&log);
    let devices = found
        .iter()
        .enumerate()
        .map(|(index, props)| {
            Ok(json!({
                "ggml_name": text(props.name),
                "name": text(props.description),
                "cc": capabilities.get(index),
                "total_mib": props.memory_total >> 20,
                "free_mib": props.memory_free >> 20,
                "pci_id": text(props.device_id),
                "uuid": uuid(c_int::try_from(index)?)?,
            }))
        })
        .collect::<Result<Vec<_>>>()?;
    let line = json!({ "devices": devices, "ms": ms, "maps": crate::maps::cuda_libraries()?, "log": log });
    println!("{line}");
    Ok(ExitCode::SUCCESS)
}
