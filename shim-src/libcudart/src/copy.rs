//! Copies. The kind says which side is host memory. The driver looks the addresses up only where the kind is
//! `cudaMemcpyDefault`, and for copies between host addresses.

use core::ffi::{c_int, c_uint, c_void};

use vgpu_abi::driver::{
    CUcontext, MEMORYTYPE_DEVICE, MEMORYTYPE_HOST, MEMORYTYPE_UNIFIED, Memcpy2D, Memcpy3D, STREAM_PER_THREAD,
    Side2D, Side3D,
};
use vgpu_abi::runtime::{
    CudaError, MEMCPY_DEFAULT, MEMCPY_DEVICE_TO_DEVICE, MEMCPY_DEVICE_TO_HOST, MEMCPY_HOST_TO_DEVICE,
    MEMCPY_HOST_TO_HOST, Memcpy3DParms, Memcpy3DPeerParms, PitchedPtr, Position, Stream,
};

use crate::address::address;
use crate::process::{self, Runtime};

/// Order of a copy among other work, and when its call returns.
#[derive(Clone, Copy)]
pub enum Order {
    /// The copy has completed when the call returns, in the order of the legacy default stream.
    Legacy,
    /// The copy has completed when the call returns, in the order of the per-thread default stream.
    PerThread,
    /// The copy completes in the order of this stream.
    Stream(Stream),
}

impl Order {
    /// Returns the stream of the driver's asynchronous call, or `None` for its synchronous call.
    fn stream(self) -> Option<Stream> {
        match self {
            Self::Legacy => None,
            Self::PerThread => Some(STREAM_PER_THREAD),
            Self::Stream(stream) => Some(stream),
        }
    }

    /// Waits for the copy if the call must not return before it has completed.
    fn finish(self) -> Result<(), CudaError> {
        match self {
            Self::PerThread => cu!(cuStreamSynchronize(STREAM_PER_THREAD)),
            Self::Legacy | Self::Stream(_) => Ok(()),
        }
    }
}

/// Copies contiguous bytes. The caller has called [`process::enter`].
pub fn bytes(
    destination: *mut c_void,
    source: *const c_void,
    count: usize,
    kind: c_uint,
    order: Order,
) -> Result<(), CudaError> {
    if kind > MEMCPY_DEFAULT {
        return Err(CudaError::INVALID_MEMCPY_DIRECTION);
    }
    if count == 0 {
        return Ok(());
    }
    if destination.is_null() || source.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    let (to, from) = (address(destination), address(source));
    match (kind, order.stream()) {
        (MEMCPY_HOST_TO_DEVICE, None) => cu!(cuMemcpyHtoD_v2(to, source, count)),
        (MEMCPY_HOST_TO_DEVICE, Some(stream)) => cu!(cuMemcpyHtoDAsync_v2(to, source, count, stream)),
        (MEMCPY_DEVICE_TO_HOST, None) => cu!(cuMemcpyDtoH_v2(destination, from, count)),
        (MEMCPY_DEVICE_TO_HOST, Some(stream)) => cu!(cuMemcpyDtoHAsync_v2(destination, from, count, stream)),
        (MEMCPY_DEVICE_TO_DEVICE, None) => cu!(cuMemcpyDtoD_v2(to, from, count)),
        (MEMCPY_DEVICE_TO_DEVICE, Some(stream)) => cu!(cuMemcpyDtoDAsync_v2(to, from, count, stream)),
        (_, None) => cu!(cuMemcpy(to, from, count)),
        (_, Some(stream)) => cu!(cuMemcpyAsync(to, from, count, stream)),
    }?;
    order.finish()
}

/// Returns the driver's memory types of destination and source for a `cudaMemcpyKind`.
fn types(kind: c_uint) -> Result<(c_uint, c_uint), CudaError> {
    Ok(match kind {
        MEMCPY_HOST_TO_HOST => (MEMORYTYPE_HOST, MEMORYTYPE_HOST),
        MEMCPY_HOST_TO_DEVICE => (MEMORYTYPE_HOST, MEMORYTYPE_DEVICE),
        MEMCPY_DEVICE_TO_HOST => (MEMORYTYPE_DEVICE, MEMORYTYPE_HOST),
        MEMCPY_DEVICE_TO_DEVICE => (MEMORYTYPE_DEVICE, MEMORYTYPE_DEVICE),
        MEMCPY_DEFAULT => (MEMORYTYPE_UNIFIED, MEMORYTYPE_UNIFIED),
        _ => return Err(CudaError::INVALID_MEMCPY_DIRECTION),
    })
}

fn side(memory: *mut c_void, pitch: usize, memory_type: c_uint) -> Side2D {
    Side2D { x: 0, y: 0, memory_type, host: memory, device: address(memory), array: 0, pitch }
}

/// Arguments of a copy of rows.
pub struct Rows {
    /// First byte of the destination.
    pub destination: *mut c_void,
    /// Distance in bytes from one destination row to the next.
    pub destination_pitch: usize,
    /// First byte of the source.
    pub source: *const c_void,
    /// Distance in bytes from one source row to the next.
    pub source_pitch: usize,
    /// Number of bytes of a row to copy.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// `cudaMemcpyKind` of the copy.
    pub kind: c_uint,
}

