//! Functions for streams, events and graphs.

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::driver::{
    CUcontext, CUdevice, CUevent, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode, CUresult,
    CUstream, GraphInstantiateParams, KernelNodeParams, MemsetNodeParams,
};

functions! {
    // Stream Management
    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamDestroy(stream: CUstream);
    cuStreamSynchronize(stream: CUstream) | cuStreamSynchronize_ptsz;
    cuStreamQuery(stream: CUstream) | cuStreamQuery_ptsz;
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) | cuStreamWaitEvent_ptsz;
    cuStreamGetFlags(stream: CUstream, flags: *mut c_uint) | cuStreamGetFlags_ptsz;
    cuStreamGetPriority(stream: CUstream, priority: *mut c_int) | cuStreamGetPriority_ptsz;
    cuStreamGetId(stream: CUstream, id: *mut c_ulonglong) | cuStreamGetId_ptsz;
    cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) | cuStreamGetCtx_ptsz;
    cuStreamGetCtx_v2(stream: CUstream, context: *mut CUcontext, green: *mut usize) | cuStreamGetCtx_v2_ptsz;
    cuStreamGetDevice(stream: CUstream, device: *mut CUdevice) | cuStreamGetDevice_ptsz;
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
    cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint) | cuStreamBeginCapture_v2_ptsz;
    cuStreamBeginCapture(stream: CUstream) | cuStreamBeginCapture_ptsz;
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) | cuStreamEndCapture_ptsz;
    cuStreamIsCapturing(stream: CUstream, out: *mut c_uint) | cuStreamIsCapturing_ptsz;
    cuStreamGetCaptureInfo(stream: CUstream, out: *mut c_uint, id: *mut u64) | cuStreamGetCaptureInfo_ptsz;
    cuStreamGetCaptureInfo_v2(
        stream: CUstream, out: *mut c_uint, id: *mut u64, graph: *mut CUgraph,
        nodes: *mut *const CUgraphNode, count: *mut usize
    ) | cuStreamGetCaptureInfo_v2_ptsz;
    cuStreamGetCaptureInfo_v3(
        stream: CUstream, out: *mut c_uint, id: *mut u64, graph: *mut CUgraph,
        nodes: *mut *const CUgraphNode, edges: *mut *const c_void, count: *mut usize
    ) | cuStreamGetCaptureInfo_v3_ptsz;
    cuStreamUpdateCaptureDependencies(
        stream: CUstream, nodes: *mut CUgraphNode, count: usize, flags: c_uint
    ) | cuStreamUpdateCaptureDependencies_ptsz;
    cuStreamUpdateCaptureDependencies_v2(
        stream: CUstream, nodes: *mut CUgraphNode, edges: *const [u8; 8], count: usize, flags: c_uint
    ) | cuStreamUpdateCaptureDependencies_v2_ptsz;

    // Event Management
    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    cuEventDestroy(event: CUevent);
    cuEventQuery(event: CUevent);
    cuEventSynchronize(event: CUevent);
    cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
    cuEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream) | cuEventRecord_ptsz;
    cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) | cuEventRecordWithFlags_ptsz;

    // Graph Management
    cuGraphCreate(out: *mut CUgraph, flags: c_uint);
    cuGraphDestroy(graph: CUgraph);
    cuGraphClone(out: *mut CUgraph, original: CUgraph);
    cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_uint);
    cuGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphNodeGetDependencies_v2(
        node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut [u8; 8], count: *mut usize
    );
    cuGraphAddKernelNode_v2(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        params: *const KernelNodeParams
    );
    cuGraphAddKernelNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        params: *const [u64; 7]
    );
    cuGraphAddMemsetNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        params: *const MemsetNodeParams, context: CUcontext
    );
    cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize);
    cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: *mut KernelNodeParams);
    cuGraphKernelNodeGetParams(node: CUgraphNode, params: *mut [u64; 7]);
    cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: *const KernelNodeParams);
    cuGraphKernelNodeSetParams(node: CUgraphNode, params: *const [u64; 7]);
    cuGraphExecKernelNodeSetParams_v2(graph: CUgraphExec, node: CUgraphNode, params: *const KernelNodeParams);
    cuGraphExecKernelNodeSetParams(graph: CUgraphExec, node: CUgraphNode, params: *const [u64; 7]);
    cuGraphInstantiate(
        out: *mut CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, log: *mut c_char, bytes: usize
    );
    cuGraphInstantiate_v2(
        out: *mut CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, log: *mut c_char, bytes: usize
    );
    cuGraphInstantiateWithFlags(out: *mut CUgraphExec, graph: CUgraph, flags: u64);
    cuGraphExecGetFlags(graph: CUgraphExec, flags: *mut u64);
    cuGraphExecUpdate(handle: CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, result: *mut c_uint);
    cuGraphExecUpdate_v2(handle: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo);
    cuGraphExecDestroy(graph: CUgraphExec);
    cuGraphInstantiateWithParams(
        out: *mut CUgraphExec, graph: CUgraph, params: *mut GraphInstantiateParams
    ) | cuGraphInstantiateWithParams_ptsz;
    cuGraphUpload(graph: CUgraphExec, stream: CUstream) | cuGraphUpload_ptsz;
    cuGraphLaunch(graph: CUgraphExec, stream: CUstream) | cuGraphLaunch_ptsz;
}
