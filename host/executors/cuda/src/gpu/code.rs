//! Loads the modules of a session and finds their kernels and variables.
//!
//! No image is kept for later sessions: a worker process has one session, and the driver caches what it has
//! compiled. So the digest of an image is ignored.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::CString;
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_abi::driver::function_attribute as id;
use vgpu_device::{Charges, CodeCharge, CodeRefusal, ModuleImage, Modules, Resource, Violation};
use vgpu_image::cubin::{self, Length};
use vgpu_image::variables::{self, VariableError};
use vgpu_wire::body::module::{FUNCTION_CACHE_CONFIG, FunctionReply, IMAGE_CUBIN, ModuleOpen};

use crate::driver::code::{CodeError, DriverFunction, DriverImage, DriverModule};
use crate::driver::context::DriverContext;
use crate::driver::error::DriverError;
use crate::driver::range::DeviceRange;
use crate::gpu::code_memory::CodeMemory;
use crate::gpu::loader::{PendingTasks, TaskResult};

/// Size of the longest image that is accepted, in bytes.
pub(crate) const IMAGE_MOST: u64 = 128 << 20;

/// A module of the driver, with its image.
#[derive(Debug)]
pub(crate) struct LoadedModule {
    module: Arc<DriverModule>,
    image: DriverImage,
    /// Charge of the module, which its kernels keep as well.
    memory: Arc<CodeMemory>,
}

/// A module that is ready to be loaded, in any thread.
#[derive(Debug)]
pub(crate) struct Loading {
    /// Kind of the image, `IMAGE_CUBIN` or `IMAGE_PTX`.
    kind: u32,
    /// Bytes of the image, or `None` if the host had no memory for them.
    data: Option<Vec<u8>>,
    charge: CodeCharge,
    memory: CodeMemory,
    arrival: TaskResult<(LoadedModule, CodeCharge)>,
}

impl Loading {
    /// Loads the module, which takes as long as the compiler. When this returns, the session has the module,
    /// or everything that was charged for it has been returned.
    pub(crate) fn load(self, context: &Arc<DriverContext>) -> Result<(), CodeRefusal> {
        let Self { kind, data, charge, mut memory, mut arrival } = self;
        let data = data.ok_or_else(|| {
            CodeRefusal::new(CUresult::OUT_OF_MEMORY.0, "the host has no memory for the image")
        })?;
        memory.charge_variables(variable_bytes(kind, &data)?)?;
        let image = if kind == IMAGE_CUBIN { cubin_image(data)? } else { DriverImage::ptx(data) };
        let module = Arc::new(DriverModule::load(context, &image)?);
        arrival.bring((LoadedModule { module, image, memory: Arc::new(memory) }, charge));
        Ok(())
    }
}

/// A kernel that the guest has looked up.
#[derive(Debug)]
pub(crate) struct LoadedKernel {
    /// The kernel in the driver.
    pub(crate) function: DriverFunction,
    /// Size of the kernel's parameters in bytes, if the driver can tell.
    pub(crate) param_bytes: Option<u32>,
    /// Local memory of each thread in bytes.
    pub(crate) local_bytes: u32,
    _memory: Arc<CodeMemory>,
}

/// Adds the compiler's log to a refusal of a driver that compiles kernels lazily. Other refusals stay as they
/// are.
fn with_compiler_log(refusal: CodeRefusal, context: &Arc<DriverContext>, image: &DriverImage) -> CodeRefusal {
    let compiled = [CUresult::INVALID_PTX, CUresult::UNSUPPORTED_PTX_VERSION, CUresult::NO_BINARY_FOR_GPU];
    if !compiled.iter().any(|code| code.0 == refusal.code) {
        return refusal;
    }
    match DriverModule::load_with_log(context, image) {
        Err(CodeError { error, log }) if error.code.0 == refusal.code && !log.is_empty() => {
            CodeRefusal { why: log, ..refusal }
        }
        _ => refusal,
    }
}

