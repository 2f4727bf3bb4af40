//! State of the process: whether it is initialised, the devices, and their primary contexts.
//!
//! Nothing happens before the first call. That initialises the driver (`cuInit`); a device's primary context
//! is retained when a thread first needs it. A failure is not remembered: the next call tries again, so that
//! a device that was not ready when a long-lived process first looked is found later.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError};

use vgpu_abi::driver::functions::cuGetExportTable;
use vgpu_abi::driver::{CUcontext, CUdevice};
use vgpu_abi::runtime::CudaError;
use vgpu_abi::table::Table;
use vgpu_abi::{export, log};

use crate::properties::Properties;
use crate::{MAJOR, thread};

/// Minimum driver version: within a major version, any runtime works with any driver.
const LEAST_DRIVER: c_int = MAJOR as c_int * 1000;

/// An initialised process, which is never freed.
pub struct Runtime {
    table: &'static Table,
    devices: Box<[Device]>,
    /// Number of device resets. A thread that has seen fewer binds its context again.
    resets: AtomicU32,
}

/// A device that the process sees.
pub struct Device {
    /// Handle of the device in the driver API.
    pub handle: CUdevice,
    primary: Mutex<Option<CUcontext>>,
    properties: OnceLock<Box<Properties>>,
}

static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(ptr::null_mut());

/// Returns the initialised process. The first call initialises it.
///
/// # Errors
/// Returns the reason why it cannot be initialised, and not-initialised in a forked child and while the
/// process exits.
#[inline(never)] // Nearly every export calls it, and a call costs a nanosecond.
pub fn runtime() -> Result<&'static Runtime, CudaError> {
    let runtime = match initialised() {
        Some(runtime) => runtime,
        None => initialise()?,
    };
    runtime.life()?;
    Ok(runtime)
}

/// Returns the process if it is initialised. It does not check that the process is still alive, for calls
/// that go on to the driver, which checks it.
#[inline]
pub fn initialised() -> Option<&'static Runtime> {
    let runtime = RUNTIME.load(Ordering::Acquire);
    // SAFETY: null, or what `initialise` leaked, which nobody changes or frees.
    unsafe { runtime.as_ref() }
}

/// Returns [`runtime`] and ensures that the calling thread has a current context: the one that it made
/// current by the driver API, or the primary context of its device.
#[inline(never)]
pub fn enter() -> Result<&'static Runtime, CudaError> {
    let runtime = runtime()?;
    let mut context = CUcontext::NULL;
    cu!(cuCtxGetCurrent(&raw mut context))?;
    let resets = runtime.resets.load(Ordering::Relaxed);
    if context == CUcontext::NULL || thread::with(|thread| thread.epoch.get()) != resets {
        runtime.rebind(context)?;
    }
    Ok(runtime)
}

impl Runtime {
    /// Checks that the driver knows this process and that its exit has not started.
    #[inline]
    fn life(&self) -> Result<(), CudaError> {
        // SAFETY: the table is this project's (checked when it was got); the call has no arguments.
        crate::status::check(unsafe { (self.table.life)() })
    }

    /// Returns whether the driver still accepts calls of this process.
    pub fn is_alive(&self) -> bool {
        self.life().is_ok()
    }

    /// Returns the number of devices that the process sees.
    pub fn count(&self) -> c_int {
        self.devices.len() as c_int
    }

    /// Returns the device of an ordinal.
    #[inline]
    pub fn device(&self, ordinal: c_int) -> Result<&Device, CudaError> {
        usize::try_from(ordinal)
            .ok()
            .and_then(|ordinal| self.devices.get(ordinal))
            .ok_or(CudaError::INVALID_DEVICE)
    }

    /// Returns the ordinal of a driver handle.
    pub fn ordinal(&self, handle: CUdevice) -> Result<c_int, CudaError> {
        let index = self.devices.iter().position(|device| device.handle == handle);
        index.map(|index| index as c_int).ok_or(CudaError::INVALID_DEVICE)
    }

    /// Returns the calling thread's device: that of its current context, or the one it selected.
    #[inline]
    pub fn current(&self) -> Result<c_int, CudaError> {
        let mut context = CUcontext::NULL;
        cu!(cuCtxGetCurrent(&raw mut context))?;
        if context == CUcontext::NULL {
            return Ok(thread::with(|thread| thread.device.get()));
        }
        let (seen, ordinal) = thread::with(|thread| thread.seen.get());
        if seen == context { Ok(ordinal) } else { self.find_device(context) }
    }

    #[cold]
    fn find_device(&self, context: CUcontext) -> Result<c_int, CudaError> {
        let mut handle = 0;
        cu!(cuCtxGetDevice(&raw mut handle))?;
        let ordinal = self.ordinal(handle)?;
        thread::with(|thread| thread.seen.set((context, ordinal)));
        Ok(ordinal)
    }

