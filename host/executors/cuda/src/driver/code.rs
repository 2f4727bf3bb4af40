//! Modules of the driver, with their kernels and variables.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUfunction, CUmodule};

use super::context::DriverContext;
use super::error::{DriverError, check, log_failure};
use super::range::DeviceRange;

/// Numbers of `CU_JIT_INFO_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER`, each followed by that of its size.
pub(super) const LOG_OPTIONS: [c_uint; 4] = [3, 4, 5, 6];
/// Size of the buffer for the compiler's log, in bytes. The guest sees the first 1,024 of them.
pub(super) const LOG_BYTES: usize = 4096;
/// Upper bound of the number of parameters of a kernel, because each takes at least a byte.
const PARAMS_MOST: usize = vgpu_wire::body::launch::PARAM_BYTES_MAX as usize;

/// Code that the driver refused, with the compiler's log.
#[derive(Debug, thiserror::Error)]
#[error("{error}{}{log}", if log.is_empty() { "" } else { ": " })]
pub(crate) struct CodeError {
    /// Error that the call returned.
    pub(crate) error: DriverError,
    /// Log of the compiler, which may be empty.
    pub(crate) log: String,
}

/// Code in the form that the driver takes. The driver gets only the address, and finds the end itself.
#[derive(Debug)]
pub(crate) struct DriverImage(Vec<u8>);

impl DriverImage {
    /// Wraps PTX text, and adds the zero that ends it.
    pub(crate) fn ptx(mut text: Vec<u8>) -> Self {
        text.push(0);
        Self(text)
    }

    /// Wraps a cubin. Returns `None` if `whole` finds that its headers name anything outside the data.
    pub(crate) fn cubin(data: Vec<u8>, whole: impl FnOnce(&[u8]) -> bool) -> Option<Self> {
        whole(&data).then_some(Self(data))
    }
}

/// A module of the driver, unloaded when it is dropped.
#[derive(Debug)]
pub(crate) struct DriverModule {
    context: Arc<DriverContext>,
    handle: CUmodule,
}

impl DriverModule {
    /// Calls `cuModuleLoadDataEx`. It requests the compiler's log only after the driver refused the code: a
    /// driver that compiles kernels lazily would have to compile all of them for a log.
    pub(crate) fn load(context: &Arc<DriverContext>, image: &DriverImage) -> Result<Self, CodeError> {
        match Self::try_load(context, image, &mut []) {
            Err(error) if !error.loses_context() => Self::load_with_log(context, image),
            loaded => loaded.map_err(|error| CodeError { error, log: String::new() }),
        }
    }

    /// Loads an image, with the compiler's log if the driver refuses it.
    pub(crate) fn load_with_log(
        context: &Arc<DriverContext>,
        image: &DriverImage,
    ) -> Result<Self, CodeError> {
        let mut logs = [[0_u8; LOG_BYTES]; 2];
        Self::try_load(context, image, &mut logs).map_err(|error| {
            let text = CStr::from_bytes_until_nul(&logs[1]).map(CStr::to_string_lossy);
            CodeError { error, log: text.unwrap_or_default().trim().to_owned() }
        })
    }

    /// Loads an image. `logs` is empty, or one buffer for information and one for errors.
    fn try_load(
        context: &Arc<DriverContext>,
        image: &DriverImage,
        logs: &mut [[u8; LOG_BYTES]],
    ) -> Result<Self, DriverError> {
        let size = ptr::without_provenance_mut::<c_void>(LOG_BYTES);
        let mut values: Vec<*mut c_void> =
            logs.iter_mut().flat_map(|log| [log.as_mut_ptr().cast(), size]).collect();
        let mut options = LOG_OPTIONS;
        let count = options.len().min(values.len());
        let mut handle = CUmodule::NULL;
        let load = context.table().cuModuleLoadDataEx;
        let (image, options) = (image.0.as_ptr().cast(), options.as_mut_ptr());
        // SAFETY: a live place for the answer, a live image that ends as its kind must, and as many options
        // as values, of the types of these options.
        let code = unsafe { load(&raw mut handle, image, count as c_uint, options, values.as_mut_ptr()) };
        check("cuModuleLoadDataEx", code)?;
        Ok(Self { context: Arc::clone(context), handle })
    }

