//! Memory management: variables of device code, which are named by the addresses of their host variables.

use core::ffi::{c_uint, c_void};

use vgpu_abi::runtime::{CudaError, MEMCPY_DEVICE_TO_HOST, MEMCPY_HOST_TO_DEVICE, Stream};

use crate::address::pointer;
use crate::copy::{self, Order};
use crate::{process, registry};

/// Returns address and size of a variable in the thread's context.
fn locate(symbol: *const c_void) -> Result<(*mut c_void, usize), CudaError> {
    process::enter()?;
    let found = registry::variable(symbol).ok_or(CudaError::INVALID_SYMBOL)?;
    let library = found.fatbin.library()?;
    let (mut start, mut bytes) = (0, 0);
    match cu!(cuLibraryGetGlobal(&raw mut start, &raw mut bytes, library, found.name)) {
        Err(CudaError::SYMBOL_NOT_FOUND) => Err(CudaError::INVALID_SYMBOL),
        answer => answer.map(|()| (pointer(start), bytes)),
    }
}

/// Returns the address at `offset` in a variable, if `count` bytes from there are within it.
fn range(symbol: *const c_void, count: usize, offset: usize) -> Result<*mut c_void, CudaError> {
    let (start, bytes) = locate(symbol)?;
    match offset.checked_add(count) {
        Some(end) if end <= bytes => Ok(start.wrapping_byte_add(offset)),
        _ => Err(CudaError::INVALID_VALUE),
    }
}

/// Copies to a variable. It is in device memory, so it cannot be the host side of a copy.
fn to(
    symbol: *const c_void,
    source: *const c_void,
    count: usize,
    offset: usize,
    kind: c_uint,
    order: Order,
) -> Result<(), CudaError> {
    if kind == MEMCPY_DEVICE_TO_HOST {
        return Err(CudaError::INVALID_MEMCPY_DIRECTION);
    }
    copy::bytes(range(symbol, count, offset)?, source, count, kind, order)
}

fn from(
    destination: *mut c_void,
    symbol: *const c_void,
    count: usize,
    offset: usize,
    kind: c_uint,
    order: Order,
) -> Result<(), CudaError> {
    if kind == MEMCPY_HOST_TO_DEVICE {
        return Err(CudaError::INVALID_MEMCPY_DIRECTION);
    }
    copy::bytes(destination, range(symbol, count, offset)?, count, kind, order)
}

calls! {
    /// Stores a variable's device address.
    pub fn cudaGetSymbolAddress(place: *mut *mut c_void, symbol: *const c_void) {
        store!(place, locate(symbol)?.0)
    }

    /// Stores a variable's size in bytes.
    pub fn cudaGetSymbolSize(place: *mut usize, symbol: *const c_void) {
        store!(place, locate(symbol)?.1)
    }

    /// Copies to a variable in the order of the legacy default stream.
    pub fn cudaMemcpyToSymbol(
        symbol: *const c_void,
        source: *const c_void,
        count: usize,
        offset: usize,
        kind: c_uint,
    ) {
        to(symbol, source, count, offset, kind, Order::Legacy)
    }

    /// Copies to a variable in the order of the per-thread default stream.
    pub fn cudaMemcpyToSymbol_ptds(
        symbol: *const c_void,
        source: *const c_void,
        count: usize,
        offset: usize,
        kind: c_uint,
    ) {
        to(symbol, source, count, offset, kind, Order::PerThread)
    }

    /// Copies to a variable in the order of a stream.
    pub fn cudaMemcpyToSymbolAsync | fn cudaMemcpyToSymbolAsync_ptsz [stream] (
        symbol: *const c_void,
        source: *const c_void,
        count: usize,
        offset: usize,
        kind: c_uint,
        stream: Stream,
    ) {
        to(symbol, source, count, offset, kind, Order::Stream(stream))
    }

    /// Copies from a variable in the order of the legacy default stream.
    pub fn cudaMemcpyFromSymbol(
        destination: *mut c_void,
        symbol: *const c_void,
        count: usize,
        offset: usize,
        kind: c_uint,
    ) {
        from(destination, symbol, count, offset, kind, Order::Legacy)
    }

    /// Copies from a variable in the order of the per-thread default stream.
    pub fn cudaMemcpyFromSymbol_ptds(
        destination: *mut c_void,
        symbol: *const c_void,
        count: usize,
        offset: usize,
        kind: c_uint,
    ) {
        from(destination, symbol, count, offset, kind, Order::PerThread)
    }

    /// Copies from a variable in the order of a stream.
    pub fn cudaMemcpyFromSymbolAsync | fn cudaMemcpyFromSymbolAsync_ptsz [stream] (
        destination: *mut c_void,
        symbol: *const c_void,
        count: usize,
        offset: usize,
        kind: c_uint,
        stream: Stream,
    ) {
        from(destination, symbol, count, offset, kind, Order::Stream(stream))
    }
}