    /// Makes the primary context of the thread's device current, unless `current` is a context that the
    /// program made itself.
    #[cold]
    fn rebind(&self, current: CUcontext) -> Result<(), CudaError> {
        let ours = current == CUcontext::NULL || self.devices.iter().any(|device| device.is_primary(current));
        if ours {
            return self.bind(thread::with(|thread| thread.device.get()));
        }
        let resets = self.resets.load(Ordering::Relaxed);
        thread::with(|thread| thread.epoch.set(resets));
        Ok(())
    }

    /// Makes the primary context of a device current to the calling thread.
    pub fn bind(&self, ordinal: c_int) -> Result<(), CudaError> {
        let resets = self.resets.load(Ordering::Relaxed);
        let context = self.device(ordinal)?.primary()?;
        cu!(cuCtxSetCurrent(context))?;
        thread::with(|thread| {
            thread.seen.set((context, ordinal));
            thread.epoch.set(resets);
        });
        Ok(())
    }

    /// Resets a device's primary context and ends everything in it. The next call that needs the context
    /// initialises it again.
    pub fn reset(&self, ordinal: c_int) -> Result<(), CudaError> {
        let device = self.device(ordinal)?;
        let mut primary = device.lock();
        cu!(cuDevicePrimaryCtxReset_v2(device.handle))?;
        *primary = None;
        self.resets.fetch_add(1, Ordering::Relaxed);
        cu!(cuCtxSetCurrent(CUcontext::NULL))
    }
}

impl Device {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<CUcontext>> {
        // A panic cannot leave the value half written.
        self.primary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the device's primary context, which is retained once.
    pub fn primary(&self) -> Result<CUcontext, CudaError> {
        let mut primary = self.lock();
        if let Some(context) = *primary {
            return Ok(context);
        }
        let mut context = CUcontext::NULL;
        cu!(cuDevicePrimaryCtxRetain(&raw mut context, self.handle))?;
        *primary = Some(context);
        Ok(context)
    }

    fn is_primary(&self, context: CUcontext) -> bool {
        *self.lock() == Some(context)
    }

    /// Returns the device's properties, which are read once.
    pub fn properties(&self) -> Result<&Properties, CudaError> {
        if let Some(properties) = self.properties.get() {
            return Ok(properties);
        }
        let properties = Box::new(Properties::read(self.handle)?);
        Ok(self.properties.get_or_init(|| properties))
    }
}

/// Returns the private table of this project's libcuda. Fails with an initialisation error, and logs it once,
/// if the process has another libcuda.
fn own_table() -> Result<&'static Table, CudaError> {
    static SAID: Once = Once::new();
    // SAFETY: the loader bound the name to a libcuda that this object needs, so that it stays.
    if let Some(table) = unsafe { Table::ask(cuGetExportTable) } {
        return Ok(table);
    }
    SAID.call_once(|| {
        log::error(format_args!(
            "libcudart: the libcuda.so.1 of this process is not vgpu-run's, or of another build; \
             every call answers an initialization error"
        ));
    });
    Err(CudaError::INITIALIZATION_ERROR)
}

#[cold]
fn initialise() -> Result<&'static Runtime, CudaError> {
    static TURN: Mutex<()> = Mutex::new(());
    export::quiet_panics();
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = initialised() {
        return Ok(runtime);
    }
    let table = own_table()?;
    cu!(cuInit(0))?;
    let mut version = 0;
    cu!(cuDriverGetVersion(&raw mut version))?;
    if version < LEAST_DRIVER {
        log::warn(format_args!(
            "libcudart.so.{MAJOR}: the device's driver supports CUDA {}.{} only",
            version / 1000,
            version % 1000 / 10
        ));
        return Err(CudaError::INSUFFICIENT_DRIVER);
    }
    let mut count = 0;
    cu!(cuDeviceGetCount(&raw mut count))?;
    if count <= 0 {
        return Err(CudaError::NO_DEVICE);
    }
    let device = |ordinal| {
        let mut handle = 0;
        cu!(cuDeviceGet(&raw mut handle, ordinal))?;
        Ok(Device { handle, primary: Mutex::new(None), properties: OnceLock::new() })
    };
    let devices = (0..count).map(device).collect::<Result<_, CudaError>>()?;
    let runtime = Box::leak(Box::new(Runtime { table, devices, resets: AtomicU32::new(0) }));
    RUNTIME.store(runtime, Ordering::Release);
    log::info(format_args!(
        "libcudart.so.{MAJOR}: {count} device(s), the driver supports CUDA {}.{}",
        version / 1000,
        version % 1000 / 10
    ));
    Ok(runtime)
}
