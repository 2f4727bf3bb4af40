//! Exports of the manual's chapter "Stream Management", with captures.

use std::ffi::{c_int, c_uint, c_void};

use vgpu_abi::CUresult;
use vgpu_abi::driver::arg::{In, Out};
use vgpu_abi::driver::{CUevent, CUgraph, CUgraphNode, CUstream};

use crate::graph::{EdgeData, FULL};
use crate::rule::{CallRefusal, Rule};
use crate::stream::Recorded;

/// The flag `CU_STREAM_SET_CAPTURE_DEPENDENCIES`. The value 0 adds dependencies instead.
const SET_DEPENDENCIES: c_uint = 1;
/// The flag `CU_EVENT_WAIT_EXTERNAL`, the only valid one of a wait for an event.
const WAIT_FLAGS: c_uint = 1;

calls! {
    /// Implements `cuStreamCreateWithPriority`.
    pub fn cuStreamCreateWithPriority(stream: Out<CUstream>, flags: c_uint, priority: c_int) |call| {
        let (context, stream) = (call.context()?, stream.check()?);
        let made = CUstream(call.streams.create(context, flags)?);
        call.out("stream", &made);
        Ok(stream.set(made)?)
    }

    /// Implements `cuStreamDestroy_v2`. It does not cancel the stream's work.
    pub fn cuStreamDestroy_v2(stream: CUstream) |call| {
        let context = call.context()?;
        let lane = call.streams.lane(context, stream.0)?;
        call.captures.not_captured(lane)?;
        call.streams.destroy(context, stream.0)
    }

    /// Implements `cuStreamQuery`.
    pub fn cuStreamQuery(stream: CUstream) |call| {
        let context = call.context()?;
        let lane = call.streams.lane(context, stream.0)?;
        call.captures.not_captured(lane)?;
        if call.work.is_busy(lane.context, lane.stream) {
            return Err(CallRefusal::Expected(CUresult::NOT_READY));
        }
        Ok(())
    }

    /// Implements `cuStreamSynchronize`.
    pub fn cuStreamSynchronize(stream: CUstream) |call| {
        let context = call.context()?;
        let lane = call.streams.lane(context, stream.0)?;
        call.captures.not_captured(lane)?;
        call.until(|machine| !machine.work.is_busy(lane.context, lane.stream));
        call.fault_of(context)
    }

    /// Implements `cuStreamWaitEvent`. The event may be of another context.
    pub fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) |call| {
        if flags & !WAIT_FLAGS != 0 {
            return Err(Rule::Argument.into());
        }
        let context = call.context()?;
        let lane = call.streams.lane(context, stream.0)?;
        call.captures.not_captured(lane)?;
        if let Recorded::Work { number, .. } = call.streams.events.get(event.0)?.recorded {
            call.work.wait(lane, number);
        }
        Ok(())
    }

    /// Implements `cuStreamBeginCapture_v2`.
    pub fn cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint) |call| {
        let context = call.context()?;
        let lane = call.streams.lane(context, stream.0)?;
        let machine = &mut **call;
        machine.captures.begin(lane, mode, &mut machine.graphs)
    }

    /// Implements `cuStreamEndCapture`.
    pub fn cuStreamEndCapture(stream: CUstream, graph: Out<CUgraph>) |call| {
        let (context, graph) = (call.context()?, graph.check()?);
        let lane = call.streams.lane(context, stream.0)?;
        let made = CUgraph(call.captures.end(lane)?);
        call.out("graph", &made);
        Ok(graph.set(made)?)
    }

    /// Implements `cuStreamGetCaptureInfo_v2`. It returns only the status if the capture is not active.
    pub fn cuStreamGetCaptureInfo_v2(
        stream: CUstream, status: Out<c_uint>, id: Out<u64>, graph: Out<CUgraph>,
        nodes: Out<*const CUgraphNode>, count: Out<usize>,
    ) |call| {
        let (context, status) = (call.context()?, status.check()?);
        let lane = call.streams.lane(context, stream.0)?;
        let found = call.captures.status(lane);
        if let Some(info) = call.captures.info(lane)? {
            if info.edges.iter().any(|data| *data != FULL) {
                return Err(Rule::LossyQuery.into());
            }
            id.set_if(info.id);
            graph.set_if(CUgraph(info.graph));
            nodes.set_if(info.nodes.as_ptr());
            count.set_if(info.nodes.len());
        }
        Ok(status.set(found)?)
    }

    /// Implements `cuStreamGetCaptureInfo_v3`, which returns the data of edges too.
    pub fn cuStreamGetCaptureInfo_v3(
        stream: CUstream, status: Out<c_uint>, id: Out<u64>, graph: Out<CUgraph>,
        nodes: Out<*const CUgraphNode>, edges: Out<*const c_void>, count: Out<usize>,
    ) |call| {
        let (context, status) = (call.context()?, status.check()?);
        let lane = call.streams.lane(context, stream.0)?;
        let found = call.captures.status(lane);
        if let Some(info) = call.captures.info(lane)? {
            if edges.is_null() && info.edges.iter().any(|data| *data != FULL) {
                return Err(Rule::LossyQuery.into());
            }
            id.set_if(info.id);
            graph.set_if(CUgraph(info.graph));
            nodes.set_if(info.nodes.as_ptr());
            edges.set_if(info.edges.as_ptr().cast());
            count.set_if(info.nodes.len());
        }
        Ok(status.set(found)?)
    }

    /// Implements `cuStreamUpdateCaptureDependencies`.
    pub fn cuStreamUpdateCaptureDependencies(
        stream: CUstream, nodes: In<CUgraphNode>, count: usize, flags: c_uint,
    ) |call| {
        if flags > SET_DEPENDENCIES {
            return Err(Rule::Argument.into());
        }
        let context = call.context()?;
        let lane = call.streams.lane(context, stream.0)?;
        let after = super::graph::edges(call, nodes, In::nowhere(), count)?;
        let machine = &mut **call;
        machine.captures.update(lane, &after, flags == SET_DEPENDENCIES, &machine.graphs)
    }

    /// Implements `cuStreamUpdateCaptureDependencies_v2`, which takes the data of edges too.
    pub fn cuStreamUpdateCaptureDependencies_v2(
        stream: CUstream, nodes: In<CUgraphNode>, edges: In<EdgeData>, count: usize, flags: c_uint,
    ) |call| {
        if flags > SET_DEPENDENCIES {
            return Err(Rule::Argument.into());
        }
        let context = call.context()?;
        let lane = call.streams.lane(context, stream.0)?;
        let after = super::graph::edges(call, nodes, edges, count)?;
        let machine = &mut **call;
        machine.captures.update(lane, &after, flags == SET_DEPENDENCIES, &machine.graphs)
    }
}
