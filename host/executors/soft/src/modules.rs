//! A session's modules: images that the guest is sending, loaded modules with their variables, and functions.

use std::collections::HashMap;
use std::sync::Arc;

use vgpu_arena::View;
use vgpu_device::{Arrived, Arriving, Charge, Charges, OutOfMemory, OverLimit, Resource, Violation};
use vgpu_wire::body::module::{IMAGE_PTX, ModuleOpen};

use crate::function::Function;
use crate::image::{Image, ImageError};
use crate::memory::{Allocation, Memory};
use crate::runner::Runner;
use crate::status;

/// The longest image that is accepted, in bytes.
const IMAGE_MOST: u64 = vgpu_ptx::TEXT_MOST;

/// A module that the guest has opened.
#[derive(Debug)]
enum Module {
    /// The image is arriving in pieces.
    Coming(Arriving),
    /// The image is complete.
    Here(Arc<Image>),
    /// The module is loaded and can be used.
    Loaded(Loaded),
}

/// An object of a session together with its charge.
#[derive(Debug)]
struct Paid<T> {
    what: T,
    _count: Charge,
    /// Charge for the image or the prepared kernel. An image that the device keeps for all sessions is
    /// charged too, because a session that uses it keeps it alive.
    _bytes: Charge,
}

impl<T> Paid<T> {
    fn new(charges: &Arc<Charges>, resource: Resource, bytes: u64, what: T) -> Result<Self, OverLimit> {
        let count = charges.take(resource, 1)?;
        Ok(Self { what, _count: count, _bytes: charges.take(Resource::HostBytes, bytes)? })
    }
}

/// A loaded module.
#[derive(Debug)]
pub(crate) struct Loaded {
    image: Arc<Image>,
    /// Device addresses of its variables, by index.
    globals: Vec<u64>,
    memory: Vec<Allocation>,
}

/// Why a module cannot be loaded.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Refused code: the `CUresult`, and an explanation for the user of the program.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: u32,
    pub(crate) why: String,
}

impl Refusal {
    pub(crate) fn new(code: u32, why: &(impl ToString + ?Sized)) -> Self {
        Self { code, why: why.to_string() }
    }
}

/// The modules of a session, including those whose images are still arriving.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    modules: HashMap<u32, Paid<Module>>,
    /// Functions, with the numbers of their modules.
    functions: HashMap<u32, Paid<(u32, Arc<Function>)>>,
}

impl Modules {
    pub(crate) fn len(&self) -> u32 {
        self.modules.len() as u32
    }

    /// Opens a module. Returns whether its image is known, so that the guest need not send it.
    pub(crate) fn open(
        &mut self,
        runner: &Runner,
        body: &ModuleOpen,
    ) -> Result<Result<bool, Refusal>, Violation> {
        if self.modules.contains_key(&body.module) {
            return Err(Violation::in_use("module", body.module));
        }
        if body.image != IMAGE_PTX {
            let why = "this device takes PTX text, not compiled code (cubins)";
            return Ok(Err(Refusal::new(status::NO_BINARY_FOR_GPU, why)));
        }
        if body.bytes > IMAGE_MOST {
            let why = format!("an image of {} bytes is longer than this device takes", body.bytes);
            return Ok(Err(Refusal::new(status::OUT_OF_MEMORY, &why)));
        }
        let known = runner.device.images.find(&body.digest);
        let found = known.is_some();
        let module = match known {
            Some(image) => Module::Here(image),
            None => Module::Coming(Arriving::new(body.digest, body.bytes)),
        };
        // A known image is charged with its true size. For one that is still to come the guest's number
        // counts, and it may not become longer.
        let bytes = if let Module::Here(image) = &module { image.bytes() } else { body.bytes };
        match Paid::new(runner.host.charges(), Resource::Modules, bytes, module) {
            Ok(module) => {
                self.modules.insert(body.module, module);
                Ok(Ok(found))
            }
            Err(over) => Ok(Err(refused(runner, &over))),
        }
    }

    /// Takes a piece of `bytes` bytes of an image. `copy` writes it to the given place.
    pub(crate) fn data(
        &mut self,
        module: u32,
        offset: u64,
        bytes: u64,
        copy: impl FnOnce(&mut [u8]),
    ) -> Result<(), Violation> {
        let paid = self.modules.get_mut(&module).ok_or(Violation::unknown("module", module))?;
        match &mut paid.what {
            Module::Coming(arriving) => arriving.piece(offset, bytes, copy),
            _ => Err(Violation::unknown("module", module)),
        }
    }

