//! Every copy and fill of the driver API, in both its forms.

use std::ffi::{c_uint, c_ushort, c_void};

use vgpu_abi::driver::{CUcontext, CUstream, Memcpy2D, Memcpy3D};

use super::Status;

macro_rules! both {
    ($($name:ident $twin:ident ($($arg:ident: $type:ty),*);)*) => {
        unsafe extern "C" {
            $(
                pub fn $name($($arg: $type),*) -> Status;
                pub fn $twin($($arg: $type),*) -> Status;
            )*
        }
    };
}

both! {
    cuMemcpy cuMemcpy_ptds(to: u64, from: u64, bytes: usize);
    cuMemcpyAsync cuMemcpyAsync_ptsz(to: u64, from: u64, bytes: usize, stream: CUstream);
    cuMemcpyHtoD_v2 cuMemcpyHtoD_v2_ptds(to: u64, from: *const c_void, bytes: usize);
    cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: *const c_void, bytes: usize, stream: CUstream);
    cuMemcpyDtoH_v2 cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: u64, bytes: usize);
    cuMemcpyDtoHAsync_v2 cuMemcpyDtoHAsync_v2_ptsz(to: *mut c_void, from: u64, bytes: usize, stream: CUstream);
    cuMemcpyDtoD_v2 cuMemcpyDtoD_v2_ptds(to: u64, from: u64, bytes: usize);
    cuMemcpyDtoDAsync_v2 cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: CUstream);
    cuMemcpyPeer cuMemcpyPeer_ptds(
        to: u64, to_context: CUcontext, from: u64, from_context: CUcontext, bytes: usize
    );
    cuMemcpyPeerAsync cuMemcpyPeerAsync_ptsz(
        to: u64, to_context: CUcontext, from: u64, from_context: CUcontext, bytes: usize, stream: CUstream
    );
    cuMemcpy2D_v2 cuMemcpy2D_v2_ptds(copy: *const Memcpy2D);
    cuMemcpy2DUnaligned_v2 cuMemcpy2DUnaligned_v2_ptds(copy: *const Memcpy2D);
    cuMemcpy2DAsync_v2 cuMemcpy2DAsync_v2_ptsz(copy: *const Memcpy2D, stream: CUstream);
    cuMemcpy3D_v2 cuMemcpy3D_v2_ptds(copy: *const Memcpy3D);
    cuMemcpy3DAsync_v2 cuMemcpy3DAsync_v2_ptsz(copy: *const Memcpy3D, stream: CUstream);
    cuMemcpy3DPeer cuMemcpy3DPeer_ptds(copy: *const Memcpy3D);
    cuMemcpy3DPeerAsync cuMemcpy3DPeerAsync_ptsz(copy: *const Memcpy3D, stream: CUstream);
    cuMemsetD8_v2 cuMemsetD8_v2_ptds(to: u64, value: u8, count: usize);
    cuMemsetD16_v2 cuMemsetD16_v2_ptds(to: u64, value: c_ushort, count: usize);
    cuMemsetD32_v2 cuMemsetD32_v2_ptds(to: u64, value: c_uint, count: usize);
    cuMemsetD8Async cuMemsetD8Async_ptsz(to: u64, value: u8, count: usize, stream: CUstream);
    cuMemsetD16Async cuMemsetD16Async_ptsz(to: u64, value: c_ushort, count: usize, stream: CUstream);
    cuMemsetD32Async cuMemsetD32Async_ptsz(to: u64, value: c_uint, count: usize, stream: CUstream);
    cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds(to: u64, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds(to: u64, pitch: usize, value: c_ushort, width: usize, height: usize);
    cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds(to: u64, pitch: usize, value: c_uint, width: usize, height: usize);
    cuMemsetD2D8Async cuMemsetD2D8Async_ptsz(
        to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream
    );
    cuMemsetD2D16Async cuMemsetD2D16Async_ptsz(
        to: u64, pitch: usize, value: c_ushort, width: usize, height: usize, stream: CUstream
    );
    cuMemsetD2D32Async cuMemsetD2D32Async_ptsz(
        to: u64, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream
    );
}
