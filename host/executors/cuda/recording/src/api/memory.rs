//! "Memory Management". Sources and destinations in host memory are never
//! looked at.

use std::ffi::{c_uchar, c_uint, c_ushort, c_void};

use vgpu_abi::CUresult;
use vgpu_abi::driver::arg::{In, Out};
use vgpu_abi::driver::{CUdeviceptr, CUstream, MEMORYTYPE_DEVICE, Memcpy3D, Side3D};

use crate::call::Call;
use crate::graph::{NodeKind, Side};
use crate::memory::Range;
use crate::raw::{Address, HostAddress};
use crate::rule::{Answer, Refusal, Rule};

fn device(address: Address, bytes: usize) -> Side {
    Side::Device(Range::new(address.0, bytes as u64))
}

fn host(address: HostAddress, bytes: usize) -> Side {
    Side::Host(Range::new(address.number(), bytes as u64))
}

/// A copy in a stream's order.
fn copy_async(call: &mut Call, stream: CUstream, sides: [Side; 2], flat: bool) -> Answer {
    let context = call.context()?;
    let lane = call.streams.lane(context, stream.0)?;
    call.copy(sides)?;
    call.submit(lane, NodeKind::Copy { sides, flat, context })
}

/// A side of a copy of rows: the bytes from its first to its last.
fn side(side: &Side3D, [width, height, depth]: [usize; 3]) -> Answer<Side> {
    let rows = (height.max(1) - 1) as u64 * side.pitch as u64;
    let slice = side.pitch as u64 * side.height as u64;
    let skipped = side.x as u64 + side.y as u64 * side.pitch as u64 + side.z as u64 * slice;
    let bytes = (depth.max(1) - 1) as u64 * slice + rows + width as u64;
    if width == 0 || height == 0 || depth == 0 {
        return Ok(Side::Device(Range::new(0, 0)));
    }
    if (height > 1 || depth > 1) && side.pitch < width + side.x {
        return Err(Rule::FillPitch.into());
    }
    let at = |start: u64| Range::new(start.wrapping_add(skipped), bytes);
    match side.memory_type {
        MEMORYTYPE_DEVICE => Ok(Side::Device(at(side.device))),
        _ => Err(Refusal::Expected(CUresult::NOT_SUPPORTED)),
    }
}

