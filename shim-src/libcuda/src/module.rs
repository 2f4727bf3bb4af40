//! "Module Management": code in a context. A module goes to the host when one of its kernels or variables is first needed: by digest, so
//! that a host that has it does not get it again.

use std::collections::HashMap;
use std::ffi::{CString, c_uint, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use sha2::{Digest, Sha256};
use vgpu_abi::driver::{CUdeviceptr, CUfunction, CUmodule};
use vgpu_abi::{CUresult, export, log};
use vgpu_wire::Span;
use vgpu_wire::body::module::{
    GlobalGet, GlobalReply, ModuleData, ModuleLoad, ModuleOpen, ModuleOpenReply, ModuleUnload,
};

use crate::arg::{Out, Text};
use crate::context::{self, Context};
use crate::function;
use crate::gpu::{Gpu, Minted};
use crate::image::{Code, Image, Target};
use crate::jit_log::JitLogs;
use crate::memory::{Range, Source};
use crate::slab::Slab;
use crate::sync::Mutex;
use crate::{Result, capture};

/// An image is sent in pieces of this size: two fit into the ring beside what other threads send.
const PIECE: usize = 48 << 10;
/// `CU_MODULE_LAZY_LOADING`
const LAZY: c_uint = 2;

/// A module.
#[derive(Default)]
pub struct Module {
    gpu: AtomicPtr<Gpu>,
    context: AtomicUsize,
    handle: AtomicUsize,
    /// Its number on the wire; 0 until the host has loaded it.
    number: AtomicU32,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    code: Option<Arc<Code>>,
    /// What loading it ended with, when that was not success.
    failed: Option<CUresult>,
    functions: HashMap<Box<str>, usize>,
    variables: HashMap<Box<str>, (u64, u64)>,
}

static MODULES: Slab<Module> = Slab::new(8);

/// What a device takes.
pub fn target(gpu: &Gpu) -> Target {
    let facts = &gpu.shown.facts;
    Target { sm: 10 * facts.cc_major + facts.cc_minor, abilities: facts.abilities }
}

/// Whether an error is about the code, so that asking again would bring it again.
pub fn about_code(error: CUresult) -> bool {
    matches!(error.0, 200..=299 | 801)
}

/// Makes a module of code that fits the context's device.
pub fn create(context: &Context, code: Arc<Code>) -> Result<usize> {
    let gpu = context.gpu();
    let made = MODULES.insert(|handle, module| {
        module.gpu.store(ptr::from_ref(gpu).cast_mut(), Ordering::Relaxed);
        module.context.store(context.handle(), Ordering::Relaxed);
        module.handle.store(handle, Ordering::Relaxed);
        module.number.store(0, Ordering::Relaxed);
        *module.inner.lock() = Inner { code: Some(code), ..Inner::default() };
    });
    Ok(made.ok_or(CUresult::OUT_OF_MEMORY)?.0)
}

/// The module of a handle.
pub fn get(handle: CUmodule) -> Result<&'static Module> {
    context::current()?;
    MODULES.get(handle.0).ok_or(CUresult::INVALID_HANDLE)
}

/// The module of a handle, whatever context is current.
pub fn of(handle: usize) -> Option<&'static Module> {
    MODULES.get(handle)
}