impl From<DriverError> for CodeRefusal {
    fn from(error: DriverError) -> Self {
        Self::new(error.code.0, &error)
    }
}

impl From<CodeError> for CodeRefusal {
    fn from(error: CodeError) -> Self {
        let CodeError { error, log } = error;
        if log.is_empty() { error.into() } else { Self::new(error.code.0, &log) }
    }
}

/// The modules of a session and their kernels.
#[derive(Debug, Default)]
pub(crate) struct SessionCode {
    modules: Modules<Infallible, LoadedModule, Arc<LoadedKernel>>,
    /// Charges of the modules whose load has not started, by number.
    memory: HashMap<u32, CodeMemory>,
    /// Modules that the loader's thread loads.
    loading: PendingTasks<(LoadedModule, CodeCharge)>,
}

impl SessionCode {
    /// Returns the number of modules, including those that are being loaded.
    pub(crate) fn len(&self) -> u32 {
        self.modules.len() + self.loading.len() as u32
    }

    /// Opens a module, which is charged `memory`. Its image follows.
    pub(crate) fn open(
        &mut self,
        charges: &Arc<Charges>,
        body: &ModuleOpen,
        memory: CodeMemory,
    ) -> Result<Result<(), CodeRefusal>, Violation> {
        let opened = self.modules.open(charges, body, IMAGE_MOST, None)?;
        if opened.is_ok() {
            self.memory.insert(body.module, memory);
        }
        Ok(opened)
    }

    /// Adds a piece of `bytes` bytes to an image. `copy` writes it to the given memory.
    pub(crate) fn add_piece(
        &mut self,
        module: u32,
        offset: u64,
        bytes: u64,
        copy: impl FnOnce(&mut [u8]),
    ) -> Result<(), Violation> {
        self.modules.add_piece(module, offset, bytes, copy)
    }

    /// Takes out a module whose image is complete, so that another thread can load it.
    pub(crate) fn start_loading(&mut self, number: u32) -> Result<Loading, Violation> {
        let (kind, image, charge) = self.modules.start_loading(number)?;
        let memory = self.memory.remove(&number).ok_or_else(|| Violation::unknown("module", number))?;
        let data = match image {
            ModuleImage::Whole(_, data) => Some(data),
            ModuleImage::NoMemory => None,
        };
        Ok(Loading { kind, data, charge, memory, arrival: self.loading.start(number) })
    }

    /// Takes over modules that were loaded. Waits for `module` if it is being loaded, unless `stopping`
    /// returns true.
    pub(crate) fn collect_loaded(
        &mut self,
        module: u32,
        stopping: impl Fn() -> bool,
    ) -> Result<(), Violation> {
        for (number, (loaded, charge)) in self.loading.collect(module, stopping) {
            self.modules.finish_loading(number, loaded, charge)?;
        }
        Ok(())
    }

    /// Removes a module with its kernels and returns both.
    pub(crate) fn unload(
        &mut self,
        module: u32,
    ) -> Result<(Option<LoadedModule>, Vec<Arc<LoadedKernel>>), Violation> {
        let unloaded = self.modules.unload(module)?;
        self.memory.remove(&module);
        Ok(unloaded)
    }

    /// Finds a kernel and records it under the guest's number. Returns the kernel's attributes.
    pub(crate) fn find_function(
        &mut self,
        charges: &Arc<Charges>,
        context: &Arc<DriverContext>,
        module: u32,
        number: u32,
        name: &[u8],
    ) -> Result<Result<FunctionReply, CodeRefusal>, Violation> {
        let loaded = self.modules.for_function(module, number)?;
        match LoadedKernel::find(charges, loaded, name) {
            Ok((kernel, reply, charge)) => {
                self.modules.add_function(module, number, Arc::new(kernel), charge)?;
                Ok(Ok(reply))
            }
            Err(refusal) => Ok(Err(with_compiler_log(refusal, context, &loaded.image))),
        }
    }

