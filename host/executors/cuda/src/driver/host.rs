//! Host memory that the GPU can access: registered memory of the guest, and pinned buffers of the executor.
//!
//! A copy may use such memory after the call that enqueued it. Its pages are pinned, and the driver waits for
//! their users before it unregisters or frees them. The layers above keep the values until the work is
//! complete, so that the driver never has to wait.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vgpu_abi::driver::{HOST_ALLOC_DEVICE_MAP, HOST_ALLOC_PORTABLE};
use vgpu_device::{Grant, SharedSlice};

use super::context::DriverContext;
use super::error::{DriverError, check, log_failure};

/// The flags `CU_MEMHOSTREGISTER_PORTABLE` and `CU_MEMHOSTREGISTER_DEVICEMAP`.
const REGISTER: u32 = 1 | 2;

/// A part of memory that the GPU can access. It borrows the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPart<'a> {
    address: usize,
    bytes: usize,
    _of: PhantomData<&'a ()>,
}

impl HostPart<'_> {
    fn within(address: usize, whole: u64, offset: u64, bytes: u64) -> Option<Self> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= whole);
        inside.then(|| Self { address: address + offset as usize, bytes: bytes as usize, _of: PhantomData })
    }

    pub(super) fn pointer(&self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.address)
    }

    /// Returns the length in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Returns the address by which the GPU accesses host memory.
fn device_address(context: &DriverContext, part: HostPart<'_>) -> Result<u64, DriverError> {
    let mut address = 0;
    let get = context.table().cuMemHostGetDevicePointer_v2;
    // SAFETY: a live place for the answer, and memory that is registered or the driver's.
    check("cuMemHostGetDevicePointer_v2", unsafe { get(&raw mut address, part.pointer(), 0) })?;
    Ok(address)
}

/// Registered memory of the guest, unregistered when it is dropped.
#[derive(Debug)]
pub(crate) struct RegisteredMemory {
    context: Arc<DriverContext>,
    /// Grant of the memory, which keeps it mapped.
    grant: Grant,
    address: usize,
}

impl RegisteredMemory {
    /// Calls `cuMemHostRegister`.
    pub(crate) fn register(context: &Arc<DriverContext>, grant: Grant) -> Result<Self, DriverError> {
        let address = grant.address();
        let register = context.table().cuMemHostRegister_v2;
        let start = ptr::with_exposed_provenance_mut(address);
        // SAFETY: the memory stays mapped while the grant is held, which is until it is unregistered.
        check("cuMemHostRegister_v2", unsafe { register(start, grant.bytes() as usize, REGISTER) })?;
        Ok(Self { context: Arc::clone(context), grant, address })
    }

    /// Returns the start of the memory in this process, as in [`Grant::address`].
    pub(crate) const fn address(&self) -> usize {
        self.address
    }

    /// Returns a part of the memory, or `None` if the part exceeds it.
    pub(crate) fn part(&self, offset: u64, bytes: u64) -> Option<HostPart<'_>> {
        HostPart::within(self.address, self.grant.bytes(), offset, bytes)
    }

    /// Returns the GPU address of the 8 bytes at `offset`, or `None` if they exceed the memory.
    pub(crate) fn device_word(&self, offset: u64) -> Option<Result<HostWord<'_>, DriverError>> {
        let address = device_address(&self.context, self.part(offset, 8)?);
        Some(address.map(|address| HostWord { address, _of: PhantomData }))
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        let start = ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: the memory was registered once at this address, and is mapped until the grant is dropped.
        let code = unsafe { (self.context.table().cuMemHostUnregister)(start) };
        log_failure(check("cuMemHostUnregister", code));
    }
}

/// GPU address of a word in host memory that the GPU can access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostWord<'a> {
    address: u64,
    _of: PhantomData<&'a ()>,
}

impl HostWord<'_> {
    pub(super) const fn address(self) -> u64 {
        self.address
    }
}

/// Pinned memory of the executor, freed when it is dropped.
#[derive(Debug)]
pub(crate) struct Pinned {
    context: Arc<DriverContext>,
    address: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs to no thread, and is accessed only by volatile copies and atomics.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Calls `cuMemHostAlloc`. The content is arbitrary until it is written.
    pub(crate) fn allocate(context: &Arc<DriverContext>, bytes: usize) -> Result<Self, DriverError> {
        let mut address = ptr::null_mut();
        let allocate = context.table().cuMemHostAlloc;
        // SAFETY: a live place for the answer.
        let code = unsafe { allocate(&raw mut address, bytes, HOST_ALLOC_PORTABLE | HOST_ALLOC_DEVICE_MAP) };
        check("cuMemHostAlloc", code)?;
        Ok(Self { context: Arc::clone(context), address: address.cast(), bytes })
    }

    /// Returns a part of the memory, or `None` if the part exceeds it.
    pub(crate) fn part(&self, offset: u64, bytes: u64) -> Option<HostPart<'_>> {
        HostPart::within(self.address.expose_provenance(), self.bytes as u64, offset, bytes)
    }

    /// Returns the memory as a slice for copies. The GPU may write to it at the same time.
    pub(crate) fn slice(&self) -> SharedSlice<'_> {
        // SAFETY: the driver gave so many bytes, which stay until `self` is dropped.
        unsafe { SharedSlice::new(self.address, self.bytes) }
    }

    /// Stores the first 32 bits.
    pub(crate) fn store_word(&self, value: u32) {
        assert!(self.bytes >= size_of::<u32>(), "a buffer with a word");
        let word = ptr::with_exposed_provenance_mut(self.address.expose_provenance());
        // SAFETY: the driver allocates whole pages, so the word is aligned and within the allocation. It is
        // accessed only by atomics and the GPU.
        unsafe { AtomicU32::from_ptr(word) }.store(value, Ordering::Release);
    }

    /// Returns the GPU address of the first 32 bits.
    pub(crate) fn device_word(&self) -> Result<HostWord<'_>, DriverError> {
        let part = self.part(0, size_of::<u32>() as u64).expect("a buffer with a word");
        Ok(HostWord { address: device_address(&self.context, part)?, _of: PhantomData })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the driver allocated the memory, and this is its last use.
        let code = unsafe { (self.context.table().cuMemFreeHost)(self.address.cast()) };
        log_failure(check("cuMemFreeHost", code));
    }
}
