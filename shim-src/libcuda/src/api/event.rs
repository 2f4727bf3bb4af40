//! Event management: creates, records, queries and destroys events.

use std::ffi::c_uint;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUevent, CUstream};

use crate::Result;
use crate::arg::Out;
use crate::object::default_stream::find;
use crate::object::{current, event};
use crate::ptsz::DefaultStream;

fn record(handle: CUevent, stream: CUstream, flags: c_uint, default: DefaultStream) -> Result {
    let event = event::get(handle)?;
    event::record(event, find(stream, default)?, flags)
}

fn elapsed(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> Result {
    let out = milliseconds.check()?;
    out.set(event::elapsed(event::get(start)?, event::get(end)?)?)
}

exports! {
    /// Creates an event in the current context.
    pub fn cuEventCreate(event: Out<CUevent>, flags: c_uint) -> CUresult {
        let context = current::context()?;
        let out = event.check()?;
        out.set(CUevent(event::create(context, flags)?))
    }

    /// Destroys an event, whose last record may still be pending.
    pub fn cuEventDestroy_v2(event: CUevent) -> CUresult { event::destroy(event) }

    /// Destroys an event, whose last record may still be pending.
    pub fn cuEventDestroy(event: CUevent) -> CUresult { event::destroy(event) }

    /// Returns success if the event's newest record has completed, otherwise not-ready.
    pub fn cuEventQuery(event: CUevent) -> CUresult {
        if event::query(event::get(event)?)? { Ok(()) } else { Err(CUresult::NOT_READY) }
    }

    /// Waits until the event's newest record has completed.
    pub fn cuEventSynchronize(event: CUevent) -> CUresult {
        event::synchronize(event::get(event)?)
    }

    /// Stores the time from `start` to `end` in milliseconds, negative if `end` completed first. Fails with
    /// not-ready while either has not completed.
    pub fn cuEventElapsedTime(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> CUresult {
        elapsed(milliseconds, start, end)
    }

    /// Stores the time from `start` to `end` in milliseconds, negative if `end` completed first. Fails with
    /// not-ready while either has not completed.
    pub fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> CUresult {
        elapsed(milliseconds, start, end)
    }
}

export_ptsz! {
    /// Records an event in a stream. While the stream is captured, the event stands for the position in the
    /// capture, and nothing is sent.
    pub fn cuEventRecord, fn cuEventRecord_ptsz(event: CUevent, stream: CUstream) |default| {
        record(event, stream, 0, default)
    }

    /// Records an event in a stream, as `cuEventRecord` does. `CU_EVENT_RECORD_EXTERNAL` (1) is not
    /// supported.
    pub fn cuEventRecordWithFlags, fn cuEventRecordWithFlags_ptsz(
        event: CUevent, stream: CUstream, flags: c_uint
    ) |default| {
        record(event, stream, flags, default)
    }
}
