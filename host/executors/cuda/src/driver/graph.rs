//! Graphs of the driver: captured from a stream, instantiated, updated and launched.
//!
//! A node's number is its position in the order of the capture. The driver's handles of nodes stay in this
//! module, because they are valid only as long as their graph.

use std::ptr;
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{
    CUcontext, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode, CUkernel, KernelNodeParams,
    capture_mode, capture_status, graph_update,
};
use vgpu_device::GraphEdge;

use super::code::DriverFunction;
use super::context::DriverContext;
use super::error::{DriverError, check, log_failure};
use super::stream::{DriverStream, LaunchShape, ParamBuffer};

/// The flag `CU_STREAM_SET_CAPTURE_DEPENDENCIES`.
const SET_DEPENDENCIES: u32 = 1;
/// The flag `CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY`: kernels run with the priorities of their
/// launches.
const USE_NODE_PRIORITY: u64 = 8;

/// `CUgraphEdgeData` of an edge that waits for the end of the earlier node.
const FULL: [u8; 8] = [0; 8];
/// `CUgraphEdgeData` of a programmatic edge: from `CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC`, of the type
/// `CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC`.
const PROGRAMMATIC: [u8; 8] = [1, 0, 1, 0, 0, 0, 0, 0];

/// A capture in progress. Work that is added to its stream becomes nodes of a graph.
#[derive(Debug)]
pub(crate) struct Capture<'a> {
    stream: &'a DriverStream,
    graph: CUgraph,
    /// Handles of the nodes, by node number.
    nodes: Vec<CUgraphNode>,
    /// Whether a later node depends on the node, by node number.
    followed: Vec<bool>,
    /// Whether the stream still captures.
    open: bool,
}

impl<'a> Capture<'a> {
    /// Calls `cuStreamBeginCapture` in the relaxed mode. The other modes forbid calls that might wait for the
    /// captured work, such as allocations: the global mode in all threads of the process, although other
    /// sessions and the completion thread go on with theirs; the thread-local mode in this thread, although
    /// cuBLAS may allocate a workspace. No call here waits for a captured stream, so nothing needs to be
    /// forbidden.
    pub(crate) fn begin(stream: &'a DriverStream) -> Result<Self, DriverError> {
        let begin = stream.context().table().cuStreamBeginCapture_v2;
        // SAFETY: the stream lives.
        check("cuStreamBeginCapture_v2", unsafe { begin(stream.handle(), capture_mode::RELAXED) })?;
        let graph = CUgraph::NULL;
        let mut capture = Self { stream, graph, nodes: Vec::new(), followed: Vec::new(), open: true };
        capture.graph = capture.capture_info()?.0;
        Ok(capture)
    }

    /// Returns the graph of the capture, and the nodes on which the stream's next work would depend. The
    /// query with edge data is used where the driver has it, because the other one fails if an edge has data.
    fn capture_info(&self) -> Result<(CUgraph, Vec<CUgraphNode>), DriverError> {
        const CALL: &str = "cuStreamGetCaptureInfo";
        let (mut status, mut id, mut graph) = (0, 0, CUgraph::NULL);
        let (mut nodes, mut edges, mut count) = (ptr::null(), ptr::null(), 0);
        let (stream, table) = (self.stream.handle(), self.stream.context().table());
        let (places, list) =
            ((&raw mut status, &raw mut id, &raw mut graph), (&raw mut nodes, &raw mut count));
        let code = if let Some(look) = table.cuStreamGetCaptureInfo_v3 {
            // SAFETY: live places for the answers, a live stream.
            unsafe { look(stream, places.0, places.1, places.2, list.0, &raw mut edges, list.1) }
        } else {
            let look = table.cuStreamGetCaptureInfo_v2;
            // SAFETY: live places for the answers, a live stream.
            unsafe { look(stream, places.0, places.1, places.2, list.0, list.1) }
        };
        check(CALL, code)?;
        if status != capture_status::ACTIVE {
            return Err(DriverError { call: CALL, code: CUresult::STREAM_CAPTURE_INVALIDATED });
        }
        let nodes = if count == 0 || nodes.is_null() {
            Vec::new()
        } else {
            // SAFETY: the driver states that this many handles are valid. They stay valid until the next call
            // that names the stream.
            unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec()
        };
        Ok((graph, nodes))
    }

