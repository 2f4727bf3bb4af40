//! "Event Management".

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
    /// `cuEventCreate`
    pub fn cuEventCreate(event: Out<CUevent>, flags: c_uint) -> CUresult {
        let context = current::context()?;
        let out = event.check()?;
        out.set(CUevent(event::create(context, flags)?))
    }

    /// `cuEventDestroy_v2`
    pub fn cuEventDestroy_v2(event: CUevent) -> CUresult { event::destroy(event) }

    /// `cuEventDestroy`
    pub fn cuEventDestroy(event: CUevent) -> CUresult { event::destroy(event) }

    /// `cuEventQuery`
    pub fn cuEventQuery(event: CUevent) -> CUresult {
        if event::query(event::get(event)?)? { Ok(()) } else { Err(CUresult::NOT_READY) }
    }

    /// `cuEventSynchronize`
    pub fn cuEventSynchronize(event: CUevent) -> CUresult {
        event::synchronize(event::get(event)?)
    }

    /// `cuEventElapsedTime`
    pub fn cuEventElapsedTime(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> CUresult {
        elapsed(milliseconds, start, end)
    }

    /// `cuEventElapsedTime_v2`
    pub fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> CUresult {
        elapsed(milliseconds, start, end)
    }
}

export_ptsz! {
    /// `cuEventRecord`
    pub fn cuEventRecord, fn cuEventRecord_ptsz(event: CUevent, stream: CUstream) |default| {
        record(event, stream, 0, default)
    }

    /// `cuEventRecordWithFlags`
    pub fn cuEventRecordWithFlags, fn cuEventRecordWithFlags_ptsz(
        event: CUevent, stream: CUstream, flags: c_uint
    ) |default| {
        record(event, stream, flags, default)
    }
}