    /// Loads a module whose image is complete.
    pub(crate) fn load(&mut self, runner: &Runner, number: u32) -> Result<Result<(), Refusal>, Violation> {
        let Paid { what, _count: count, _bytes: bytes } =
            self.modules.remove(&number).ok_or(Violation::unknown("module", number))?;
        let early = || Violation::unknown("module", number);
        let image = match what {
            Module::Here(image) => Ok(image),
            Module::Coming(arriving) => match arriving.finish() {
                Arrived::Whole(digest, text) => {
                    runner.device.images.bring(digest, text, &runner.limited()).map_err(LoadError::from)
                }
                Arrived::NoMemory => Err(OutOfMemory.into()),
                Arrived::Short => return Err(early()),
            },
            Module::Loaded(_) => return Err(early()),
        };
        let loaded = image.and_then(|image| Loaded::new(&runner.memory, image));
        match loaded {
            Ok(loaded) => {
                self.modules
                    .insert(number, Paid { what: Module::Loaded(loaded), _count: count, _bytes: bytes });
                Ok(Ok(()))
            }
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
                Ok(Err(Refusal::new(code, &error)))
            }
        }
    }

    fn loaded(&self, module: u32) -> Result<&Loaded, Violation> {
        match self.modules.get(&module).map(|module| &module.what) {
            Some(Module::Loaded(loaded)) => Ok(loaded),
            _ => Err(Violation::unknown("module", module)),
        }
    }

    /// Unloads a module with its functions. Returns the allocations to free when no work uses them any more.
    pub(crate) fn unload(&mut self, module: u32) -> Result<Vec<Allocation>, Violation> {
        self.functions.retain(|_, function| function.what.0 != module);
        match self.modules.remove(&module).map(|module| module.what) {
            Some(Module::Loaded(loaded)) => Ok(loaded.memory),
            Some(_) => Ok(Vec::new()),
            None => Err(Violation::unknown("module", module)),
        }
    }

    /// Finds a kernel and enters it under the guest's number.
    pub(crate) fn function(
        &mut self,
        runner: &Runner,
        module: u32,
        number: u32,
        name: &[u8],
    ) -> Result<Result<Arc<Function>, Refusal>, Violation> {
        let loaded = self.loaded(module)?;
        if self.functions.contains_key(&number) {
            return Err(Violation::in_use("function", number));
        }
        let Ok(name) = std::str::from_utf8(name) else {
            return Ok(Err(Refusal::new(status::NOT_FOUND, "a kernel's name is no text")));
        };
        let (limits, sm) = (&runner.device.limits, runner.device.images.sm());
        let programs = &runner.device.programs;
        match Function::new(&loaded.image, name, &loaded.globals, limits, sm, programs, &runner.limited()) {
            Ok(function) => {
                let function = Arc::new(function);
                let what = (module, Arc::clone(&function));
                match Paid::new(runner.host.charges(), Resource::Functions, function.bytes(), what) {
                    Ok(paid) => {
                        self.functions.insert(number, paid);
                        Ok(Ok(function))
                    }
                    Err(over) => Ok(Err(refused(runner, &over))),
                }
            }
            Err(error) => {
                let code = error.code();
                // A kernel that is not found is not logged, because programs probe for kernels.
                if code != status::NOT_FOUND {
                    let (session, text) = (runner.host.session(), error.to_string());
                    runner.host.log(name.len() + text.len(), || {
                        tracing::warn!(session, kernel = name, code, "{text}");
                    });
                }
                Ok(Err(Refusal::new(code, &error)))
            }
        }
    }

    /// Finds a function by its number.
    pub(crate) fn get(&self, function: u32) -> Result<&Arc<Function>, Violation> {
        self.functions
            .get(&function)
            .map(|function| &function.what.1)
            .ok_or(Violation::unknown("function", function))
    }

    /// Device address and size of a variable, if the module has it.
    pub(crate) fn global(&self, module: u32, name: &[u8]) -> Result<Option<(u64, u64)>, Violation> {
        let loaded = self.loaded(module)?;
        let globals = loaded.image.module.globals();
        let found = globals.iter().position(|global| global.name.as_bytes() == name);
        Ok(found.map(|index| (loaded.globals[index], globals[index].bytes)))
    }
}

/// Logs that the session exceeds a limit.
pub(crate) fn refused(runner: &Runner, over: &OverLimit) -> Refusal {
    let session = runner.host.session();
    runner.host.log(0, || tracing::warn!(session, "refused: {over}"));
    Refusal::new(status::OUT_OF_MEMORY, over)
}

impl Loaded {
    /// Allocates the module's variables and writes their initial values.
    fn new(memory: &Memory, image: Arc<Image>) -> Result<Self, LoadError> {
        let mut globals = Vec::new();
        let mut allocations = Vec::new();
        for global in image.module.globals() {
            // A variable of 0 bytes gets an address too, although nothing there can be accessed.
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
