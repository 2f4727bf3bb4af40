//! Library management: libraries that a program loads itself. Handles and options are the driver's.

use core::ffi::{c_char, c_uint, c_void};

use vgpu_abi::runtime::{CudaError, Kernel, Library};

use crate::{kernels, process};

calls! {
    /// Loads a library from memory.
    pub fn cudaLibraryLoadData(
        library: *mut Library,
        code: *const c_void,
        jit_options: *mut c_uint,
        jit_values: *mut *mut c_void,
        jit_count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
        count: c_uint,
    ) {
        process::runtime()?;
        if library.is_null() || code.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuLibraryLoadData(library, code, jit_options, jit_values, jit_count, options, values, count))
    }

    /// Loads a library from a file.
    pub fn cudaLibraryLoadFromFile(
        library: *mut Library,
        path: *const c_char,
        jit_options: *mut c_uint,
        jit_values: *mut *mut c_void,
        jit_count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
        count: c_uint,
    ) {
        process::runtime()?;
        if library.is_null() || path.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuLibraryLoadFromFile(library, path, jit_options, jit_values, jit_count, options, values, count))
    }

    /// Unloads a library with its kernels and modules.
    pub fn cudaLibraryUnload(library: Library) {
        process::runtime()?;
        cu!(cuLibraryUnload(library))
    }

    /// Stores the handle of a library's kernel.
    pub fn cudaLibraryGetKernel(place: *mut Kernel, library: Library, name: *const c_char) {
        process::runtime()?;
        if place.is_null() || name.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let mut kernel = Kernel::NULL;
        cu!(cuLibraryGetKernel(&raw mut kernel, library, name))?;
        store!(place, kernels::hand(kernel))
    }

    /// Stores the number of kernels in a library.
    pub fn cudaLibraryGetKernelCount(count: *mut c_uint, library: Library) {
        process::runtime()?;
        if count.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuLibraryGetKernelCount(count, library))
    }

    /// Stores the handles of a library's kernels, as many as there is room for.
    pub fn cudaLibraryEnumerateKernels(kernels: *mut Kernel, count: c_uint, library: Library) {
        process::runtime()?;
        if kernels.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuLibraryEnumerateKernels(kernels, count, library))?;
        for index in 0..count as usize {
            // SAFETY: the caller of the export promised room for `count` kernels.
            let place = unsafe { kernels.add(index) };
            let kernel = load!(place)?;
            if kernel != Kernel::NULL {
                kernels::hand(kernel);
            }
        }
        Ok(())
    }

    /// Stores address and size of a library's variable in the thread's context.
    pub fn cudaLibraryGetGlobal(
        place: *mut *mut c_void,
        bytes: *mut usize,
        library: Library,
        name: *const c_char,
    ) {
        process::enter()?;
        if name.is_null() || (place.is_null() && bytes.is_null()) {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuLibraryGetGlobal(place.cast(), bytes, library, name))
    }
}
