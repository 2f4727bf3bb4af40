//! The few functions of GGML by which a backend's devices are asked, from libggml-base and from the backend
//! itself. Structures of GGML's are never looked into: they differ between releases.

use std::ffi::{CStr, c_char, c_void};

use crate::library::Library;
use crate::say::Fault;
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
    /// Of every backend that is a library of its own.
    Backend {
        ggml_backend_init() -> Registry;
    }
}

/// A device as GGML shows it.
#[derive(Debug)]
pub struct Found {
    /// GGML's name of the device, such as `CUDA0`.
    pub name: String,
    /// The product's name.
    pub description: String,
    /// Bytes that are free.
    pub free: usize,
    /// Bytes in all.
    pub total: usize,
}

/// A backend that runs.
pub struct Registered<'a> {
    base: &'a Base,
    registry: Registry,
}

impl<'a> Registered<'a> {
    /// Starts `backend`: it looks for its devices now.
    pub fn start(base: &'a Base, backend: Library) -> Result<Self, Fault> {
        let backend = Backend::of(backend)?;
        // SAFETY: the backend is loaded with all that it needs; the function has no arguments.
        let registry = unsafe { (backend.ggml_backend_init)() };
        if registry.is_null() {
            return Err(Fault::wrong("ggml_backend_init", "the backend refuses to start"));
        }
        Ok(Self { base, registry })
    }

    /// Its name: `CUDA`.
    pub fn name(&self) -> String {
        // SAFETY: the registry is the backend's own and lives as long as the process.
        text(unsafe { (self.base.ggml_backend_reg_name)(self.registry) })
    }

    /// How many devices it has.
    pub fn count(&self) -> usize {
        // SAFETY: as above.
        unsafe { (self.base.ggml_backend_reg_dev_count)(self.registry) }
    }

    /// One of them.
    pub fn device(&self, index: usize) -> Found {
        // SAFETY: as above; the index is below the count.
        let device = unsafe { (self.base.ggml_backend_reg_dev_get)(self.registry, index) };
        // SAFETY: a device of the registry lives as long as it.
        let name = text(unsafe { (self.base.ggml_backend_dev_name)(device) });
        // SAFETY: the same.
        let description = text(unsafe { (self.base.ggml_backend_dev_description)(device) });
        let (mut free, mut total) = (0, 0);
        // SAFETY: the same, and both places are there.
        unsafe { (self.base.ggml_backend_dev_memory)(device, &raw mut free, &raw mut total) };
        Found { name, description, free, total }
    }
}

fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: GGML's names are C strings that live as long as what they name.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
