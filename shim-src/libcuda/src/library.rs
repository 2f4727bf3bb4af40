//! "Library Management": code of no context. In a context a library becomes a module, at its first use there.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vgpu_abi::driver::{
    CUdevice, CUdeviceptr, CUfunction, CUkernel, CUlibrary, CUmodule, LIBRARY_BINARY_IS_PRESERVED,
};
use vgpu_abi::{CUresult, export};

use crate::arg::{In, Out, Text};
use crate::context::{self, Context};
use crate::function::{self, Function};
use crate::image::{Code, Image, Target};
use crate::jit_log::JitLogs;
use crate::slab::Slab;
use crate::sync::Mutex;
use crate::{Result, life, module};

/// A library.
#[derive(Default)]
struct Library {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    image: Option<Arc<Image>>,
    /// What was chosen for a kind of device.
    codes: Vec<(Target, Arc<Code>)>,
    /// Modules by context.
    modules: Vec<(usize, usize)>,
    kernels: HashMap<Box<str>, usize>,
}

/// A kernel of a library.
#[derive(Default)]
struct Kernel {
    library: AtomicUsize,
    name: Mutex<Option<Arc<CString>>>,
    /// The context that used it first, and its function there: what a launch needs, without a lock.
    first_context: AtomicUsize,
    first_function: AtomicUsize,
}

static LIBRARIES: Slab<Library> = Slab::new(10);
static KERNELS: Slab<Kernel> = Slab::new(11);

fn get(library: CUlibrary) -> Result<&'static Library> {
    life::devices()?;
    LIBRARIES.get(library.0).ok_or(CUresult::INVALID_HANDLE)
}

fn kernel(kernel: CUkernel) -> Result<&'static Kernel> {
    life::devices()?;
    KERNELS.get(kernel.0).ok_or(CUresult::INVALID_HANDLE)
}

impl Library {
    /// The code for a kind of device.
    fn code(&self, target: Target) -> Result<Arc<Code>> {
        let mut inner = self.inner.lock();
        if let Some((_, code)) = inner.codes.iter().find(|code| code.0 == target) {
            return Ok(Arc::clone(code));
        }
        let code = inner.image.as_ref().ok_or(CUresult::INVALID_HANDLE)?.choose(target)?;
        inner.codes.push((target, Arc::clone(&code)));
        Ok(code)
    }

