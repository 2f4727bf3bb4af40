//! The modules of a session: images that arrive from the guest, loaded modules, and their functions. The
//! executor defines what a loaded module and a function are.

use std::sync::Arc;

use vgpu_wire::body::module::ModuleOpen;

use crate::charges::charge::{Charge, Charges, OUT_OF_MEMORY, OverLimit};
use crate::charges::limits::Resource;
use crate::session::violation::Violation;
use crate::supply::handle_table::HandleTable;
use crate::supply::images::{Digest, IncomingImage, ReceivedImage};

/// Reason for which code is refused: a `CUresult`, and a text for the user of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeRefusal {
    /// The `CUresult` of the refusal.
    pub code: u32,
    /// Text of the reason.
    pub why: String,
}

impl CodeRefusal {
    /// Creates a refusal whose reason is the text of `why`.
    pub fn new(code: u32, why: &(impl ToString + ?Sized)) -> Self {
        Self { code, why: why.to_string() }
    }
}

impl From<OverLimit> for CodeRefusal {
    fn from(over: OverLimit) -> Self {
        Self::new(OUT_OF_MEMORY, &over)
    }
}

/// Charge of a module or a function until it is dropped.
#[derive(Debug)]
pub struct CodeCharge {
    _count: Charge,
    /// Charge for the bytes of the image or of the prepared function. An image that the device keeps for all
    /// sessions is charged too, because a session that uses it keeps it alive.
    _bytes: Charge,
}

impl CodeCharge {
    /// Charges one object of a kind, and the bytes that it holds. A refusal is logged.
    pub fn new(charges: &Arc<Charges>, resource: Resource, bytes: u64) -> Result<Self, OverLimit> {
        let charged = charges.charge(resource, 1).and_then(|count| {
            Ok(Self { _count: count, _bytes: charges.charge(Resource::HostBytes, bytes)? })
        });
        charged.inspect_err(|over| {
            charges.log(0, || tracing::warn!(session = charges.session(), "refused: {over}"));
        })
    }
}

/// The image of a module whose pieces have all arrived, or that is known from an earlier session.
#[derive(Debug)]
pub enum ModuleImage<K> {
    /// The bytes, with the digest that the guest claims.
    Whole(Digest, Vec<u8>),
    /// The host had no memory for the bytes.
    NoMemory,
    /// The executor had cached the image of an earlier session.
    Known(K),
}

#[derive(Debug)]
enum ModuleState<K, M> {
    /// The image arrives in pieces. Its kind is `IMAGE_PTX` or `IMAGE_CUBIN`.
    Arriving(u32, IncomingImage),
    /// The executor knows the image, so the guest does not send it.
    Known(u32, K),
    /// The module is loaded and can be used.
    Loaded(M),
}

/// The modules and functions of a session. `K` is an image that the executor cached, `M` a loaded module and
/// `F` a function.
#[derive(Debug)]
pub struct Modules<K, M, F> {
    modules: HandleTable<(ModuleState<K, M>, CodeCharge)>,
    /// Functions with the numbers of their modules.
    functions: HandleTable<(u32, F, CodeCharge)>,
}

impl<K, M, F> Default for Modules<K, M, F> {
    fn default() -> Self {
        Self { modules: HandleTable::new("module"), functions: HandleTable::new("function") }
    }
}

