//! Physical memory, reserved address ranges, and mappings of the former in the latter, which exist only where
//! the device's attribute 102 says so. Handles and mappings are counted here; no other process can have them.

use std::collections::BTreeMap;
use std::ptr;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{
    CUmemAccessDesc, CUmemAllocationProp, CUmemLocation, MEM_ALLOCATION_PINNED, attribute,
};
use vgpu_wire::body::memory::{
    Address, MemCreate, MemMap, MemRelease, MemReserve, MemSetAccess, MemUnmap, MemUnreserve,
};

use crate::Result;
use crate::arg::In;
use crate::object::address;
use crate::object::allocation::with_second_try;
use crate::object::gpu::Gpu;
use crate::object::mapping::Mapping;
use crate::object::memory::{Range, Source};
use crate::queue::submission::Minted;
use crate::sync::Mutex;

/// The record behind a `CUmemGenericAllocationHandle`.
struct Physical {
    gpu: &'static Gpu,
    /// Number of the physical memory in messages.
    number: u32,
    bytes: u64,
    /// Number of handles that were created or retained and not yet released.
    handles: u32,
    /// Number of mappings of the memory.
    mappings: u32,
}

/// Physical memory by handle. Handles are never used again.
struct PhysicalTable {
    newest: u64,
    physical: BTreeMap<u64, Physical>,
}

/// The mappings of all devices ([`Gpu::memory`]) change only while this lock is held.
static TABLE: Mutex<PhysicalTable> = Mutex::new(PhysicalTable { newest: 0, physical: BTreeMap::new() });

impl PhysicalTable {
    fn get(&mut self, handle: u64) -> Result<&mut Physical> {
        self.physical.get_mut(&handle).ok_or(CUresult::INVALID_VALUE)
    }

    /// Frees physical memory without handles and mappings. The host is told only then, since
    /// `cuMemRetainAllocationHandle` creates a handle from a mapping.
    fn end_unused(&mut self, handle: u64) -> Result {
        let Some(memory) = self.physical.get(&handle) else { return Ok(()) };
        if memory.handles != 0 || memory.mappings != 0 {
            return Ok(());
        }
        let (gpu, number) = (memory.gpu, memory.number);
        self.physical.remove(&handle);
        gpu.queue.send(&MemRelease { handle: number, reserved: 0 }, &[]).map(drop)
    }
}

/// Returns the device if it supports virtual memory management.
pub fn supported(gpu: &'static Gpu) -> Result<&'static Gpu> {
    if gpu.attribute(attribute::VIRTUAL_MEMORY_MANAGEMENT) == 0 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    Ok(gpu)
}

/// Returns the device of a location.
pub fn at(location: CUmemLocation) -> Result<&'static Gpu> {
    supported(address::at(location)?)
}

/// Returns the device that allocates physical memory with these properties.
pub fn gpu_of(prop: CUmemAllocationProp) -> Result<&'static Gpu> {
    if prop.kind != MEM_ALLOCATION_PINNED {
        return Err(CUresult::INVALID_VALUE);
    }
    if prop.handle_types != 0 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    at(prop.location)
}

/// Returns the granularity in bytes. Sizes and addresses of mappings are multiples of it.
pub fn granularity(gpu: &Gpu) -> usize {
    gpu.shown.facts.granularity.max(1) as usize
}

/// Checks that a size is a multiple of the granularity.
pub fn whole(gpu: &Gpu, bytes: usize) -> Result {
    if bytes == 0 || !bytes.is_multiple_of(granularity(gpu)) { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
}

/// Returns the device of a reserved range that contains `bytes` bytes from `address`, which must be at a
/// multiple of the granularity.
fn reserved(address: u64, bytes: usize) -> Result<&'static Gpu> {
    let (gpu, range) = address::find(address)?.ok_or(CUresult::INVALID_VALUE)?;
    let inside = range.source == Source::Reservation && gpu.memory.holds(address, bytes as u64);
    if !inside || !(address - range.start).is_multiple_of(granularity(gpu) as u64) {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(gpu)
}

/// Returns the device of an address, and the mapping that contains it.
pub fn mapped(address: u64) -> Result<(&'static Gpu, Mapping)> {
    let (gpu, _) = address::find(address)?.ok_or(CUresult::INVALID_VALUE)?;
    let mapping = gpu.memory.mappings().find(address).ok_or(CUresult::INVALID_VALUE)?;
    Ok((gpu, mapping))
}

/// Creates physical memory with one handle, which it returns.
pub fn create(gpu: &'static Gpu, bytes: usize) -> Result<u64> {
    gpu.queue.async_error()?;
    let number = gpu.queue.mint(Minted::Physical);
    let message = MemCreate { reply: 0, handle: number, bytes: bytes as u64 };
    with_second_try(gpu, || gpu.queue.call(message, &[], &mut []))?;
    let mut table = TABLE.lock();
    table.newest += 1;
    let handle = table.newest;
    let memory = Physical { gpu, number, bytes: bytes as u64, handles: 1, mappings: 0 };
    table.physical.insert(handle, memory);
    Ok(handle)
}

/// Releases one handle. The memory is freed with its last handle and its last mapping.
pub fn release(handle: u64) -> Result {
    let mut table = TABLE.lock();
    let memory = table.get(handle)?;
    memory.handles = memory.handles.checked_sub(1).ok_or(CUresult::INVALID_VALUE)?;
    table.end_unused(handle)
}

/// Returns a retained handle of the physical memory mapped at an address.
pub fn retain(address: u64) -> Result<u64> {
    let mut table = TABLE.lock();
    let (_, mapping) = mapped(address)?;
    table.get(mapping.physical)?.handles += 1;
    Ok(mapping.physical)
}

/// Returns the device of physical memory.
pub fn device_of(handle: u64) -> Result<&'static Gpu> {
    Ok(TABLE.lock().get(handle)?.gpu)
}

