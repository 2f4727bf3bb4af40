//! A session's modules: images on their way from the guest, loaded ones, their kernels and variables.
//!
//! No image is kept for a later session: a worker process has one session, and the driver keeps what it has
//! compiled. So an image needs no digest, and one that comes with it is not computed.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_abi::driver::function_attribute as id;
use vgpu_device::{Arrived, Arriving, Charge, Charges, OverLimit, Resource, Violation};
use vgpu_image::cubin::{self, Length};
use vgpu_wire::body::module::{FUNCTION_CACHE_CONFIG, FunctionReply, IMAGE_CUBIN, ModuleOpen};

use crate::driver::code::{CodeError, Function, Image, Module};
use crate::driver::context::Context;
use crate::driver::error::DriverError;
use crate::driver::range::DeviceRange;
use crate::gpu::loader::{Arrival, Away};

/// The longest image that is taken.
pub(crate) const IMAGE_MOST: u64 = 128 << 20;

/// A module that the guest has opened.
#[derive(Debug)]
enum State {
    /// Its image comes in pieces. What kind it is.
    Coming(u32, Arriving),
    /// It can be used.
    Loaded(Arc<Module>, Arc<Image>),
}

#[derive(Debug)]
struct Opened {
    state: State,
    _count: Charge,
    /// The image.
    _bytes: Charge,
}

/// A module that is about to be loaded, in any thread.
#[derive(Debug)]
pub(crate) struct Loading {
    kind: u32,
    /// The image. `None`: the host had no memory for it.
    data: Option<Vec<u8>>,
    count: Charge,
    bytes: Charge,
    arrival: Arrival<Opened>,
}

impl Loading {
    /// Loads it, which takes as long as the compiler does. The session has it when this returns.
    pub(crate) fn load(self, context: &Arc<Context>) -> Result<(), Refusal> {
        let Self { kind, data, count, bytes, mut arrival } = self;
        let data = data
            .ok_or_else(|| Refusal::new(CUresult::OUT_OF_MEMORY, "the host has no memory for the image"))?;
        let image = if kind == IMAGE_CUBIN { cubin_image(data)? } else { Image::ptx(data) };
        let module = Arc::new(Module::load(context, &image)?);
        let state = State::Loaded(module, Arc::new(image));
        arrival.bring(Opened { state, _count: count, _bytes: bytes });
        Ok(())
    }
}

/// A kernel that the guest has asked for.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// The driver's handle.
    pub(crate) function: Function,
    /// Bytes of its parameters, if the driver says.
    pub(crate) param_bytes: Option<u32>,
    module: u32,
    _count: Charge,
}

/// Why code is refused: the `CUresult`, and why, in words for who runs the program.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: u32,
    pub(crate) why: String,
}

impl Refusal {
    fn new(code: CUresult, why: &(impl ToString + ?Sized)) -> Self {
        Self { code: code.0, why: why.to_string() }
    }
}

impl Refusal {
    /// Why a driver that compiles kernels when they are asked for refused one. Other refusals stay as they
    /// are.
    fn in_the_compilers_words(self, context: &Arc<Context>, image: &Image) -> Self {
        let compiled =
            [CUresult::INVALID_PTX, CUresult::UNSUPPORTED_PTX_VERSION, CUresult::NO_BINARY_FOR_GPU];
        if !compiled.iter().any(|code| code.0 == self.code) {
            return self;
        }
        match Module::load_with_log(context, image) {
            Err(CodeError { error, log }) if error.code.0 == self.code && !log.is_empty() => {
                Self { why: log, ..self }
            }
            _ => self,
        }
    }
}

impl From<OverLimit> for Refusal {
    fn from(over: OverLimit) -> Self {
        Self::new(CUresult::OUT_OF_MEMORY, &over)
    }
}

impl From<DriverError> for Refusal {
    fn from(error: DriverError) -> Self {
        Self::new(error.code, &error)
    }
}

