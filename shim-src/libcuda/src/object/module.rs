//! Modules, which are code in a context. A module is sent to the host when one of its kernels or variables is
//! first needed, by digest, so that a host that has the code does not get it again.

use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use sha2::{Digest, Sha256};
use vgpu_abi::driver::CUmodule;
use vgpu_abi::{CUresult, log};
use vgpu_transport::Reservation;
use vgpu_wire::Span;
use vgpu_wire::body::module::{
    GlobalGet, GlobalReply, ModuleData, ModuleLoad, ModuleOpen, ModuleOpenReply, ModuleUnload,
};
use vgpu_wire::facts::exec;

use crate::Result;
use crate::code::image::{Code, Target};
use crate::code::layout::Layout;
use crate::object::context::Context;
use crate::object::current;
use crate::object::gpu::Gpu;
use crate::object::introduction::Introduction;
use crate::object::memory::{Range, Source};
use crate::queue::submission::Minted;
use crate::slab::Slab;
use crate::sync::Mutex;

/// Length in bytes of the pieces in which an image is sent: two fit into the ring beside the messages of
/// other threads.
const PIECE: usize = 48 << 10;

/// The record behind a `CUmodule`.
#[derive(Default)]
pub struct Module {
    gpu: AtomicPtr<Gpu>,
    context: AtomicUsize,
    handle: AtomicUsize,
    number: Introduction,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    code: Option<Arc<Code>>,
    functions: HashMap<Box<str>, usize>,
    variables: HashMap<Box<str>, Variable>,
}

/// A variable of the module that the program has asked for.
struct Variable {
    address: u64,
    bytes: u64,
    /// Reservation of the variable's pages if they are outside the device's range. It ends after the host has
    /// been told that the module ends.
    _pages: Option<Reservation>,
}

static MODULES: Slab<Module> = Slab::new(8);

/// Returns the code that a device accepts.
pub fn target(gpu: &Gpu) -> Target {
    let facts = &gpu.shown.facts;
    Target { sm: 10 * facts.cc_major + facts.cc_minor, abilities: facts.abilities }
}

/// Returns whether an error is caused by the code itself, so that another try would fail the same way.
pub fn about_code(error: CUresult) -> bool {
    matches!(error.0, 200..=299 | 801)
}

/// Creates a module from code that fits the context's device.
pub fn create(context: &Context, code: Arc<Code>) -> Result<usize> {
    let gpu = context.gpu();
    let made = MODULES.insert(|handle, module| {
        module.gpu.store(ptr::from_ref(gpu).cast_mut(), Ordering::Relaxed);
        module.context.store(context.handle(), Ordering::Relaxed);
        module.handle.store(handle, Ordering::Relaxed);
        module.number.reset();
        *module.inner.lock() = Inner { code: Some(code), ..Inner::default() };
    });
    Ok(made.ok_or(CUresult::OUT_OF_MEMORY)?.0)
}

/// Returns the module of a handle.
pub fn get(handle: CUmodule) -> Result<&'static Module> {
    current::context()?;
    MODULES.get(handle.0).ok_or(CUresult::INVALID_HANDLE)
}

/// Returns the module of a handle, whatever context is current.
pub fn from_handle(handle: usize) -> Option<&'static Module> {
    MODULES.get(handle)
}

impl Module {
    /// Returns the device on which the module is loaded.
    pub fn gpu(&self) -> &'static Gpu {
        // SAFETY: `create` stored the address of a leaked value before the handle meant anything.
        unsafe { &*self.gpu.load(Ordering::Relaxed) }
    }

    /// Returns the module's own handle.
    pub fn handle(&self) -> usize {
        self.handle.load(Ordering::Relaxed)
    }

    /// Returns the handle of the module's context.
    pub fn context(&self) -> usize {
        self.context.load(Ordering::Relaxed)
    }

    /// Returns the module's number in messages. The first call loads the module on the host.
    pub fn load(&self) -> Result<u32> {
        self.number.get(|refused| {
            let mut inner = self.inner.lock();
            let code = inner.code.clone().ok_or(CUresult::INVALID_HANDLE)?;
            // An error of earlier work must not be taken for one of this code.
            self.gpu().queue.async_error()?;
            let number = send_best(self.gpu(), &mut inner, &code).inspect_err(|&error| {
                log::error(format_args!("failed to load a module for sm_{}: {error}", code.sm()));
                // An error of the code is permanent; one of the device, or of memory, may be over next time.
                if about_code(error) {
                    *refused = Some(error);
                }
            })?;
            code.close();
            Ok(number)
        })
    }

    /// Returns the handle of a kernel's function, which `create` makes from the kernel's layout at the first
    /// call.
    pub fn function(
        &self,
        name: &str,
        create: impl FnOnce(&'static Layout) -> Result<usize>,
    ) -> Result<usize> {
        let mut inner = self.inner.lock();
        if let Some(&function) = inner.functions.get(name) {
            return Ok(function);
        }
        let code = inner.code.clone().ok_or(CUresult::INVALID_HANDLE)?;
        let layout = code.kernels()?.get(name).ok_or(CUresult::NOT_FOUND)?;
        if self.number.known().is_some() {
            code.close();
        }
        let function = create(layout)?;
        inner.functions.insert(name.into(), function);
        Ok(function)
    }

    /// Returns the names of the module's kernels.
    pub fn names(&self) -> Result<Vec<Box<str>>> {
        let code = self.inner.lock().code.clone().ok_or(CUresult::INVALID_HANDLE)?;
        Ok(code.kernels()?.names().map(Into::into).collect())
    }

    /// Returns address and size of a variable.
    pub fn variable(&self, name: &str) -> Result<(u64, u64)> {
        if let Some(known) = self.inner.lock().variables.get(name) {
            return Ok((known.address, known.bytes));
        }
        let module = self.load()?;
        let gpu = self.gpu();
        let message = GlobalGet { reply: 0, module, name_bytes: name.len() as u32, reserved: 0 };
        let GlobalReply { address, bytes } = gpu.queue.ask(message, &[name.as_bytes()])?;
        let pages = gpu.add_variable(address, bytes, module, self.context())?;
        let variable = Variable { address, bytes, _pages: pages };
        self.inner.lock().variables.insert(name.into(), variable);
        Ok((address, bytes))
    }
}

