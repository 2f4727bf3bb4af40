//! Memory of the host that the GPU reaches: grants of the session's guest, registered, and buffers of the
//! executor's own.
//!
//! A copy that is under way uses such memory after the call that gave it. That is the driver's business as
//! long as the memory is registered or allocated: its pages are pinned, and giving them back waits for what
//! uses them. The layers above keep the values until the work is complete, so that nothing waits.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vgpu_abi::driver::{HOST_ALLOC_DEVICE_MAP, HOST_ALLOC_PORTABLE};
use vgpu_device::{Grant, SharedSlice};

use super::context::Context;
use super::error::{DriverError, check, tell};

/// `CU_MEMHOSTREGISTER_PORTABLE`, `CU_MEMHOSTREGISTER_DEVICEMAP`.
const REGISTER: u32 = 1 | 2;

/// A part of memory that the GPU reaches, while what it is a part of lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPart<'a> {
    address: usize,
    bytes: usize,
    _of: PhantomData<&'a ()>,
}

impl HostPart<'_> {
    fn of(address: usize, whole: u64, offset: u64, bytes: u64) -> Option<Self> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= whole);
        inside.then(|| Self { address: address + offset as usize, bytes: bytes as usize, _of: PhantomData })
    }

    pub(super) fn pointer(&self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.address)
    }

    /// Length in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The address by which the GPU reaches memory of the host.
fn device_address(context: &Context, part: HostPart<'_>) -> Result<u64, DriverError> {
    let mut address = 0;
    let get = context.table().cuMemHostGetDevicePointer_v2;
    // SAFETY: a live place for the answer, and memory that is registered or the driver's.
    check("cuMemHostGetDevicePointer_v2", unsafe { get(&raw mut address, part.pointer(), 0) })?;
    Ok(address)
}

/// A grant that is registered.
#[derive(Debug)]
pub(crate) struct Registered {
    context: Arc<Context>,
    /// Keeps the memory mapped.
    grant: Grant,
    address: usize,
}

impl Registered {
    /// `cuMemHostRegister`
    pub(crate) fn register(context: &Arc<Context>, grant: Grant) -> Result<Self, DriverError> {
        let address = grant.address();
        let register = context.table().cuMemHostRegister_v2;
        let start = ptr::with_exposed_provenance_mut(address);
        // SAFETY: the memory stays mapped while the grant is held, which is until it is unregistered.
        check("cuMemHostRegister_v2", unsafe { register(start, grant.bytes() as usize, REGISTER) })?;
        Ok(Self { context: Arc::clone(context), grant, address })
    }

    /// Where it starts in this process, as [`Grant::address`] has it.
    pub(crate) const fn address(&self) -> usize {
        self.address
    }

    /// A part of it, if it is one.
    pub(crate) fn part(&self, offset: u64, bytes: u64) -> Option<HostPart<'_>> {
        HostPart::of(self.address, self.grant.bytes(), offset, bytes)
    }

    /// The address by which the GPU reaches the 8 bytes at `offset`. `None`: they are not within the grant.
    pub(crate) fn device_word(&self, offset: u64) -> Option<Result<HostWord<'_>, DriverError>> {
        let address = device_address(&self.context, self.part(offset, 8)?);
        Some(address.map(|address| HostWord { address, _of: PhantomData }))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let start = ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: it was registered at this address, once, and is mapped until the grant is dropped.
        let code = unsafe { (self.context.table().cuMemHostUnregister)(start) };
        tell(check("cuMemHostUnregister", code));
    }
}

/// A word of the host by the address that the GPU has for it.
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

/// Pinned memory of the executor's own.
#[derive(Debug)]
pub(crate) struct Pinned {
    context: Arc<Context>,
    address: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs to no thread; it is reached by volatile copies and atomics alone.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// `cuMemHostAlloc`. What it holds is whatever was there: it is written before it is read.
    pub(crate) fn allocate(context: &Arc<Context>, bytes: usize) -> Result<Self, DriverError> {
        let mut address = ptr::null_mut();
        let allocate = context.table().cuMemHostAlloc;
        // SAFETY: a live place for the answer.
        let code = unsafe { allocate(&raw mut address, bytes, HOST_ALLOC_PORTABLE | HOST_ALLOC_DEVICE_MAP) };
        check("cuMemHostAlloc", code)?;
        Ok(Self { context: Arc::clone(context), address: address.cast(), bytes })
    }

    /// A part of it, if it is one.
    pub(crate) fn part(&self, offset: u64, bytes: u64) -> Option<HostPart<'_>> {
        HostPart::of(self.address.expose_provenance(), self.bytes as u64, offset, bytes)
    }

    /// The memory, to copy from and to. A GPU may be writing to it.
    pub(crate) fn slice(&self) -> SharedSlice<'_> {
        // SAFETY: the driver gave so many bytes, which stay until `self` is dropped.
        unsafe { SharedSlice::new(self.address, self.bytes) }
    }

    /// Stores a 32-bit word.
    pub(crate) fn store(&self, index: usize, value: u32) {
        assert!(index < self.bytes / 4, "a word of the buffer");
        // SAFETY: within the allocation, as was just looked at.
        let word = unsafe { self.address.add(4 * index) };
        // SAFETY: aligned, for the driver allocates whole pages, alive, and only reached by atomics and the
        // GPU.
        let word = unsafe { AtomicU32::from_ptr(ptr::with_exposed_provenance_mut(word.expose_provenance())) };
        word.store(value, Ordering::Release);
    }

    /// The 32-bit word by the address that the GPU has for it.
    pub(crate) fn device_word(&self, index: usize) -> Option<Result<HostWord<'_>, DriverError>> {
        let address = device_address(&self.context, self.part(4 * index as u64, 4)?);
        Some(address.map(|address| HostWord { address, _of: PhantomData }))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the driver gave the memory, and this is its last use.
        let code = unsafe { (self.context.table().cuMemFreeHost)(self.address.cast()) };
        tell(check("cuMemFreeHost", code));
    }
}
