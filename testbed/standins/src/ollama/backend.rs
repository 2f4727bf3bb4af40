//! Access to GGML through its public C API: a backend, its devices, and memory of a device. Also opens the
//! driver and NVML by their SONAMEs.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL, RTLD_NOW};

/// Type `struct ggml_backend_dev_props` of ggml-backend.h (GGML_BACKEND_API_VERSION 2), with room for later
/// fields.
#[repr(C)]
struct DeviceProps {
    name: *const c_char,
    description: *const c_char,
    memory_free: usize,
    memory_total: usize,
    kind: c_int,
    device_id: *const c_char,
    caps: [u8; 64],
}

/// Type `struct ggml_backend_feature` of ggml-backend.h.
#[repr(C)]
struct Feature {
    name: *const c_char,
    value: *const c_char,
}

type Init = unsafe extern "C" fn() -> *mut c_void;
type Count = unsafe extern "C" fn(*mut c_void) -> usize;
type Get = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Props = unsafe extern "C" fn(*mut c_void, *mut DeviceProps);
type Proc = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Features = unsafe extern "C" fn(*mut c_void) -> *const Feature;
type Of = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Allocate = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;

/// A device as GGML reports it.
#[derive(Clone, Debug)]
pub struct GgmlDevice {
    /// GGML's name of the device, such as `CUDA0`.
    pub name: String,
    /// Product name of the GPU.
    pub description: String,
    /// PCI address of the device.
    pub pci: String,
    /// Total memory in bytes.
    pub total: u64,
    /// Free memory in bytes.
    pub free: u64,
}

/// A loaded backend, with the library that it is based on.
#[derive(Debug)]
pub struct Backend {
    base: Library,
    _library: Library,
    registry: *mut c_void,
}

fn open(path: &Path, flags: c_int) -> Result<Library> {
    // SAFETY: the library is GGML's or NVIDIA's; its initialisers are those that Ollama runs.
    let opened = unsafe { Library::open(Some(path), flags) };
    opened.map_err(|error| {
        // The loader's own words, which name the file.
        let source = std::error::Error::source(&error).map(ToString::to_string);
        anyhow::anyhow!("{}", source.unwrap_or_else(|| error.to_string()))
    })
}

/// Looks a function up by name.
///
/// # Safety
///
/// `T` is the function's type in the library's header.
unsafe fn function<T: Copy>(library: &Library, name: &str) -> Result<T> {
    // SAFETY: upheld by the caller.
    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
    Ok(*symbol.with_context(|| format!("symbol lookup for {name} failed"))?)
}

fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: strings of GGML's devices and features are zero-ended and live as long as the process.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// Opens libggml-base from the directory, or through the loader's search path.
fn base(folder: &Path) -> Result<Library> {
    let file = folder.join("libggml-base.so");
    let path = if file.exists() { file } else { PathBuf::from("libggml-base.so") };
    open(&path, RTLD_NOW | RTLD_GLOBAL)
}

impl Backend {
    /// Loads a backend as `ggml_backend_load` does, with RTLD_NOW and RTLD_LOCAL. `folder` is the directory
    /// of libggml-base.
    pub fn load(folder: &Path, path: &Path) -> Result<Self> {
        let base = base(folder)?;
        let backend = open(path, RTLD_NOW | RTLD_LOCAL)?;
        // SAFETY: ggml-backend-impl.h: `ggml_backend_reg_t ggml_backend_init(void)`.
        let init = unsafe { function::<Init>(&backend, "ggml_backend_init") }?;
        // SAFETY: no arguments.
        let registry = unsafe { init() };
        if registry.is_null() {
            bail!("failed to initialize the backend of {}: ggml_backend_init returned NULL", path.display());
        }
        Ok(Self { base, _library: backend, registry })
    }

    fn device(&self, index: usize) -> Result<*mut c_void> {
        // SAFETY: `ggml_backend_dev_t ggml_backend_reg_dev_get(ggml_backend_reg_t, size_t)`.
        let get = unsafe { function::<Get>(&self.base, "ggml_backend_reg_dev_get") }?;
        // SAFETY: the registry is GGML's; callers pass an index below the count.
        Ok(unsafe { get(self.registry, index) })
    }

