//! The only module that loads and calls libraries of NVIDIA. Each call has a safe wrapper that returns one
//! fact. Signatures of the driver API are declared in [`vgpu_abi`], and those of NVML follow `nvml.h`.

#![allow(unsafe_code, reason = "the audited module of this crate")]

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::mem::MaybeUninit;
use std::path::Path;

use vgpu_abi::driver::functions;
use vgpu_abi::nvml::{Memory, PciInfo};

/// Size in bytes of the buffer for a text, which is larger than any limit of NVML.
const TEXT: usize = 256;

/// A function that failed, with its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Name of the function that failed.
    pub function: &'static str,
    /// Code that the function returned, or `None` if the library has no such function.
    pub code: Option<u32>,
}

/// A loaded library of NVIDIA.
#[derive(Debug)]
pub struct Library(libloading::Library);

impl Library {
    /// Loads a library by its path, or by its name as the dynamic loader finds it.
    pub fn open(path: &Path) -> Result<Self, String> {
        // SAFETY: the host's administrator chose the library, and its initializers run in a process that
        // exists only for this.
        unsafe { libloading::Library::new(path) }.map(Self).map_err(|error| {
            // The loader's message is at the end of the chain.
            let mut words: &dyn std::error::Error = &error;
            while let Some(cause) = words.source() {
                words = cause;
            }
            words.to_string()
        })
    }

    /// Returns whether the library has a function of that name.
    pub fn has(&self, name: &'static str) -> bool {
        // SAFETY: the pointer is never called.
        unsafe { self.function::<unsafe extern "C" fn()>(name) }.is_ok()
    }

    /// Returns a function of the library.
    ///
    /// # Safety
    /// `T` must be the type of a pointer to the function `name`.
    unsafe fn function<T: Copy>(&self, name: &'static str) -> Result<T, Refused> {
        // SAFETY: the caller states the type of the function.
        let symbol = unsafe { self.0.get::<T>(name) };
        symbol.map(|symbol| *symbol).map_err(|_| Refused { function: name, code: None })
    }
}

/// Returns `Ok` if a function returned 0, and its error code otherwise.
fn ok(function: &'static str, code: u32) -> Result<(), Refused> {
    if code == 0 { Ok(()) } else { Err(Refused { function, code: Some(code) }) }
}

/// The driver library libcuda, with wrappers of the functions that are called.
#[derive(Debug)]
pub struct Driver(pub Library);

impl Driver {
    /// Calls `cuInit`, which creates no context.
    pub fn init(&self) -> Result<(), Refused> {
        // SAFETY: the type is cuInit's, by vgpu-abi.
        let call: functions::cuInit = unsafe { self.0.function("cuInit") }?;
        // SAFETY: flags have to be 0; there are no pointers.
        ok("cuInit", unsafe { call(0) }.0)
    }

    /// Calls `cuDriverGetVersion`.
    pub fn version(&self) -> Result<u32, Refused> {
        // SAFETY: the type is cuDriverGetVersion's, by vgpu-abi.
        let call: functions::cuDriverGetVersion = unsafe { self.0.function("cuDriverGetVersion") }?;
        let mut version = 0;
        // SAFETY: the pointer is to an int that lives through the call.
        let code = unsafe { call(&raw mut version) };
        ok("cuDriverGetVersion", code.0).map(|()| version.cast_unsigned())
    }
}

/// A device of NVML: an opaque pointer that is valid while the library is initialized.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Device(*mut c_void);

type Text = unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_uint;
type Number = unsafe extern "C" fn(Device, *mut c_uint) -> c_uint;

/// The management library libnvidia-ml.
#[derive(Debug)]
pub struct Nvml(pub Library);

impl Nvml {
    /// Calls `nvmlInit_v2`.
    pub fn init(&self) -> Result<(), Refused> {
        // SAFETY: nvml.h: nvmlReturn_t nvmlInit_v2(void).
        let call: unsafe extern "C" fn() -> c_uint = unsafe { self.0.function("nvmlInit_v2") }?;
        // SAFETY: it takes nothing.
        ok("nvmlInit_v2", unsafe { call() })
    }

    /// Calls `nvmlSystemGetDriverVersion`.
    pub fn driver_version(&self) -> Result<String, Refused> {
        const NAME: &str = "nvmlSystemGetDriverVersion";
        // SAFETY: nvml.h: nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length).
        let call: unsafe extern "C" fn(*mut c_char, c_uint) -> c_uint = unsafe { self.0.function(NAME) }?;
        let mut text = [0u8; TEXT];
        // SAFETY: the buffer has the length that is given, and lives through the call.
        ok(NAME, unsafe { call(text.as_mut_ptr().cast(), TEXT as c_uint) })?;
        Ok(string(&text))
    }

    /// Calls `nvmlDeviceGetCount_v2`.
    pub fn count(&self) -> Result<u32, Refused> {
        const NAME: &str = "nvmlDeviceGetCount_v2";
        // SAFETY: nvml.h: nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount).
        let call: unsafe extern "C" fn(*mut c_uint) -> c_uint = unsafe { self.0.function(NAME) }?;
        let mut count = 0;
        // SAFETY: the pointer is to an unsigned int that lives through the call.
        ok(NAME, unsafe { call(&raw mut count) })?;
        Ok(count)
    }

