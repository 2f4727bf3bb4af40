//! Functions, which are kernels in a context. All attributes of a function take one round trip, once; each
//! query of its occupancy takes one round trip, once.

use std::ffi::{CString, c_int, c_uint};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use vgpu_abi::driver::{CUfunction, attribute as device, function_attribute as id};
use vgpu_abi::{CUresult, log};
use vgpu_wire::body::module::{
    FUNCTION_CACHE_CONFIG, FunctionGet, FunctionReply, FunctionSet, Occupancy, OccupancyReply,
};

use crate::Result;
use crate::arg::Out;
use crate::code::layout::Layout;
use crate::object::gpu::Gpu;
use crate::object::introduction::Introduction;
use crate::object::module::{self, Module};
use crate::queue::late;
use crate::queue::submission::Minted;
use crate::slab::Slab;
use crate::sync::Mutex;

/// Number of attributes of a function.
const ATTRIBUTES: usize = id::MAX as usize;

/// A kernel in a context.
#[derive(Default)]
pub struct Function {
    gpu: AtomicPtr<Gpu>,
    context: AtomicUsize,
    module: AtomicUsize,
    layout: AtomicPtr<Layout>,
    number: Introduction,
    /// Attributes by `CUfunction_attribute`, valid once the host knows the function.
    attributes: [AtomicI32; ATTRIBUTES],
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    name: Option<Arc<CString>>,
    occupancy: Vec<(OccupancyQuery, u32)>,
}

/// Everything on which the occupancy of a function depends.
#[derive(Clone, Copy, PartialEq, Eq)]
struct OccupancyQuery {
    threads: u32,
    shared: u64,
    flags: u32,
}

static FUNCTIONS: Slab<Function> = Slab::new(9);

/// Returns the handle of a module's function, which is created by the first call. The host is told of it when
/// it is first needed.
pub fn in_module(module: &Module, name: &str) -> Result<usize> {
    module.function(name, |layout| {
        let text = CString::new(name).map_err(|_| CUresult::NOT_FOUND)?;
        let made = FUNCTIONS.insert(|_, function| {
            function.gpu.store(ptr::from_ref(module.gpu()).cast_mut(), Ordering::Relaxed);
            function.context.store(module.context(), Ordering::Relaxed);
            function.module.store(module.handle(), Ordering::Relaxed);
            function.layout.store(ptr::from_ref(layout).cast_mut(), Ordering::Relaxed);
            function.number.reset();
            *function.inner.lock() = Inner { name: Some(Arc::new(text)), ..Inner::default() };
        });
        Ok(made.ok_or(CUresult::OUT_OF_MEMORY)?.0)
    })
}

/// Invalidates the handle of a function and frees what the guest keeps of it.
pub fn discard(handle: usize) {
    FUNCTIONS.remove(handle, |function| *function.inner.lock() = Inner::default());
}

/// Returns the function of a handle, in whatever context it is.
#[inline]
pub fn from_handle(handle: usize) -> Option<&'static Function> {
    FUNCTIONS.get(handle)
}

/// Returns the handle of the function that has this number in messages.
pub fn by_number(gpu: &Gpu, number: u32) -> Option<CUfunction> {
    let mine = |function: &Function| ptr::eq(function.gpu(), gpu) && function.number.known() == Some(number);
    FUNCTIONS.iter().find(|(_, function)| mine(function)).map(|(handle, _)| CUfunction(handle))
}

