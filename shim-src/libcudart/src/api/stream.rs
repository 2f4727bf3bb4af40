//! Stream management: creates, queries, synchronises and destroys streams.

use core::ffi::{c_int, c_uint, c_void};

use vgpu_abi::driver::{CUhostFn, CUstreamCallback};
use vgpu_abi::runtime::{CudaError, Event, Stream};

use crate::process;

fn create(place: *mut Stream, flags: c_uint) -> Result<(), CudaError> {
    process::enter()?;
    if place.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    cu!(cuStreamCreate(place, flags))
}

calls! {
    /// Creates a stream.
    pub fn cudaStreamCreate(place: *mut Stream) {
        create(place, 0)
    }

    /// Creates a stream with flags.
    pub fn cudaStreamCreateWithFlags(place: *mut Stream, flags: c_uint) {
        create(place, flags)
    }

    /// Creates a stream with flags and a priority.
    pub fn cudaStreamCreateWithPriority(place: *mut Stream, flags: c_uint, priority: c_int) {
        process::enter()?;
        if place.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuStreamCreateWithPriority(place, flags, priority))
    }

    /// Destroys a stream. Its work completes nevertheless; the call does not wait for it.
    pub fn cudaStreamDestroy(stream: Stream) {
        process::enter()?;
        cu!(cuStreamDestroy_v2(stream))
    }

    /// Synchronises the program with a stream, as `cuStreamSynchronize` does.
    pub fn cudaStreamSynchronize | fn cudaStreamSynchronize_ptsz [stream] (stream: Stream) {
        process::enter()?;
        cu!(cuStreamSynchronize(stream))
    }

    /// Returns success if all work of a stream has completed, otherwise not-ready.
    pub fn cudaStreamQuery | fn cudaStreamQuery_ptsz [stream] (stream: Stream) {
        process::enter()?;
        cu!(cuStreamQuery(stream))
    }

    /// Orders a stream's later work after an event's newest record.
    pub fn cudaStreamWaitEvent | fn cudaStreamWaitEvent_ptsz [stream] (
        stream: Stream, event: Event, flags: c_uint
    ) {
        process::enter()?;
        cu!(cuStreamWaitEvent(stream, event, flags))
    }

    /// Calls a host function in the order of a stream, unless the stream's earlier work failed.
    pub fn cudaLaunchHostFunc | fn cudaLaunchHostFunc_ptsz [stream] (
        stream: Stream,
        function: Option<CUhostFn>,
        data: *mut c_void,
    ) {
        process::enter()?;
        cu!(cuLaunchHostFunc(stream, function, data))
    }

    /// Calls a callback with the stream and its status in the order of a stream, even if the earlier work
    /// failed. CUDA 5 introduced the function.
    pub fn cudaStreamAddCallback | fn cudaStreamAddCallback_ptsz [stream] (
        stream: Stream,
        callback: Option<CUstreamCallback>,
        data: *mut c_void,
        flags: c_uint,
    ) {
        process::enter()?;
        cu!(cuStreamAddCallback(stream, callback, data, flags))
    }

    /// Stores a stream's flags.
    pub fn cudaStreamGetFlags | fn cudaStreamGetFlags_ptsz [stream] (stream: Stream, flags: *mut c_uint) {
        process::enter()?;
        if flags.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuStreamGetFlags(stream, flags))
    }

    /// Stores a stream's priority; lower is more urgent.
    pub fn cudaStreamGetPriority | fn cudaStreamGetPriority_ptsz [stream] (
        stream: Stream, priority: *mut c_int
    ) {
        process::enter()?;
        if priority.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuStreamGetPriority(stream, priority))
    }

    /// Stores the id of a stream, which no other stream of the process has had.
    pub fn cudaStreamGetId | fn cudaStreamGetId_ptsz [stream] (stream: Stream, id: *mut u64) {
        process::enter()?;
        if id.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuStreamGetId(stream, id))
    }

    /// Stores the ordinal of a stream's device.
    pub fn cudaStreamGetDevice | fn cudaStreamGetDevice_ptsz [stream] (stream: Stream, ordinal: *mut c_int) {
        let runtime = process::enter()?;
        let mut handle = 0;
        cu!(cuStreamGetDevice(stream, &raw mut handle))?;
        store!(ordinal, runtime.ordinal(handle)?)
    }
}

#[cfg(feature = "cuda13")]
calls! {
    /// Calls a host function as [`cudaLaunchHostFunc`] does. `mode` says how the device waits meanwhile,
    /// which the driver ignores.
    pub fn cudaLaunchHostFunc_v2 | fn cudaLaunchHostFunc_v2_ptsz [stream] (
        stream: Stream,
        function: Option<CUhostFn>,
        data: *mut c_void,
        mode: c_uint,
    ) {
        process::enter()?;
        cu!(cuLaunchHostFunc_v2(stream, function, data, mode))
    }
}