impl<K, M, F> Modules<K, M, F> {
    /// Returns the number of modules.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.modules.len()
    }

    /// Returns whether there is no module.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    /// Opens a module. Its image follows, with at most `longest` bytes, unless the executor has it. In that
    /// case `known` is the image with the number of bytes that it takes.
    pub fn open(
        &mut self,
        charges: &Arc<Charges>,
        body: &ModuleOpen,
        longest: u64,
        known: Option<(K, u64)>,
    ) -> Result<Result<(), CodeRefusal>, Violation> {
        self.modules.check_unused(body.module)?;
        if body.bytes > longest {
            let why = format!("an image of {} bytes is longer than this device takes", body.bytes);
            return Ok(Err(CodeRefusal::new(OUT_OF_MEMORY, &why)));
        }
        // A known image is charged with its true size. For an image that follows, the guest's number counts,
        // and the image may not become longer.
        let (state, bytes) = match known {
            Some((image, bytes)) => (ModuleState::Known(body.image, image), bytes),
            None => {
                (ModuleState::Arriving(body.image, IncomingImage::new(body.digest, body.bytes)), body.bytes)
            }
        };
        match CodeCharge::new(charges, Resource::Modules, bytes) {
            Ok(charge) => self.modules.insert(body.module, (state, charge)).map(Ok),
            Err(over) => Ok(Err(over.into())),
        }
    }

    /// Adds the next piece of `bytes` bytes to an image. `offset` must be the end of the piece before. `copy`
    /// writes the piece to the given memory.
    pub fn add_piece(
        &mut self,
        module: u32,
        offset: u64,
        bytes: u64,
        copy: impl FnOnce(&mut [u8]),
    ) -> Result<(), Violation> {
        match &mut self.modules.get_mut(module)?.0 {
            ModuleState::Arriving(_, arriving) => arriving.piece(offset, bytes, copy),
            _ => Err(Violation::unknown("module", module)),
        }
    }

    /// Takes out a module whose image is complete, so that any thread can load it. Returns the kind of the
    /// image, the image, and the charge, with which [`Self::finish_loading`] puts the module back.
    pub fn start_loading(&mut self, number: u32) -> Result<(u32, ModuleImage<K>, CodeCharge), Violation> {
        let (state, charge) = self.modules.remove(number)?;
        let (kind, image) = match state {
            ModuleState::Known(kind, image) => (kind, ModuleImage::Known(image)),
            ModuleState::Arriving(kind, arriving) => match arriving.finish() {
                ReceivedImage::Whole(digest, data) => (kind, ModuleImage::Whole(digest, data)),
                ReceivedImage::NoMemory => (kind, ModuleImage::NoMemory),
                ReceivedImage::Short => return Err(Violation::unknown("module", number)),
            },
            ModuleState::Loaded(_) => return Err(Violation::unknown("module", number)),
        };
        Ok((kind, image, charge))
    }

    /// Puts a module back that [`Self::start_loading`] took out.
    pub fn finish_loading(&mut self, number: u32, module: M, charge: CodeCharge) -> Result<(), Violation> {
        self.modules.insert(number, (ModuleState::Loaded(module), charge))
    }

    /// Returns the loaded module with a number.
    pub fn loaded(&self, number: u32) -> Result<&M, Violation> {
        match &self.modules.get(number)?.0 {
            ModuleState::Loaded(module) => Ok(module),
            _ => Err(Violation::unknown("module", number)),
        }
    }

    /// Removes a module with its functions.
    pub fn unload(&mut self, number: u32) -> Result<(Option<M>, Vec<F>), Violation> {
        let (state, _) = self.modules.remove(number)?;
        let functions = self.functions.remove_if(|(module, ..)| *module == number);
        let module = if let ModuleState::Loaded(module) = state { Some(module) } else { None };
        Ok((module, functions.into_iter().map(|(_, function, _)| function).collect()))
    }

    /// Returns the module of a function that will be added under an unused number.
    pub fn for_function(&self, module: u32, number: u32) -> Result<&M, Violation> {
        let found = self.loaded(module)?;
        self.functions.check_unused(number)?;
        Ok(found)
    }

    /// Adds a function of a module under an unused number.
    pub fn add_function(
        &mut self,
        module: u32,
        number: u32,
        function: F,
        charge: CodeCharge,
    ) -> Result<(), Violation> {
        self.functions.insert(number, (module, function, charge))
    }

    /// Returns a function by its number.
    #[inline]
    pub fn function(&self, number: u32) -> Result<&F, Violation> {
        self.functions.get(number).map(|(_, function, _)| function)
    }
}