impl Module {
    /// The device.
    pub fn gpu(&self) -> &'static Gpu {
        // SAFETY: `create` stored the address of a leaked value before the handle meant anything.
        unsafe { &*self.gpu.load(Ordering::Relaxed) }
    }

    /// Handle of its context.
    pub fn context(&self) -> usize {
        self.context.load(Ordering::Relaxed)
    }

    /// Its number on the wire; loads it at the first call.
    pub fn load(&self) -> Result<u32> {
        let number = self.number.load(Ordering::Acquire);
        if number != 0 {
            return Ok(number);
        }
        let mut inner = self.inner.lock();
        let number = self.number.load(Ordering::Acquire);
        if number != 0 {
            return Ok(number);
        }
        if let Some(error) = inner.failed {
            return Err(error);
        }
        let code = inner.code.clone().ok_or(CUresult::INVALID_HANDLE)?;
        // What went wrong before is not about this code.
        self.gpu().late()?;
        match send_best(self.gpu(), &mut inner, &code) {
            Ok(number) => {
                self.number.store(number, Ordering::Release);
                code.close();
                Ok(number)
            }
            Err(error) => {
                log::error(format_args!("failed to load a module for sm_{}: {error}", code.sm()));
                // What is about the code stays so; what is about the device, or about memory, may be different next time.
                if about_code(error) {
                    inner.failed = Some(error);
                }
                Err(error)
            }
        }
    }

    /// The handle of a kernel.
    pub fn function(&'static self, name: &str) -> Result<usize> {
        let mut inner = self.inner.lock();
        if let Some(&function) = inner.functions.get(name) {
            return Ok(function);
        }
        let code = inner.code.clone().ok_or(CUresult::INVALID_HANDLE)?;
        let layout = code.open()?.kernels.get(name).ok_or(CUresult::NOT_FOUND)?;
        if self.number.load(Ordering::Acquire) != 0 {
            code.close();
        }
        let text = CString::new(name).map_err(|_| CUresult::NOT_FOUND)?;
        let module = self.handle.load(Ordering::Relaxed);
        let function = function::create(self.gpu(), self.context(), module, text, layout)?;
        inner.functions.insert(name.into(), function);
        Ok(function)
    }

    /// Names of its kernels.
    fn names(&self) -> Result<Vec<Box<str>>> {
        let code = self.inner.lock().code.clone().ok_or(CUresult::INVALID_HANDLE)?;
        let open = code.open()?;
        Ok(open.kernels.names().map(Into::into).collect())
    }

    /// Address and size of a variable.
    pub fn variable(&self, name: &str) -> Result<(u64, u64)> {
        if let Some(&known) = self.inner.lock().variables.get(name) {
            return Ok(known);
        }
        let module = self.load()?;
        let gpu = self.gpu();
        let message = GlobalGet { reply: 0, module, name_bytes: name.len() as u32, reserved: 0 };
        let GlobalReply { address, bytes } = gpu.ask(message, &[name.as_bytes()])?;
        gpu.memory.add(address, bytes, Source::Variable(module), self.context());
        self.inner.lock().variables.insert(name.into(), (address, bytes));
        Ok((address, bytes))
    }
}

/// Whether an error says that the host has no use for a cubin that should run on its device.
fn is_about_cubins(error: CUresult) -> bool {
    [CUresult::INVALID_IMAGE, CUresult::NO_BINARY_FOR_GPU, CUresult::NOT_SUPPORTED].contains(&error)
}

/// Sends a module's code: a cubin, or the PTX of the same image where the device refuses cubins. A host of version 1 does not say which kinds
/// it takes: a GPU takes both, and cubins at once; what stands for one may take PTX alone.
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

/// Sends a module's code, or its digest alone where the host has it; its number.
fn send(gpu: &Gpu, code: &Code) -> Result<u32> {
    let open = code.open()?;
    let bytes = &*open.bytes;
    let module = gpu.mint(Minted::Module);
    let message = ModuleOpen {
        reply: 0,
        module,
        image: code.wire_kind(),
        reserved: 0,
        bytes: bytes.len() as u64,
        digest: Sha256::digest(bytes).into(),
    };
    let reply: ModuleOpenReply = gpu.ask(message, &[])?;
    if reply.known == 0 {
        for (index, piece) in bytes.chunks(PIECE).enumerate() {
            let offset = (index * PIECE) as u64;
            let data = Span::inline(piece.len() as u64);
            gpu.send(&ModuleData { module, reserved: 0, offset, data }, &[piece])?;
        }
    }
    gpu.call(ModuleLoad { reply: 0, module }, &[], &mut [])?;
    Ok(module)
}

/// Ends a module; whether there was one.
pub fn discard(handle: usize) -> Option<Result> {
    MODULES.remove(handle, |module| {
        let inner = std::mem::take(&mut *module.inner.lock());
        for function in inner.functions.into_values() {
            function::discard(function);
        }
        let number = module.number.swap(0, Ordering::AcqRel);
        if number == 0 {
            return Ok(());
        }
        let gpu = module.gpu();
        gpu.memory.take_all(|range: &Range| range.source == Source::Variable(number));
        gpu.send(&ModuleUnload { module: number, reserved: 0 }, &[]).map(drop)
    })
}

/// Ends the modules of a context.
pub fn end_context(context: usize) {
    for (handle, module) in MODULES.iter() {
        if module.context() == context {
            // The context ends whatever the host says to it.
            let _ = discard(handle);
        }
    }
}

fn load_image(out: Out<CUmodule>, image: impl FnOnce() -> Result<Image>) -> Result {
    load_with(out, image, false)
}

/// `at_once`: the host compiles all of it now, not each kernel when it is first needed.
fn load_with(out: Out<CUmodule>, image: impl FnOnce() -> Result<Image>, at_once: bool) -> Result {
    let context = context::current()?;
    let out = out.check()?;
    capture::forbid_unsafe()?;
    context.gpu().late()?;
    let code = image()?.choose(target(context.gpu()))?;
    let module = create(context, code)?;
    if at_once && let Err(error) = compile(module) {
        // Nothing refers to it, and what its end runs into is not what the caller wants to know.
        let _ = discard(module);
        return Err(error);
    }
    out.set(CUmodule(module))
}

