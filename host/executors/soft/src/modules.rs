//! Loads the modules of a session, with their variables, and finds their functions.

use std::sync::Arc;

use vgpu_arena::View;
use vgpu_device::{
    CodeCharge, CodeRefusal, ModuleImage, Modules, OutOfMemory, OverLimit, Resource, Violation,
};
use vgpu_wire::body::module::{IMAGE_PTX, ModuleOpen};

use crate::function::Function;
use crate::image::{Image, ImageError};
use crate::memory::{Allocation, Memory};
use crate::runner::Runner;
use crate::status;

/// Largest size of an image, in bytes.
const IMAGE_MOST: u64 = vgpu_ptx::TEXT_MOST;

/// A module that a session has loaded.
#[derive(Debug)]
pub(crate) struct LoadedModule {
    image: Arc<Image>,
    /// Device addresses of the module's variables, by index.
    globals: Vec<u64>,
    /// Device memory of the module's variables.
    pub(crate) memory: Vec<Allocation>,
}

/// The modules and functions of a session.
pub(crate) type SoftModules = Modules<Arc<Image>, LoadedModule, Arc<Function>>;

/// Reason for which a module cannot be loaded.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Opens a module. Returns whether its image is cached, so that the guest need not send it. Refuses cubins
/// with `CUDA_ERROR_NO_BINARY_FOR_GPU`. The inner error is the program's, the outer one the guest's
/// violation.
pub(crate) fn open(
    modules: &mut SoftModules,
    runner: &Runner,
    body: &ModuleOpen,
) -> Result<Result<bool, CodeRefusal>, Violation> {
    if body.image != IMAGE_PTX {
        let why = "this device takes PTX text, not compiled code (cubins)";
        return Ok(Err(CodeRefusal::new(status::NO_BINARY_FOR_GPU, why)));
    }
    let known = runner.device.images.find(&body.digest).map(|image| {
        let bytes = image.bytes();
        (image, bytes)
    });
    let found = known.is_some();
    let opened = modules.open(runner.host.charges(), body, IMAGE_MOST, known)?;
    Ok(opened.map(|()| found))
}

/// Loads a module whose image is complete: allocates its variables and writes their initial values. Kernels
/// are prepared later, by [`find_function`].
pub(crate) fn load(
    modules: &mut SoftModules,
    runner: &Runner,
    number: u32,
) -> Result<Result<(), CodeRefusal>, Violation> {
    let (_, image, charge) = modules.start_loading(number)?;
    let image = match image {
        ModuleImage::Known(image) => Ok(image),
        ModuleImage::Whole(digest, text) => {
            runner.device.images.bring(digest, text, &runner.limited()).map_err(LoadError::from)
        }
        ModuleImage::NoMemory => Err(OutOfMemory.into()),
    };
    match image.and_then(|image| LoadedModule::within_reserve(runner, image)) {
        Ok(loaded) => modules.finish_loading(number, loaded, charge).map(Ok),
        Err(error) => {
            let code = match &error {
                LoadError::Image(error) => error.code(),
                LoadError::OutOfMemory(_) => status::OUT_OF_MEMORY,
            };
            let session = runner.host.session();
            let text = error.to_string();
            runner.host.log(text.len(), || {
                tracing::warn!(session, module = number, code, "load a module: {text}");
            });
            Ok(Err(CodeRefusal::new(code, &error)))
        }
    }
}

/// Prepares the kernel `name` of a module and records it under the guest's number. The session is charged for
/// its program.
pub(crate) fn find_function(
    modules: &mut SoftModules,
    runner: &Runner,
    module: u32,
    number: u32,
    name: &[u8],
) -> Result<Result<Arc<Function>, CodeRefusal>, Violation> {
    let loaded = modules.for_function(module, number)?;
    let Ok(name) = std::str::from_utf8(name) else {
        return Ok(Err(CodeRefusal::new(status::NOT_FOUND, "a kernel's name is no text")));
    };
    let (limits, sm) = (&runner.device.limits, runner.device.images.sm());
    let programs = &runner.device.programs;
    match Function::new(&loaded.image, name, &loaded.globals, limits, sm, programs, &runner.limited()) {
        Ok(function) => match CodeCharge::new(runner.host.charges(), Resource::Functions, function.bytes()) {
            Ok(charge) => {
                let function = Arc::new(function);
                modules.add_function(module, number, Arc::clone(&function), charge)?;
                Ok(Ok(function))
            }
            Err(over) => Ok(Err(over.into())),
        },
        Err(error) => {
            let code = error.code();
            // A missing kernel is not logged, because programs probe for kernels.
            if code != status::NOT_FOUND {
                let (session, text) = (runner.host.session(), error.to_string());
                runner.host.log(name.len() + text.len(), || {
                    tracing::warn!(session, kernel = name, code, "{text}");
                });
            }
            Ok(Err(CodeRefusal::new(code, &error)))
        }
    }
}

/// Returns the device address and the size in bytes of a variable, or `None` if the module has none of this
/// name.
pub(crate) fn find_global(
    modules: &SoftModules,
    module: u32,
    name: &[u8],
) -> Result<Option<(u64, u64)>, Violation> {
    let loaded = modules.loaded(module)?;
    let globals = loaded.image.module.globals();
    let found = globals.iter().position(|global| global.name.as_bytes() == name);
    Ok(found.map(|index| (loaded.globals[index], globals[index].bytes)))
}

/// Logs that the session exceeds a limit, and returns the refusal: `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) fn refused(runner: &Runner, over: &OverLimit) -> CodeRefusal {
    let session = runner.host.session();
    runner.host.log(0, || tracing::warn!(session, "refused: {over}"));
    CodeRefusal::new(status::OUT_OF_MEMORY, over)
}

impl LoadedModule {
    /// Creates the module. Asks the device for the memory of its variables first, because no message of the
    /// guest requests it.
    fn within_reserve(runner: &Runner, image: Arc<Image>) -> Result<Self, LoadError> {
        let globals = image.module.globals().iter();
        let bytes = globals.fold(0, |sum: u64, global| sum.saturating_add(Memory::charge_of(global.bytes)));
        let create = || {
            let created = Self::new(&runner.memory, image);
            runner.report();
            created
        };
        runner.host.with_reserved(bytes, create).unwrap_or_else(|| Err(OutOfMemory.into()))
    }

    /// Allocates the module's variables and writes their initial values.
    fn new(memory: &Memory, image: Arc<Image>) -> Result<Self, LoadError> {
        let mut globals = Vec::new();
        let mut allocations = Vec::new();
        for global in image.module.globals() {
            // A variable of 0 bytes gets an address too, although it cannot be accessed.
            let allocation = memory.allocate_own(global.bytes.max(1))?;
            globals.push(allocation.address());
            allocations.push(allocation);
        }
        let loaded = Self { image, globals, memory: allocations };
        if !loaded.memory.is_empty() {
            loaded.initialise(&memory.view()?);
        }
        Ok(loaded)
    }

    fn initialise(&self, view: &View) {
        for (global, &address) in self.image.module.globals().iter().zip(&self.globals) {
            let Ok(room) = view.writable(address, global.bytes) else { continue };
            room.copy_from(&global.data);
            for relocation in &global.relocations {
                let target = self.globals[relocation.global as usize].wrapping_add_signed(relocation.addend);
                // The front end has checked that the 8 bytes are within the variable.
                if let Ok(place) = room.subslice(relocation.offset as usize, 8) {
                    place.copy_from(&target.to_le_bytes());
                }
            }
        }
    }
}
