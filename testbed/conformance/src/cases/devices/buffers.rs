//! Buffers on every device, and the contexts and streams by which cases reach them.

use std::ffi::c_void;
use std::ptr;

use vgpu_abi::driver::{CUcontext, CUstream};

use crate::calls::*;
use crate::not_applicable;

pub const LEGACY: CUstream = CUstream(1);
pub const PER_THREAD: CUstream = CUstream(2);
/// Bytes of each buffer.
pub const BYTES: usize = 90_000;

/// Returns the primary context of each device. The case does not apply to fewer than `least` devices.
pub fn contexts(least: usize) -> Vec<CUcontext> {
    ok!(cuInit(0));
    let count = get!(i32, cuDeviceGetCount());
    if (count as usize) < least {
        not_applicable(&format!("it needs {least} devices; there is {count}"));
    }
    (0..count).map(|device| get!(CUcontext, cuDevicePrimaryCtxRetain(device))).collect()
}

/// Memory on a device or on the host.
#[derive(Clone, Copy)]
pub struct Buffer {
    /// The device's context; `None` for memory on the host.
    pub context: Option<CUcontext>,
    /// Address of its first byte.
    pub address: u64,
}

pub fn host_pointer(buffer: Buffer) -> *mut c_void {
    buffer.address as *mut c_void
}

pub fn make_current(context: CUcontext) {
    ok!(cuCtxSetCurrent(context));
}

/// Allocates a buffer on each device.
pub fn allocate_buffers(contexts: &[CUcontext], bytes: usize) -> Vec<Buffer> {
    let buffer = |&context: &CUcontext| {
        make_current(context);
        Buffer { context: Some(context), address: alloc(bytes) }
    };
    contexts.iter().map(buffer).collect()
}

pub fn free_buffers(buffers: &[Buffer]) {
    for buffer in buffers {
        ok!(cuMemFree_v2(buffer.address));
    }
}

pub fn write_buffer(buffer: Buffer, data: &[u8]) {
    match buffer.context {
        Some(context) => {
            make_current(context);
            upload(buffer.address, data);
        }
        // SAFETY: a buffer on the host is live memory of at least this size.
        None => unsafe { ptr::copy_nonoverlapping(data.as_ptr(), buffer.address as *mut u8, data.len()) },
    }
}

pub fn read_buffer(buffer: Buffer, bytes: usize) -> Vec<u8> {
    match buffer.context {
        Some(context) => {
            make_current(context);
            download(buffer.address, bytes)
        }
        // SAFETY: as in `put`.
        None => unsafe { std::slice::from_raw_parts(buffer.address as *const u8, bytes) }.to_vec(),
    }
}

/// Returns pairs of a context to make current and a stream, which may belong to another device.
pub fn scenes(contexts: &[CUcontext]) -> Vec<(CUcontext, CUstream)> {
    let mut scenes = Vec::new();
    for &context in contexts {
        make_current(context);
        let own = get!(CUstream, cuStreamCreate(1));
        scenes.extend([LEGACY, PER_THREAD, own].map(|stream| (context, stream)));
        scenes.push((contexts[0], own));
    }
    scenes
}
