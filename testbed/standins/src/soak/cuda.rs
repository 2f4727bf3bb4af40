//! The part of CUDA's driver API that the soak uses, with the types of cuda.h.

use std::ffi::{CStr, c_int, c_uint, c_void};

use anyhow::Result;

use crate::driver::{Handle, done, functions};
use crate::mix::Mix;

/// Status `CUDA_ERROR_NOT_READY` of an unfinished stream or event.
const NOT_READY: c_int = 600;

functions! {
    alloc = "cuMemAlloc_v2"(*mut u64, usize);
    free = "cuMemFree_v2"(u64);
    to_device = "cuMemcpyHtoD_v2"(u64, *const c_void, usize);
    to_device_async = "cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, Handle);
    to_host = "cuMemcpyDtoH_v2"(*mut c_void, u64, usize);
    to_host_async = "cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, Handle);
    within = "cuMemcpyDtoDAsync_v2"(u64, u64, usize, Handle);
    set8 = "cuMemsetD8Async"(u64, u8, usize, Handle);
    set32 = "cuMemsetD32Async"(u64, c_uint, usize, Handle);
    load = "cuModuleLoadData"(*mut Handle, *const c_void);
    unload = "cuModuleUnload"(Handle);
    function = "cuModuleGetFunction"(*mut Handle, Handle, *const std::ffi::c_char);
    launch = "cuLaunchKernel"(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    stream_create = "cuStreamCreate"(*mut Handle, c_uint);
    stream_destroy = "cuStreamDestroy_v2"(Handle);
    stream_synchronize = "cuStreamSynchronize"(Handle);
    stream_wait = "cuStreamWaitEvent"(Handle, Handle, c_uint);
    event_create = "cuEventCreate"(*mut Handle, c_uint);
    event_destroy = "cuEventDestroy_v2"(Handle);
    event_record = "cuEventRecord"(Handle, Handle);
    event_query = "cuEventQuery"(Handle);
    event_synchronize = "cuEventSynchronize"(Handle);
}

impl Cuda {
    /// Allocates device memory and returns its address.
    pub fn alloc(&self, bytes: usize) -> Result<u64> {
        let mut address = 0;
        // SAFETY: a live place for the address.
        done("cuMemAlloc", unsafe { (self.alloc)(&raw mut address, bytes) })?;
        Ok(address)
    }

    /// Frees device memory.
    pub fn free(&self, address: u64) -> Result<()> {
        // SAFETY: any number may be asked for.
        done("cuMemFree", unsafe { (self.free)(address) })
    }

    /// Copies from host to device, in order on `stream` if one is given.
    pub fn to_device(&self, to: u64, from: &[u8], stream: Option<Handle>) -> Result<()> {
        let (start, bytes) = (from.as_ptr().cast(), from.len());
        match stream {
            // SAFETY: the source is a slice; the library checks the rest.
            None => done("cuMemcpyHtoD", unsafe { (self.to_device)(to, start, bytes) }),
            Some(stream) => {
                // SAFETY: the same; pageable memory has been read when this returns.
                let status = unsafe { (self.to_device_async)(to, start, bytes, stream) };
                done("cuMemcpyHtoDAsync", status)
            }
        }
    }

    /// Copies from device to host. The bytes have arrived when this returns.
    pub fn to_host(&self, to: &mut [u8], from: u64, stream: Option<Handle>) -> Result<()> {
        let (start, bytes) = (to.as_mut_ptr().cast(), to.len());
        match stream {
            // SAFETY: the destination is a slice; the library checks the rest.
            None => done("cuMemcpyDtoH", unsafe { (self.to_host)(start, from, bytes) }),
            Some(stream) => {
                // SAFETY: the same; it is waited for before the slice is used again.
                let status = unsafe { (self.to_host_async)(start, from, bytes, stream) };
                done("cuMemcpyDtoHAsync", status)?;
                self.synchronize(stream)
            }
        }
    }

    /// Copies within device memory, in order on `stream`.
    pub fn within(&self, to: u64, from: u64, bytes: usize, stream: Handle) -> Result<()> {
        // SAFETY: addresses and handles are numbers, which the library checks.
        done("cuMemcpyDtoDAsync", unsafe { (self.within)(to, from, bytes, stream) })
    }

    /// Fills device memory with copies of a byte.
    pub fn set8(&self, to: u64, value: u8, count: usize, stream: Handle) -> Result<()> {
        // SAFETY: addresses and handles are numbers, which the library checks.
        done("cuMemsetD8Async", unsafe { (self.set8)(to, value, count, stream) })
    }

    /// Fills device memory with copies of a word.
    pub fn set32(&self, to: u64, value: u32, count: usize, stream: Handle) -> Result<()> {
        // SAFETY: addresses and handles are numbers, which the library checks.
        done("cuMemsetD32Async", unsafe { (self.set32)(to, value, count, stream) })
    }

    /// Loads PTX and looks a kernel up. Returns the module and the function.
    pub fn load(&self, ptx: &CStr, name: &CStr) -> Result<(Handle, Handle)> {
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a live place for the module; the text ends with a zero.
        done("cuModuleLoadData", unsafe { (self.load)(&raw mut module, ptx.as_ptr().cast()) })?;
        // SAFETY: a live place for the function; the name ends with a zero.
        let status = unsafe { (self.function)(&raw mut function, module, name.as_ptr()) };
        done("cuModuleGetFunction", status)?;
        Ok((module, function))
    }

    /// Unloads a module, which must not be used afterwards.
    pub fn unload(&self, module: Handle) -> Result<()> {
        // SAFETY: the module that was loaded, which is used no more.
        done("cuModuleUnload", unsafe { (self.unload)(module) })
    }

    /// Launches the kernel of [`crate::mix`] on the words at `address`.
    pub fn launch(
        &self,
        function: Handle,
        [blocks, threads]: [u32; 2],
        mut address: u64,
        Mix { mut words, mut a, mut b, mut steps }: Mix,
        stream: Handle,
    ) -> Result<()> {
        let mut parameters: [*mut c_void; 5] = [
            (&raw mut address).cast(),
            (&raw mut words).cast(),
            (&raw mut a).cast(),
            (&raw mut b).cast(),
            (&raw mut steps).cast(),
        ];
        let none = std::ptr::null_mut();
        // SAFETY: as many parameters as the kernel has, of its types, which live until the call returns.
        let status = unsafe {
            (self.launch)(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters.as_mut_ptr(), none)
        };
        done("cuLaunchKernel", status)
    }

    /// Creates a stream that is not ordered after the default stream.
    pub fn stream(&self) -> Result<Handle> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: a live place for the handle.
        done("cuStreamCreate", unsafe { (self.stream_create)(&raw mut stream, 1) })?;
        Ok(stream)
    }

    /// Destroys a stream, which must not be used afterwards.
    pub fn end_stream(&self, stream: Handle) -> Result<()> {
        // SAFETY: a stream that was created, which is used no more.
        done("cuStreamDestroy", unsafe { (self.stream_destroy)(stream) })
    }

    /// Waits until all work of a stream has completed.
    pub fn synchronize(&self, stream: Handle) -> Result<()> {
        // SAFETY: handles are numbers, which the library checks.
        done("cuStreamSynchronize", unsafe { (self.stream_synchronize)(stream) })
    }

    /// Orders later work of `after` behind the current work of `before`. Without `after`, this thread waits
    /// for that work.
    pub fn order(&self, before: Handle, after: Option<Handle>, ask_first: bool) -> Result<()> {
        let mut event = std::ptr::null_mut();
        // SAFETY: a live place for the handle.
        done("cuEventCreate", unsafe { (self.event_create)(&raw mut event, 2) })?;
        // SAFETY: handles are numbers, which the library checks.
        done("cuEventRecord", unsafe { (self.event_record)(event, before) })?;
        if ask_first {
            // SAFETY: the event was just made.
            match unsafe { (self.event_query)(event) } {
                NOT_READY => {}
                status => done("cuEventQuery", status)?,
            }
        }
        match after {
            // SAFETY: as above.
            Some(after) => done("cuStreamWaitEvent", unsafe { (self.stream_wait)(after, event, 0) })?,
            // SAFETY: as above.
            None => done("cuEventSynchronize", unsafe { (self.event_synchronize)(event) })?,
        }
        // SAFETY: the event was just made, and is used no more.
        done("cuEventDestroy", unsafe { (self.event_destroy)(event) })
    }
}
