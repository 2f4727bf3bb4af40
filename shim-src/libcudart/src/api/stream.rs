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

    /// Waits for a stream's work.
    pub fn cudaStreamSynchronize | fn cudaStreamSynchronize_ptsz [stream] (stream: Stream) {
        process::enter()?;
        cu!(cuStreamSynchronize(stream))
    }

    /// Says whether a stream's work is done.
    pub fn cudaStreamQuery | fn cudaStreamQuery_ptsz [stream] (stream: Stream) {
        process::enter()?;
        cu!(cuStreamQuery(stream))
    }

    /// Makes a stream's later work wait for an event.
    pub fn cudaStreamWaitEvent | fn cudaStreamWaitEvent_ptsz [stream] (
        stream: Stream, event: Event, flags: c_uint
    ) {
        process::enter()?;
        cu!(cuStreamWaitEvent(stream, event, flags))
    }

    /// Calls a function of the host in the order of a stream.
    pub fn cudaLaunchHostFunc | fn cudaLaunchHostFunc_ptsz [stream] (
        stream: Stream,
        function: Option<CUhostFn>,
        data: *mut c_void,
    ) {
        process::enter()?;
        cu!(cuLaunchHostFunc(stream, function, data))
    }

    /// The same, with the stream's status; of CUDA 5.
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

    /// Stores a stream's priority.
    pub fn cudaStreamGetPriority | fn cudaStreamGetPriority_ptsz [stream] (
        stream: Stream, priority: *mut c_int
    ) {
        process::enter()?;
        if priority.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuStreamGetPriority(stream, priority))
    }

    /// Stores a stream's number.
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
    /// Calls a function of the host in the order of a stream, and says how the device waits meanwhile.
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