impl From<CodeError> for Refusal {
    fn from(error: CodeError) -> Self {
        let CodeError { error, log } = error;
        if log.is_empty() { error.into() } else { Self::new(error.code, &log) }
    }
}

/// The modules of a session, those that are still arriving included, and their kernels.
#[derive(Debug, Default)]
pub(crate) struct Code {
    modules: HashMap<u32, Opened>,
    /// Modules that another thread loads.
    loading: Away<Opened>,
    kernels: HashMap<u32, Arc<Kernel>>,
}

/// What a module held, for who drops it when no work needs it any more.
pub(crate) type Unloaded = (Option<Arc<Module>>, Vec<Arc<Kernel>>);

impl Code {
    /// Number of modules.
    pub(crate) fn len(&self) -> u32 {
        (self.modules.len() + self.loading.len()) as u32
    }

    /// Opens a module, whose image comes next.
    pub(crate) fn open(
        &mut self,
        charges: &Arc<Charges>,
        body: &ModuleOpen,
    ) -> Result<Result<(), Refusal>, Violation> {
        if self.modules.contains_key(&body.module) {
            return Err(Violation::in_use("module", body.module));
        }
        if body.bytes > IMAGE_MOST {
            let why = format!("an image of {} bytes is longer than this device takes", body.bytes);
            return Ok(Err(Refusal::new(CUresult::OUT_OF_MEMORY, &why)));
        }
        let charged = charges
            .take(Resource::Modules, 1)
            .and_then(|count| Ok((count, charges.take(Resource::HostBytes, body.bytes)?)));
        match charged {
            Ok((count, bytes)) => {
                let state = State::Coming(body.image, Arriving::new(body.digest, body.bytes));
                self.modules.insert(body.module, Opened { state, _count: count, _bytes: bytes });
                Ok(Ok(()))
            }
            Err(over) => Ok(Err(over.into())),
        }
    }

    /// Takes a piece of an image of `bytes` bytes: `copy` puts it where it is told.
    pub(crate) fn piece(
        &mut self,
        module: u32,
        offset: u64,
        bytes: u64,
        copy: impl FnOnce(&mut [u8]),
    ) -> Result<(), Violation> {
        match self.modules.get_mut(&module).map(|opened| &mut opened.state) {
            Some(State::Coming(_, arriving)) => arriving.piece(offset, bytes, copy),
            _ => Err(Violation::unknown("module", module)),
        }
    }

    /// Takes a module whose image is there, so that another thread can load it.
    pub(crate) fn start_loading(&mut self, number: u32) -> Result<Loading, Violation> {
        let opened = self.modules.remove(&number).ok_or(Violation::unknown("module", number))?;
        let Opened { state, _count: count, _bytes: bytes } = opened;
        // One that is loaded twice is not known either.
        let State::Coming(kind, arriving) = state else { return Err(Violation::unknown("module", number)) };
        let data = match arriving.finish() {
            Arrived::Whole(_, data) => Some(data),
            Arrived::NoMemory => None,
            Arrived::Short => return Err(Violation::unknown("module", number)),
        };
        Ok(Loading { kind, data, count, bytes, arrival: self.loading.start(number) })
    }

    /// Takes over the modules that have been loaded. Waits for `module` if it is being loaded.
    pub(crate) fn settle(&mut self, module: u32, stopping: impl Fn() -> bool) {
        self.modules.extend(self.loading.settle(module, stopping));
    }

    fn loaded(&self, module: u32) -> Result<(&Arc<Module>, &Arc<Image>), Violation> {
        match self.modules.get(&module).map(|opened| &opened.state) {
            Some(State::Loaded(loaded, image)) => Ok((loaded, image)),
            _ => Err(Violation::unknown("module", module)),
        }
    }

    /// Ends a module with its kernels.
    pub(crate) fn unload(&mut self, module: u32) -> Result<Unloaded, Violation> {
        let opened = self.modules.remove(&module).ok_or(Violation::unknown("module", module))?;
        let (gone, kept) = self.kernels.drain().partition(|(_, kernel)| kernel.module == module);
        self.kernels = kept;
        let gone: HashMap<u32, Arc<Kernel>> = gone;
        let loaded = if let State::Loaded(module, _) = opened.state { Some(module) } else { None };
        Ok((loaded, gone.into_values().collect()))
    }