/// Copies rows between pitched memory.
pub fn rows(rows: &Rows, order: Order) -> Result<(), CudaError> {
    process::enter()?;
    let (from, to) = types(rows.kind)?;
    if rows.width == 0 || rows.height == 0 {
        return Ok(());
    }
    if rows.width > rows.source_pitch || rows.width > rows.destination_pitch {
        return Err(CudaError::INVALID_PITCH_VALUE);
    }
    if rows.destination.is_null() || rows.source.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    let copy = Memcpy2D {
        src: side(rows.source.cast_mut(), rows.source_pitch, from),
        dst: side(rows.destination, rows.destination_pitch, to),
        width: rows.width,
        height: rows.height,
    };
    match order.stream() {
        None => cu!(cuMemcpy2DUnaligned_v2(&raw const copy)),
        Some(stream) => cu!(cuMemcpy2DAsync_v2(&raw const copy, stream)),
    }?;
    order.finish()
}

fn side3d(memory: PitchedPtr, position: Position, memory_type: c_uint, context: CUcontext) -> Side3D {
    Side3D {
        x: position.x,
        y: position.y,
        z: position.z,
        lod: 0,
        memory_type,
        host: memory.ptr,
        device: address(memory.ptr),
        array: 0,
        context,
        pitch: memory.pitch,
        height: memory.ysize,
    }
}

/// Translates a copy of a box of rows into the driver's structure. Returns `None` if there is nothing to
/// copy. Arrays are not supported.
fn slices(copy: &Memcpy3DParms) -> Result<Option<Memcpy3D>, CudaError> {
    let (from, to) = types(copy.kind)?;
    if !copy.srcArray.is_null() || !copy.dstArray.is_null() {
        return Err(CudaError::NOT_SUPPORTED);
    }
    let extent = copy.extent;
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Ok(None);
    }
    Ok(Some(Memcpy3D {
        src: side3d(copy.srcPtr, copy.srcPos, from, CUcontext::NULL),
        dst: side3d(copy.dstPtr, copy.dstPos, to, CUcontext::NULL),
        width: extent.width,
        height: extent.height,
        depth: extent.depth,
    }))
}

/// Copies a box of rows.
pub fn copy3d(copy: *const Memcpy3DParms, order: Order) -> Result<(), CudaError> {
    process::enter()?;
    let Some(copy) = slices(&load!(copy)?)? else { return Ok(()) };
    match order.stream() {
        None => cu!(cuMemcpy3D_v2(&raw const copy)),
        Some(stream) => cu!(cuMemcpy3DAsync_v2(&raw const copy, stream)),
    }?;
    order.finish()
}

/// Translates a copy of a box of rows between devices. Returns `None` if there is nothing to copy.
fn slices_peer(runtime: &Runtime, copy: &Memcpy3DPeerParms) -> Result<Option<Memcpy3D>, CudaError> {
    let (source, destination) = (runtime.device(copy.srcDevice)?, runtime.device(copy.dstDevice)?);
    let plain = Memcpy3DParms {
        srcArray: copy.srcArray,
        srcPos: copy.srcPos,
        srcPtr: copy.srcPtr,
        dstArray: copy.dstArray,
        dstPos: copy.dstPos,
        dstPtr: copy.dstPtr,
        extent: copy.extent,
        kind: MEMCPY_DEVICE_TO_DEVICE,
    };
    let Some(mut copy) = slices(&plain)? else { return Ok(None) };
    copy.src.context = source.primary()?;
    copy.dst.context = destination.primary()?;
    Ok(Some(copy))
}

/// Copies a box of rows between devices.
pub fn copy3d_peer(copy: *const Memcpy3DPeerParms, order: Order) -> Result<(), CudaError> {
    let runtime = process::enter()?;
    let Some(copy) = slices_peer(runtime, &load!(copy)?)? else { return Ok(()) };
    match order.stream() {
        None => cu!(cuMemcpy3DPeer(&raw const copy)),
        Some(stream) => cu!(cuMemcpy3DPeerAsync(&raw const copy, stream)),
    }?;
    order.finish()
}

pub fn peer(
    to: (*mut c_void, c_int),
    from: (*const c_void, c_int),
    count: usize,
    stream: Option<Stream>,
) -> Result<(), CudaError> {
    let runtime = process::enter()?;
    let (destination, source) = (runtime.device(to.1)?, runtime.device(from.1)?);
    if count == 0 {
        return Ok(());
    }
    let (to, to_context) = (address(to.0), destination.primary()?);
    let (from, from_context) = (address(from.0), source.primary()?);
    match stream {
        None => cu!(cuMemcpyPeer(to, to_context, from, from_context, count)),
        Some(stream) => cu!(cuMemcpyPeerAsync(to, to_context, from, from_context, count, stream)),
    }
}
