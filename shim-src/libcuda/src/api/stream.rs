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
    /// Synchronises the program with a stream. Waits only while the host may use the program's memory;
    /// otherwise it orders all later work after the stream's, which is enough.
    pub fn cuStreamSynchronize, fn cuStreamSynchronize_ptsz(stream: CUstream) |default| {
        submit::stream::synchronize(find(stream, default)?)
    }

    /// Returns success if all work of the stream has completed, otherwise not-ready.
    pub fn cuStreamQuery, fn cuStreamQuery_ptsz(stream: CUstream) |default| {
        if submit::stream::query(find(stream, default)?)? { Ok(()) } else { Err(CUresult::NOT_READY) }
    }

    /// Orders later work of a stream after an event's newest record. `CU_EVENT_WAIT_EXTERNAL` (1) is not
    /// supported.
    pub fn cuStreamWaitEvent, fn cuStreamWaitEvent_ptsz(
        stream: CUstream, event: CUevent, flags: c_uint
    ) |default| {
        let stream = find(stream, default)?;
        event::wait(stream, event::get(event)?, flags)
    }

    /// Stores the flags with which a stream was created.
    pub fn cuStreamGetFlags, fn cuStreamGetFlags_ptsz(stream: CUstream, flags: Out<c_uint>) |default| {
        flags.set(find(stream, default)?.flags())
    }

    /// Stores the priority with which a stream was created; lower is more urgent.
    pub fn cuStreamGetPriority, fn cuStreamGetPriority_ptsz(
        stream: CUstream, priority: Out<c_int>
    ) |default| {
        priority.set(find(stream, default)?.priority())
    }

    /// Stores the id of a stream, which no other stream of the process has had.
    pub fn cuStreamGetId, fn cuStreamGetId_ptsz(stream: CUstream, id: Out<c_ulonglong>) |default| {
        id.set(find(stream, default)?.id())
    }

    /// Stores the handle of a stream's context.
    pub fn cuStreamGetCtx, fn cuStreamGetCtx_ptsz(stream: CUstream, context: Out<CUcontext>) |default| {
        context.set(CUcontext(find(stream, default)?.context()))
    }

    /// Stores the handle of a stream's context, and null as its green context, because no stream belongs to
    /// one.
    pub fn cuStreamGetCtx_v2, fn cuStreamGetCtx_v2_ptsz(
        stream: CUstream, context: Out<CUcontext>, green: Out<usize>
    ) |default| {
        context.set(CUcontext(find(stream, default)?.context()))?;
        green.set_if(0);
        Ok(())
    }

    /// Stores the ordinal of a stream's device.
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
    /// Starts to capture a stream in a `CUstreamCaptureMode`. Not supported for the legacy stream.
    pub fn cuStreamBeginCapture_v2, fn cuStreamBeginCapture_v2_ptsz(
        stream: CUstream, mode: c_uint
    ) |default| {
        capture::begin(find(stream, default)?, mode)
    }

    /// Starts to capture a stream in the global mode, as CUDA 10.0 defined this function.
    pub fn cuStreamBeginCapture, fn cuStreamBeginCapture_ptsz(stream: CUstream) |default| {
        capture::begin(find(stream, default)?, capture_mode::GLOBAL)
    }

    /// Ends a stream's capture and stores its graph. Stores null and fails if the capture is invalid, has
    /// work that did not join the stream, or was started on another stream.
    pub fn cuStreamEndCapture, fn cuStreamEndCapture_ptsz(stream: CUstream, graph: Out<CUgraph>) |default| {
        capture::end(find(stream, default)?, graph)
    }

    /// Stores the `CUstreamCaptureStatus` of a stream.
    pub fn cuStreamIsCapturing, fn cuStreamIsCapturing_ptsz(stream: CUstream, out: Out<c_uint>) |default| {
        let stream = find(stream, default)?;
        let out = out.check()?;
        out.set(capture::status(stream)?.0)
    }

    /// Stores the `CUstreamCaptureStatus` of a stream and, while it is active, the capture's id.
    pub fn cuStreamGetCaptureInfo, fn cuStreamGetCaptureInfo_ptsz(
        stream: CUstream, out: Out<c_uint>, id: Out<u64>
    ) |default| {
        capture::info(find(stream, default)?, out, id, None)
    }

    /// Stores status and id of a stream's capture, its graph, and the nodes on which the stream's next node
    /// depends. The list of nodes is valid until the next query. Fails with lossy-query if an edge to one of
    /// them is programmatic.
    pub fn cuStreamGetCaptureInfo_v2, fn cuStreamGetCaptureInfo_v2_ptsz(
        stream: CUstream, out: Out<c_uint>, id: Out<u64>, graph: Out<CUgraph>, nodes: Out<*const CUgraphNode>,
        count: Out<usize>
    ) |default| {
        let edges = Out::nowhere();
        capture::info(find(stream, default)?, out, id, Some(&CaptureInfo { graph, nodes, edges, count }))
    }

    /// Stores what `cuStreamGetCaptureInfo_v2` does, and the data of the edges to the nodes.
    pub fn cuStreamGetCaptureInfo_v3, fn cuStreamGetCaptureInfo_v3_ptsz(
        stream: CUstream, out: Out<c_uint>, id: Out<u64>, graph: Out<CUgraph>, nodes: Out<*const CUgraphNode>,
        edges: Out<*const c_void>, count: Out<usize>
    ) |default| {
        capture::info(find(stream, default)?, out, id, Some(&CaptureInfo { graph, nodes, edges, count }))
    }

    /// Adds nodes to those on which the stream's next node depends (`flags` 0), or replaces them (1).
    pub fn cuStreamUpdateCaptureDependencies, fn cuStreamUpdateCaptureDependencies_ptsz(
        stream: CUstream, nodes: In<CUgraphNode>, count: usize, flags: c_uint
    ) |default| {
        current::context()?;
        capture::update(find(stream, default)?, nodes, In::nowhere(), count, flags)
    }

    /// Adds nodes, and the data of the edges to them, to those on which the stream's next node depends
    /// (`flags` 0), or replaces them (1).
    pub fn cuStreamUpdateCaptureDependencies_v2, fn cuStreamUpdateCaptureDependencies_v2_ptsz(
        stream: CUstream, nodes: In<CUgraphNode>, edges: In<[u8; 8]>, count: usize, flags: c_uint
    ) |default| {
        current::context()?;
        capture::update(find(stream, default)?, nodes, edges, count, flags)
    }
}
