//! Backends: one device of a backend library, ready to compute.

use std::ffi::{CString, c_int};
use std::path::Path;
use std::ptr::{self, NonNull};

use super::error::FfiError;
use super::library::{Ggml, text};
use super::raw::SetThreads;

/// Owner of a `ggml_backend_t`, which is a stream of work on one device.
pub struct Backend {
    pub(super) ggml: &'static Ggml,
    pub(super) raw: NonNull<std::ffi::c_void>,
    description: String,
}

impl Backend {
    /// Loads a backend library and initialises its device number `index`.
    pub fn load(ggml: &'static Ggml, path: &Path, index: usize) -> Result<Self, FfiError> {
        let functions = &ggml.functions;
        let name =
            CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| FfiError::Path(path.to_owned()))?;
        // SAFETY: the path is zero-ended.
        let registry = unsafe { (functions.ggml_backend_load)(name.as_ptr()) };
        if registry.is_null() {
            return Err(FfiError::Backend(path.to_owned()));
        }
        // SAFETY: `registry` is what GGML returned; it is never unloaded.
        let devices = unsafe { (functions.ggml_backend_reg_dev_count)(registry) };
        if index >= devices {
            return Err(FfiError::NoDevice { path: path.to_owned(), index });
        }
        // SAFETY: the index is below the count.
        let device = unsafe { (functions.ggml_backend_reg_dev_get)(registry, index) };
        // SAFETY: `device` is what GGML returned.
        let description = text(unsafe { (functions.ggml_backend_dev_description)(device) });
        // SAFETY: as above; a null pointer means no parameters.
        let raw = unsafe { (functions.ggml_backend_dev_init)(device, ptr::null()) };
        let raw = NonNull::new(raw).ok_or(FfiError::Null("ggml_backend_dev_init"))?;
        let backend = Self { ggml, raw, description };
        // SAFETY: the name is zero-ended.
        let set_threads = unsafe {
            (functions.ggml_backend_reg_get_proc_address)(registry, c"ggml_backend_set_n_threads".as_ptr())
        };
        if !set_threads.is_null() {
            // SAFETY: by that name a registry hands out a `ggml_backend_set_n_threads_t`, or null.
            let set_threads =
                unsafe { std::mem::transmute::<*mut std::ffi::c_void, SetThreads>(set_threads) };
            // One thread: the cases are small, and the threads of a pool spin.
            // SAFETY: the backend is of this registry.
            unsafe { set_threads(backend.raw.as_ptr(), 1 as c_int) };
        }
        Ok(backend)
    }

    /// Returns the product name of the device.
    pub fn description(&self) -> &str {
        &self.description
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        // SAFETY: the backend is live, and whatever was placed on it borrowed it.
        unsafe { (self.ggml.functions.ggml_backend_free)(self.raw.as_ptr()) };
    }
}