    /// Returns the handles of earlier nodes, each once, and the data of the edges to them. A full edge takes
    /// precedence over a programmatic one to the same node.
    fn earlier(&mut self, after: impl Iterator<Item = GraphEdge>) -> (Vec<CUgraphNode>, Vec<[u8; 8]>) {
        let mut after: Vec<GraphEdge> = after.collect();
        after.sort_unstable();
        after.dedup_by_key(|edge| edge.node);
        for edge in &after {
            self.followed[edge.node as usize] = true;
        }
        let data = |edge: &GraphEdge| if edge.programmatic { PROGRAMMATIC } else { FULL };
        let edges = after.iter().map(|edge| (self.nodes[edge.node as usize], data(edge)));
        edges.unzip()
    }

    /// Makes the stream's next work depend on these nodes and no others.
    fn depend(&self, nodes: &mut [CUgraphNode], edges: &[[u8; 8]]) -> Result<(), DriverError> {
        let table = self.stream.context().table();
        let (first, count) = (nodes.as_mut_ptr(), nodes.len());
        if let Some(update) = table.cuStreamUpdateCaptureDependencies_v2
            && edges.iter().any(|data| *data != FULL)
        {
            let stream = self.stream.handle();
            // SAFETY: live handles of the graph that the live stream captures, and as many live edges.
            let code = unsafe { update(stream, first, edges.as_ptr(), count, SET_DEPENDENCIES) };
            return check("cuStreamUpdateCaptureDependencies_v2", code);
        }
        let update = table.cuStreamUpdateCaptureDependencies;
        // SAFETY: live handles of the graph that the live stream captures.
        let code = unsafe { update(self.stream.handle(), first, count, SET_DEPENDENCIES) };
        check("cuStreamUpdateCaptureDependencies", code)
    }

    /// Adds the next node, which depends on earlier ones. `give` adds the node's work to the stream, and must
    /// make no other stream wait for it. Only kernels may have programmatic edges, and only to kernels.
    pub(crate) fn work<E: From<DriverError>>(
        &mut self,
        after: impl Iterator<Item = GraphEdge>,
        give: impl FnOnce(&DriverStream) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut earlier, edges) = self.earlier(after);
        self.depend(&mut earlier, &edges)?;
        give(self.stream)?;
        match self.capture_info()?.1[..] {
            [node] => self.push(node),
            ref several => self.empty(several)?,
        }
        Ok(())
    }

    /// Adds an empty node that depends on earlier ones.
    pub(crate) fn point(&mut self, after: impl Iterator<Item = GraphEdge>) -> Result<(), DriverError> {
        let (earlier, _) = self.earlier(after);
        self.empty(&earlier)
    }

    fn empty(&mut self, after: &[CUgraphNode]) -> Result<(), DriverError> {
        let mut node = CUgraphNode::NULL;
        let add = self.stream.context().table().cuGraphAddEmptyNode;
        // SAFETY: a live place for the answer, live handles of the graph; the manual permits additions to a
        // graph while it is captured.
        let code = unsafe { add(&raw mut node, self.graph, after.as_ptr(), after.len()) };
        check("cuGraphAddEmptyNode", code)?;
        self.push(node);
        Ok(())
    }

    fn push(&mut self, node: CUgraphNode) {
        self.nodes.push(node);
        self.followed.push(false);
    }

    /// Ends the capture and returns the graph.
    pub(crate) fn end(mut self) -> Result<DriverGraph, DriverError> {
        let nodes = self.nodes.iter().zip(&self.followed);
        let mut last: Vec<CUgraphNode> =
            nodes.filter_map(|(&node, &followed)| (!followed).then_some(node)).collect();
        // Several nodes may have the same handle.
        last.sort_unstable_by_key(|node| node.0);
        last.dedup();
        self.depend(&mut last, &[])?;
        let handle = self.close()?;
        let nodes = std::mem::take(&mut self.nodes);
        Ok(DriverGraph { context: Arc::clone(self.stream.context()), handle, nodes })
    }

    fn close(&mut self) -> Result<CUgraph, DriverError> {
        self.open = false;
        let mut graph = CUgraph::NULL;
        let end = self.stream.context().table().cuStreamEndCapture;
        // SAFETY: a live place for the answer, a live stream.
        check("cuStreamEndCapture", unsafe { end(self.stream.handle(), &raw mut graph) })?;
        Ok(graph)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        // The first failure was reported. An error of this call only says that the capture is invalid.
        if self.open
            && let Ok(handle) = self.close()
        {
            drop(DriverGraph { context: Arc::clone(self.stream.context()), handle, nodes: Vec::new() });
        }
    }
}