    /// The library's module in a context.
    fn module(&self, context: &Context) -> Result<usize> {
        let find = |inner: &Inner| {
            let mine = inner.modules.iter().find(|module| module.0 == context.handle())?;
            module::of(mine.1).map(|_| mine.1)
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

    /// The code by which names are known: for the current context's device, or the first.
    fn any_code(&self) -> Result<Arc<Code>> {
        let gpu = match context::current() {
            Ok(context) => context.gpu(),
            Err(_) => life::devices()?.first().ok_or(CUresult::NO_DEVICE)?,
        };
        self.code(module::target(gpu))
    }

    fn kernel(&self, library: usize, name: &str) -> Result<usize> {
        if let Some(&kernel) = self.inner.lock().kernels.get(name) {
            return Ok(kernel);
        }
        match self.any_code() {
            Ok(code) if code.open()?.kernels.get(name).is_none() => return Err(CUresult::NOT_FOUND),
            // Without code for the device a kernel can be named; its launch will fail.
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
    fn name(&self) -> Result<Arc<CString>> {
        self.name.lock().clone().ok_or(CUresult::INVALID_HANDLE)
    }

    /// The kernel's function in a context.
    fn function(&self, context: &Context) -> Result<usize> {
        if self.first_context.load(Ordering::Acquire) == context.handle() {
            let function = self.first_function.load(Ordering::Relaxed);
            if function::of(function).is_some() {
                return Ok(function);
            }
        }
        let library = LIBRARIES.get(self.library.load(Ordering::Relaxed)).ok_or(CUresult::INVALID_HANDLE)?;
        let module = module::of(library.module(context)?).ok_or(CUresult::INVALID_HANDLE)?;
        let name = self.name()?;
        let function = module.function(name.to_str().map_err(|_| CUresult::NOT_FOUND)?)?;
        let first = self.first_context.load(Ordering::Acquire);
        if first == 0 || first == context.handle() {
            self.first_function.store(function, Ordering::Relaxed);
            self.first_context.store(context.handle(), Ordering::Release);
        }
        Ok(function)
    }
}

/// The function that a launch means by a kernel's handle; `None`: it is none.
pub fn function_of_kernel(handle: usize, context: &Context) -> Option<Result<usize>> {
    KERNELS.owns(handle).then(|| KERNELS.get(handle).ok_or(CUresult::INVALID_HANDLE)?.function(context))
}

/// The kernel's function on a device: in the current context if that is the device's, else in the primary one.
fn on_device(handle: CUkernel, device: CUdevice) -> Result<&'static Function> {
    let kernel = kernel(handle)?;
    let gpu = context::device(device)?;
    let context = match context::current() {
        Ok(context) if std::ptr::eq(context.gpu(), gpu) => context,
        _ => gpu.primary()?.1,
    };
    function::of(kernel.function(context)?).ok_or(CUresult::INVALID_HANDLE)
}

fn load(out: Out<CUlibrary>, image: Result<Image>, logs: &JitLogs) -> Result {
    let made = image.and_then(|image| make(image, logs.wanted()));
    logs.store(&made, "");
    out.set(CUlibrary(made?))
}

/// Makes a library. `at_once`: the host compiles it now for the current context, if there is one.
fn make(image: Image, at_once: bool) -> Result<usize> {
    let made = LIBRARIES.insert(|_, library| {
        *library.inner.lock() = Inner { image: Some(Arc::new(image)), ..Inner::default() };
    });
    let (handle, library) = made.ok_or(CUresult::OUT_OF_MEMORY)?;
    if at_once && let Ok(context) = context::current() {
        library.module(context).and_then(module::compile).inspect_err(|_| {
            // Nothing refers to it, and what its end runs into is not what the caller wants to know.
            let _ = unload(CUlibrary(handle));
        })?;
    }
    Ok(handle)
}

fn unload(library: CUlibrary) -> Result {
    get(library)?;
    let inner = LIBRARIES
        .remove(library.0, |library| std::mem::take(&mut *library.inner.lock()))
        .ok_or(CUresult::INVALID_HANDLE)?;
    for kernel in inner.kernels.into_values() {
        KERNELS.remove(kernel, |kernel| *kernel.name.lock() = None);
    }
    let ended: Vec<Result> = inner.modules.iter().filter_map(|module| module::discard(module.1)).collect();
    ended.into_iter().collect()
}

export! {
    /// `cuLibraryLoadData`: without the option that the code is preserved, a copy is kept.
    pub fn cuLibraryLoadData(
        library: Out<CUlibrary>, code: *const c_void, jit_options: In<c_uint>, jit_values: *mut *mut c_void,
        jit_count: c_uint, options: In<c_uint>, values: In<*const c_void>, count: c_uint,
    ) -> CUresult {
        life::devices()?;
        let out = library.check()?;
        let options = options.slice(count as usize)?;
        let values = values.slice(count as usize)?;
        // Preserved if the option's value is not 0; a null value pointer counts as given.
        let kept = options.iter().zip(values).any(|(&option, &value)| {
            option == LIBRARY_BINARY_IS_PRESERVED && !value.is_null()
        });
        // SAFETY: the caller promised a value for each option.
        let logs = unsafe { JitLogs::of(jit_options.slice(jit_count as usize)?, jit_values) }?;
        // SAFETY: the caller promised an image, and with the option that it stays.
        load(out, unsafe { Image::read(code, kept) }, &logs)
    }

    /// `cuLibraryLoadFromFile`
    pub fn cuLibraryLoadFromFile(
        library: Out<CUlibrary>, file: Text, jit_options: In<c_uint>, jit_values: *mut *mut c_void, jit_count: c_uint,
        _options: In<c_uint>, _values: In<*const c_void>, _count: c_uint,
    ) -> CUresult {
        life::devices()?;
        let out = library.check()?;
        // SAFETY: the caller promised a value for each option.
        let logs = unsafe { JitLogs::of(jit_options.slice(jit_count as usize)?, jit_values) }?;
        load(out, module::in_file(file), &logs)
    }

    /// `cuLibraryUnload`
    pub fn cuLibraryUnload(library: CUlibrary) -> CUresult { unload(library) }

    /// `cuLibraryGetKernel`
    pub fn cuLibraryGetKernel(kernel: Out<CUkernel>, library: CUlibrary, name: Text) -> CUresult {
        let found = get(library)?;
        let out = kernel.check()?;
        let name = name.get()?.to_str().map_err(|_| CUresult::NOT_FOUND)?;
        out.set(CUkernel(found.kernel(library.0, name)?))
    }

    /// `cuLibraryGetKernelCount`
    pub fn cuLibraryGetKernelCount(count: Out<c_uint>, library: CUlibrary) -> CUresult {
        count.set(get(library)?.any_code()?.open()?.kernels.names().len() as c_uint)
    }

    /// `cuLibraryEnumerateKernels`: as many as there is room for.
    pub fn cuLibraryEnumerateKernels(kernels: Out<CUkernel>, room: c_uint, library: CUlibrary) -> CUresult {
        let found = get(library)?;
        let open = found.any_code()?.open()?;
        for (index, name) in open.kernels.names().take(room as usize).enumerate() {
            // SAFETY: the caller promised room for so many handles.
            let place = unsafe { kernels.at(index) };
            place.set(CUkernel(found.kernel(library.0, name)?))?;
        }
        Ok(())
    }

    /// `cuLibraryGetModule`
    pub fn cuLibraryGetModule(module: Out<CUmodule>, library: CUlibrary) -> CUresult {
        let context = context::current()?;
        let library = get(library)?;
        let out = module.check()?;
        out.set(CUmodule(library.module(context)?))
    }

    /// `cuLibraryGetGlobal`
    pub fn cuLibraryGetGlobal(
        address: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: Text,
    ) -> CUresult {
        let context = context::current()?;
        let library = get(library)?;
        let name = name.get()?.to_str().map_err(|_| CUresult::NOT_FOUND)?;
        if address.is_null() && bytes.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let module = module::of(library.module(context)?).ok_or(CUresult::INVALID_HANDLE)?;
        let (start, size) = module.variable(name)?;
        address.set_if(start);
        bytes.set_if(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(())
    }

    /// `cuKernelGetFunction`
    pub fn cuKernelGetFunction(function: Out<CUfunction>, kernel: CUkernel) -> CUresult {
        let context = context::current()?;
        let out = function.check()?;
        out.set(CUfunction(self::kernel(kernel)?.function(context)?))
    }

    /// `cuKernelGetLibrary`
    pub fn cuKernelGetLibrary(library: Out<CUlibrary>, kernel: CUkernel) -> CUresult {
        library.set(CUlibrary(self::kernel(kernel)?.library.load(Ordering::Relaxed)))
    }

    /// `cuKernelGetName`
    pub fn cuKernelGetName(name: Out<*const c_char>, kernel: CUkernel) -> CUresult {
        name.set(self::kernel(kernel)?.name()?.as_ptr())
    }

    /// `cuKernelGetParamInfo`
    pub fn cuKernelGetParamInfo(
        kernel: CUkernel, index: usize, offset: Out<usize>, bytes: Out<usize>,
    ) -> CUresult {
        let kernel = self::kernel(kernel)?;
        let library = LIBRARIES.get(kernel.library.load(Ordering::Relaxed)).ok_or(CUresult::INVALID_HANDLE)?;
        let name = kernel.name()?;
        let kernels = library.any_code()?.open()?.kernels;
        let layout = kernels.get(name.to_str().unwrap_or("")).ok_or(CUresult::NOT_FOUND)?;
        function::param_info(layout, index, offset, bytes)
    }

    /// `cuKernelGetParamCount`
    pub fn cuKernelGetParamCount(kernel: CUkernel, count: Out<usize>) -> CUresult {
        let kernel = self::kernel(kernel)?;
        let library = LIBRARIES.get(kernel.library.load(Ordering::Relaxed)).ok_or(CUresult::INVALID_HANDLE)?;
        let name = kernel.name()?;
        let kernels = library.any_code()?.open()?.kernels;
        count.set(kernels.get(name.to_str().unwrap_or("")).ok_or(CUresult::NOT_FOUND)?.params.len())
    }

    /// `cuKernelGetAttribute`
    pub fn cuKernelGetAttribute(
        value: Out<c_int>, attribute: c_uint, kernel: CUkernel, device: CUdevice,
    ) -> CUresult {
        let out = value.check()?;
        out.set(on_device(kernel, device)?.attribute(attribute)?)
    }

    /// `cuKernelSetAttribute`
    pub fn cuKernelSetAttribute(
        attribute: c_uint, value: c_int, kernel: CUkernel, device: CUdevice,
    ) -> CUresult {
        on_device(kernel, device)?.set_attribute(attribute, value)
    }

    /// `cuKernelSetCacheConfig`
    pub fn cuKernelSetCacheConfig(kernel: CUkernel, config: c_uint, device: CUdevice) -> CUresult {
        on_device(kernel, device)?.set_cache_config(config)
    }
}
