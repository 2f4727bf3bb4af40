//! Stream management, including stream capture.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{
    CUcontext, CUdevice, CUevent, CUgraph, CUgraphNode, CUstream, STREAM_NON_BLOCKING, capture_mode,
};

use crate::Result;
use crate::arg::{In, InOut, Out};
use crate::object::capture::CaptureInfo;
use crate::object::default_stream::find;
use crate::object::stream::{self, Role};
use crate::object::{capture, context, current, event, lifecycle};
use crate::submit;

fn create(out: Out<CUstream>, flags: c_uint, priority: c_int) -> Result {
    let context = current::context()?;
    let out = out.check()?;
    if flags & !STREAM_NON_BLOCKING != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let gpu = context.gpu();
    gpu.queue.async_error()?;
    let (most, least) = context::priorities(gpu);
    let priority = priority.clamp(most, least);
    out.set(CUstream(stream::create(gpu, context.handle(), Role::Created, flags, priority)?))
}

fn destroy(handle: CUstream) -> Result {
    current::context()?;
    capture::end_stream(stream::created(handle)?);
    stream::destroy(handle.0)
}

exports! {
    /// Creates a stream in the current context with default priority.
    pub fn cuStreamCreate(stream: Out<CUstream>, flags: c_uint) -> CUresult { create(stream, flags, 0) }

    /// Creates a stream in the current context. A priority out of range is clamped.
    pub fn cuStreamCreateWithPriority(stream: Out<CUstream>, flags: c_uint, priority: c_int) -> CUresult {
        create(stream, flags, priority)
    }

    /// Destroys a stream. Its work completes nevertheless.
    pub fn cuStreamDestroy_v2(stream: CUstream) -> CUresult { destroy(stream) }

    /// Destroys a stream. Its work completes nevertheless.
    pub fn cuStreamDestroy(stream: CUstream) -> CUresult { destroy(stream) }
}

export_ptsz! {
    /// `cuStreamSynchronize`. Waits only while the host may use the program's memory. Otherwise it is enough
    /// that all later work is ordered after the stream's.
    pub fn cuStreamSynchronize, fn cuStreamSynchronize_ptsz(stream: CUstream) |default| {
        submit::stream::synchronize(find(stream, default)?)
    }

    /// `cuStreamQuery`
    pub fn cuStreamQuery, fn cuStreamQuery_ptsz(stream: CUstream) |default| {
        if submit::stream::query(find(stream, default)?)? { Ok(()) } else { Err(CUresult::NOT_READY) }
    }

    /// `cuStreamWaitEvent`
    pub fn cuStreamWaitEvent, fn cuStreamWaitEvent_ptsz(
        stream: CUstream, event: CUevent, flags: c_uint
    ) |default| {
        let stream = find(stream, default)?;
        event::wait(stream, event::get(event)?, flags)
    }

    /// `cuStreamGetFlags`
    pub fn cuStreamGetFlags, fn cuStreamGetFlags_ptsz(stream: CUstream, flags: Out<c_uint>) |default| {
        flags.set(find(stream, default)?.flags())
    }

    /// `cuStreamGetPriority`
    pub fn cuStreamGetPriority, fn cuStreamGetPriority_ptsz(
        stream: CUstream, priority: Out<c_int>
    ) |default| {
        priority.set(find(stream, default)?.priority())
    }

    /// `cuStreamGetId`
    pub fn cuStreamGetId, fn cuStreamGetId_ptsz(stream: CUstream, id: Out<c_ulonglong>) |default| {
        id.set(find(stream, default)?.id())
    }

    /// `cuStreamGetCtx`
    pub fn cuStreamGetCtx, fn cuStreamGetCtx_ptsz(stream: CUstream, context: Out<CUcontext>) |default| {
        context.set(CUcontext(find(stream, default)?.context()))
    }

    /// `cuStreamGetCtx_v2`. No stream belongs to a green context.
    pub fn cuStreamGetCtx_v2, fn cuStreamGetCtx_v2_ptsz(
        stream: CUstream, context: Out<CUcontext>, green: Out<usize>
    ) |default| {
        context.set(CUcontext(find(stream, default)?.context()))?;
        green.set_if(0);
        Ok(())
    }

    /// `cuStreamGetDevice`
    pub fn cuStreamGetDevice, fn cuStreamGetDevice_ptsz(stream: CUstream, device: Out<CUdevice>) |default| {
        device.set(find(stream, default)?.gpu().ordinal())
    }
}