    /// Finds a kernel and gives it a number: its attributes.
    pub(crate) fn function(
        &mut self,
        charges: &Arc<Charges>,
        context: &Arc<Context>,
        module: u32,
        number: u32,
        name: &[u8],
    ) -> Result<Result<FunctionReply, Refusal>, Violation> {
        let (loaded, image) = self.loaded(module)?;
        let (loaded, image) = (Arc::clone(loaded), Arc::clone(image));
        if self.kernels.contains_key(&number) {
            return Err(Violation::in_use("function", number));
        }
        let added = self.add_kernel(charges, &loaded, module, number, name);
        Ok(added.map_err(|refusal| refusal.in_the_compilers_words(context, &image)))
    }

    fn add_kernel(
        &mut self,
        charges: &Arc<Charges>,
        loaded: &Arc<Module>,
        module: u32,
        number: u32,
        name: &[u8],
    ) -> Result<FunctionReply, Refusal> {
        let count = charges.take(Resource::Functions, 1)?;
        let name = CString::new(name)
            .map_err(|_| Refusal::new(CUresult::NOT_FOUND, "a kernel's name is no text"))?;
        let function = loaded.function(&name)?;
        let param_bytes = function.param_bytes().transpose()?;
        let ask = |id| function.attribute(id).map(|value| u32::try_from(value).unwrap_or(0));
        let reply = FunctionReply {
            max_threads: ask(id::MAX_THREADS_PER_BLOCK)?,
            shared_bytes: ask(id::SHARED_SIZE_BYTES)?,
            const_bytes: ask(id::CONST_SIZE_BYTES)?,
            local_bytes: ask(id::LOCAL_SIZE_BYTES)?,
            registers: ask(id::NUM_REGS)?,
            ptx_version: ask(id::PTX_VERSION)?,
            binary_version: ask(id::BINARY_VERSION)?,
            max_dynamic_shared: ask(id::MAX_DYNAMIC_SHARED_SIZE_BYTES)?,
            param_bytes: param_bytes.unwrap_or(0),
            reserved: [0; 7],
        };
        let kernel = Kernel { function, param_bytes, module, _count: count };
        self.kernels.insert(number, Arc::new(kernel));
        Ok(reply)
    }

    /// A kernel by its number.
    #[inline]
    pub(crate) fn kernel(&self, number: u32) -> Result<&Arc<Kernel>, Violation> {
        self.kernels.get(&number).ok_or(Violation::unknown("function", number))
    }

    /// A variable.
    pub(crate) fn global(&self, module: u32, name: &[u8]) -> Result<Result<DeviceRange, Refusal>, Violation> {
        let (loaded, _) = self.loaded(module)?;
        let Ok(name) = CString::new(name) else {
            return Ok(Err(Refusal::new(CUresult::NOT_FOUND, "a variable's name is no text")));
        };
        Ok(loaded.global(&name).map_err(Refusal::from))
    }
}

impl Kernel {
    /// `cuFuncSetAttribute`, `cuFuncSetCacheConfig`
    pub(crate) fn set(&self, attribute: u32, value: i32) -> Result<(), DriverError> {
        if attribute == FUNCTION_CACHE_CONFIG {
            return self.function.set_cache_config(value.cast_unsigned());
        }
        self.function.set_attribute(attribute, value)
    }
}

/// A cubin whose headers, tables and sections lie within it: the driver is told no length.
fn cubin_image(data: Vec<u8>) -> Result<Image, Refusal> {
    Image::cubin(data, |data| matches!(cubin::length(data), Ok(Length::Known(bytes)) if bytes <= data.len()))
        .ok_or_else(|| Refusal::new(CUresult::INVALID_IMAGE, "the image is no whole cubin"))
}
