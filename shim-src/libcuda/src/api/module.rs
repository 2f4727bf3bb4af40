//! Module management: loads code into a context and looks up what it contains.

use std::ffi::{c_uint, c_void};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUdeviceptr, CUfunction, CUmodule};

use crate::Result;
use crate::arg::{In, Out, Text};
use crate::code::image::Image;
use crate::code::image_file;
use crate::code::jit_log::JitLogs;
use crate::object::load::{self, unload};
use crate::object::module::get;
use crate::object::{capture, current, function, lifecycle};

/// `CU_MODULE_LAZY_LOADING`: code is loaded when it is first needed.
const LAZY: c_uint = 2;

fn load_with(out: Out<CUmodule>, image: impl FnOnce() -> Result<Image>, at_once: bool) -> Result {
    let context = current::context()?;
    let out = out.check()?;
    out.set(CUmodule(load::load(context, image, at_once)?))
}

fn load_image(out: Out<CUmodule>, image: impl FnOnce() -> Result<Image>) -> Result {
    load_with(out, image, false)
}

/// Reads an image in memory, of which the module keeps a copy.
fn in_memory(address: *const c_void) -> Result<Image> {
    // SAFETY: the export's caller promised an image at the address.
    unsafe { Image::read(address, false) }
}

exports! {
    /// Loads a module from memory into the current context.
    pub fn cuModuleLoadData(module: Out<CUmodule>, image: *const c_void) -> CUresult {
        load_image(module, || in_memory(image))
    }

    /// Loads a module from memory. Of its options, which are for a compiler in this process, only the log
    /// buffers take effect.
    pub fn cuModuleLoadDataEx(
        module: Out<CUmodule>, image: *const c_void, count: c_uint, options: In<c_uint>,
        values: *mut *mut c_void,
    ) -> CUresult {
        current::context()?;
        // SAFETY: the caller promised a value for each option.
        let logs = unsafe { JitLogs::from_options(options.slice(count as usize)?, values) }?;
        let loaded = load_with(module, || in_memory(image), logs.wanted());
        logs.store(&loaded, "compiled by the device's host");
        loaded
    }

    /// Loads a module from a fat binary in memory.
    pub fn cuModuleLoadFatBinary(module: Out<CUmodule>, image: *const c_void) -> CUresult {
        load_image(module, || in_memory(image))
    }

    /// Loads a module from a file.
    pub fn cuModuleLoad(module: Out<CUmodule>, file: Text) -> CUresult { load_image(module, || image_file::read(file.get()?)) }

    /// Unloads a module with its functions.
    pub fn cuModuleUnload(module: CUmodule) -> CUresult {
        get(module)?;
        capture::forbid_unsafe()?;
        unload(module.0).ok_or(CUresult::INVALID_HANDLE)?
    }

    /// Stores the loading mode of the process, which is always lazy.
    pub fn cuModuleGetLoadingMode(mode: Out<c_uint>) -> CUresult {
        lifecycle::devices()?;
        mode.set(LAZY)
    }

    /// Stores the handle of a module's function.
    pub fn cuModuleGetFunction(function: Out<CUfunction>, module: CUmodule, name: Text) -> CUresult {
        let module = get(module)?;
        let out = function.check()?;
        let name = name.get()?.to_str().map_err(|_| CUresult::NOT_FOUND)?;
        out.set(CUfunction(function::in_module(module, name)?))
    }

    /// Stores the number of functions in a module.
    pub fn cuModuleGetFunctionCount(count: Out<c_uint>, module: CUmodule) -> CUresult {
        count.set(get(module)?.names()?.len() as c_uint)
    }

    /// Stores the handles of a module's functions, as many as there is room for.
    pub fn cuModuleEnumerateFunctions(
        functions: Out<CUfunction>, room: c_uint, module: CUmodule
    ) -> CUresult {
        let module = get(module)?;
        for (index, name) in module.names()?.iter().take(room as usize).enumerate() {
            // SAFETY: the caller promised room for so many handles.
            let place = unsafe { functions.at(index) };
            place.set(CUfunction(function::in_module(module, name)?))?;
        }
        Ok(())
    }

    /// Stores address and size of a module's variable.
    pub fn cuModuleGetGlobal_v2(
        address: Out<CUdeviceptr>, bytes: Out<usize>, module: CUmodule, name: Text,
    ) -> CUresult {
        let module = get(module)?;
        let name = name.get()?.to_str().map_err(|_| CUresult::NOT_FOUND)?;
        if address.is_null() && bytes.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let (start, size) = module.variable(name)?;
        address.set_if(start);
        bytes.set_if(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(())
    }
}
