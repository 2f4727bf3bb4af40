//! Library management: code that belongs to no context.

use std::ffi::{c_char, c_int, c_uint, c_void};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{
    CUdevice, CUdeviceptr, CUfunction, CUkernel, CUlibrary, CUmodule, LIBRARY_BINARY_IS_PRESERVED,
};

use crate::Result;
use crate::arg::{In, Out, Text};
use crate::code::image::Image;
use crate::code::image_file;
use crate::code::jit_log::JitLogs;
use crate::object::function::param_info;
use crate::object::library::{self, get, kernel as find, on_device, unload};
use crate::object::{current, lifecycle, module};

fn load(out: Out<CUlibrary>, image: Result<Image>, logs: &JitLogs) -> Result {
    let made = image.and_then(|image| library::make(image, logs.wanted()));
    logs.store(&made, "");
    out.set(CUlibrary(made?))
}

exports! {
    /// Loads a library from memory. The code is copied unless an option says that the program preserves it.
    pub fn cuLibraryLoadData(
        library: Out<CUlibrary>, code: *const c_void, jit_options: In<c_uint>, jit_values: *mut *mut c_void,
        jit_count: c_uint, options: In<c_uint>, values: In<*mut c_void>, count: c_uint,
    ) -> CUresult {
        lifecycle::devices()?;
        let out = library.check()?;
        let options = options.slice(count as usize)?;
        let values = values.slice(count as usize)?;
        // Preserved if the option's value is not 0; a null value pointer counts as given.
        let kept = options.iter().zip(values).any(|(&option, &value)| {
            option == LIBRARY_BINARY_IS_PRESERVED && !value.is_null()
        });
        // SAFETY: the caller promised a value for each option.
        let logs = unsafe { JitLogs::from_options(jit_options.slice(jit_count as usize)?, jit_values) }?;
        // SAFETY: the caller promised an image, and with the option that it stays.
        load(out, unsafe { Image::read(code, kept) }, &logs)
    }

    /// Loads a library from a file.
    pub fn cuLibraryLoadFromFile(
        library: Out<CUlibrary>, file: Text, jit_options: In<c_uint>, jit_values: *mut *mut c_void,
        jit_count: c_uint,
        _options: In<c_uint>, _values: In<*mut c_void>, _count: c_uint,
    ) -> CUresult {
        lifecycle::devices()?;
        let out = library.check()?;
        // SAFETY: the caller promised a value for each option.
        let logs = unsafe { JitLogs::from_options(jit_options.slice(jit_count as usize)?, jit_values) }?;
        load(out, file.get().and_then(image_file::read), &logs)
    }

    /// Unloads a library with its kernels and modules.
    pub fn cuLibraryUnload(library: CUlibrary) -> CUresult { unload(library) }

    /// Stores the handle of a library's kernel.
    pub fn cuLibraryGetKernel(kernel: Out<CUkernel>, library: CUlibrary, name: Text) -> CUresult {
        let found = get(library)?;
        let out = kernel.check()?;
        let name = name.get()?.to_str().map_err(|_| CUresult::NOT_FOUND)?;
        out.set(CUkernel(found.kernel(library.0, name)?))
    }

    /// Stores the number of kernels in a library.
    pub fn cuLibraryGetKernelCount(count: Out<c_uint>, library: CUlibrary) -> CUresult {
        count.set(get(library)?.any_code()?.kernels()?.names().len() as c_uint)
    }

    /// Stores the handles of a library's kernels, as many as there is room for.
    pub fn cuLibraryEnumerateKernels(kernels: Out<CUkernel>, room: c_uint, library: CUlibrary) -> CUresult {
        let found = get(library)?;
        let kernels_of = found.any_code()?.kernels()?;
        for (index, name) in kernels_of.names().take(room as usize).enumerate() {
            // SAFETY: the caller promised room for so many handles.
            let place = unsafe { kernels.at(index) };
            place.set(CUkernel(found.kernel(library.0, name)?))?;
        }
        Ok(())
    }

    /// Stores the handle of the library's module in the current context.
    pub fn cuLibraryGetModule(module: Out<CUmodule>, library: CUlibrary) -> CUresult {
        let context = current::context()?;
        let library = get(library)?;
        let out = module.check()?;
        out.set(CUmodule(library.module(context)?))
    }

    /// Stores address and size of a library's variable in the current context.
    pub fn cuLibraryGetGlobal(
        address: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: Text,
    ) -> CUresult {
        let context = current::context()?;
        let library = get(library)?;
        let name = name.get()?.to_str().map_err(|_| CUresult::NOT_FOUND)?;
        if address.is_null() && bytes.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let module = module::from_handle(library.module(context)?).ok_or(CUresult::INVALID_HANDLE)?;
        let (start, size) = module.variable(name)?;
        address.set_if(start);
        bytes.set_if(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(())
    }

    /// Stores the handle of the kernel's function in the current context.
    pub fn cuKernelGetFunction(function: Out<CUfunction>, kernel: CUkernel) -> CUresult {
        let context = current::context()?;
        let out = function.check()?;
        out.set(CUfunction(find(kernel)?.function(context)?))
    }

    /// Stores the handle of the library that contains a kernel.
    pub fn cuKernelGetLibrary(library: Out<CUlibrary>, kernel: CUkernel) -> CUresult {
        library.set(CUlibrary(find(kernel)?.library()))
    }

    /// Stores the mangled name of a kernel.
    pub fn cuKernelGetName(name: Out<*const c_char>, kernel: CUkernel) -> CUresult {
        name.set(find(kernel)?.name()?.as_ptr())
    }

    /// Stores offset and size of a kernel's parameter in its parameter buffer.
    pub fn cuKernelGetParamInfo(
        kernel: CUkernel, index: usize, offset: Out<usize>, bytes: Out<usize>,
    ) -> CUresult {
        param_info(find(kernel)?.layout()?, index, offset, bytes)
    }

    /// Stores the number of a kernel's parameters.
    pub fn cuKernelGetParamCount(kernel: CUkernel, count: Out<usize>) -> CUresult {
        count.set(find(kernel)?.layout()?.params.len())
    }

    /// Stores an attribute of a kernel on a device.
    pub fn cuKernelGetAttribute(
        value: Out<c_int>, attribute: c_uint, kernel: CUkernel, device: CUdevice,
    ) -> CUresult {
        let out = value.check()?;
        out.set(on_device(kernel, device)?.attribute(attribute)?)
    }

    /// Sets an attribute of a kernel on a device.
    pub fn cuKernelSetAttribute(
        attribute: c_uint, value: c_int, kernel: CUkernel, device: CUdevice,
    ) -> CUresult {
        on_device(kernel, device)?.set_attribute(attribute, value)
    }

    /// Sets a kernel's preferred split between cache and shared memory on a device.
    pub fn cuKernelSetCacheConfig(kernel: CUkernel, config: c_uint, device: CUdevice) -> CUresult {
        on_device(kernel, device)?.set_cache_config(config)
    }
}
