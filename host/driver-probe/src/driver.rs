//! The calls of libcuda that the questions make. The process of a question exists for it alone, so objects
//! are plain handles that nobody destroys, and a call that the driver does not survive ends that process
//! only.

#![allow(unsafe_code, reason = "the driver is C: the audited module of this crate")]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr;
use std::time::Instant;

use libloading::Library;
use serde_json::Value;
use vgpu_abi::driver::{
    CUcontext, CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp, CUmemLocation, CUresult, CUstream,
    MEM_ALLOCATION_PINNED, MEM_LOCATION_DEVICE, functions,
};

use crate::mapping::Mapping;

/// `CU_MEMHOSTALLOC_DEVICEMAP` and `CU_MEMHOSTREGISTER_DEVICEMAP`
const DEVICE_MAP: c_uint = 2;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
const READ_WRITE: c_uint = 3;
/// Properties of physical memory of the first device.
const DEVICE_MEMORY: CUmemAllocationProp = CUmemAllocationProp {
    kind: MEM_ALLOCATION_PINNED,
    handle_types: 0,
    location: CUmemLocation { kind: MEM_LOCATION_DEVICE, id: 0 },
    win32: ptr::null_mut(),
    flags: [0; 8],
};

/// Reason for which a call of a question has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The loader cannot load the library.
    #[error("load {path}: {reason}")]
    Load {
        /// Path or name of the library.
        path: String,
        /// The loader's message.
        reason: String,
    },
    /// The library does not export the function.
    #[error("the driver has no {0}")]
    Missing(&'static str),
    /// The function returned an error.
    #[error("{function} returned {code}")]
    Status {
        /// Name of the function.
        function: &'static str,
        /// The `CUresult`.
        code: u32,
    },
    /// The system refused a resource that the question needs.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// Returns the `CUresult` of a call for a report, or a sentence if the driver was not called.
pub(crate) fn status<T>(outcome: &Result<T, CallError>) -> Value {
    match outcome {
        Ok(_) => 0.into(),
        Err(CallError::Status { code, .. }) => (*code).into(),
        Err(error) => error.to_string().into(),
    }
}

/// Calls a function of the driver by its name and signature in `vgpu-abi`.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        static FOUND: std::sync::OnceLock<Option<functions::$name>> = std::sync::OnceLock::new();
        // A process opens one library, so what was found once is the driver's.
        let function = FOUND.get_or_init(|| {
            // SAFETY: the type is that of the function in cuda.h: both are one definition in `vgpu-abi`.
            let symbol = unsafe { $driver.library.get::<functions::$name>(stringify!($name)) };
            symbol.ok().map(|symbol| *symbol)
        });
        let function = function.ok_or(CallError::Missing(stringify!($name)))?;
        // SAFETY: pointers are to values that live through the call; handles are the driver's own.
        let status: CUresult = unsafe { function($($argument),*) };
        match status.0 {
            0 => Ok(()),
            code => Err(CallError::Status { function: stringify!($name), code }),
        }
    }};
}

// After the macro, which it uses.
mod streams;

/// A loaded libcuda with a context on its first device, which is current in the thread that opened it.
#[derive(Debug)]
pub(crate) struct Driver {
    /// Never unloaded, because the end of the process is part of the answers.
    library: ManuallyDrop<Library>,
    context: CUcontext,
    /// Time that `cuInit` took, in milliseconds.
    pub(crate) init_ms: f64,
    /// Time that `cuCtxCreate` took, in milliseconds.
    pub(crate) context_ms: f64,
}

/// Returns the milliseconds since a moment.
pub(crate) fn since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