    /// Calls `nvmlDeviceGetHandleByIndex_v2`.
    pub fn device(&self, index: u32) -> Result<Device, Refused> {
        const NAME: &str = "nvmlDeviceGetHandleByIndex_v2";
        // SAFETY: nvml.h: nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t
        // *device).
        let call: unsafe extern "C" fn(c_uint, *mut Device) -> c_uint = unsafe { self.0.function(NAME) }?;
        let mut device = Device(std::ptr::null_mut());
        // SAFETY: the pointer is to a handle that lives through the call.
        ok(NAME, unsafe { call(index, &raw mut device) })?;
        Ok(device)
    }

    /// Calls `nvmlDeviceGetUUID`.
    pub fn uuid(&self, device: Device) -> Result<String, Refused> {
        self.text("nvmlDeviceGetUUID", device)
    }

    /// Calls `nvmlDeviceGetName`.
    pub fn name(&self, device: Device) -> Result<String, Refused> {
        self.text("nvmlDeviceGetName", device)
    }

    /// Calls `nvmlDeviceGetComputeMode`.
    pub fn compute_mode(&self, device: Device) -> Result<u32, Refused> {
        self.number("nvmlDeviceGetComputeMode", device)
    }

    /// Calls `nvmlDeviceGetPersistenceMode`.
    pub fn persistence(&self, device: Device) -> Result<bool, Refused> {
        self.number("nvmlDeviceGetPersistenceMode", device).map(|mode| mode != 0)
    }

    /// Returns the largest number of MIG instances that the GPU can have, or 0 if it does not support MIG.
    pub fn instances(&self, device: Device) -> Result<u32, Refused> {
        self.number("nvmlDeviceGetMaxMigDeviceCount", device)
    }

    /// Returns whether MIG is on.
    pub fn mig(&self, device: Device) -> Result<bool, Refused> {
        const NAME: &str = "nvmlDeviceGetMigMode";
        type Mode = unsafe extern "C" fn(Device, *mut c_uint, *mut c_uint) -> c_uint;
        // SAFETY: nvml.h: nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t, unsigned int *current, unsigned int
        // *pending).
        let call: Mode = unsafe { self.0.function(NAME) }?;
        let (mut current, mut pending) = (0, 0);
        // SAFETY: both pointers are to unsigned ints that live through the call; the handle is NVML's.
        ok(NAME, unsafe { call(device, &raw mut current, &raw mut pending) })?;
        Ok(current != 0)
    }

    /// Returns the MIG instance with this index, or an error if there is none.
    pub fn instance(&self, device: Device, index: u32) -> Result<Device, Refused> {
        const NAME: &str = "nvmlDeviceGetMigDeviceHandleByIndex";
        type Get = unsafe extern "C" fn(Device, c_uint, *mut Device) -> c_uint;
        // SAFETY: nvml.h: nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t, unsigned int index,
        // nvmlDevice_t *migDevice).
        let call: Get = unsafe { self.0.function(NAME) }?;
        let mut found = Device(std::ptr::null_mut());
        // SAFETY: the pointer is to a handle that lives through the call; the other handle is NVML's.
        ok(NAME, unsafe { call(device, index, &raw mut found) })?;
        Ok(found)
    }

    /// Returns the device memory in bytes.
    pub fn memory(&self, device: Device) -> Result<u64, Refused> {
        const NAME: &str = "nvmlDeviceGetMemoryInfo";
        type Get = unsafe extern "C" fn(Device, *mut Memory) -> c_uint;
        // SAFETY: nvml.h: nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t *memory).
        let call: Get = unsafe { self.0.function(NAME) }?;
        let mut memory = Memory { total: 0, free: 0, used: 0 };
        // SAFETY: the pointer is to the structure that the function fills in; the handle is NVML's.
        ok(NAME, unsafe { call(device, &raw mut memory) })?;
        Ok(memory.total)
    }

    /// Returns the PCI address, such as `0000:01:00.0`.
    pub fn pci(&self, device: Device) -> Result<String, Refused> {
        const NAME: &str = "nvmlDeviceGetPciInfo_v3";
        type Get = unsafe extern "C" fn(Device, *mut PciInfo) -> c_uint;
        // SAFETY: nvml.h: nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t, nvmlPciInfo_t *pci).
        let call: Get = unsafe { self.0.function(NAME) }?;
        let mut place = MaybeUninit::<PciInfo>::zeroed();
        // SAFETY: the pointer is to room for the structure that the function fills in; the handle is NVML's.
        ok(NAME, unsafe { call(device, place.as_mut_ptr()) })?;
        // SAFETY: it was zeroed, and the structure is numbers alone.
        let first = unsafe { place.assume_init() }.second.first;
        Ok(format!("{:04x}:{:02x}:{:02x}.0", first.domain, first.bus, first.device))
    }

    fn text(&self, name: &'static str, device: Device) -> Result<String, Refused> {
        // SAFETY: the callers name functions that take a device, a buffer and its length.
        let call: Text = unsafe { self.0.function(name) }?;
        let mut text = [0u8; TEXT];
        // SAFETY: the buffer has the length that is given, and lives through the call; the handle is NVML's.
        ok(name, unsafe { call(device, text.as_mut_ptr().cast(), TEXT as c_uint) })?;
        Ok(string(&text))
    }

    fn number(&self, name: &'static str, device: Device) -> Result<u32, Refused> {
        // SAFETY: the callers name functions that take a device and a pointer to an unsigned int (or to an
        // enumeration of its size).
        let call: Number = unsafe { self.0.function(name) }?;
        let mut number = 0;
        // SAFETY: the pointer is to an unsigned int that lives through the call; the handle is NVML's.
        ok(name, unsafe { call(device, &raw mut number) })?;
        Ok(number)
    }
}

/// Returns the text in a buffer up to its first zero.
fn string(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}
