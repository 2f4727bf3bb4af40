//! "Virtual Memory Management": physical memory, address ranges, and mappings of the one at the other. Only where the
//! device's attribute 102 says so. Physical memory and mappings are counted here, and handed to no other process.

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_ulonglong, c_void};
use std::ptr;

use vgpu_abi::driver::{
    CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation,
    MEM_ALLOCATION_PINNED, MEM_LOCATION_DEVICE, attribute,
};
use vgpu_abi::{CUresult, export};
use vgpu_wire::body::memory::{
    Address, MemCreate, MemMap, MemRelease, MemReserve, MemSetAccess, MemUnmap, MemUnreserve,
};

use crate::arg::{In, Out};
use crate::context::device;
use crate::gpu::{Gpu, Minted};
use crate::mapping::Mapping;
use crate::memory::{Range, Source, find_any, with_second_try};
use crate::sync::Mutex;
use crate::{Result, capture, context, life};

/// Physical memory.
struct Physical {
    gpu: &'static Gpu,
    /// Its number on the wire.
    number: u32,
    bytes: u64,
    /// How often it was created or retained and not yet released.
    handles: u32,
    /// How often it is mapped.
    mappings: u32,
}

/// Physical memory by handle. Handles are never used again.
struct Table {
    newest: u64,
    physical: BTreeMap<u64, Physical>,
}

/// What is mapped ([`Gpu::memory`]) changes under this lock alone.
static TABLE: Mutex<Table> = Mutex::new(Table { newest: 0, physical: BTreeMap::new() });

impl Table {
    fn get(&mut self, handle: u64) -> Result<&mut Physical> {
        self.physical.get_mut(&handle).ok_or(CUresult::INVALID_VALUE)
    }

    /// Gives physical memory back that has neither handles nor mappings any more. The host is told only then, since
    /// `cuMemRetainAllocationHandle` makes a handle of a mapping.
    fn end_unused(&mut self, handle: u64) -> Result {
        let Some(memory) = self.physical.get(&handle) else { return Ok(()) };
        if memory.handles != 0 || memory.mappings != 0 {
            return Ok(());
        }
        let (gpu, number) = (memory.gpu, memory.number);
        self.physical.remove(&handle);
        gpu.send(&MemRelease { handle: number, reserved: 0 }, &[]).map(drop)
    }
}

fn supported(gpu: &'static Gpu) -> Result<&'static Gpu> {
    if gpu.attribute(attribute::VIRTUAL_MEMORY_MANAGEMENT) == 0 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    Ok(gpu)
}

fn at(location: CUmemLocation) -> Result<&'static Gpu> {
    if location.kind != MEM_LOCATION_DEVICE {
        return Err(CUresult::NOT_SUPPORTED);
    }
    supported(device(location.id)?)
}

fn of(prop: In<CUmemAllocationProp>) -> Result<&'static Gpu> {
    let prop = prop.get()?;
    if prop.kind != MEM_ALLOCATION_PINNED {
        return Err(CUresult::INVALID_VALUE);
    }
    if prop.handle_types != 0 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    at(prop.location)
}

fn granularity(gpu: &Gpu) -> usize {
    gpu.shown.facts.granularity.max(1) as usize
}