impl Function {
    /// Returns the device on which the function's module is loaded.
    pub fn gpu(&self) -> &'static Gpu {
        // SAFETY: `in_module` stored the address of a leaked value before the handle meant anything.
        unsafe { &*self.gpu.load(Ordering::Relaxed) }
    }

    /// Returns the layout of the function's parameters.
    #[inline]
    pub fn layout(&self) -> &'static Layout {
        // SAFETY: `in_module` stored the address of an interned layout, which lives for good.
        unsafe { &*self.layout.load(Ordering::Relaxed) }
    }

    /// Returns the handle of the function's context.
    #[inline]
    pub fn context(&self) -> usize {
        self.context.load(Ordering::Relaxed)
    }

    /// Returns the handle of the function's module.
    pub fn module(&self) -> usize {
        self.module.load(Ordering::Relaxed)
    }

    /// Returns whether the host has loaded the function.
    pub fn is_loaded(&self) -> bool {
        self.number.known().is_some()
    }

    /// Returns the function's mangled name.
    pub fn name(&self) -> Result<Arc<CString>> {
        self.inner.lock().name.clone().ok_or(CUresult::INVALID_HANDLE)
    }

    /// Returns the function's number in messages. The first call loads its module and fetches its attributes.
    #[inline]
    pub fn number(&self) -> Result<u32> {
        match self.number.known() {
            Some(number) => Ok(number),
            None => self.introduce(),
        }
    }

    #[cold]
    fn introduce(&self) -> Result<u32> {
        let module =
            module::from_handle(self.module.load(Ordering::Relaxed)).ok_or(CUresult::INVALID_HANDLE)?;
        let module = module.load()?;
        self.number.get(|refused| self.introduce_in(module, refused))
    }

    /// Looks the function up in its loaded module on the host, and stores its attributes.
    fn introduce_in(&self, module: u32, refused: &mut Option<CUresult>) -> Result<u32> {
        let name = self.name()?;
        let gpu = self.gpu();
        let function = gpu.queue.mint(Minted::Function);
        let bytes = name.as_bytes();
        let message = FunctionGet { reply: 0, module, function, name_bytes: bytes.len() as u32 };
        let reply: FunctionReply = gpu.queue.ask(message, &[bytes]).inspect_err(|&error| {
            if module::about_code(error) {
                log::error(format_args!("kernel {} is refused with {error}", name.to_string_lossy()));
                *refused = Some(error);
            }
        })?;
        let expected = self.layout().bytes;
        // 0 means that the host does not know the length.
        if reply.param_bytes != 0 && reply.param_bytes != expected {
            log::error(format_args!(
                "kernel {}: {} bytes of parameters for the host, {expected} here",
                name.to_string_lossy(),
                reply.param_bytes
            ));
            return Err(CUresult::INVALID_IMAGE);
        }
        let values = [
            (id::MAX_THREADS_PER_BLOCK, reply.max_threads),
            (id::SHARED_SIZE_BYTES, reply.shared_bytes),
            (id::CONST_SIZE_BYTES, reply.const_bytes),
            (id::LOCAL_SIZE_BYTES, reply.local_bytes),
            (id::NUM_REGS, reply.registers),
            (id::PTX_VERSION, reply.ptx_version),
            (id::BINARY_VERSION, reply.binary_version),
            (id::MAX_DYNAMIC_SHARED_SIZE_BYTES, reply.max_dynamic_shared),
        ];
        for attribute in &self.attributes {
            attribute.store(0, Ordering::Relaxed);
        }
        for (attribute, value) in values {
            self.attributes[attribute as usize]
                .store(i32::try_from(value).unwrap_or(i32::MAX), Ordering::Relaxed);
        }
        self.attributes[id::PREFERRED_SHARED_MEMORY_CARVEOUT as usize].store(-1, Ordering::Relaxed);
        gpu.queue.session.trace_kernel(function, || late::demangled(&name.to_string_lossy()));
        Ok(function)
    }

    /// Returns an attribute of a function that has a number in messages.
    #[inline]
    pub fn known(&self, attribute: c_uint) -> u32 {
        self.attributes[attribute as usize].load(Ordering::Relaxed).max(0).cast_unsigned()
    }

    /// Returns an attribute of the function, which may have to be fetched from the host.
    pub fn attribute(&self, attribute: c_uint) -> Result<c_int> {
        if attribute >= id::MAX {
            return Err(CUresult::INVALID_VALUE);
        }
        self.number()?;
        Ok(self.attributes[attribute as usize].load(Ordering::Relaxed))
    }

    /// Sets an attribute of the function, here and on the host.
    pub fn set_attribute(&self, attribute: c_uint, value: c_int) -> Result {
        let function = self.number()?;
        let gpu = self.gpu();
        let within = match attribute {
            id::MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                let fixed = self.known(id::SHARED_SIZE_BYTES);
                u32::try_from(value).is_ok_and(|bytes| bytes.saturating_add(fixed) <= most_shared(gpu))
            }
            id::PREFERRED_SHARED_MEMORY_CARVEOUT => (-1..=100).contains(&value),
            id::NON_PORTABLE_CLUSTER_SIZE_ALLOWED => {
                gpu.attribute(device::CLUSTER_LAUNCH) != 0 && (0..=1).contains(&value)
            }
            id::CLUSTER_SCHEDULING_POLICY_PREFERENCE => {
                gpu.attribute(device::CLUSTER_LAUNCH) != 0 && (0..=2).contains(&value)
            }
            _ => false,
        };
        if !within {
            return Err(CUresult::INVALID_VALUE);
        }
        gpu.queue.async_error()?;
        // Programs set attributes before each launch; the same value again changes nothing.
        if self.attributes[attribute as usize].load(Ordering::Relaxed) == value {
            return Ok(());
        }
        gpu.queue.send(&FunctionSet { function, attribute, value, reserved: 0 }, &[])?;
        self.attributes[attribute as usize].store(value, Ordering::Relaxed);
        self.inner.lock().occupancy.clear();
        Ok(())
    }

    /// Sets the function's preferred split between cache and shared memory.
    pub fn set_cache_config(&self, config: c_uint) -> Result {
        if config > 3 {
            return Err(CUresult::INVALID_VALUE);
        }
        let message = FunctionSet {
            function: self.number()?,
            attribute: FUNCTION_CACHE_CONFIG,
            value: config.cast_signed(),
            reserved: 0,
        };
        self.gpu().queue.async_error()?;
        self.gpu().queue.send(&message, &[]).map(drop)
    }

    /// Returns the number of blocks that one multiprocessor can hold.
    pub fn occupancy(&self, threads: c_int, shared: usize, flags: c_uint) -> Result<u32> {
        let threads = u32::try_from(threads).ok().filter(|&threads| threads != 0);
        let threads = threads.ok_or(CUresult::INVALID_VALUE)?;
        if flags > 1 {
            return Err(CUresult::INVALID_VALUE);
        }
        let function = self.number()?;
        let gpu = self.gpu();
        if threads > self.known(id::MAX_THREADS_PER_BLOCK) {
            return Ok(0);
        }
        let question = OccupancyQuery { threads, shared: shared as u64, flags };
        if let Some(&(_, blocks)) = self.inner.lock().occupancy.iter().find(|known| known.0 == question) {
            return Ok(blocks);
        }
        gpu.queue.async_error()?;
        let message =
            Occupancy { reply: 0, function, block_threads: threads, flags, shared_bytes: question.shared };
        let OccupancyReply { blocks, .. } = gpu.queue.ask(message, &[])?;
        self.inner.lock().occupancy.push((question, blocks));
        Ok(blocks)
    }
}

/// Returns the maximum shared memory of a block in bytes.
fn most_shared(gpu: &Gpu) -> u32 {
    [device::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device::MAX_SHARED_MEMORY_PER_BLOCK]
        .map(|attribute| gpu.attribute(attribute).max(0).cast_unsigned())
        .into_iter()
        .fold(0, u32::max)
}

/// Stores offset and size of the parameter with this index.
pub fn param_info(layout: &Layout, index: usize, offset: Out<usize>, bytes: Out<usize>) -> Result {
    let offset = offset.check()?;
    let param = layout.params.get(index).ok_or(CUresult::INVALID_VALUE)?;
    bytes.set_if(param.size as usize);
    offset.set(param.offset as usize)
}