    /// Returns the devices that the backend lists.
    pub fn devices(&self) -> Result<Vec<GgmlDevice>> {
        // SAFETY: `size_t ggml_backend_reg_dev_count(ggml_backend_reg_t)`.
        let count = unsafe { function::<Count>(&self.base, "ggml_backend_reg_dev_count") }?;
        // SAFETY: `void ggml_backend_dev_get_props(ggml_backend_dev_t, struct ggml_backend_dev_props *)`.
        let props = unsafe { function::<Props>(&self.base, "ggml_backend_dev_get_props") }?;
        // SAFETY: the registry is GGML's.
        let count = unsafe { count(self.registry) };
        (0..count)
            .map(|index| {
                let device = self.device(index)?;
                // SAFETY: zero is a value of all fields.
                let mut filled: DeviceProps = unsafe { std::mem::zeroed() };
                // SAFETY: the device is GGML's; the structure is as large as GGML's or larger.
                unsafe { props(device, &raw mut filled) };
                Ok(GgmlDevice {
                    name: text(filled.name),
                    description: text(filled.description),
                    pci: text(filled.device_id),
                    total: filled.memory_total as u64,
                    free: filled.memory_free as u64,
                })
            })
            .collect()
    }

    /// Returns the features as `NAME = VALUE`, such as `ARCHS = 500,610`.
    pub fn features(&self) -> Result<Vec<String>> {
        // SAFETY: `void * ggml_backend_reg_get_proc_address(ggml_backend_reg_t, const char *)`.
        let address = unsafe { function::<Proc>(&self.base, "ggml_backend_reg_get_proc_address") }?;
        // SAFETY: the registry is GGML's, the name is zero-ended.
        let found = unsafe { address(self.registry, c"ggml_backend_get_features".as_ptr()) };
        if found.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: ggml-backend.h: `struct ggml_backend_feature * (*)(ggml_backend_reg_t)`.
        let features = unsafe { std::mem::transmute::<*mut c_void, Features>(found) };
        // SAFETY: the registry is GGML's.
        let mut feature = unsafe { features(self.registry) };
        let mut list = Vec::new();
        loop {
            // SAFETY: the list is ended by a feature without a name.
            let Feature { name, value } = unsafe { feature.read() };
            if name.is_null() {
                return Ok(list);
            }
            list.push(format!("{} = {}", text(name), text(value)));
            feature = feature.wrapping_add(1);
        }
    }

    /// Allocates memory on the first device and never frees it.
    pub fn allocate(&self, bytes: usize) -> Result<()> {
        // SAFETY: `ggml_backend_buffer_type_t ggml_backend_dev_buffer_type(ggml_backend_dev_t)`.
        let kind = unsafe { function::<Of>(&self.base, "ggml_backend_dev_buffer_type") }?;
        // SAFETY: `ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t, size_t)`.
        let allocate = unsafe { function::<Allocate>(&self.base, "ggml_backend_buft_alloc_buffer") }?;
        let device = self.device(0)?;
        // SAFETY: the device is GGML's.
        let kind = unsafe { kind(device) };
        // SAFETY: the type is GGML's.
        let buffer = unsafe { allocate(kind, bytes) };
        if buffer.is_null() {
            bail!("unable to allocate CUDA0 buffer");
        }
        Ok(())
    }
}

/// Properties of a device according to the driver's library.
#[derive(Clone, Debug, Default)]
pub struct Driver {
    /// The driver's version, as `cuDriverGetVersion` returns it.
    pub version: i32,
    /// Major and minor number of the compute capability.
    pub capability: (i32, i32),
    /// The device's UUID as text, `GPU-...`.
    pub uuid: String,
    /// Product name of the GPU.
    pub name: String,
    /// PCI address of the device.
    pub pci: String,
    /// Total memory in bytes.
    pub total: u64,
    /// Free memory in bytes, if a context was created to query it.
    pub free: u64,
    /// The device's attribute `CU_DEVICE_ATTRIBUTE_INTEGRATED`.
    pub integrated: bool,
}

const MAJOR: c_int = 75;
const MINOR: c_int = 76;
const INTEGRATED: c_int = 18;

fn check(what: &str, status: c_int) -> Result<()> {
    if status != 0 {
        bail!("{what} failed: {status}");
    }
    Ok(())
}