    /// Finds a kernel by its name.
    pub(crate) fn function(self: &Arc<Self>, name: &CStr) -> Result<DriverFunction, DriverError> {
        let mut handle = CUfunction::NULL;
        let get = self.context.table().cuModuleGetFunction;
        // SAFETY: a live place for the answer, a live module, a text that ends with a zero.
        check("cuModuleGetFunction", unsafe { get(&raw mut handle, self.handle, name.as_ptr()) })?;
        Ok(DriverFunction { module: Arc::clone(self), handle })
    }

    /// Finds a variable by its name.
    pub(crate) fn global(&self, name: &CStr) -> Result<DeviceRange, DriverError> {
        let (mut address, mut bytes) = (0, 0);
        let get = self.context.table().cuModuleGetGlobal_v2;
        // SAFETY: live places for the answers, a live module, a text that ends with a zero.
        let code = unsafe { get(&raw mut address, &raw mut bytes, self.handle, name.as_ptr()) };
        check("cuModuleGetGlobal_v2", code)?;
        Ok(DeviceRange::named(address, bytes as u64))
    }
}

impl Drop for DriverModule {
    fn drop(&mut self) {
        // SAFETY: this is the last use of the handle, because every function keeps this value alive.
        log_failure(check("cuModuleUnload", unsafe { (self.context.table().cuModuleUnload)(self.handle) }));
    }
}

/// A kernel of a module, which stays loaded while this lives.
#[derive(Debug)]
pub(crate) struct DriverFunction {
    module: Arc<DriverModule>,
    handle: CUfunction,
}

impl DriverFunction {
    pub(super) const fn handle(&self) -> CUfunction {
        self.handle
    }

    /// Calls `cuFuncGetAttribute`.
    pub(crate) fn attribute(&self, id: c_uint) -> Result<i32, DriverError> {
        let mut value = 0;
        let get = self.module.context.table().cuFuncGetAttribute;
        // SAFETY: a live place for the answer, a live function.
        check("cuFuncGetAttribute", unsafe { get(&raw mut value, id, self.handle) })?;
        Ok(value)
    }

    /// Calls `cuFuncSetAttribute`.
    pub(crate) fn set_attribute(&self, id: c_uint, value: i32) -> Result<(), DriverError> {
        let set = self.module.context.table().cuFuncSetAttribute;
        // SAFETY: a live function.
        check("cuFuncSetAttribute", unsafe { set(self.handle, id, value) })
    }

    /// Calls `cuFuncSetCacheConfig`.
    pub(crate) fn set_cache_config(&self, config: c_uint) -> Result<(), DriverError> {
        let set = self.module.context.table().cuFuncSetCacheConfig;
        // SAFETY: a live function.
        check("cuFuncSetCacheConfig", unsafe { set(self.handle, config) })
    }

    /// Returns the size of the kernel's parameters in bytes, or `None` if the driver is older than CUDA 12.4
    /// and cannot tell.
    pub(crate) fn param_bytes(&self) -> Option<Result<u32, DriverError>> {
        let get = self.module.context.table().cuFuncGetParamInfo?;
        let mut end = 0;
        for index in 0..PARAMS_MOST {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: live places for the answers, a live function.
            let code = unsafe { get(self.handle, index, &raw mut offset, &raw mut bytes) };
            match check("cuFuncGetParamInfo", code) {
                Ok(()) => end = end.max(offset.saturating_add(bytes)),
                // The kernel has no such parameter.
                Err(error) if error.code == CUresult::INVALID_VALUE => break,
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(u32::try_from(end).unwrap_or(u32::MAX)))
    }

    /// Returns the number of blocks with these threads and this dynamic shared memory that fit a
    /// multiprocessor.
    pub(crate) fn occupancy(&self, threads: c_int, shared: usize, flags: c_uint) -> Result<u32, DriverError> {
        let mut blocks = 0;
        let ask = self.module.context.table().cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
        // SAFETY: a live place for the answer, a live function.
        let code = unsafe { ask(&raw mut blocks, self.handle, threads, shared, flags) };
        check("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", code)?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }
}
