//! Memory management: device memory, pinned memory, copies and fills.

use std::ffi::{c_uchar, c_uint, c_ushort, c_void};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUcontext, CUdeviceptr, CUstream, Memcpy2D, Memcpy3D, attribute};

use crate::arg::{In, Out};
use crate::object::address::find as find_range;
use crate::object::default_stream::{find, unnamed};
use crate::object::memory::Source;
use crate::object::{allocation, current, pinned};
use crate::submit::copy::{between, by_address, peer};
use crate::submit::copy3d::{deep, flat};
use crate::submit::fill::{self, FillShape, line};
use crate::submit::mode::Mode;
use crate::submit::transfer::{submit_download, submit_upload};

/// All flags of `cuMemHostRegister_v2`: `CU_MEMHOSTREGISTER_PORTABLE`, `DEVICEMAP`, `IOMEMORY` and
/// `READ_ONLY`.
const REGISTER_FLAGS: c_uint = 15;

exports! {
    /// Allocates device memory on the current context's device.
    pub fn cuMemAlloc_v2(address: Out<CUdeviceptr>, bytes: usize) -> CUresult {
        current::context()?;
        let out = address.check()?;
        out.set(allocation::request_memory(bytes)?)
    }

    /// Allocates device memory for rows. Rows start at multiples of the alignment of textures, and of at
    /// least 512 bytes.
    pub fn cuMemAllocPitch_v2(
        address: Out<CUdeviceptr>, pitch: Out<usize>, width: usize, height: usize, element: c_uint,
    ) -> CUresult {
        let gpu = current::context()?.gpu();
        let (address, pitch) = (address.check()?, pitch.check()?);
        if !matches!(element, 4 | 8 | 16) || width == 0 || height == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let align = usize::try_from(gpu.attribute(attribute::TEXTURE_ALIGNMENT)).unwrap_or(0).max(512);
        let row = width.checked_next_multiple_of(align).ok_or(CUresult::INVALID_VALUE)?;
        let bytes = row.checked_mul(height).ok_or(CUresult::INVALID_VALUE)?;
        address.set(allocation::request_memory(bytes)?)?;
        pitch.set(row)
    }

    /// Frees device memory. Orders all later work after all earlier work, and waits only while the host uses
    /// pinned memory.
    pub fn cuMemFree_v2(address: CUdeviceptr) -> CUresult { allocation::free(address) }

    /// Stores free and total memory of the current context's device in bytes.
    pub fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> CUresult {
        let gpu = current::context()?.gpu();
        let (free, total) = (free.check()?, total.check()?);
        gpu.queue.async_error()?;
        let info = gpu.memory_info()?;
        free.set(usize::try_from(info.free).unwrap_or(usize::MAX))?;
        total.set(usize::try_from(info.total).unwrap_or(usize::MAX))
    }

    /// Stores start and size of the allocation that contains an address. For an address in a reserved range,
    /// stores those of the mapping. Fails with not-found if there is neither.
    pub fn cuMemGetAddressRange_v2(
        base: Out<CUdeviceptr>, bytes: Out<usize>, address: CUdeviceptr,
    ) -> CUresult {
        current::context()?;
        let (gpu, range) = find_range(address)?.ok_or(CUresult::NOT_FOUND)?;
        let (start, size) = if range.source == Source::Reservation {
            let mapping = gpu.memory.mappings().find(address).ok_or(CUresult::NOT_FOUND)?;
            (mapping.start, mapping.bytes)
        } else {
            (range.start, range.bytes)
        };
        base.set_if(start);
        bytes.set_if(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(())
    }
}

exports! {
    /// Allocates pinned host memory.
    pub fn cuMemAllocHost_v2(address: Out<*mut c_void>, bytes: usize) -> CUresult { pinned::allocate(address, bytes, 0) }

    /// Allocates pinned host memory with flags.
    pub fn cuMemHostAlloc(address: Out<*mut c_void>, bytes: usize, flags: c_uint) -> CUresult {
        pinned::allocate(address, bytes, flags)
    }

    /// Frees pinned host memory.
    pub fn cuMemFreeHost(address: *mut c_void) -> CUresult { pinned::free(address) }

    /// Stores the flags with which pinned memory was allocated.
    pub fn cuMemHostGetFlags(flags: Out<c_uint>, address: *mut c_void) -> CUresult {
        current::context()?;
        let out = flags.check()?;
        out.set(pinned::find(address as usize).ok_or(CUresult::INVALID_VALUE)?.flags)
    }

    /// Always fails, for pinned memory with not-supported: kernels cannot access the guest's memory, and
    /// `CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY` is 0.
    pub fn cuMemHostGetDevicePointer_v2(
        device: Out<CUdeviceptr>, address: *mut c_void, flags: c_uint,
    ) -> CUresult {
        current::context()?;
        device.check()?;
        if flags != 0 || pinned::find(address as usize).is_none() {
            return Err(CUresult::INVALID_VALUE);
        }
        Err(CUresult::NOT_SUPPORTED)
    }

    /// Always fails: host memory cannot be registered, and `CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED` is
    /// 0. Pinned memory gets already-registered, by which programs recognise it; other memory gets
    /// not-supported.
    pub fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: c_uint) -> CUresult {
        current::context()?;
        if address.is_null() || bytes == 0 || flags & !REGISTER_FLAGS != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        Err(if pinned::find(address as usize).is_some() {
            CUresult::HOST_MEMORY_ALREADY_REGISTERED
        } else {
            CUresult::NOT_SUPPORTED
        })
    }

    /// Always fails with not-registered, because no memory can have been registered.
    pub fn cuMemHostUnregister(address: *mut c_void) -> CUresult {
        current::context()?;
        Err(if address.is_null() { CUresult::INVALID_VALUE } else { CUresult::HOST_MEMORY_NOT_REGISTERED })
    }

    /// Always fails with not-supported: there is no managed memory, and `CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY`
    /// is 0.
    pub fn cuMemAllocManaged(address: Out<CUdeviceptr>, bytes: usize, flags: c_uint) -> CUresult {
        current::context()?;
        address.check()?;
        // The memory may be attached to all streams (1), to the host (2), or to one stream (4).
        Err(if bytes == 0 || !matches!(flags, 1 | 2 | 4) { CUresult::INVALID_VALUE } else { CUresult::NOT_SUPPORTED })
    }
}

