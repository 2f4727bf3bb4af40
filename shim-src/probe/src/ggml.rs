//! The few functions of libggml-base and of a backend that list the backend's devices. GGML's structures are
//! never read, because they differ between releases.

use std::ffi::{CStr, c_char, c_void};

use vgpu_probe_steps::{BackendDevice, Fault};

use crate::library::Library;
use crate::table;

type Registry = *mut c_void;
type Device = *mut c_void;

table! {
    /// The functions of libggml-base that the probe calls.
    Base {
        ggml_backend_reg_name(Registry) -> *const c_char;
        ggml_backend_reg_dev_count(Registry) -> usize;
        ggml_backend_reg_dev_get(Registry, usize) -> Device;
        ggml_backend_dev_name(Device) -> *const c_char;
        ggml_backend_dev_description(Device) -> *const c_char;
        ggml_backend_dev_memory(Device, *mut usize, *mut usize) -> ();
    }
}

table! {
    /// The function of every backend that is a separate library.
    Backend {
        ggml_backend_init() -> Registry;
    }
}

/// A backend that has been initialised.
pub struct Registered<'a> {
    base: &'a Base,
    registry: Registry,
}

impl<'a> Registered<'a> {
    /// Initialises `backend`, which then looks for its devices.
    pub fn start(base: &'a Base, backend: Library) -> Result<Self, Fault> {
        let backend = Backend::from_library(backend)?;
        // SAFETY: the backend is loaded with all that it needs; the function has no arguments.
        let registry = unsafe { (backend.ggml_backend_init)() };
        if registry.is_null() {
            return Err(Fault::wrong("ggml_backend_init", "the backend refuses to start"));
        }
        Ok(Self { base, registry })
    }

    /// Returns the name of the backend, such as `CUDA`.
    pub fn name(&self) -> String {
        // SAFETY: the registry is the backend's own and lives as long as the process.
        text(unsafe { (self.base.ggml_backend_reg_name)(self.registry) })
    }

    /// Returns the number of the backend's devices.
    pub fn count(&self) -> usize {
        // SAFETY: as above.
        unsafe { (self.base.ggml_backend_reg_dev_count)(self.registry) }
    }

    /// Describes the device with this index.
    pub fn device(&self, index: usize) -> BackendDevice {
        // SAFETY: as above; the index is below the count.
        let device = unsafe { (self.base.ggml_backend_reg_dev_get)(self.registry, index) };
        // SAFETY: a device of the registry lives as long as it.
        let name = text(unsafe { (self.base.ggml_backend_dev_name)(device) });
        // SAFETY: the same.
        let description = text(unsafe { (self.base.ggml_backend_dev_description)(device) });
        let (mut free, mut total) = (0, 0);
        // SAFETY: the same, and both places are there.
        unsafe { (self.base.ggml_backend_dev_memory)(device, &raw mut free, &raw mut total) };
        BackendDevice { name, description, free: free as u64, total: Some(total as u64) }
    }
}

fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: GGML's names are C strings that live as long as what they name.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
