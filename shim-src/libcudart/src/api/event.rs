//! Event management: creates, records, queries and destroys events.

use core::ffi::c_uint;

use vgpu_abi::runtime::{CudaError, Event, Stream};

use crate::process;

fn create(place: *mut Event, flags: c_uint) -> Result<(), CudaError> {
    process::enter()?;
    if place.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    cu!(cuEventCreate(place, flags))
}

fn elapsed(milliseconds: *mut f32, start: Event, end: Event) -> Result<(), CudaError> {
    process::enter()?;
    if milliseconds.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    cu!(cuEventElapsedTime(milliseconds, start, end))
}

calls! {
    /// Creates an event.
    pub fn cudaEventCreate(place: *mut Event) {
        create(place, 0)
    }

    /// Creates an event with flags.
    pub fn cudaEventCreateWithFlags(place: *mut Event, flags: c_uint) {
        create(place, flags)
    }

    /// Destroys an event.
    pub fn cudaEventDestroy(event: Event) {
        process::enter()?;
        cu!(cuEventDestroy_v2(event))
    }

    /// Records an event in a stream. It completes once the stream's earlier work has.
    pub fn cudaEventRecord | fn cudaEventRecord_ptsz [stream] (event: Event, stream: Stream) {
        process::enter()?;
        cu!(cuEventRecord(event, stream))
    }

    /// Records an event in a stream, with flags. The driver supports only 0.
    pub fn cudaEventRecordWithFlags | fn cudaEventRecordWithFlags_ptsz [stream] (
        event: Event,
        stream: Stream,
        flags: c_uint,
    ) {
        process::enter()?;
        cu!(cuEventRecordWithFlags(event, stream, flags))
    }

    /// Waits until the event's newest record has completed.
    pub fn cudaEventSynchronize(event: Event) {
        process::enter()?;
        cu!(cuEventSynchronize(event))
    }

    /// Returns success if the event's newest record has completed, otherwise not-ready.
    pub fn cudaEventQuery(event: Event) {
        process::enter()?;
        cu!(cuEventQuery(event))
    }

    /// Stores the time from `start` to `end` in milliseconds. Fails with not-ready while either has not
    /// completed.
    pub fn cudaEventElapsedTime(milliseconds: *mut f32, start: Event, end: Event) {
        elapsed(milliseconds, start, end)
    }
}

#[cfg(not(feature = "cuda13"))]
calls! {
    /// Stores the time from `start` to `end` in milliseconds, under the name that programs of CUDA 12.8 and
    /// later use.
    pub fn cudaEventElapsedTime_v2(milliseconds: *mut f32, start: Event, end: Event) {
        elapsed(milliseconds, start, end)
    }
}