export_ptsz! {
    /// Copies between two addresses, each of a device or, outside the ranges of all devices, of host memory.
    /// All later work is ordered after the copy.
    pub fn cuMemcpy, fn cuMemcpy_ptds(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) |default| {
        by_address(unnamed(default)?, to, from, bytes, Mode::Sync)
    }

    /// Copies between two addresses, as `cuMemcpy` does, in the order of a stream.
    pub fn cuMemcpyAsync, fn cuMemcpyAsync_ptsz(
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream
    ) |default| {
        by_address(find(stream, default)?, to, from, bytes, Mode::Async)
    }

    /// Uploads bytes (H2D). Returns once the source may be changed. All later work is ordered after the
    /// upload.
    pub fn cuMemcpyHtoD_v2, fn cuMemcpyHtoD_v2_ptds(
        to: CUdeviceptr, from: *const c_void, bytes: usize
    ) |default| {
        submit_upload(unnamed(default)?, to, from, bytes, Mode::Sync)
    }

    /// Uploads bytes in the order of a stream. Returns once the source may be changed, except for pinned
    /// memory in the window, which the host reads in stream order.
    pub fn cuMemcpyHtoDAsync_v2, fn cuMemcpyHtoDAsync_v2_ptsz(
        to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream
    ) |default| {
        submit_upload(find(stream, default)?, to, from, bytes, Mode::Async)
    }

    /// Downloads bytes (D2H). Returns once they have arrived.
    pub fn cuMemcpyDtoH_v2, fn cuMemcpyDtoH_v2_ptds(
        to: *mut c_void, from: CUdeviceptr, bytes: usize
    ) |default| {
        submit_download(unnamed(default)?, to, from, bytes, Mode::Sync)
    }

    /// Downloads bytes in the order of a stream. Returns once they have arrived, except for pinned memory in
    /// the window, which the host writes in stream order.
    pub fn cuMemcpyDtoHAsync_v2, fn cuMemcpyDtoHAsync_v2_ptsz(
        to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream
    ) |default| {
        submit_download(find(stream, default)?, to, from, bytes, Mode::Async)
    }

    /// Copies within a device (D2D) or between two. All later work is ordered after the copy; the call does
    /// not wait for one within a device. Different ranges that overlap are an invalid value.
    pub fn cuMemcpyDtoD_v2, fn cuMemcpyDtoD_v2_ptds(
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize
    ) |default| {
        between(unnamed(default)?, to, from, bytes, Mode::Sync)
    }

    /// Copies within a device (D2D) or between two, in the order of a stream. A copy between two devices
    /// returns once the source has been read.
    pub fn cuMemcpyDtoDAsync_v2, fn cuMemcpyDtoDAsync_v2_ptsz(
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream
    ) |default| {
        between(find(stream, default)?, to, from, bytes, Mode::Async)
    }

    /// Copies between the devices of two contexts. All later work is ordered after the copy.
    pub fn cuMemcpyPeer, fn cuMemcpyPeer_ptds(
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize
    ) |default| {
        peer(unnamed(default)?, (to, to_context), (from, from_context), bytes, Mode::Sync)
    }

    /// Copies between the devices of two contexts, in the order of a stream. A copy between two devices
    /// returns once the source has been read.
    pub fn cuMemcpyPeerAsync, fn cuMemcpyPeerAsync_ptsz(
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize,
        stream: CUstream
    ) |default| {
        peer(find(stream, default)?, (to, to_context), (from, from_context), bytes, Mode::Async)
    }
}