/// Reserves an address range for a context, or for none if `context` is 0. `wish` is the preferred start,
/// which the host may ignore.
pub fn reserve(gpu: &Gpu, context: usize, bytes: usize, alignment: usize, wish: u64) -> Result<u64> {
    gpu.queue.async_error()?;
    let (bytes, alignment) = (bytes as u64, alignment as u64);
    let message = MemReserve { reply: 0, reserved: 0, bytes, alignment, hint: wish };
    let Address { address } = gpu.queue.ask(message, &[])?;
    gpu.add_memory(address, bytes, Source::Reservation, context)?;
    Ok(address)
}

/// Frees a whole reserved range in which nothing is mapped.
pub fn unreserve(address: u64, bytes: usize) -> Result {
    let gpu = reserved(address, bytes)?;
    let bytes = bytes as u64;
    let _table = TABLE.lock();
    let whole = |range: &Range| range.source == Source::Reservation && range.bytes == bytes;
    if !gpu.memory.mappings().is_free(address, bytes) {
        return Err(CUresult::INVALID_VALUE);
    }
    gpu.memory.remove(address, whole).ok_or(CUresult::INVALID_VALUE)?;
    gpu.queue.send(&MemUnreserve { address, bytes }, &[]).map(drop)
}

/// Maps physical memory, from its start, at a reserved address. `plain` says that neither flags nor an offset
/// were given; CUDA defines none.
pub fn map(address: u64, bytes: usize, handle: u64, plain: bool) -> Result {
    let mut table = TABLE.lock();
    let memory = table.get(handle)?;
    let gpu = reserved(address, bytes)?;
    whole(gpu, bytes)?;
    let bytes = bytes as u64;
    if !plain || bytes > memory.bytes || memory.handles == 0 || !ptr::eq(gpu, memory.gpu) {
        return Err(CUresult::INVALID_VALUE);
    }
    gpu.queue.async_error()?;
    let mut mappings = gpu.memory.mappings_mut();
    if !mappings.is_free(address, bytes) {
        return Err(CUresult::INVALID_VALUE);
    }
    gpu.queue.send(&MemMap { handle: memory.number, reserved: 0, address, bytes, offset: 0 }, &[])?;
    mappings.add(address, bytes, handle);
    memory.mappings += 1;
    Ok(())
}

/// Unmaps the mappings that make up a range. Orders all later work after all earlier work, and waits while
/// the host uses pinned memory.
pub fn unmap(address: u64, bytes: usize) -> Result {
    let gpu = reserved(address, bytes)?;
    whole(gpu, bytes)?;
    gpu.queue.async_error()?;
    let bytes = bytes as u64;
    let mut table = TABLE.lock();
    let unmapped = gpu.memory.mappings_mut().unmap(address, bytes).ok_or(CUresult::INVALID_VALUE)?;
    let sent = gpu.queue.send(&MemUnmap { address, bytes }, &[]);
    for handle in unmapped {
        table.get(handle)?.mappings -= 1;
        table.end_unused(handle)?;
    }
    drop(table);
    sent?;
    gpu.quiesce_pinned()
}

/// Sets access rights of whole mappings for the memory's own device. Other devices cannot access it.
pub fn set_access(address: u64, bytes: usize, rights: In<CUmemAccessDesc>, count: usize) -> Result {
    let gpu = reserved(address, bytes)?;
    whole(gpu, bytes)?;
    let rights = rights.slice(count)?;
    if rights.is_empty() {
        return Err(CUresult::INVALID_VALUE);
    }
    for right in rights {
        if !ptr::eq(at(right.location)?, gpu) {
            return Err(CUresult::NOT_SUPPORTED);
        }
        if !matches!(right.flags, 0 | 1 | 3) {
            return Err(CUresult::INVALID_VALUE);
        }
    }
    gpu.queue.async_error()?;
    let bytes = bytes as u64;
    let _table = TABLE.lock();
    let mut mappings = gpu.memory.mappings_mut();
    for right in rights {
        let access = right.flags;
        if !mappings.set_access(address, bytes, access) {
            return Err(CUresult::INVALID_VALUE);
        }
        gpu.queue.send(&MemSetAccess { address, bytes, access, reserved: 0 }, &[])?;
    }
    Ok(())
}