/// Has the host compile a module with all its kernels.
pub fn compile(module: usize) -> Result {
    let module = of(module).ok_or(CUresult::INVALID_HANDLE)?;
    module.load()?;
    for name in module.names()? {
        function::of(module.function(&name)?).ok_or(CUresult::INVALID_HANDLE)?.number()?;
    }
    Ok(())
}

/// An image in memory, of which the module keeps a copy.
fn in_memory(address: *const c_void) -> Result<Image> {
    // SAFETY: the export's caller promised an image at the address.
    unsafe { Image::read(address, false) }
}

/// The contents of an image file.
pub fn in_file(name: Text) -> Result<Image> {
    let name = name.get()?;
    let path = std::ffi::OsStr::from_encoded_bytes(name);
    let bytes = std::fs::read(path).map_err(|error| {
        log::error(format_args!("failed to read {}: {error}", path.display()));
        if error.kind() == std::io::ErrorKind::NotFound {
            CUresult::FILE_NOT_FOUND
        } else {
            CUresult::OPERATING_SYSTEM
        }
    })?;
    Image::of_file(&bytes)
}

/// Path of a C text.
trait FromEncoded {
    fn from_encoded_bytes(name: &std::ffi::CStr) -> &Self;
}

impl FromEncoded for std::ffi::OsStr {
    fn from_encoded_bytes(name: &std::ffi::CStr) -> &Self {
        std::os::unix::ffi::OsStrExt::from_bytes(name.to_bytes())
    }
}

export! {
    /// `cuModuleLoadData`
    pub fn cuModuleLoadData(module: Out<CUmodule>, image: *const c_void) -> CUresult {
        load_image(module, || in_memory(image))
    }

    /// `cuModuleLoadDataEx`: of the options, which are for a compiler in this process, only the logs have a meaning.
    pub fn cuModuleLoadDataEx(
        module: Out<CUmodule>, image: *const c_void, count: c_uint, options: crate::arg::In<c_uint>,
        values: *mut *mut c_void,
    ) -> CUresult {
        context::current()?;
        // SAFETY: the caller promised a value for each option.
        let logs = unsafe { JitLogs::of(options.slice(count as usize)?, values) }?;
        let loaded = load_with(module, || in_memory(image), logs.wanted());
        logs.store(&loaded, "compiled by the device's host");
        loaded
    }

    /// `cuModuleLoadFatBinary`
    pub fn cuModuleLoadFatBinary(module: Out<CUmodule>, image: *const c_void) -> CUresult {
        load_image(module, || in_memory(image))
    }

    /// `cuModuleLoad`
    pub fn cuModuleLoad(module: Out<CUmodule>, file: Text) -> CUresult { load_image(module, || in_file(file)) }

    /// `cuModuleUnload`
    pub fn cuModuleUnload(module: CUmodule) -> CUresult {
        get(module)?;
        capture::forbid_unsafe()?;
        discard(module.0).ok_or(CUresult::INVALID_HANDLE)?
    }

    /// `cuModuleGetLoadingMode`
    pub fn cuModuleGetLoadingMode(mode: Out<c_uint>) -> CUresult {
        crate::life::devices()?;
        mode.set(LAZY)
    }

    /// `cuModuleGetFunction`
    pub fn cuModuleGetFunction(function: Out<CUfunction>, module: CUmodule, name: Text) -> CUresult {
        let module = get(module)?;
        let out = function.check()?;
        let name = name.get()?.to_str().map_err(|_| CUresult::NOT_FOUND)?;
        out.set(CUfunction(module.function(name)?))
    }

    /// `cuModuleGetFunctionCount`
    pub fn cuModuleGetFunctionCount(count: Out<c_uint>, module: CUmodule) -> CUresult {
        count.set(get(module)?.names()?.len() as c_uint)
    }

    /// `cuModuleEnumerateFunctions`: as many as there is room for.
    pub fn cuModuleEnumerateFunctions(functions: Out<CUfunction>, room: c_uint, module: CUmodule) -> CUresult {
        let module = get(module)?;
        for (index, name) in module.names()?.iter().take(room as usize).enumerate() {
            // SAFETY: the caller promised room for so many handles.
            let place = unsafe { functions.at(index) };
            place.set(CUfunction(module.function(name)?))?;
        }
        Ok(())
    }

    /// `cuModuleGetGlobal_v2`
    pub fn cuModuleGetGlobal_v2(
        address: Out<CUdeviceptr>, bytes: Out<usize>, module: CUmodule, name: Text,
    ) -> CUresult {
        let module = get(module)?;
        let name = name.get()?.to_str().map_err(|_| CUresult::NOT_FOUND)?;
        if address.is_null() && bytes.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let (start, size) = module.variable(name)?;
        address.set_if(start);
        bytes.set_if(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(())
    }
}
