//! A session's modules: images on their way from the guest, loaded ones with their variables, and functions.

use std::collections::HashMap;
use std::sync::Arc;

use vgpu_arena::View;
use vgpu_device::{Charge, Charges, OverLimit, Resource, Violation};
use vgpu_wire::body::module::{IMAGE_PTX, ModuleOpen};

use crate::account::OutOfMemory;
use crate::function::Function;
use crate::image::{Digest, Image, ImageError};
use crate::memory::{Allocation, Memory};
use crate::runner::Runner;
use crate::status;

/// The longest image that is taken.
const IMAGE_MOST: u64 = vgpu_ptx::TEXT_MOST;

/// A module that the guest has opened.
#[derive(Debug)]
enum Module {
    /// Its image comes in pieces.
    Coming { digest: Digest, bytes: u64, text: Vec<u8> },
    /// Its image came in pieces, for which the host had no memory.
    NoMemory,
    /// Its image is there.
    Here(Arc<Image>),
    /// It can be used.
    Loaded(Loaded),
}

/// What a session has, and what it is charged for it.
#[derive(Debug)]
struct Paid<T> {
    what: T,
    _count: Charge,
    /// The image, also while it is the device's: a session that has it keeps it; or a kernel made ready.
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
    /// Addresses of its variables, by index.
    globals: Vec<u64>,
    memory: Vec<Allocation>,
}

/// Why a module is not loaded.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Code that is refused: the `CUresult`, and why, in words for who runs the program.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: u32,
    pub(crate) why: String,
}

impl Refusal {
    fn new(code: u32, why: &(impl ToString + ?Sized)) -> Self {
        Self { code, why: why.to_string() }
    }
}

/// The modules of a session, those that are still arriving included.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    modules: HashMap<u32, Paid<Module>>,
    /// Functions and the numbers of their modules.
    functions: HashMap<u32, Paid<(u32, Arc<Function>)>>,
}

impl Modules {
    pub(crate) fn len(&self) -> u32 {
        self.modules.len() as u32
    }

    /// Opens a module: whether its image is known.
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
            None => Module::Coming { digest: body.digest, bytes: body.bytes, text: Vec::new() },
        };
        // Only what is known tells its size truly; what comes may be no longer than it says.
        let bytes = if let Module::Here(image) = &module { image.bytes() } else { body.bytes };
        match Paid::new(runner.host.charges(), Resource::Modules, bytes, module) {
            Ok(module) => {
                self.modules.insert(body.module, module);
                Ok(Ok(found))
            }
            Err(over) => Ok(Err(refused(runner, &over))),
        }
    }

    /// Takes a piece of an image of `bytes` bytes: `copy` puts it where it is told.
    pub(crate) fn data(
        &mut self,
        module: u32,
        offset: u64,
        bytes: u64,
        copy: impl FnOnce(&mut [u8]),
    ) -> Result<(), Violation> {
        let paid = self.modules.get_mut(&module).ok_or(Violation::unknown("module", module))?;
        let (whole, text) = match &mut paid.what {
            Module::Coming { bytes, text, .. } => (bytes, text),
            // Said when the module is loaded: nobody answers for a piece.
            Module::NoMemory => return Ok(()),
            _ => return Err(Violation::unknown("module", module)),
        };
        let start = text.len();
        if offset != start as u64 || bytes > *whole - offset {
            return Err(Violation::Field { field: "the offset of a piece of an image", value: offset });
        }
        if text.try_reserve_exact(*whole as usize - start).is_err() {
            paid.what = Module::NoMemory;
            return Ok(());
        }
        text.resize(start + bytes as usize, 0);
        copy(&mut text[start..]);
        Ok(())
    }

    /// Loads a module whose image is there.
    pub(crate) fn load(&mut self, runner: &Runner, number: u32) -> Result<Result<(), Refusal>, Violation> {
        let mut paid = self.modules.remove(&number).ok_or(Violation::unknown("module", number))?;
        let image = match std::mem::replace(&mut paid.what, Module::NoMemory) {
            Module::Here(image) => Ok(image),
            Module::Coming { digest, text, bytes } if text.len() as u64 == bytes => {
                runner.device.images.bring(digest, text, &runner.limited()).map_err(LoadError::from)
            }
            Module::NoMemory => Err(OutOfMemory.into()),
            // Loaded twice, or too early.
            _ => return Err(Violation::unknown("module", number)),
        };
        let loaded = image.and_then(|image| Loaded::new(&runner.memory, image));
        match loaded {
            Ok(loaded) => {
                paid.what = Module::Loaded(loaded);
                self.modules.insert(number, paid);
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

    /// Ends a module with its functions: what is to be freed when no work needs it any more.
    pub(crate) fn unload(&mut self, module: u32) -> Result<Vec<Allocation>, Violation> {
        self.functions.retain(|_, function| function.what.0 != module);
        match self.modules.remove(&module).map(|module| module.what) {
            Some(Module::Loaded(loaded)) => Ok(loaded.memory),
            Some(_) => Ok(Vec::new()),
            None => Err(Violation::unknown("module", module)),
        }
    }

    /// Finds a kernel and gives it a number.
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
        match Function::new(&loaded.image, name, &loaded.globals, limits, sm, &runner.limited()) {
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
                // Programs ask for kernels to learn whether there are any.
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

    /// A function by its number.
    pub(crate) fn get(&self, function: u32) -> Result<&Arc<Function>, Violation> {
        self.functions
            .get(&function)
            .map(|function| &function.what.1)
            .ok_or(Violation::unknown("function", function))
    }

    /// Address and size of a variable, if the module has it.
    pub(crate) fn global(&self, module: u32, name: &[u8]) -> Result<Option<(u64, u64)>, Violation> {
        let loaded = self.loaded(module)?;
        let globals = loaded.image.module.globals();
        let found = globals.iter().position(|global| global.name.as_bytes() == name);
        Ok(found.map(|index| (loaded.globals[index], globals[index].bytes)))
    }
}

/// Says in the log that the session has too much.
fn refused(runner: &Runner, over: &OverLimit) -> Refusal {
    let session = runner.host.session();
    runner.host.log(0, || tracing::warn!(session, "refused: {over}"));
    Refusal::new(status::OUT_OF_MEMORY, over)
}

impl Loaded {
    /// Gives the module's variables memory and their initial values.
    fn new(memory: &Memory, image: Arc<Image>) -> Result<Self, LoadError> {
        let mut globals = Vec::new();
        let mut allocations = Vec::new();
        for global in image.module.globals() {
            // Of one without bytes nothing can be accessed.
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
                // The front end has checked that the 8 bytes are the variable's.
                if let Ok(place) = room.subslice(relocation.offset as usize, 8) {
                    place.copy_from(&target.to_le_bytes());
                }
            }
        }
    }
}