export_ptsz! {
    /// Copies `Height` rows of `WidthInBytes` bytes. Arrays are not supported. A pitch of device memory above
    /// the device's maximum is an invalid value.
    pub fn cuMemcpy2D_v2, fn cuMemcpy2D_v2_ptds(copy: In<Memcpy2D>) |default| {
        flat(unnamed(default)?, copy, Mode::Sync, true)
    }

    /// Copies rows as `cuMemcpy2D_v2` does, with a pitch of any length.
    pub fn cuMemcpy2DUnaligned_v2, fn cuMemcpy2DUnaligned_v2_ptds(copy: In<Memcpy2D>) |default| {
        flat(unnamed(default)?, copy, Mode::Sync, false)
    }

    /// Copies rows as `cuMemcpy2D_v2` does, in the order of a stream.
    pub fn cuMemcpy2DAsync_v2, fn cuMemcpy2DAsync_v2_ptsz(copy: In<Memcpy2D>, stream: CUstream) |default| {
        flat(find(stream, default)?, copy, Mode::Async, true)
    }

    /// Copies `Depth` slices of `Height` rows. Arrays are not supported.
    pub fn cuMemcpy3D_v2, fn cuMemcpy3D_v2_ptds(copy: In<Memcpy3D>) |default| {
        deep(unnamed(default)?, copy, Mode::Sync)
    }

    /// Copies slices of rows as `cuMemcpy3D_v2` does, in the order of a stream.
    pub fn cuMemcpy3DAsync_v2, fn cuMemcpy3DAsync_v2_ptsz(copy: In<Memcpy3D>, stream: CUstream) |default| {
        deep(find(stream, default)?, copy, Mode::Async)
    }

    /// Copies slices of rows between devices. The addresses name the devices, so the contexts do not matter.
    pub fn cuMemcpy3DPeer, fn cuMemcpy3DPeer_ptds(copy: In<Memcpy3D>) |default| {
        deep(unnamed(default)?, copy, Mode::Sync)
    }

    /// Copies slices of rows between devices, as `cuMemcpy3DPeer` does, in the order of a stream.
    pub fn cuMemcpy3DPeerAsync, fn cuMemcpy3DPeerAsync_ptsz(copy: In<Memcpy3D>, stream: CUstream) |default| {
        deep(find(stream, default)?, copy, Mode::Async)
    }
}

