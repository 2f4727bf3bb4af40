//! Memory management: copies.

use core::ffi::{c_int, c_uint, c_void};

use vgpu_abi::runtime::{Memcpy3DParms, Memcpy3DPeerParms, Stream};

use crate::copy::{Order, Rows, bytes, copy3d, copy3d_peer, peer, rows};
use crate::process;

calls! {
    /// Copies `count` bytes in the order of the legacy default stream.
    pub fn cudaMemcpy(destination: *mut c_void, source: *const c_void, count: usize, kind: c_uint) {
        process::enter()?;
        bytes(destination, source, count, kind, Order::Legacy)
    }

    /// Copies `count` bytes in the order of the per-thread default stream.
    pub fn cudaMemcpy_ptds(destination: *mut c_void, source: *const c_void, count: usize, kind: c_uint) {
        process::enter()?;
        bytes(destination, source, count, kind, Order::PerThread)
    }

    /// Copies `count` bytes in the order of a stream.
    pub fn cudaMemcpyAsync | fn cudaMemcpyAsync_ptsz [stream] (
        destination: *mut c_void,
        source: *const c_void,
        count: usize,
        kind: c_uint,
        stream: Stream,
    ) {
        process::enter()?;
        bytes(destination, source, count, kind, Order::Stream(stream))
    }

    /// Copies `height` rows of `width` bytes in the order of the legacy default stream.
    pub fn cudaMemcpy2D(
        destination: *mut c_void,
        destination_pitch: usize,
        source: *const c_void,
        source_pitch: usize,
        width: usize,
        height: usize,
        kind: c_uint,
    ) {
        rows(&Rows { destination, destination_pitch, source, source_pitch, width, height, kind }, Order::Legacy)
    }

    /// Copies `height` rows of `width` bytes in the order of the per-thread default stream.
    pub fn cudaMemcpy2D_ptds(
        destination: *mut c_void,
        destination_pitch: usize,
        source: *const c_void,
        source_pitch: usize,
        width: usize,
        height: usize,
        kind: c_uint,
    ) {
        rows(&Rows { destination, destination_pitch, source, source_pitch, width, height, kind }, Order::PerThread)
    }

    /// Copies `height` rows of `width` bytes in the order of a stream.
    pub fn cudaMemcpy2DAsync | fn cudaMemcpy2DAsync_ptsz [stream] (
        destination: *mut c_void,
        destination_pitch: usize,
        source: *const c_void,
        source_pitch: usize,
        width: usize,
        height: usize,
        kind: c_uint,
        stream: Stream,
    ) {
        let copy = Rows { destination, destination_pitch, source, source_pitch, width, height, kind };
        rows(&copy, Order::Stream(stream))
    }

    /// Copies a box of rows in the order of the legacy default stream.
    pub fn cudaMemcpy3D(copy: *const Memcpy3DParms) {
        copy3d(copy, Order::Legacy)
    }

    /// Copies a box of rows in the order of the per-thread default stream.
    pub fn cudaMemcpy3D_ptds(copy: *const Memcpy3DParms) {
        copy3d(copy, Order::PerThread)
    }

    /// Copies a box of rows in the order of a stream.
    pub fn cudaMemcpy3DAsync | fn cudaMemcpy3DAsync_ptsz [stream] (
        copy: *const Memcpy3DParms, stream: Stream
    ) {
        copy3d(copy, Order::Stream(stream))
    }

    /// Copies a box of rows between devices in the order of the legacy default stream.
    pub fn cudaMemcpy3DPeer(copy: *const Memcpy3DPeerParms) {
        copy3d_peer(copy, Order::Legacy)
    }

    /// Copies a box of rows between devices in the order of the per-thread default stream.
    pub fn cudaMemcpy3DPeer_ptds(copy: *const Memcpy3DPeerParms) {
        copy3d_peer(copy, Order::PerThread)
    }

    /// Copies a box of rows between devices in the order of a stream.
    pub fn cudaMemcpy3DPeerAsync | fn cudaMemcpy3DPeerAsync_ptsz [stream] (
        copy: *const Memcpy3DPeerParms,
        stream: Stream,
    ) {
        copy3d_peer(copy, Order::Stream(stream))
    }

    /// Copies `count` bytes between devices in the order of the legacy default stream.
    pub fn cudaMemcpyPeer(
        destination: *mut c_void,
        destination_device: c_int,
        source: *const c_void,
        source_device: c_int,
        count: usize,
    ) {
        peer((destination, destination_device), (source, source_device), count, None)
    }

    /// Copies `count` bytes between devices in the order of a stream.
    pub fn cudaMemcpyPeerAsync(
        destination: *mut c_void,
        destination_device: c_int,
        source: *const c_void,
        source_device: c_int,
        count: usize,
        stream: Stream,
    ) {
        peer((destination, destination_device), (source, source_device), count, Some(stream))
    }
}