    /// Returns a kernel by its number.
    #[inline]
    pub(crate) fn kernel(&self, number: u32) -> Result<&Arc<LoadedKernel>, Violation> {
        self.modules.function(number)
    }

    /// Finds a variable of a module.
    pub(crate) fn find_global(
        &self,
        module: u32,
        name: &[u8],
    ) -> Result<Result<DeviceRange, CodeRefusal>, Violation> {
        let LoadedModule { module, .. } = self.modules.loaded(module)?;
        let Ok(name) = CString::new(name) else {
            return Ok(Err(CodeRefusal::new(CUresult::NOT_FOUND.0, "a variable's name is no text")));
        };
        Ok(module.global(&name).map_err(CodeRefusal::from))
    }
}

impl LoadedKernel {
    /// Finds a kernel of a module, with its attributes and its charge.
    fn find(
        charges: &Arc<Charges>,
        LoadedModule { module, memory, .. }: &LoadedModule,
        name: &[u8],
    ) -> Result<(Self, FunctionReply, CodeCharge), CodeRefusal> {
        let charge = CodeCharge::new(charges, Resource::Functions, 0)?;
        let name = CString::new(name)
            .map_err(|_| CodeRefusal::new(CUresult::NOT_FOUND.0, "a kernel's name is no text"))?;
        let function = module.function(&name)?;
        let param_bytes = function.param_bytes().transpose()?;
        let attribute = |id| function.attribute(id).map(|value| u32::try_from(value).unwrap_or(0));
        let reply = FunctionReply {
            max_threads: attribute(id::MAX_THREADS_PER_BLOCK)?,
            shared_bytes: attribute(id::SHARED_SIZE_BYTES)?,
            const_bytes: attribute(id::CONST_SIZE_BYTES)?,
            local_bytes: attribute(id::LOCAL_SIZE_BYTES)?,
            registers: attribute(id::NUM_REGS)?,
            ptx_version: attribute(id::PTX_VERSION)?,
            binary_version: attribute(id::BINARY_VERSION)?,
            max_dynamic_shared: attribute(id::MAX_DYNAMIC_SHARED_SIZE_BYTES)?,
            param_bytes: param_bytes.unwrap_or(0),
            reserved: [0; 7],
        };
        let (local_bytes, memory) = (reply.local_bytes, Arc::clone(memory));
        Ok((Self { function, param_bytes, local_bytes, _memory: memory }, reply, charge))
    }

    /// Carries out `cuFuncSetAttribute` and `cuFuncSetCacheConfig`.
    pub(crate) fn set(&self, attribute: u32, value: i32) -> Result<(), DriverError> {
        if attribute == FUNCTION_CACHE_CONFIG {
            return self.function.set_cache_config(value.cast_unsigned());
        }
        self.function.set_attribute(attribute, value)
    }
}

/// Returns the number of bytes that the variables of an image take beside the image. A cubin that does not
/// tell is refused, because the driver might read it in another way.
fn variable_bytes(kind: u32, data: &[u8]) -> Result<u64, CodeRefusal> {
    if kind == IMAGE_CUBIN {
        let told = cubin::variable_bytes(data);
        return told.map_err(|error| CodeRefusal::new(CUresult::INVALID_IMAGE.0, &error));
    }
    variables::variable_bytes(data).map_err(|error| {
        let code = match error {
            VariableError::UnknownSize(_) => CUresult::OUT_OF_MEMORY,
            VariableError::UnclearQuote => CUresult::INVALID_PTX,
        };
        CodeRefusal::new(code.0, &error)
    })
}

/// Accepts a cubin whose headers, tables and sections all lie within it, because the driver is not told its
/// length.
fn cubin_image(data: Vec<u8>) -> Result<DriverImage, CodeRefusal> {
    DriverImage::cubin(
        data,
        |data| matches!(cubin::length(data), Ok(Length::Known(bytes)) if bytes <= data.len()),
    )
    .ok_or_else(|| CodeRefusal::new(CUresult::INVALID_IMAGE.0, "the image is no whole cubin"))
}