export_ptsz! {
    /// Fills `count` bytes. All later work is ordered after the fill, which the call does not wait for.
    pub fn cuMemsetD8_v2, fn cuMemsetD8_v2_ptds(to: CUdeviceptr, value: c_uchar, count: usize) |default| {
        fill::submit(unnamed(default)?, line(to, count), c_uint::from(value), 1, Mode::Sync)
    }

    /// Fills `count` elements of 16 bits, at a multiple of 2. All later work is ordered after the fill, which
    /// the call does not wait for.
    pub fn cuMemsetD16_v2, fn cuMemsetD16_v2_ptds(to: CUdeviceptr, value: c_ushort, count: usize) |default| {
        fill::submit(unnamed(default)?, line(to, count), c_uint::from(value), 2, Mode::Sync)
    }

    /// Fills `count` elements of 32 bits, at a multiple of 4. All later work is ordered after the fill, which
    /// the call does not wait for.
    pub fn cuMemsetD32_v2, fn cuMemsetD32_v2_ptds(to: CUdeviceptr, value: c_uint, count: usize) |default| {
        fill::submit(unnamed(default)?, line(to, count), value, 4, Mode::Sync)
    }

    /// Fills `count` bytes in the order of a stream.
    pub fn cuMemsetD8Async, fn cuMemsetD8Async_ptsz(
        to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream
    ) |default| {
        fill::submit(find(stream, default)?, line(to, count), c_uint::from(value), 1, Mode::Async)
    }

    /// Fills `count` elements of 16 bits, at a multiple of 2, in the order of a stream.
    pub fn cuMemsetD16Async, fn cuMemsetD16Async_ptsz(
        to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream
    ) |default| {
        fill::submit(find(stream, default)?, line(to, count), c_uint::from(value), 2, Mode::Async)
    }

    /// Fills `count` elements of 32 bits, at a multiple of 4, in the order of a stream.
    pub fn cuMemsetD32Async, fn cuMemsetD32Async_ptsz(
        to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream
    ) |default| {
        fill::submit(find(stream, default)?, line(to, count), value, 4, Mode::Async)
    }

    /// Fills `height` rows of `width` bytes, which start `pitch` bytes apart. All later work is ordered after
    /// the fill.
    pub fn cuMemsetD2D8_v2, fn cuMemsetD2D8_v2_ptds(
        destination: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize
    ) |default| {
        let shape = FillShape { destination, pitch, width, height };
        fill::submit(unnamed(default)?, shape, c_uint::from(value), 1, Mode::Sync)
    }

    /// Fills `height` rows of `width` elements of 16 bits, which start `pitch` bytes apart. All later work is
    /// ordered after the fill.
    pub fn cuMemsetD2D16_v2, fn cuMemsetD2D16_v2_ptds(
        destination: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize
    ) |default| {
        let shape = FillShape { destination, pitch, width, height };
        fill::submit(unnamed(default)?, shape, c_uint::from(value), 2, Mode::Sync)
    }

    /// Fills `height` rows of `width` elements of 32 bits, which start `pitch` bytes apart. All later work is
    /// ordered after the fill.
    pub fn cuMemsetD2D32_v2, fn cuMemsetD2D32_v2_ptds(
        destination: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize
    ) |default| {
        fill::submit(unnamed(default)?, FillShape { destination, pitch, width, height }, value, 4, Mode::Sync)
    }

    /// Fills rows as `cuMemsetD2D8_v2` does, in the order of a stream.
    pub fn cuMemsetD2D8Async, fn cuMemsetD2D8Async_ptsz(
        destination: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize, stream: CUstream
    ) |default| {
        let shape = FillShape { destination, pitch, width, height };
        fill::submit(find(stream, default)?, shape, c_uint::from(value), 1, Mode::Async)
    }

    /// Fills rows as `cuMemsetD2D16_v2` does, in the order of a stream.
    pub fn cuMemsetD2D16Async, fn cuMemsetD2D16Async_ptsz(
        destination: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize, stream: CUstream
    ) |default| {
        let shape = FillShape { destination, pitch, width, height };
        fill::submit(find(stream, default)?, shape, c_uint::from(value), 2, Mode::Async)
    }

    /// Fills rows as `cuMemsetD2D32_v2` does, in the order of a stream.
    pub fn cuMemsetD2D32Async, fn cuMemsetD2D32Async_ptsz(
        destination: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream
    ) |default| {
        fill::submit(find(stream, default)?, FillShape { destination, pitch, width, height }, value, 4, Mode::Async)
    }
}
