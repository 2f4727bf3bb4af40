//! Exports of the manual's chapter "Memory Management". Host memory that a copy names is never accessed.

use std::ffi::{c_uchar, c_uint, c_ushort, c_void};

use vgpu_abi::CUresult;
use vgpu_abi::driver::arg::{In, Out};
use vgpu_abi::driver::{CUdeviceptr, CUstream, MEMORYTYPE_DEVICE, Memcpy3D, Side3D};

use crate::call::ApiCall;
use crate::graph::{CopySide, NodeKind};
use crate::memory::{AddressRange, TOTAL_BYTES};
use crate::raw::{DeviceAddress, HostAddress};
use crate::rule::{CallRefusal, CallResult, Rule};
use crate::system;

fn device(address: DeviceAddress, bytes: usize) -> CopySide {
    CopySide::Device(AddressRange::new(address.0, bytes as u64))
}

fn host(address: HostAddress, bytes: usize) -> CopySide {
    CopySide::Host(AddressRange::new(address.number(), bytes as u64))
}

/// Checks a copy and enqueues it.
fn copy_async(call: &mut ApiCall, stream: CUstream, sides: [CopySide; 2], flat: bool) -> CallResult {
    let context = call.context()?;
    let lane = call.streams.lane(context, stream.0)?;
    call.copy(sides)?;
    call.submit(lane, NodeKind::Copy { sides, flat, context })
}

/// Returns one side of a copy of rows: the range from its first byte to its last.
fn side(side: &Side3D, [width, height, depth]: [usize; 3]) -> CallResult<CopySide> {
    let rows = (height.max(1) - 1) as u64 * side.pitch as u64;
    let slice = side.pitch as u64 * side.height as u64;
    let skipped = side.x as u64 + side.y as u64 * side.pitch as u64 + side.z as u64 * slice;
    let bytes = (depth.max(1) - 1) as u64 * slice + rows + width as u64;
    if width == 0 || height == 0 || depth == 0 {
        return Ok(CopySide::Device(AddressRange::new(0, 0)));
    }
    if (height > 1 || depth > 1) && side.pitch < width + side.x {
        return Err(Rule::FillPitch.into());
    }
    let at = |start: u64| AddressRange::new(start.wrapping_add(skipped), bytes);
    match side.memory_type {
        MEMORYTYPE_DEVICE => Ok(CopySide::Device(at(side.device))),
        _ => Err(CallRefusal::Expected(CUresult::NOT_SUPPORTED)),
    }
}