impl Driver {
    /// Loads the library, initializes the driver, and creates a context on the first device.
    pub(crate) fn open(path: &Path) -> Result<Self, CallError> {
        // SAFETY: this runs the initializers of the library that the host's administrator names, in a process
        // that exists for this alone.
        let library = unsafe { Library::new(path) }.map_err(|error| {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            let reason = source.unwrap_or_else(|| error.to_string());
            CallError::Load { path: path.display().to_string(), reason }
        })?;
        let mut driver = Self {
            library: ManuallyDrop::new(library),
            context: CUcontext::NULL,
            init_ms: 0.0,
            context_ms: 0.0,
        };
        let start = Instant::now();
        call!(driver, cuInit(0))?;
        driver.init_ms = since(start);
        let (mut context, start) = (CUcontext::NULL, Instant::now());
        call!(driver, cuCtxCreate_v2(&raw mut context, 0, 0))?;
        (driver.context, driver.context_ms) = (context, since(start));
        Ok(driver)
    }

    /// Makes the context current in the calling thread.
    pub(crate) fn enter(&self) -> Result<(), CallError> {
        call!(self, cuCtxSetCurrent(self.context))
    }

    /// Destroys the context with everything in it.
    pub(crate) fn destroy_context(&self) -> Result<(), CallError> {
        call!(self, cuCtxDestroy_v2(self.context))
    }

    /// Returns `cuDriverGetVersion`: 1000 × major + 10 × minor.
    pub(crate) fn version(&self) -> Result<c_int, CallError> {
        let mut version = 0;
        call!(self, cuDriverGetVersion(&raw mut version))?;
        Ok(version)
    }

    /// Returns the name of the device.
    pub(crate) fn name(&self) -> Result<String, CallError> {
        let mut text = [0u8; 256];
        call!(self, cuDeviceGetName(text.as_mut_ptr().cast(), 256, 0))?;
        let text = CStr::from_bytes_until_nul(&text);
        Ok(text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default())
    }

    /// Returns a device attribute by its id.
    pub(crate) fn attribute(&self, id: c_int) -> Result<c_int, CallError> {
        let mut value = 0;
        call!(self, cuDeviceGetAttribute(&raw mut value, id, 0))?;
        Ok(value)
    }

    /// Returns the size of the device's memory in bytes.
    pub(crate) fn total(&self) -> Result<usize, CallError> {
        let mut total = 0;
        call!(self, cuDeviceTotalMem_v2(&raw mut total, 0))?;
        Ok(total)
    }

    /// Returns the free device memory in bytes.
    pub(crate) fn free_memory(&self) -> Result<usize, CallError> {
        let (mut free, mut total) = (0, 0);
        call!(self, cuMemGetInfo_v2(&raw mut free, &raw mut total))?;
        Ok(free)
    }

    /// Waits for all work of the context.
    pub(crate) fn synchronize(&self) -> Result<(), CallError> {
        call!(self, cuCtxSynchronize())
    }

    /// Reserves device addresses, if possible at `wish`. Returns the first.
    pub(crate) fn reserve(&self, bytes: usize, wish: CUdeviceptr) -> Result<CUdeviceptr, CallError> {
        let mut address = 0;
        call!(self, cuMemAddressReserve(&raw mut address, bytes, 0, wish, 0))?;
        Ok(address)
    }

    /// Returns reserved addresses.
    pub(crate) fn unreserve(&self, address: CUdeviceptr, bytes: usize) -> Result<(), CallError> {
        call!(self, cuMemAddressFree(address, bytes))
    }

    /// Returns the granularity of physical memory in bytes.
    pub(crate) fn granularity(&self) -> Result<usize, CallError> {
        let mut bytes = 0;
        call!(self, cuMemGetAllocationGranularity(&raw mut bytes, ptr::from_ref(&DEVICE_MEMORY), 0))?;
        Ok(bytes)
    }

    /// Creates physical memory, of whole granules of 2 MiB.
    pub(crate) fn create(&self, bytes: usize) -> Result<u64, CallError> {
        let mut handle = 0;
        call!(self, cuMemCreate(&raw mut handle, bytes, ptr::from_ref(&DEVICE_MEMORY), 0))?;
        Ok(handle)
    }