exports! {
    /// Exchanges the calling thread's stream capture mode with the one at `mode`.
    pub fn cuThreadExchangeStreamCaptureMode(mode: InOut<c_uint>) -> CUresult {
        lifecycle::devices()?;
        mode.set(capture::exchange_mode(mode.get()?)?)
    }
}

export_ptsz! {
    /// `cuStreamBeginCapture_v2`
    pub fn cuStreamBeginCapture_v2, fn cuStreamBeginCapture_v2_ptsz(
        stream: CUstream, mode: c_uint
    ) |default| {
        capture::begin(find(stream, default)?, mode)
    }

    /// `cuStreamBeginCapture`, from CUDA 10.0, with the global mode.
    pub fn cuStreamBeginCapture, fn cuStreamBeginCapture_ptsz(stream: CUstream) |default| {
        capture::begin(find(stream, default)?, capture_mode::GLOBAL)
    }

    /// `cuStreamEndCapture`
    pub fn cuStreamEndCapture, fn cuStreamEndCapture_ptsz(stream: CUstream, graph: Out<CUgraph>) |default| {
        capture::end(find(stream, default)?, graph)
    }

    /// `cuStreamIsCapturing`
    pub fn cuStreamIsCapturing, fn cuStreamIsCapturing_ptsz(stream: CUstream, out: Out<c_uint>) |default| {
        let stream = find(stream, default)?;
        let out = out.check()?;
        out.set(capture::status(stream)?.0)
    }

    /// `cuStreamGetCaptureInfo`
    pub fn cuStreamGetCaptureInfo, fn cuStreamGetCaptureInfo_ptsz(
        stream: CUstream, out: Out<c_uint>, id: Out<u64>
    ) |default| {
        capture::info(find(stream, default)?, out, id, None)
    }

    /// `cuStreamGetCaptureInfo_v2`
    pub fn cuStreamGetCaptureInfo_v2, fn cuStreamGetCaptureInfo_v2_ptsz(
        stream: CUstream, out: Out<c_uint>, id: Out<u64>, graph: Out<CUgraph>, nodes: Out<*const CUgraphNode>,
        count: Out<usize>
    ) |default| {
        let edges = Out::nowhere();
        capture::info(find(stream, default)?, out, id, Some(&CaptureInfo { graph, nodes, edges, count }))
    }

    /// `cuStreamGetCaptureInfo_v3`
    pub fn cuStreamGetCaptureInfo_v3, fn cuStreamGetCaptureInfo_v3_ptsz(
        stream: CUstream, out: Out<c_uint>, id: Out<u64>, graph: Out<CUgraph>, nodes: Out<*const CUgraphNode>,
        edges: Out<*const c_void>, count: Out<usize>
    ) |default| {
        capture::info(find(stream, default)?, out, id, Some(&CaptureInfo { graph, nodes, edges, count }))
    }

    /// `cuStreamUpdateCaptureDependencies`
    pub fn cuStreamUpdateCaptureDependencies, fn cuStreamUpdateCaptureDependencies_ptsz(
        stream: CUstream, nodes: In<CUgraphNode>, count: usize, flags: c_uint
    ) |default| {
        current::context()?;
        capture::update(find(stream, default)?, nodes, In::nowhere(), count, flags)
    }

    /// `cuStreamUpdateCaptureDependencies_v2`
    pub fn cuStreamUpdateCaptureDependencies_v2, fn cuStreamUpdateCaptureDependencies_v2_ptsz(
        stream: CUstream, nodes: In<CUgraphNode>, edges: In<[u8; 8]>, count: usize, flags: c_uint
    ) |default| {
        current::context()?;
        capture::update(find(stream, default)?, nodes, edges, count, flags)
    }
}