/// Checks a fill and enqueues it. A row has `width` elements of `element` bytes.
fn fill(
    call: &mut ApiCall,
    to: DeviceAddress,
    pitch: usize,
    element: usize,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CallResult {
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
    let range = AddressRange::new(to.0, bytes as u64);
    call.device_range(range, true)?;
    call.submit(lane, NodeKind::Fill { range, flat: height <= 1, context })
}

calls! {
    /// Implements `cuMemAlloc_v2`.
    pub fn cuMemAlloc_v2(address: Out<CUdeviceptr>, bytes: usize) |call| {
        let (context, address) = (call.context()?, address.check()?);
        let start = call.memory.allocate(context, bytes as u64)?;
        call.out("address", &DeviceAddress(start));
        Ok(address.set(start)?)
    }

    /// Implements `cuMemFree_v2`. It waits for the work of the context, as implicit synchronization does.
    pub fn cuMemFree_v2(address: DeviceAddress) |call| {
        let context = call.context()?;
        if address.0 == 0 {
            return Ok(());
        }
        call.memory.starting(address.0)?;
        call.until(|machine| !machine.work.has_work(context));
        call.memory.free(address.0)?;
        call.fault_of(context)
    }

    /// Implements `cuMemHostAlloc`.
    pub fn cuMemHostAlloc(address: Out<*mut c_void>, bytes: usize, flags: c_uint) |call| {
        call.context()?;
        let address = address.check()?;
        let start = call.host.allocate(bytes as u64, flags)?;
        call.out("address", &DeviceAddress(start));
        Ok(address.set(std::ptr::with_exposed_provenance_mut(start as usize))?)
    }

    /// Implements `cuMemGetInfo_v2`.
    pub fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) |call| {
        call.context()?;
        free.set(call.memory.available() as usize)?;
        Ok(total.set(TOTAL_BYTES as usize)?)
    }

    /// Implements `cuMemFreeHost`.
    pub fn cuMemFreeHost(address: HostAddress) |call| {
        call.context()?;
        let range = call.host.allocation(address.number())?;
        if call.work.uses(range) {
            return Err(Rule::HostMemoryInUse.into());
        }
        call.host.remove(address.number());
        Ok(())
    }

    /// Implements `cuMemHostRegister_v2`.
    pub fn cuMemHostRegister_v2(address: HostAddress, bytes: usize, flags: c_uint) |call| {
        call.context()?;
        if !call.options.host_register {
            return Err(Rule::RegisterUnsupported.into());
        }
        let own = !call.options.host_pointers;
        let range = AddressRange::new(address.number(), bytes as u64);
        if system::maps_disk(range) {
            return Err(Rule::FileOnDisk.into());
        }
        let machine = &mut **call;
        machine.host.register(&mut machine.memory, range, flags, own)?;
        call.out("registered", &address);
        Ok(())
    }

    /// Implements `cuMemHostUnregister`.
    pub fn cuMemHostUnregister(address: HostAddress) |call| {
        call.context()?;
        let range = call.host.registration(address.number())?;
        if call.work.uses(range) {
            return Err(Rule::HostMemoryInUse.into());
        }
        call.host.remove(address.number());
        Ok(())
    }

    /// Implements `cuMemHostGetDevicePointer_v2`.
    pub fn cuMemHostGetDevicePointer_v2(
        device: Out<CUdeviceptr>, address: HostAddress, flags: c_uint,
    ) |call| {
        call.context()?;
        if flags != 0 {
            return Err(Rule::Argument.into());
        }
        let byte = AddressRange::new(address.number(), 1);
        let block = call.host.find(byte).ok_or(Rule::NotMapped)?;
        Ok(device.set(block.device + (byte.start - block.range.start))?)
    }

    /// Implements `cuMemcpyHtoDAsync_v2`.
    pub fn cuMemcpyHtoDAsync_v2(to: DeviceAddress, from: HostAddress, bytes: usize, stream: CUstream) |call| {
        copy_async(call, stream, [device(to, bytes), host(from, bytes)], true)
    }

    /// Implements `cuMemcpyDtoHAsync_v2`.
    pub fn cuMemcpyDtoHAsync_v2(to: HostAddress, from: DeviceAddress, bytes: usize, stream: CUstream) |call| {
        copy_async(call, stream, [host(to, bytes), device(from, bytes)], true)
    }

    /// Implements `cuMemcpyDtoDAsync_v2`.
    pub fn cuMemcpyDtoDAsync_v2(
        to: DeviceAddress, from: DeviceAddress, bytes: usize, stream: CUstream
    ) |call| {
        copy_async(call, stream, [device(to, bytes), device(from, bytes)], true)
    }

    /// Implements `cuMemcpy3DAsync_v2`.
    pub fn cuMemcpy3DAsync_v2(copy: In<Memcpy3D>, stream: CUstream) |call| {
        let copy = copy.get()?;
        let size = [copy.width, copy.height, copy.depth];
        let sides = [side(&copy.dst, size)?, side(&copy.src, size)?];
        copy_async(call, stream, sides, copy.height <= 1 && copy.depth <= 1)
    }

    /// Implements `cuMemsetD8Async`.
    pub fn cuMemsetD8Async(to: DeviceAddress, value: c_uchar, count: usize, stream: CUstream) |call| {
        fill(call, to, 0, 1, count, 1, stream)
    }

    /// Implements `cuMemsetD16Async`.
    pub fn cuMemsetD16Async(to: DeviceAddress, value: c_ushort, count: usize, stream: CUstream) |call| {
        fill(call, to, 0, 2, count, 1, stream)
    }

    /// Implements `cuMemsetD32Async`.
    pub fn cuMemsetD32Async(to: DeviceAddress, value: c_uint, count: usize, stream: CUstream) |call| {
        fill(call, to, 0, 4, count, 1, stream)
    }

    /// Implements `cuMemsetD2D8Async`.
    pub fn cuMemsetD2D8Async(
        to: DeviceAddress, pitch: usize, value: c_uchar, width: usize, height: usize, stream: CUstream,
    ) |call| {
        fill(call, to, pitch, 1, width, height, stream)
    }

    /// Implements `cuMemsetD2D16Async`.
    pub fn cuMemsetD2D16Async(
        to: DeviceAddress, pitch: usize, value: c_ushort, width: usize, height: usize, stream: CUstream,
    ) |call| {
        fill(call, to, pitch, 2, width, height, stream)
    }

    /// Implements `cuMemsetD2D32Async`.
    pub fn cuMemsetD2D32Async(
        to: DeviceAddress, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream,
    ) |call| {
        fill(call, to, pitch, 4, width, height, stream)
    }
}