/// Returns whether an error says that the host cannot use a cubin that should run on its device.
fn is_about_cubins(error: CUresult) -> bool {
    [CUresult::INVALID_IMAGE, CUresult::NO_BINARY_FOR_GPU, CUresult::NOT_SUPPORTED].contains(&error)
}

/// Sends a module's code: a cubin, or the PTX of the same image where the device refuses cubins. A host of
/// version 1 does not say which kinds it accepts. A GPU accepts both, and cubins without compiling; a
/// substitute for a GPU may accept only PTX.
fn send_best(gpu: &Gpu, inner: &mut Inner, code: &Arc<Code>) -> Result<u32> {
    let Some(text) = code.instead() else { return send(gpu, code) };
    if !gpu.refuses_cubins.load(Ordering::Relaxed) {
        match send(gpu, code) {
            Err(error) if is_about_cubins(error) => {}
            sent => return sent,
        }
    }
    let number = send(gpu, text)?;
    if !gpu.refuses_cubins.swap(true, Ordering::Relaxed) {
        log::info(format_args!("the device takes no cubins: PTX is sent where there is some"));
    }
    text.close();
    inner.code = Some(Arc::clone(text));
    Ok(number)
}

/// Sends a module's code, or only its digest if the host has the code. Returns the module's number. A host
/// that keeps no code of other sessions gets no digest, because computing it takes as long as the GPU's
/// driver needs to load the code.
fn send(gpu: &Gpu, code: &Code) -> Result<u32> {
    let unpacked = code.bytes()?;
    let bytes = &*unpacked;
    let module = gpu.queue.mint(Minted::Module);
    let unnamed = gpu.shown.facts.abilities & exec::UNNAMED != 0;
    let message = ModuleOpen {
        reply: 0,
        module,
        image: code.wire_kind(),
        reserved: 0,
        bytes: bytes.len() as u64,
        digest: if unnamed { [0; 32] } else { Sha256::digest(bytes).into() },
    };
    let reply: ModuleOpenReply = gpu.queue.ask(message, &[])?;
    if reply.known == 0 {
        for (index, piece) in bytes.chunks(PIECE).enumerate() {
            let offset = (index * PIECE) as u64;
            let data = Span::inline(piece.len() as u64);
            gpu.queue.send(&ModuleData { module, reserved: 0, offset, data }, &[piece])?;
        }
    }
    gpu.queue.call(ModuleLoad { reply: 0, module }, &[], &mut [])?;
    Ok(module)
}

/// Ends a module, and its functions through `end_function`. Returns `None` if there is no such module.
pub fn end(handle: usize, end_function: impl Fn(usize)) -> Option<Result> {
    MODULES.remove(handle, |module| {
        let Inner { functions, variables: _variables, .. } = std::mem::take(&mut *module.inner.lock());
        functions.into_values().for_each(end_function);
        let Some(number) = module.number.reset() else { return Ok(()) };
        let gpu = module.gpu();
        gpu.memory.take_all(|range: &Range| range.source == Source::Variable(number));
        gpu.queue.send(&ModuleUnload { module: number, reserved: 0 }, &[]).map(drop)
    })
}

/// Returns the handles of the modules of a context.
pub fn in_context(context: usize) -> impl Iterator<Item = usize> {
    MODULES.iter().filter(move |(_, module)| module.context() == context).map(|(handle, _)| handle)
}