/// A graph of the driver, destroyed when it is dropped.
#[derive(Debug)]
pub(crate) struct DriverGraph {
    context: Arc<DriverContext>,
    handle: CUgraph,
    nodes: Vec<CUgraphNode>,
}

impl Drop for DriverGraph {
    fn drop(&mut self) {
        // SAFETY: this is the last use of the handle and of the handles of its nodes.
        log_failure(check("cuGraphDestroy", unsafe { (self.context.table().cuGraphDestroy)(self.handle) }));
    }
}

/// An instantiated graph. Dropping it lets its launches finish.
#[derive(Debug)]
pub(crate) struct GraphExec {
    handle: CUgraphExec,
    /// The graph from which this one was instantiated. Its nodes identify those of this one.
    graph: DriverGraph,
}

impl GraphExec {
    /// Calls `cuGraphInstantiateWithFlags`.
    pub(crate) fn instantiate(graph: DriverGraph) -> Result<Self, DriverError> {
        let mut handle = CUgraphExec::NULL;
        let instantiate = graph.context.table().cuGraphInstantiateWithFlags;
        // SAFETY: a live place for the answer, a live graph.
        let code = unsafe { instantiate(&raw mut handle, graph.handle, USE_NODE_PRIORITY) };
        check("cuGraphInstantiateWithFlags", code)?;
        Ok(Self { handle, graph })
    }

    /// Calls `cuGraphExecUpdate`: later launches use the nodes of another graph of the same shape.
    pub(crate) fn update(&self, with: &DriverGraph) -> Result<(), DriverError> {
        const CALL: &str = "cuGraphExecUpdate_v2";
        let lacks = DriverError { call: CALL, code: CUresult::NOT_SUPPORTED };
        let update = with.context.table().cuGraphExecUpdate_v2.ok_or(lacks)?;
        let none = CUgraphNode::NULL;
        let (result, error_node, error_from_node) = (graph_update::SUCCESS, none, none);
        let mut info = CUgraphExecUpdateResultInfo { result, error_node, error_from_node };
        // SAFETY: both graphs are live, and so is the variable for the reason why they differ.
        check(CALL, unsafe { update(self.handle, with.handle, &raw mut info) })
    }

    /// Changes kernel, shape and parameters of a node for later launches. Launch attributes stay as they were
    /// captured.
    pub(crate) fn set_kernel(
        &self,
        node: u32,
        kernel: &DriverFunction,
        shape: &LaunchShape,
        params: &[u8],
    ) -> Result<(), DriverError> {
        const CALL: &str = "cuGraphExecKernelNodeSetParams_v2";
        let lacks = DriverError { call: CALL, code: CUresult::NOT_SUPPORTED };
        let set = self.graph.context.table().cuGraphExecKernelNodeSetParams_v2.ok_or(lacks)?;
        let mut buffer = ParamBuffer::new(params);
        let params = KernelNodeParams {
            function: kernel.handle(),
            grid: shape.grid,
            block: shape.block,
            shared_bytes: shape.shared_bytes,
            params: ptr::null_mut(),
            extra: buffer.extra(),
            kernel: CUkernel::NULL,
            context: CUcontext::NULL,
        };
        // SAFETY: the handles are live, the node belongs to the graph that was instantiated, and the driver
        // copies the live buffer before it returns.
        check(CALL, unsafe { set(self.handle, self.graph.nodes[node as usize], &raw const params) })
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let destroy = self.graph.context.table().cuGraphExecDestroy;
        // SAFETY: this is the last use of the handle. Launches in progress finish.
        log_failure(check("cuGraphExecDestroy", unsafe { destroy(self.handle) }));
    }
}

impl DriverStream {
    /// Calls `cuGraphLaunch`.
    pub(crate) fn enqueue_graph(&self, graph: &GraphExec) -> Result<(), DriverError> {
        let launch = self.context().table().cuGraphLaunch;
        // SAFETY: both live.
        check("cuGraphLaunch", unsafe { launch(graph.handle, self.handle()) })
    }
}
