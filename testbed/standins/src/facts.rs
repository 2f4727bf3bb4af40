//! Prints the properties that CUDA reports to a program: the libraries that the loader finds, the driver's
//! version, each device with its attributes, and how long creating a context and allocating memory takes.

use std::ffi::{c_int, c_uint, c_void};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde_json::{Map, Value, json};

use crate::driver::{Code, done};
use crate::maps;

/// SONAMEs of NVIDIA's libraries that programs of CUDA 12 and 13 load.
const LIBRARIES: [&str; 5] =
    ["libcudart.so.12", "libcudart.so.13", "libcublas.so.12", "libcublas.so.13", "libnvidia-ml.so.1"];
/// Number of the last attribute: `CU_DEVICE_ATTRIBUTE_MAX` of CUDA 13, less one.
const ATTRIBUTES: c_int = 161;
/// Attributes `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `..._MINOR`.
const CAPABILITY: [c_int; 2] = [75, 76];
/// Size in bytes of the test allocation.
const BYTES: usize = 1 << 20;

/// The loaded libcuda.
struct Driver(Library);

/// Calls a function of libcuda by name, with its type in cuda.h.
macro_rules! call {
    ($driver:expr, $name:literal, ( $($argument:ty),* ), $($value:expr),* ) => {{
        type Function = unsafe extern "C" fn($($argument),*) -> Code;
        // SAFETY: the type is the function's in cuda.h, as the caller of this macro writes it down.
        let symbol = unsafe { $driver.0.get::<Function>($name.as_bytes()) };
        let function = *symbol.context(concat!("find ", $name))?;
        // SAFETY: the arguments are values, or live places of the types in cuda.h.
        done($name, unsafe { function($($value),*) })
    }};
}

impl Driver {
    fn open() -> Result<Self> {
        // SAFETY: the library's initialisers are those that any user of it runs.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_LOCAL) };
        Ok(Self(library.context("load libcuda.so.1")?))
    }

    fn version(&self) -> Result<c_int> {
        let mut version = 0;
        call!(self, "cuDriverGetVersion", (*mut c_int), &raw mut version)?;
        Ok(version)
    }

    fn attribute(&self, id: c_int, device: c_int) -> Result<c_int> {
        let mut value = 0;
        call!(self, "cuDeviceGetAttribute", (*mut c_int, c_int, c_int), &raw mut value, id, device)?;
        Ok(value)
    }

    /// Returns a device's name, UUID, memory, and nonzero attributes.
    fn device(&self, ordinal: c_int) -> Result<Value> {
        let (mut device, mut name, mut uuid, mut bytes) = (0, [0; 256], [0_u8; 16], 0_usize);
        call!(self, "cuDeviceGet", (*mut c_int, c_int), &raw mut device, ordinal)?;
        let room = c_int::try_from(name.len())?;
        call!(self, "cuDeviceGetName", (*mut u8, c_int, c_int), name.as_mut_ptr(), room, device)?;
        call!(self, "cuDeviceGetUuid", (*mut u8, c_int), uuid.as_mut_ptr(), device)?;
        call!(self, "cuDeviceTotalMem_v2", (*mut usize, c_int), &raw mut bytes, device)?;
        let name: Vec<u8> = name.into_iter().take_while(|&byte| byte != 0).collect();
        let mut attributes = Map::new();
        for id in 1..=ATTRIBUTES {
            // A driver refuses the ids that it does not know.
            if let Ok(value) = self.attribute(id, device)
                && value != 0
            {
                attributes.insert(id.to_string(), value.into());
            }
        }
        let [major, minor] = [self.attribute(CAPABILITY[0], device)?, self.attribute(CAPABILITY[1], device)?];
        Ok(json!({
            "name": String::from_utf8_lossy(&name),
            "uuid": format!("{:032x}", u128::from_be_bytes(uuid)),
            "cc": format!("{major}.{minor}"),
            "total_mib": bytes >> 20,
            "attributes": attributes,
        }))
    }

    /// Creates a context on the first device, allocates memory in it, and releases both. Returns the
    /// milliseconds of each step, and the free memory in between.
    fn attach(&self) -> Result<Value> {
        let (mut context, mut address): (*mut c_void, u64) = (std::ptr::null_mut(), 0);
        let (mut free, mut total) = (0_usize, 0_usize);
        let ms = |start: Instant| start.elapsed().as_secs_f64() * 1e3;
        let start = Instant::now();
        call!(self, "cuDevicePrimaryCtxRetain", (*mut *mut c_void, c_int), &raw mut context, 0)?;
        call!(self, "cuCtxSetCurrent", (*mut c_void), context)?;
        let context_ms = ms(start);
        let start = Instant::now();
        call!(self, "cuMemAlloc_v2", (*mut u64, usize), &raw mut address, BYTES)?;
        let alloc_ms = ms(start);
        call!(self, "cuMemGetInfo_v2", (*mut usize, *mut usize), &raw mut free, &raw mut total)?;
        let start = Instant::now();
        call!(self, "cuMemFree_v2", (u64), address)?;
        call!(self, "cuDevicePrimaryCtxRelease_v2", (c_int), 0)?;
        Ok(json!({
            "context_ms": context_ms,
            "first_allocation_ms": alloc_ms,
            "release_ms": ms(start),
            "address": format!("{address:#x}"),
            "free_mib": free >> 20,
            "total_mib": total >> 20,
        }))
    }
}

/// Returns the path at which the loader finds each of the libraries, or the error.
fn libraries() -> Map<String, Value> {
    let found = |name: &str| {
        // SAFETY: the library's initialisers are those that any user of it runs.
        let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        match library {
            Ok(_) => maps::path_of(name).map_or(Value::Null, Value::from),
            Err(error) => json!({ "error": std::error::Error::source(&error)
                .map_or_else(|| error.to_string(), ToString::to_string) }),
        }
    };
    LIBRARIES.into_iter().map(|name| (name.to_owned(), found(name))).collect()
}

/// Queries all properties and prints them as one line of JSON.
pub fn print() -> Result<ExitCode> {
    let driver = Driver::open()?;
    let start = Instant::now();
    call!(driver, "cuInit", (c_uint), 0)?;
    let init_ms = start.elapsed().as_secs_f64() * 1e3;
    let mut count = 0;
    call!(driver, "cuDeviceGetCount", (*mut c_int), &raw mut count)?;
    let devices = (0..count).map(|ordinal| driver.device(ordinal)).collect::<Result<Vec<_>>>()?;
    let facts = json!({
        "libcuda": maps::path_of("libcuda.so.1"),
        "driver_version": driver.version()?,
        "init_ms": init_ms,
        "devices": devices,
        "attach": driver.attach()?,
        "libraries": libraries(),
    });
    println!("{facts}");
    Ok(ExitCode::SUCCESS)
}