fn whole(gpu: &Gpu, bytes: usize) -> Result {
    if bytes == 0 || !bytes.is_multiple_of(granularity(gpu)) { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
}

/// The device of a reserved range that holds `bytes` from `address`, which is a whole number of granules into it.
fn reserved(address: u64, bytes: usize) -> Result<&'static Gpu> {
    let (gpu, range) = find_any(address)?.ok_or(CUresult::INVALID_VALUE)?;
    let inside = range.source == Source::Reservation && gpu.memory.holds(address, bytes as u64);
    if !inside || !(address - range.start).is_multiple_of(granularity(gpu) as u64) {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(gpu)
}

/// The device of an address and what is mapped there.
fn mapped(address: u64) -> Result<(&'static Gpu, Mapping)> {
    let (gpu, _) = find_any(address)?.ok_or(CUresult::INVALID_VALUE)?;
    let mapping = gpu.memory.mappings().find(address).ok_or(CUresult::INVALID_VALUE)?;
    Ok((gpu, mapping))
}

export! {
    /// `cuMemGetAllocationGranularity`: the least and the recommended are the same.
    pub fn cuMemGetAllocationGranularity(
        bytes: Out<usize>, prop: In<CUmemAllocationProp>, option: c_uint,
    ) -> CUresult {
        life::devices()?;
        let out = bytes.check()?;
        if option > 1 {
            return Err(CUresult::INVALID_VALUE);
        }
        out.set(granularity(of(prop)?))
    }

    /// `cuMemCreate`
    pub fn cuMemCreate(
        handle: Out<CUmemGenericAllocationHandle>, bytes: usize, prop: In<CUmemAllocationProp>, flags: c_ulonglong,
    ) -> CUresult {
        life::devices()?;
        let out = handle.check()?;
        capture::forbid_unsafe()?;
        let gpu = of(prop)?;
        whole(gpu, bytes)?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        gpu.late()?;
        let number = gpu.mint(Minted::Physical);
        let message = MemCreate { reply: 0, handle: number, bytes: bytes as u64 };
        with_second_try(gpu, || gpu.call(message, &[], &mut []))?;
        let mut table = TABLE.lock();
        table.newest += 1;
        let handle = table.newest;
        let memory = Physical { gpu, number, bytes: bytes as u64, handles: 1, mappings: 0 };
        table.physical.insert(handle, memory);
        out.set(handle)
    }

    /// `cuMemRelease`: the memory ends with its last handle and its last mapping.
    pub fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> CUresult {
        life::devices()?;
        let mut table = TABLE.lock();
        let memory = table.get(handle)?;
        memory.handles = memory.handles.checked_sub(1).ok_or(CUresult::INVALID_VALUE)?;
        table.end_unused(handle)
    }

    /// `cuMemRetainAllocationHandle`: the handle that is mapped at an address, to be released once more.
    pub fn cuMemRetainAllocationHandle(
        handle: Out<CUmemGenericAllocationHandle>, address: *mut c_void,
    ) -> CUresult {
        life::devices()?;
        let out = handle.check()?;
        let mut table = TABLE.lock();
        let (_, mapping) = mapped(address as u64)?;
        table.get(mapping.physical)?.handles += 1;
        out.set(mapping.physical)
    }

    /// `cuMemGetAllocationPropertiesFromHandle`
    pub fn cuMemGetAllocationPropertiesFromHandle(
        prop: Out<CUmemAllocationProp>, handle: CUmemGenericAllocationHandle,
    ) -> CUresult {
        life::devices()?;
        let out = prop.check()?;
        let mut table = TABLE.lock();
        let memory = table.get(handle)?;
        let location = CUmemLocation { kind: MEM_LOCATION_DEVICE, id: memory.gpu.ordinal() };
        out.set(CUmemAllocationProp {
            kind: MEM_ALLOCATION_PINNED,
            handle_types: 0,
            location,
            win32: ptr::null_mut(),
            flags: [0; 8],
        })
    }

    /// `cuMemAddressReserve`: in the address space of the current context's device, or of the first one.
    pub fn cuMemAddressReserve(
        address: Out<CUdeviceptr>, bytes: usize, alignment: usize, wish: CUdeviceptr, flags: c_ulonglong,
    ) -> CUresult {
        let devices = life::devices()?;
        let out = address.check()?;
        let context = context::current();
        let gpu = match &context {
            Ok(context) => context.gpu(),
            Err(_) => devices.first().ok_or(CUresult::NO_DEVICE)?,
        };
        let gpu = supported(gpu)?;
        whole(gpu, bytes)?;
        if flags != 0 || (alignment != 0 && !alignment.is_power_of_two()) {
            return Err(CUresult::INVALID_VALUE);
        }
        gpu.late()?;
        let message =
            MemReserve { reply: 0, reserved: 0, bytes: bytes as u64, alignment: alignment as u64, hint: wish };
        let Address { address } = gpu.ask(message, &[])?;
        gpu.memory.add(address, bytes as u64, Source::Reservation, context.map_or(0, context::Context::handle));
        out.set(address)
    }

    /// `cuMemAddressFree`: of a whole range, in which nothing is mapped.
    pub fn cuMemAddressFree(address: CUdeviceptr, bytes: usize) -> CUresult {
        let gpu = reserved(address, bytes)?;
        let bytes = bytes as u64;
        let _table = TABLE.lock();
        let whole = |range: &Range| range.source == Source::Reservation && range.bytes == bytes;
        if !gpu.memory.mappings().is_free(address, bytes) {
            return Err(CUresult::INVALID_VALUE);
        }
        gpu.memory.take(address, whole).ok_or(CUresult::INVALID_VALUE)?;
        gpu.send(&MemUnreserve { address, bytes }, &[]).map(drop)
    }

    /// `cuMemMap`: from the beginning of the physical memory, CUDA knows no other offset yet.
    pub fn cuMemMap(
        address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong,
    ) -> CUresult {
        life::devices()?;
        let mut table = TABLE.lock();
        let memory = table.get(handle)?;
        let gpu = reserved(address, bytes)?;
        whole(gpu, bytes)?;
        let bytes = bytes as u64;
        if flags != 0 || offset != 0 || bytes > memory.bytes || memory.handles == 0 || !ptr::eq(gpu, memory.gpu) {
            return Err(CUresult::INVALID_VALUE);
        }
        gpu.late()?;
        let mut mappings = gpu.memory.mappings_mut();
        if !mappings.is_free(address, bytes) {
            return Err(CUresult::INVALID_VALUE);
        }
        gpu.send(&MemMap { handle: memory.number, reserved: 0, address, bytes, offset: 0 }, &[])?;
        mappings.add(address, bytes, handle);
        memory.mappings += 1;
        Ok(())
    }

    /// `cuMemUnmap`: of one whole mapping, or several neighbours. Orders all later work behind all earlier.
    pub fn cuMemUnmap(address: CUdeviceptr, bytes: usize) -> CUresult {
        let gpu = reserved(address, bytes)?;
        whole(gpu, bytes)?;
        gpu.late()?;
        let bytes = bytes as u64;
        let mut table = TABLE.lock();
        let unmapped = gpu.memory.mappings_mut().take(address, bytes).ok_or(CUresult::INVALID_VALUE)?;
        let sent = gpu.send(&MemUnmap { address, bytes }, &[]);
        for handle in unmapped {
            table.get(handle)?.mappings -= 1;
            table.end_unused(handle)?;
        }
        drop(table);
        sent?;
        gpu.settle()
    }

    /// `cuMemSetAccess`: for the device that the memory is on; another cannot reach it.
    pub fn cuMemSetAccess(
        address: CUdeviceptr, bytes: usize, rights: In<CUmemAccessDesc>, count: usize,
    ) -> CUresult {
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
        gpu.late()?;
        let bytes = bytes as u64;
        let _table = TABLE.lock();
        let mut mappings = gpu.memory.mappings_mut();
        for right in rights {
            let access = right.flags;
            if !mappings.set_access(address, bytes, access) {
                return Err(CUresult::INVALID_VALUE);
            }
            gpu.send(&MemSetAccess { address, bytes, access, reserved: 0 }, &[])?;
        }
        Ok(())
    }

    /// `cuMemGetAccess`: other devices have none.
    pub fn cuMemGetAccess(
        flags: Out<c_ulonglong>, location: In<CUmemLocation>, address: CUdeviceptr,
    ) -> CUresult {
        life::devices()?;
        let out = flags.check()?;
        let asked = at(location.get()?)?;
        let (gpu, mapping) = mapped(address)?;
        out.set(if ptr::eq(asked, gpu) { u64::from(mapping.access) } else { 0 })
    }
}
