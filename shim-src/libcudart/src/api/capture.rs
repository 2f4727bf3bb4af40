//! Stream capture, which records work in a graph instead of submitting it.

use core::ffi::{c_uint, c_void};
#[cfg(not(feature = "cuda13"))]
use core::ptr;

use vgpu_abi::runtime::{CudaError, Graph, GraphNode, Stream};

use crate::process;

/// Addresses of the results about a capture. All but the first may be null.
struct Info {
    status: *mut c_uint,
    id: *mut u64,
    graph: *mut Graph,
    dependencies: *mut *const GraphNode,
    edges: *mut *const c_void,
    count: *mut usize,
}

fn info(stream: Stream, info: &Info) -> Result<(), CudaError> {
    process::enter()?;
    if info.status.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    let &Info { status, id, graph, dependencies, edges, count } = info;
    cu!(cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count))
}

calls! {
    /// Stores the `cudaStreamCaptureStatus` of a stream.
    pub fn cudaStreamIsCapturing | fn cudaStreamIsCapturing_ptsz [stream] (
        stream: Stream, status: *mut c_uint
    ) {
        process::enter()?;
        if status.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuStreamIsCapturing(stream, status))
    }

    /// Starts to capture a stream: its work becomes nodes of a graph and is not executed.
    pub fn cudaStreamBeginCapture | fn cudaStreamBeginCapture_ptsz [stream] (stream: Stream, mode: c_uint) {
        process::enter()?;
        cu!(cuStreamBeginCapture_v2(stream, mode))
    }

    /// Ends the capture of a stream and stores its graph.
    pub fn cudaStreamEndCapture | fn cudaStreamEndCapture_ptsz [stream] (stream: Stream, graph: *mut Graph) {
        process::enter()?;
        if graph.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuStreamEndCapture(stream, graph))
    }

    /// Exchanges the calling thread's capture mode with the one at `mode`.
    pub fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_uint) {
        process::enter()?;
        if mode.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuThreadExchangeStreamCaptureMode(mode))
    }
}

#[cfg(not(feature = "cuda13"))]
calls! {
    /// Stores the `cudaStreamCaptureStatus` of a stream and, while it is active, the capture's id.
    pub fn cudaStreamGetCaptureInfo | fn cudaStreamGetCaptureInfo_ptsz [stream] (
        stream: Stream,
        status: *mut c_uint,
        id: *mut u64,
    ) {
        let (graph, dependencies, edges, count) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        info(stream, &Info { status, id, graph, dependencies, edges, count })
    }

    /// Stores status and id of a stream's capture, its graph, and the nodes on which the stream's next node
    /// depends.
    pub fn cudaStreamGetCaptureInfo_v2 | fn cudaStreamGetCaptureInfo_v2_ptsz [stream] (
        stream: Stream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut Graph,
        dependencies: *mut *const GraphNode,
        count: *mut usize,
    ) {
        info(stream, &Info { status, id, graph, dependencies, edges: ptr::null_mut(), count })
    }

    /// Stores status and id of a stream's capture, its graph, the nodes on which the stream's next node
    /// depends, and the data of the edges to them.
    pub fn cudaStreamGetCaptureInfo_v3 | fn cudaStreamGetCaptureInfo_v3_ptsz [stream] (
        stream: Stream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut Graph,
        dependencies: *mut *const GraphNode,
        edges: *mut *const c_void,
        count: *mut usize,
    ) {
        info(stream, &Info { status, id, graph, dependencies, edges, count })
    }
}

#[cfg(feature = "cuda13")]
calls! {
    /// Stores status and id of a stream's capture, its graph, the nodes on which the stream's next node
    /// depends, and the data of the edges to them.
    pub fn cudaStreamGetCaptureInfo | fn cudaStreamGetCaptureInfo_ptsz [stream] (
        stream: Stream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut Graph,
        dependencies: *mut *const GraphNode,
        edges: *mut *const c_void,
        count: *mut usize,
    ) {
        info(stream, &Info { status, id, graph, dependencies, edges, count })
    }
}
