//! "Virtual Memory Management": physical memory, address ranges, and mappings of the one at the other. Only where the
//! device's attribute 102 says so.

use std::ffi::{c_uint, c_ulonglong};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

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
use crate::memory::{Source, find_any, with_second_try};
use crate::slab::Slab;
use crate::{Result, capture, context, life};

/// Physical memory.
#[derive(Default)]
struct Physical {
    gpu: AtomicPtr<Gpu>,
    number: AtomicU32,
    bytes: AtomicU64,
}

static PHYSICAL: Slab<Physical> = Slab::new(7);

impl Physical {
    fn gpu(&self) -> &'static Gpu {
        // SAFETY: `cuMemCreate` stored the address of a leaked value before the handle meant anything.
        unsafe { &*self.gpu.load(Ordering::Relaxed) }
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
        let (handle, _) = PHYSICAL
            .insert(|_, memory| {
                memory.gpu.store(ptr::from_ref(gpu).cast_mut(), Ordering::Relaxed);
                memory.number.store(number, Ordering::Relaxed);
                memory.bytes.store(bytes as u64, Ordering::Relaxed);
            })
            .ok_or(CUresult::OUT_OF_MEMORY)?;
        out.set(handle as u64)
    }

    /// `cuMemRelease`: the memory ends with its last mapping.
    pub fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> CUresult {
        life::devices()?;
        let sent = PHYSICAL.remove(handle as usize, |memory| {
            let handle = memory.number.load(Ordering::Relaxed);
            memory.gpu().send(&MemRelease { handle, reserved: 0 }, &[])
        });
        sent.ok_or(CUresult::INVALID_VALUE)?.map(drop)
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

    /// `cuMemAddressFree`
    pub fn cuMemAddressFree(address: CUdeviceptr, bytes: usize) -> CUresult {
        let gpu = reserved(address, bytes)?;
        let bytes = bytes as u64;
        gpu.memory
            .take(address, |range| range.source == Source::Reservation && range.bytes == bytes)
            .ok_or(CUresult::INVALID_VALUE)?;
        gpu.send(&MemUnreserve { address, bytes }, &[]).map(drop)
    }

    /// `cuMemMap`
    pub fn cuMemMap(
        address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong,
    ) -> CUresult {
        life::devices()?;
        let memory = PHYSICAL.get(handle as usize).ok_or(CUresult::INVALID_VALUE)?;
        let gpu = reserved(address, bytes)?;
        whole(gpu, bytes)?;
        let end = (offset as u64).checked_add(bytes as u64).ok_or(CUresult::INVALID_VALUE)?;
        let size = memory.bytes.load(Ordering::Relaxed);
        if flags != 0 || end > size || !offset.is_multiple_of(granularity(gpu)) || !ptr::eq(gpu, memory.gpu()) {
            return Err(CUresult::INVALID_VALUE);
        }
        gpu.late()?;
        let handle = memory.number.load(Ordering::Relaxed);
        let (bytes, offset) = (bytes as u64, offset as u64);
        gpu.send(&MemMap { handle, reserved: 0, address, bytes, offset }, &[]).map(drop)
    }

    /// `cuMemUnmap`: orders all later work behind all earlier.
    pub fn cuMemUnmap(address: CUdeviceptr, bytes: usize) -> CUresult {
        let gpu = reserved(address, bytes)?;
        whole(gpu, bytes)?;
        gpu.late()?;
        gpu.send(&MemUnmap { address, bytes: bytes as u64 }, &[])?;
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
        for right in rights {
            let message = MemSetAccess { address, bytes: bytes as u64, access: right.flags, reserved: 0 };
            gpu.send(&message, &[])?;
        }
        Ok(())
    }
}