/// A fill: `element` bytes, `width` elements a row.
fn fill(
    call: &mut Call,
    to: Address,
    pitch: usize,
    element: usize,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Answer {
    let context = call.context()?;
    let lane = call.streams.lane(context, stream.0)?;
    if !(to.0 as usize).is_multiple_of(element) || (height > 1 && !pitch.is_multiple_of(element)) {
        return Err(Rule::FillAlignment.into());
    }
    let row = width.checked_mul(element).ok_or(Rule::OutOfRange)?;
    if height > 1 && pitch < row {
        return Err(Rule::FillPitch.into());
    }
    let bytes = if height == 0 || row == 0 { 0 } else { (height - 1) * pitch + row };
    let range = Range::new(to.0, bytes as u64);
    call.device_range(range, true)?;
    call.submit(lane, NodeKind::Fill { range, flat: height <= 1, context })
}

calls! {
    /// `cuMemAlloc_v2`
    pub fn cuMemAlloc_v2(address: Out<CUdeviceptr>, bytes: usize) |call| {
        let (context, address) = (call.context_unsafe()?, address.check()?);
        let device = call.contexts.get(context)?.device;
        let start = call.memory.allocate(device, context, bytes as u64)?;
        call.out("address", &Address(start));
        Ok(address.set(start)?)
    }

    /// `cuMemFree_v2`: waits for the work of the context, as implicit synchronization does.
    pub fn cuMemFree_v2(address: Address) |call| {
        let context = call.context_unsafe()?;
        if address.0 == 0 {
            return Ok(());
        }
        call.memory.starting(address.0)?;
        call.until(|machine| !machine.work.has_work(context));
        call.memory.free(address.0)?;
        call.fault_of(context)
    }

    /// `cuMemHostAlloc`
    pub fn cuMemHostAlloc(address: Out<*mut c_void>, bytes: usize, flags: c_uint) |call| {
        call.context_unsafe()?;
        let address = address.check()?;
        let start = call.host.allocate(bytes as u64, flags)?;
        call.out("address", &Address(start));
        Ok(address.set(std::ptr::with_exposed_provenance_mut(start as usize))?)
    }

    /// `cuMemFreeHost`
    pub fn cuMemFreeHost(address: HostAddress) |call| {
        call.context_unsafe()?;
        let range = call.host.allocation(address.number())?;
        if call.work.uses(range) {
            return Err(Rule::HostMemoryInUse.into());
        }
        call.host.remove(address.number());
        Ok(())
    }

    /// `cuMemHostRegister_v2`
    pub fn cuMemHostRegister_v2(address: HostAddress, bytes: usize, flags: c_uint) |call| {
        call.context_unsafe()?;
        if !call.options.host_register {
            return Err(Rule::RegisterUnsupported.into());
        }
        let own = !call.options.host_pointers;
        let range = Range::new(address.number(), bytes as u64);
        let machine = &mut **call;
        machine.host.register(&mut machine.memory, range, flags, own)?;
        call.out("registered", &address);
        Ok(())
    }

    /// `cuMemHostUnregister`
    pub fn cuMemHostUnregister(address: HostAddress) |call| {
        call.context_unsafe()?;
        let range = call.host.registration(address.number())?;
        if call.work.uses(range) {
            return Err(Rule::HostMemoryInUse.into());
        }
        call.host.remove(address.number());
        Ok(())
    }

    /// `cuMemHostGetDevicePointer_v2`
    pub fn cuMemHostGetDevicePointer_v2(
        device: Out<CUdeviceptr>, address: HostAddress, flags: c_uint,
    ) |call| {
        call.context()?;
        if flags != 0 {
            return Err(Rule::Argument.into());
        }
        let byte = Range::new(address.number(), 1);
        let block = call.host.find(byte).ok_or(Rule::NotMapped)?;
        Ok(device.set(block.device + (byte.start - block.range.start))?)
    }

    /// `cuMemcpyHtoDAsync_v2`
    pub fn cuMemcpyHtoDAsync_v2(to: Address, from: HostAddress, bytes: usize, stream: CUstream) |call| {
        copy_async(call, stream, [device(to, bytes), host(from, bytes)], true)
    }

    /// `cuMemcpyDtoHAsync_v2`
    pub fn cuMemcpyDtoHAsync_v2(to: HostAddress, from: Address, bytes: usize, stream: CUstream) |call| {
        copy_async(call, stream, [host(to, bytes), device(from, bytes)], true)
    }

    /// `cuMemcpyDtoDAsync_v2`
    pub fn cuMemcpyDtoDAsync_v2(to: Address, from: Address, bytes: usize, stream: CUstream) |call| {
        copy_async(call, stream, [device(to, bytes), device(from, bytes)], true)
    }

    /// `cuMemcpy3DAsync_v2`
    pub fn cuMemcpy3DAsync_v2(copy: In<Memcpy3D>, stream: CUstream) |call| {
        let copy = copy.get()?;
        let size = [copy.width, copy.height, copy.depth];
        let sides = [side(&copy.dst, size)?, side(&copy.src, size)?];
        copy_async(call, stream, sides, copy.height <= 1 && copy.depth <= 1)
    }

    /// `cuMemsetD8Async`
    pub fn cuMemsetD8Async(to: Address, value: c_uchar, count: usize, stream: CUstream) |call| {
        fill(call, to, 0, 1, count, 1, stream)
    }

    /// `cuMemsetD16Async`
    pub fn cuMemsetD16Async(to: Address, value: c_ushort, count: usize, stream: CUstream) |call| {
        fill(call, to, 0, 2, count, 1, stream)
    }

    /// `cuMemsetD32Async`
    pub fn cuMemsetD32Async(to: Address, value: c_uint, count: usize, stream: CUstream) |call| {
        fill(call, to, 0, 4, count, 1, stream)
    }

    /// `cuMemsetD2D8Async`
    pub fn cuMemsetD2D8Async(
        to: Address, pitch: usize, value: c_uchar, width: usize, height: usize, stream: CUstream,
    ) |call| {
        fill(call, to, pitch, 1, width, height, stream)
    }

    /// `cuMemsetD2D16Async`
    pub fn cuMemsetD2D16Async(
        to: Address, pitch: usize, value: c_ushort, width: usize, height: usize, stream: CUstream,
    ) |call| {
        fill(call, to, pitch, 2, width, height, stream)
    }

    /// `cuMemsetD2D32Async`
    pub fn cuMemsetD2D32Async(
        to: Address, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream,
    ) |call| {
        fill(call, to, pitch, 4, width, height, stream)
    }
}
