//! Libraries: code that belongs to no context. A library becomes a module in each context that uses it, at
//! the first use there.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUdevice, CUfunction, CUkernel, CUlibrary};

use crate::Result;
use crate::code::image::{Code, Image, Target};
use crate::code::layout::Layout;
use crate::object::context::{self, Context};
use crate::object::function::{self, Function};
use crate::object::{current, lifecycle, load, module};
use crate::slab::Slab;
use crate::sync::Mutex;

/// The record behind a `CUlibrary`.
#[derive(Default)]
pub struct Library {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    image: Option<Arc<Image>>,
    /// The code chosen for each kind of device.
    codes: Vec<(Target, Arc<Code>)>,
    /// Handles of contexts, and of the library's module in each.
    modules: Vec<(usize, usize)>,
    kernels: HashMap<Box<str>, usize>,
}

/// A kernel of a library, which has a function in each context that uses it.
#[derive(Default)]
pub struct Kernel {
    library: AtomicUsize,
    name: Mutex<Option<Arc<CString>>>,
    /// Handle of the context that used the kernel first. A launch there needs no lock to find the function.
    first_context: AtomicUsize,
    first_function: AtomicUsize,
}

static LIBRARIES: Slab<Library> = Slab::new(10);
static KERNELS: Slab<Kernel> = Slab::new(11);

/// Returns the library of a handle.
pub fn get(library: CUlibrary) -> Result<&'static Library> {
    lifecycle::devices()?;
    LIBRARIES.get(library.0).ok_or(CUresult::INVALID_HANDLE)
}

/// Returns the kernel of a handle.
pub fn kernel(kernel: CUkernel) -> Result<&'static Kernel> {
    lifecycle::devices()?;
    KERNELS.get(kernel.0).ok_or(CUresult::INVALID_HANDLE)
}

impl Library {
    /// Returns the library's code for a kind of device.
    fn code(&self, target: Target) -> Result<Arc<Code>> {
        let mut inner = self.inner.lock();
        if let Some((_, code)) = inner.codes.iter().find(|code| code.0 == target) {
            return Ok(Arc::clone(code));
        }
        let code = inner.image.as_ref().ok_or(CUresult::INVALID_HANDLE)?.choose(target)?;
        inner.codes.push((target, Arc::clone(&code)));
        Ok(code)
    }

    /// Returns the handle of the library's module in a context, which is created by the first call.
    pub fn module(&self, context: &Context) -> Result<usize> {
        let find = |inner: &Inner| {
            let mine = inner.modules.iter().find(|module| module.0 == context.handle())?;
            module::from_handle(mine.1).map(|_| mine.1)
        };
        if let Some(module) = find(&self.inner.lock()) {
            return Ok(module);
        }
        let code = self.code(module::target(context.gpu()))?;
        let mut inner = self.inner.lock();
        if let Some(module) = find(&inner) {
            return Ok(module);
        }
        let module = module::create(context, code)?;
        inner.modules.retain(|entry| entry.0 != context.handle());
        inner.modules.push((context.handle(), module));
        Ok(module)
    }

    /// Returns the code by which names are looked up: the one for the current context's device, or for the
    /// first device.
    pub fn any_code(&self) -> Result<Arc<Code>> {
        let gpu = match current::context() {
            Ok(context) => context.gpu(),
            Err(_) => lifecycle::devices()?.first().ok_or(CUresult::NO_DEVICE)?,
        };
        self.code(module::target(gpu))
    }

    /// Returns the handle of a kernel. `library` is the library's own handle.
    pub fn kernel(&self, library: usize, name: &str) -> Result<usize> {
        if let Some(&kernel) = self.inner.lock().kernels.get(name) {
            return Ok(kernel);
        }
        match self.any_code() {
            Ok(code) if code.kernels()?.get(name).is_none() => return Err(CUresult::NOT_FOUND),
            // A kernel can be named without code for the device; its launch will fail.
            Ok(_) | Err(CUresult::NO_BINARY_FOR_GPU | CUresult::NOT_SUPPORTED) => {}
            Err(error) => return Err(error),
        }
        let text = CString::new(name).map_err(|_| CUresult::NOT_FOUND)?;
        let mut inner = self.inner.lock();
        if let Some(&kernel) = inner.kernels.get(name) {
            return Ok(kernel);
        }
        let made = KERNELS.insert(|_, kernel| {
            kernel.library.store(library, Ordering::Relaxed);
            *kernel.name.lock() = Some(Arc::new(text));
            kernel.first_context.store(0, Ordering::Relaxed);
            kernel.first_function.store(0, Ordering::Relaxed);
        });
        let (handle, _) = made.ok_or(CUresult::OUT_OF_MEMORY)?;
        inner.kernels.insert(name.into(), handle);
        Ok(handle)
    }
}

