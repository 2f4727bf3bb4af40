//! NVML, which is asked one question: the version of the driver.

use std::ffi::{CStr, c_char, c_uint};
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use vgpu_abi::nvml::NvmlReturn;

/// Name by which the loader finds NVML.
const SONAME: &str = "libnvidia-ml.so.1";
/// `NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE`: the most bytes that a version has, with its last zero.
const VERSION_BYTES: usize = 80;

/// `nvmlInit_v2` and `nvmlShutdown`.
type Plain = unsafe extern "C" fn() -> NvmlReturn;
/// `nvmlSystemGetDriverVersion`: room for the version, and its size.
type GetVersion = unsafe extern "C" fn(*mut c_char, c_uint) -> NvmlReturn;

/// Returns the driver's version, such as 580.65.06, or `None` if the library at `path`, or the one that the
/// loader finds, does not tell it. The library is unloaded again.
pub(crate) fn driver_version(path: Option<&Path>) -> Option<String> {
    let path = path.unwrap_or(Path::new(SONAME));
    // SAFETY: whoever starts the executor chose the library; its initialisers are those that any program
    // runs.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.ok()?;
    // SAFETY: the type is that of the function in `nvml.h`.
    let init = unsafe { library.get::<Plain>(b"nvmlInit_v2\0") }.ok()?;
    // SAFETY: as above.
    let get_version = unsafe { library.get::<GetVersion>(b"nvmlSystemGetDriverVersion\0") }.ok()?;
    // SAFETY: as above.
    let shut_down = unsafe { library.get::<Plain>(b"nvmlShutdown\0") }.ok()?;
    // SAFETY: takes no arguments.
    if unsafe { init() } != NvmlReturn::SUCCESS {
        return None;
    }
    let mut version = [0_u8; VERSION_BYTES];
    // SAFETY: room for so many bytes.
    let done = unsafe { get_version(version.as_mut_ptr().cast(), VERSION_BYTES as c_uint) };
    // SAFETY: takes no arguments, after the call of `nvmlInit_v2` that it undoes.
    let _ = unsafe { shut_down() };
    let text = CStr::from_bytes_until_nul(&version).ok()?.to_str().ok()?;
    (done == NvmlReturn::SUCCESS && !text.is_empty()).then(|| text.to_owned())
}
