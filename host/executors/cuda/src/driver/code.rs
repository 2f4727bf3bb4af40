//! Code: modules, and their kernels and variables.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUfunction, CUmodule};

use super::context::Context;
use super::error::{DriverError, check, tell};
use super::range::DeviceRange;

/// `CU_JIT_INFO_LOG_BUFFER`, its size, `CU_JIT_ERROR_LOG_BUFFER`, its size.
pub(super) const LOG_OPTIONS: [c_uint; 4] = [3, 4, 5, 6];
/// Bytes that the compiler's words may take. The guest is shown the first 1,024 of them.
pub(super) const LOG_BYTES: usize = 4096;
/// No kernel has more parameters: they take a byte at least.
const PARAMS_MOST: usize = vgpu_wire::body::launch::PARAM_BYTES_MAX as usize;

/// Code that the driver refused, and the compiler's words about it, which may be none.
#[derive(Debug, thiserror::Error)]
#[error("{error}{}{log}", if log.is_empty() { "" } else { ": " })]
pub(crate) struct CodeError {
    /// What the call returned.
    pub(crate) error: DriverError,
    /// The compiler's words.
    pub(crate) log: String,
}

/// Code as the driver takes it, which is told where it starts, and finds its end by itself.
#[derive(Debug)]
pub(crate) struct Image(Vec<u8>);

impl Image {
    /// PTX text. A zero ends it.
    pub(crate) fn ptx(mut text: Vec<u8>) -> Self {
        text.push(0);
        Self(text)
    }

    /// A cubin. `whole` says whether all that its headers name lies within it; one that is not whole is
    /// refused.
    pub(crate) fn cubin(data: Vec<u8>, whole: impl FnOnce(&[u8]) -> bool) -> Option<Self> {
        whole(&data).then_some(Self(data))
    }
}

/// A module.
#[derive(Debug)]
pub(crate) struct Module {
    context: Arc<Context>,
    handle: CUmodule,
}

impl Module {
    /// `cuModuleLoadDataEx`. Asks for the compiler's words only once it has refused the code: a driver that
    /// compiles kernels when they are needed would have to compile all of them for a log.
    pub(crate) fn load(context: &Arc<Context>, image: &Image) -> Result<Self, CodeError> {
        match Self::try_load(context, image, &mut []) {
            Err(error) if !error.loses_context() => Self::load_with_log(context, image),
            loaded => loaded.map_err(|error| CodeError { error, log: String::new() }),
        }
    }

    /// The same with the compiler's words, if it refuses the code.
    pub(crate) fn load_with_log(context: &Arc<Context>, image: &Image) -> Result<Self, CodeError> {
        let mut logs = [[0_u8; LOG_BYTES]; 2];
        Self::try_load(context, image, &mut logs).map_err(|error| {
            let text = CStr::from_bytes_until_nul(&logs[1]).map(CStr::to_string_lossy);
            CodeError { error, log: text.unwrap_or_default().trim().to_owned() }
        })
    }

    /// Loads an image. `logs` are no buffers, or one for what the compiler says and one for why it refuses.
    fn try_load(
        context: &Arc<Context>,
        image: &Image,
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

    /// A kernel by its name.
    pub(crate) fn function(self: &Arc<Self>, name: &CStr) -> Result<Function, DriverError> {
        let mut handle = CUfunction::NULL;
        let get = self.context.table().cuModuleGetFunction;
        // SAFETY: a live place for the answer, a live module, a text that ends with a zero.
        check("cuModuleGetFunction", unsafe { get(&raw mut handle, self.handle, name.as_ptr()) })?;
        Ok(Function { module: Arc::clone(self), handle })
    }

    /// A variable by its name.
    pub(crate) fn global(&self, name: &CStr) -> Result<DeviceRange, DriverError> {
        let (mut address, mut bytes) = (0, 0);
        let get = self.context.table().cuModuleGetGlobal_v2;
        // SAFETY: live places for the answers, a live module, a text that ends with a zero.
        let code = unsafe { get(&raw mut address, &raw mut bytes, self.handle, name.as_ptr()) };
        check("cuModuleGetGlobal_v2", code)?;
        Ok(DeviceRange::named(address, bytes as u64))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the last use of the handle: functions have a share of this value.
        tell(check("cuModuleUnload", unsafe { (self.context.table().cuModuleUnload)(self.handle) }));
    }
}

/// A kernel.
#[derive(Debug)]
pub(crate) struct Function {
    module: Arc<Module>,
    handle: CUfunction,
}

impl Function {
    pub(super) const fn handle(&self) -> CUfunction {
        self.handle
    }

    /// `cuFuncGetAttribute`
    pub(crate) fn attribute(&self, id: c_uint) -> Result<i32, DriverError> {
        let mut value = 0;
        let get = self.module.context.table().cuFuncGetAttribute;
        // SAFETY: a live place for the answer, a live function.
        check("cuFuncGetAttribute", unsafe { get(&raw mut value, id, self.handle) })?;
        Ok(value)
    }

    /// `cuFuncSetAttribute`
    pub(crate) fn set_attribute(&self, id: c_uint, value: i32) -> Result<(), DriverError> {
        let set = self.module.context.table().cuFuncSetAttribute;
        // SAFETY: a live function.
        check("cuFuncSetAttribute", unsafe { set(self.handle, id, value) })
    }

    /// `cuFuncSetCacheConfig`
    pub(crate) fn set_cache_config(&self, config: c_uint) -> Result<(), DriverError> {
        let set = self.module.context.table().cuFuncSetCacheConfig;
        // SAFETY: a live function.
        check("cuFuncSetCacheConfig", unsafe { set(self.handle, config) })
    }

    /// Bytes of its parameters. `None`: the driver is older than the question (CUDA 12.4).
    pub(crate) fn param_bytes(&self) -> Option<Result<u32, DriverError>> {
        let get = self.module.context.table().cuFuncGetParamInfo?;
        let mut end = 0;
        for index in 0..PARAMS_MOST {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: live places for the answers, a live function.
            match unsafe { get(self.handle, index, &raw mut offset, &raw mut bytes) } {
                // There is no such parameter.
                CUresult::INVALID_VALUE => break,
                CUresult::SUCCESS => end = end.max(offset.saturating_add(bytes)),
                code => return Some(Err(DriverError { call: "cuFuncGetParamInfo", code })),
            }
        }
        Some(Ok(u32::try_from(end).unwrap_or(u32::MAX)))
    }

    /// Blocks of so many threads and so much dynamic shared memory that a multiprocessor holds.
    pub(crate) fn occupancy(&self, threads: c_int, shared: usize, flags: c_uint) -> Result<u32, DriverError> {
        let mut blocks = 0;
        let ask = self.module.context.table().cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
        // SAFETY: a live place for the answer, a live function.
        let code = unsafe { ask(&raw mut blocks, self.handle, threads, shared, flags) };
        check("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", code)?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }
}