impl Kernel {
    /// Returns the kernel's mangled name.
    pub fn name(&self) -> Result<Arc<CString>> {
        self.name.lock().clone().ok_or(CUresult::INVALID_HANDLE)
    }

    /// Returns the kernel's function in a context.
    pub fn function(&self, context: &Context) -> Result<usize> {
        if self.first_context.load(Ordering::Acquire) == context.handle() {
            let function = self.first_function.load(Ordering::Relaxed);
            if function::from_handle(function).is_some() {
                return Ok(function);
            }
        }
        let library = LIBRARIES.get(self.library()).ok_or(CUresult::INVALID_HANDLE)?;
        let module = module::from_handle(library.module(context)?).ok_or(CUresult::INVALID_HANDLE)?;
        let name = self.name()?;
        let function = function::in_module(module, name.to_str().map_err(|_| CUresult::NOT_FOUND)?)?;
        let first = self.first_context.load(Ordering::Acquire);
        if first == 0 || first == context.handle() {
            self.first_function.store(function, Ordering::Relaxed);
            self.first_context.store(context.handle(), Ordering::Release);
        }
        Ok(function)
    }

    /// Returns the handle of the kernel's library.
    pub fn library(&self) -> usize {
        self.library.load(Ordering::Relaxed)
    }

    /// Returns the layout of the kernel's parameters, from the code for the current context's device, or for
    /// the first device.
    pub fn layout(&self) -> Result<&'static Layout> {
        let library = LIBRARIES.get(self.library()).ok_or(CUresult::INVALID_HANDLE)?;
        let name = self.name()?;
        let kernels = library.any_code()?.kernels()?;
        kernels.get(name.to_str().unwrap_or("")).ok_or(CUresult::NOT_FOUND)
    }
}

/// Returns the function that a launch in a context names by the handle of a function or of a kernel.
#[inline]
pub fn find_function(handle: CUfunction, context: &Context) -> Result<&'static Function> {
    let function = match function::from_handle(handle.0) {
        Some(function) => function,
        None => by_kernel(handle, context)?,
    };
    if function.context() != context.handle() {
        return Err(CUresult::INVALID_HANDLE);
    }
    Ok(function)
}

/// Returns the function of a handle, or the function of a kernel's handle in the current context.
pub fn function(handle: CUfunction) -> Result<&'static Function> {
    let context = current::context()?;
    match function::from_handle(handle.0) {
        Some(function) => Ok(function),
        None => by_kernel(handle, context),
    }
}

#[cold]
fn by_kernel(handle: CUfunction, context: &Context) -> Result<&'static Function> {
    if !KERNELS.owns(handle.0) {
        return Err(CUresult::INVALID_HANDLE);
    }
    let kernel = KERNELS.get(handle.0).ok_or(CUresult::INVALID_HANDLE)?;
    function::from_handle(kernel.function(context)?).ok_or(CUresult::INVALID_HANDLE)
}

/// Returns the kernel's function on a device: in the current context if that is on the device, otherwise in
/// the primary context.
pub fn on_device(handle: CUkernel, device: CUdevice) -> Result<&'static Function> {
    let kernel = kernel(handle)?;
    let gpu = lifecycle::device(device)?;
    let context = match current::context() {
        Ok(context) if std::ptr::eq(context.gpu(), gpu) => context,
        _ => context::primary(gpu)?.1,
    };
    function::from_handle(kernel.function(context)?).ok_or(CUresult::INVALID_HANDLE)
}

/// Creates a library. With `at_once` the host compiles it now for the current context, if there is one.
pub fn make(image: Image, at_once: bool) -> Result<usize> {
    let made = LIBRARIES.insert(|_, library| {
        *library.inner.lock() = Inner { image: Some(Arc::new(image)), ..Inner::default() };
    });
    let (handle, library) = made.ok_or(CUresult::OUT_OF_MEMORY)?;
    if at_once && let Ok(context) = current::context() {
        library.module(context).and_then(load::compile).inspect_err(|_| {
            // Nothing refers to the library, and the caller wants the compiler's error, not one of unloading.
            let _ = unload(CUlibrary(handle));
        })?;
    }
    Ok(handle)
}

/// Unloads a library with its kernels and modules.
pub fn unload(library: CUlibrary) -> Result {
    get(library)?;
    let inner = LIBRARIES
        .remove(library.0, |library| std::mem::take(&mut *library.inner.lock()))
        .ok_or(CUresult::INVALID_HANDLE)?;
    for kernel in inner.kernels.into_values() {
        KERNELS.remove(kernel, |kernel| *kernel.name.lock() = None);
    }
    let ended: Vec<Result> = inner.modules.iter().filter_map(|module| load::unload(module.1)).collect();
    ended.into_iter().collect()
}