/// Loads `path` (a path or a SONAME) and queries the driver about each device. With `contexts`, also queries
/// the free memory.
pub fn drivers(path: &Path, contexts: bool) -> Result<Vec<Driver>> {
    type Set = unsafe extern "C" fn(*mut c_int) -> c_int;
    type Attribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
    type Text = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
    type Sized = unsafe extern "C" fn(*mut usize, c_int) -> c_int;
    type DeviceGet = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
    type Uuid = unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int;
    type ContextCreate = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, c_int, u32, c_int) -> c_int;
    type ContextDestroy = unsafe extern "C" fn(*mut c_void) -> c_int;
    type Info = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;

    let cuda = open(path, RTLD_LAZY)?;
    macro_rules! get {
        ($name:literal, $type:ty) => {{
            // SAFETY: the type is the function's in cuda.h.
            unsafe { function::<$type>(&cuda, $name) }?
        }};
    }
    let init = get!("cuInit", unsafe extern "C" fn(u32) -> c_int);
    let version = get!("cuDriverGetVersion", Set);
    let count = get!("cuDeviceGetCount", Set);
    let device_get = get!("cuDeviceGet", DeviceGet);
    let attribute = get!("cuDeviceGetAttribute", Attribute);
    let name = get!("cuDeviceGetName", Text);
    let pci = get!("cuDeviceGetPCIBusId", Text);
    let total = get!("cuDeviceTotalMem_v2", Sized);
    let uuid = get!("cuDeviceGetUuid", Uuid);
    let create = get!("cuCtxCreate_v3", ContextCreate);
    let info = get!("cuMemGetInfo_v2", Info);
    let destroy = get!("cuCtxDestroy", ContextDestroy);

    // SAFETY: flags are zero.
    check("cuInit", unsafe { init(0) })?;
    let (mut driver, mut devices) = (0, 0);
    // SAFETY: the call stores one number.
    check("cuDriverGetVersion", unsafe { version(&raw mut driver) })?;
    // SAFETY: the call stores one number.
    check("cuDeviceGetCount", unsafe { count(&raw mut devices) })?;
    (0..devices)
        .map(|index| {
            let mut device = 0;
            // SAFETY: the call stores one number.
            check("cuDeviceGet", unsafe { device_get(&raw mut device, index) })?;
            let ask = |which| {
                let mut number = 0;
                // SAFETY: the call stores one number.
                check("cuDeviceGetAttribute", unsafe { attribute(&raw mut number, which, device) })?;
                Ok::<_, anyhow::Error>(number)
            };
            let words = |what: &str, call: Text| {
                let mut words = [0; 256];
                // SAFETY: the call stores at most as many bytes as it is told that there are.
                check(what, unsafe { call(words.as_mut_ptr(), 256, device) })?;
                Ok::<_, anyhow::Error>(text(words.as_ptr()))
            };
            let mut identity = [0; 16];
            // SAFETY: the call stores 16 bytes.
            check("cuDeviceGetUuid", unsafe { uuid(&raw mut identity, device) })?;
            let mut bytes = 0;
            // SAFETY: the call stores one number.
            check("cuDeviceTotalMem", unsafe { total(&raw mut bytes, device) })?;
            let mut free = 0;
            if contexts {
                let mut context = std::ptr::null_mut();
                // SAFETY: no affinity parameters; the call stores one handle.
                let made = unsafe { create(&raw mut context, std::ptr::null_mut(), 0, 0, device) };
                check("cuCtxCreate_v3", made)?;
                // SAFETY: the call stores two numbers.
                check("cuMemGetInfo_v2", unsafe { info(&raw mut free, &raw mut bytes) })?;
                // SAFETY: the context was just made.
                check("cuCtxDestroy", unsafe { destroy(context) })?;
            }
            Ok(Driver {
                version: driver,
                capability: (ask(MAJOR)?, ask(MINOR)?),
                uuid: uuid_text(identity),
                name: words("cuDeviceGetName", name)?,
                pci: words("cuDeviceGetPCIBusId", pci)?,
                total: bytes as u64,
                free: free as u64,
                integrated: ask(INTEGRATED)? == 1,
            })
        })
        .collect()
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    format!("GPU-{}", parts.join("-"))
}

/// Returns the major number of the driver version that NVML reports.
pub fn nvml_driver_major() -> Result<u32> {
    type Plain = unsafe extern "C" fn() -> c_int;
    type Version = unsafe extern "C" fn(*mut c_char, u32) -> c_int;
    let nvml = open(Path::new("libnvidia-ml.so.1"), RTLD_NOW)?;
    // SAFETY: nvml.h: `nvmlReturn_t nvmlInit_v2(void)`.
    let init = unsafe { function::<Plain>(&nvml, "nvmlInit_v2") }?;
    // SAFETY: nvml.h: `nvmlReturn_t nvmlSystemGetDriverVersion(char *, unsigned)`.
    let version = unsafe { function::<Version>(&nvml, "nvmlSystemGetDriverVersion") }?;
    // SAFETY: nvml.h: `nvmlReturn_t nvmlShutdown(void)`.
    let shutdown = unsafe { function::<Plain>(&nvml, "nvmlShutdown") }?;
    // SAFETY: no arguments.
    check("nvmlInit_v2", unsafe { init() })?;
    let mut words = [0; 80];
    // SAFETY: the call stores at most 80 bytes.
    check("nvmlSystemGetDriverVersion", unsafe { version(words.as_mut_ptr(), 80) })?;
    // SAFETY: no arguments; initialised above.
    check("nvmlShutdown", unsafe { shutdown() })?;
    let words = text(words.as_ptr());
    words.split('.').next().and_then(|major| major.parse().ok()).context("read NVML's driver version")
}