    /// Releases physical memory.
    pub(crate) fn release(&self, handle: u64) -> Result<(), CallError> {
        call!(self, cuMemRelease(handle))
    }

    /// Maps physical memory at a reserved address and makes it accessible.
    pub(crate) fn map(&self, address: CUdeviceptr, bytes: usize, handle: u64) -> Result<(), CallError> {
        call!(self, cuMemMap(address, bytes, 0, handle, 0))?;
        let access = CUmemAccessDesc { location: DEVICE_MEMORY.location, flags: READ_WRITE };
        call!(self, cuMemSetAccess(address, bytes, &raw const access, 1))
    }

    /// Unmaps physical memory.
    pub(crate) fn unmap(&self, address: CUdeviceptr, bytes: usize) -> Result<(), CallError> {
        call!(self, cuMemUnmap(address, bytes))
    }

    /// Allocates device memory.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<CUdeviceptr, CallError> {
        let mut address = 0;
        call!(self, cuMemAlloc_v2(&raw mut address, bytes))?;
        Ok(address)
    }

    /// Frees device memory.
    pub(crate) fn free(&self, address: CUdeviceptr) -> Result<(), CallError> {
        call!(self, cuMemFree_v2(address))
    }

    /// Allocates pinned memory that the device can access. Returns its address.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<usize, CallError> {
        let mut address = ptr::null_mut::<c_void>();
        call!(self, cuMemHostAlloc(&raw mut address, bytes, DEVICE_MAP))?;
        Ok(address.expose_provenance())
    }

    /// Frees pinned memory.
    pub(crate) fn free_pinned(&self, address: usize) -> Result<(), CallError> {
        call!(self, cuMemFreeHost(ptr::with_exposed_provenance_mut(address)))
    }

    /// Registers a mapping for access by the device.
    pub(crate) fn register(&self, mapping: Mapping) -> Result<(), CallError> {
        let address = ptr::with_exposed_provenance_mut(mapping.address());
        call!(self, cuMemHostRegister_v2(address, mapping.bytes(), DEVICE_MAP))
    }

    /// Returns a new mapping that is registered.
    pub(crate) fn shared(&self, bytes: usize) -> Result<Mapping, CallError> {
        let mapping = Mapping::memfd(bytes, false)?;
        self.register(mapping)?;
        Ok(mapping)
    }

    /// Ends a registration.
    pub(crate) fn unregister(&self, mapping: Mapping) -> Result<(), CallError> {
        call!(self, cuMemHostUnregister(ptr::with_exposed_provenance_mut(mapping.address())))
    }

    /// Returns the address by which the device accesses registered memory.
    pub(crate) fn device_pointer(&self, mapping: Mapping) -> Result<CUdeviceptr, CallError> {
        let mut device = 0;
        let address = ptr::with_exposed_provenance_mut(mapping.address());
        call!(self, cuMemHostGetDevicePointer_v2(&raw mut device, address, 0))?;
        Ok(device)
    }

    /// Copies device memory to a mapping, in stream order.
    pub(crate) fn download(&self, to: Mapping, from: CUdeviceptr, stream: CUstream) -> Result<(), CallError> {
        let address = ptr::with_exposed_provenance_mut(to.address());
        call!(self, cuMemcpyDtoHAsync_v2(address, from, to.bytes(), stream))
    }

    /// Copies a mapping to device memory, in stream order.
    pub(crate) fn upload(&self, to: CUdeviceptr, from: Mapping, stream: CUstream) -> Result<(), CallError> {
        let address = ptr::with_exposed_provenance(from.address());
        call!(self, cuMemcpyHtoDAsync_v2(to, address, from.bytes(), stream))
    }

    /// Sets 32-bit words of device memory, in stream order.
    pub(crate) fn fill(
        &self,
        to: CUdeviceptr,
        value: u32,
        count: usize,
        stream: CUstream,
    ) -> Result<(), CallError> {
        call!(self, cuMemsetD32Async(to, value, count, stream))
    }
}
