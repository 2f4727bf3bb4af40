//! Graphs: captured from a stream, instantiated, changed and launched.
//!
//! Nodes are named by their number in the order in which they were captured. The driver's handles of nodes
//! stay in this module, since they are good only while their graph lives.

use std::ptr;
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{
    CUcontext, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode, CUkernel, KernelNodeParams,
    capture_mode, capture_status, graph_update,
};

use super::code::Function;
use super::context::Context;
use super::error::{DriverError, check, tell};
use super::stream::{Buffer, Shape, Stream};

/// `CU_STREAM_SET_CAPTURE_DEPENDENCIES`
const SET_DEPENDENCIES: u32 = 1;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY`: kernels run with the priorities of their launches.
const USE_NODE_PRIORITY: u64 = 8;

/// A capture that is under way: what its stream is given becomes nodes of a graph.
#[derive(Debug)]
pub(crate) struct Capture<'a> {
    stream: &'a Stream,
    graph: CUgraph,
    /// By number, what later nodes come after.
    nodes: Vec<CUgraphNode>,
    /// By number, whether a later node comes after it.
    followed: Vec<bool>,
    /// The stream has not been told to end it.
    open: bool,
}

impl<'a> Capture<'a> {
    /// `cuStreamBeginCapture`, with the relaxed mode. The other modes forbid calls that might wait for the
    /// captured work, such as allocations: to all threads of the process (global), though other sessions and
    /// the thread of the completions go on with theirs, or to this thread (thread-local), though cuBLAS may
    /// allocate a workspace. No call here waits for a captured stream, so that nothing needs to be forbidden.
    pub(crate) fn begin(stream: &'a Stream) -> Result<Self, DriverError> {
        let begin = stream.context().table().cuStreamBeginCapture_v2;
        // SAFETY: the stream lives.
        check("cuStreamBeginCapture_v2", unsafe { begin(stream.handle(), capture_mode::RELAXED) })?;
        let graph = CUgraph::NULL;
        let mut capture = Self { stream, graph, nodes: Vec::new(), followed: Vec::new(), open: true };
        capture.graph = capture.look()?.0;
        Ok(capture)
    }

    /// The graph that is made, and the nodes that the stream's next work would come after.
    fn look(&self) -> Result<(CUgraph, Vec<CUgraphNode>), DriverError> {
        const CALL: &str = "cuStreamGetCaptureInfo_v2";
        let (mut status, mut id, mut graph) = (0, 0, CUgraph::NULL);
        let (mut nodes, mut count) = (ptr::null(), 0);
        let look = self.stream.context().table().cuStreamGetCaptureInfo_v2;
        let (places, list) =
            ((&raw mut status, &raw mut id, &raw mut graph), (&raw mut nodes, &raw mut count));
        // SAFETY: live places for the answers, a live stream.
        let code = unsafe { look(self.stream.handle(), places.0, places.1, places.2, list.0, list.1) };
        check(CALL, code)?;
        if status != capture_status::ACTIVE {
            return Err(DriverError { call: CALL, code: CUresult::STREAM_CAPTURE_INVALIDATED });
        }
        let nodes = if count == 0 || nodes.is_null() {
            Vec::new()
        } else {
            // SAFETY: the driver says that so many handles are there, which stay until the next call that
            // names the stream.
            unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec()
        };
        Ok((graph, nodes))
    }

    /// The handles of earlier nodes, each once.
    fn earlier(&mut self, after: impl Iterator<Item = u32>) -> Vec<CUgraphNode> {
        let mut after: Vec<u32> = after.collect();
        after.sort_unstable();
        after.dedup();
        for &node in &after {
            self.followed[node as usize] = true;
        }
        after.into_iter().map(|node| self.nodes[node as usize]).collect()
    }

    /// Has the stream's next work come after nodes, and after nothing else.
    fn depend(&self, nodes: &mut [CUgraphNode]) -> Result<(), DriverError> {
        let update = self.stream.context().table().cuStreamUpdateCaptureDependencies;
        let (first, count) = (nodes.as_mut_ptr(), nodes.len());
        // SAFETY: live handles of the graph that the live stream captures.
        let code = unsafe { update(self.stream.handle(), first, count, SET_DEPENDENCIES) };
        check("cuStreamUpdateCaptureDependencies", code)
    }

    /// Adds the next node, which is what `give` gives the stream, behind earlier ones. `give` makes no other
    /// work depend on the stream.
    pub(crate) fn work<E: From<DriverError>>(
        &mut self,
        after: impl Iterator<Item = u32>,
        give: impl FnOnce(&Stream) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut earlier = self.earlier(after);
        self.depend(&mut earlier)?;
        give(self.stream)?;
        match self.look()?.1[..] {
            [node] => self.push(node),
            ref several => self.empty(several)?,
        }
        Ok(())
    }

    /// Adds a node that does nothing, behind earlier ones.
    pub(crate) fn point(&mut self, after: impl Iterator<Item = u32>) -> Result<(), DriverError> {
        let earlier = self.earlier(after);
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

    /// Ends the capture: the graph.
    pub(crate) fn end(mut self) -> Result<Graph, DriverError> {
        let nodes = self.nodes.iter().zip(&self.followed);
        let mut last: Vec<CUgraphNode> =
            nodes.filter_map(|(&node, &followed)| (!followed).then_some(node)).collect();
        // Nodes may share a handle.
        last.sort_unstable_by_key(|node| node.0);
        last.dedup();
        self.depend(&mut last)?;
        let handle = self.close()?;
        let nodes = std::mem::take(&mut self.nodes);
        Ok(Graph { context: Arc::clone(self.stream.context()), handle, nodes })
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
        // Something failed, which was told; an error here is that the capture is of no use any more.
        if self.open
            && let Ok(handle) = self.close()
        {
            drop(Graph { context: Arc::clone(self.stream.context()), handle, nodes: Vec::new() });
        }
    }
}

/// A graph.
#[derive(Debug)]
pub(crate) struct Graph {
    context: Arc<Context>,
    handle: CUgraph,
    nodes: Vec<CUgraphNode>,
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the last use of the handle and of those of its nodes.
        tell(check("cuGraphDestroy", unsafe { (self.context.table().cuGraphDestroy)(self.handle) }));
    }
}

/// A graph that can be launched. Dropping it lets its launches finish.
#[derive(Debug)]
pub(crate) struct Exec {
    handle: CUgraphExec,
    /// What it was made of, whose nodes name its own.
    graph: Graph,
}

impl Exec {
    /// `cuGraphInstantiateWithFlags`
    pub(crate) fn instantiate(graph: Graph) -> Result<Self, DriverError> {
        let mut handle = CUgraphExec::NULL;
        let instantiate = graph.context.table().cuGraphInstantiateWithFlags;
        // SAFETY: a live place for the answer, a live graph.
        let code = unsafe { instantiate(&raw mut handle, graph.handle, USE_NODE_PRIORITY) };
        check("cuGraphInstantiateWithFlags", code)?;
        Ok(Self { handle, graph })
    }

    /// Gives later launches the nodes of a graph of the same shape: `cuGraphExecUpdate`.
    pub(crate) fn update(&self, with: &Graph) -> Result<(), DriverError> {
        const CALL: &str = "cuGraphExecUpdate_v2";
        let lacks = DriverError { call: CALL, code: CUresult::NOT_SUPPORTED };
        let update = with.context.table().cuGraphExecUpdate_v2.ok_or(lacks)?;
        let none = CUgraphNode::NULL;
        let (result, error_node, error_from_node) = (graph_update::SUCCESS, none, none);
        let mut info = CUgraphExecUpdateResultInfo { result, error_node, error_from_node };
        // SAFETY: both live, and a live place for why they differ.
        check(CALL, unsafe { update(self.handle, with.handle, &raw mut info) })
    }

    /// Gives later launches another kernel, shape and parameters in the place of a kernel. What goes beyond a
    /// plain launch stays as it was captured.
    pub(crate) fn set_kernel(
        &self,
        node: u32,
        kernel: &Function,
        shape: &Shape,
        params: &[u8],
    ) -> Result<(), DriverError> {
        const CALL: &str = "cuGraphExecKernelNodeSetParams_v2";
        let lacks = DriverError { call: CALL, code: CUresult::NOT_SUPPORTED };
        let set = self.graph.context.table().cuGraphExecKernelNodeSetParams_v2.ok_or(lacks)?;
        let mut buffer = Buffer::new(params);
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
        // SAFETY: live handles, of which the node's is one of the graph that was instantiated, and a live
        // buffer, which the driver copies before it returns.
        check(CALL, unsafe { set(self.handle, self.graph.nodes[node as usize], &raw const params) })
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        let destroy = self.graph.context.table().cuGraphExecDestroy;
        // SAFETY: the last use of the handle. Launches that are under way finish.
        tell(check("cuGraphExecDestroy", unsafe { destroy(self.handle) }));
    }
}

impl Stream {
    /// `cuGraphLaunch`
    pub(crate) fn launch_graph(&self, graph: &Exec) -> Result<(), DriverError> {
        let launch = self.context().table().cuGraphLaunch;
        // SAFETY: both live.
        check("cuGraphLaunch", unsafe { launch(graph.handle, self.handle()) })
    }
}
