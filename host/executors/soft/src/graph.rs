//! Instantiated graphs, whose nodes are templates of tasks.

use std::sync::Arc;

use vgpu_device::{Charge, Resource, SessionError, SessionHost, Violation, Work, graph_nodes, graph_patches};
use vgpu_wire::Body;

use crate::function::Function;
use crate::modules::SoftModules;
use crate::queue::order::Id;

/// A node of a graph. Spans of window memory are resolved at each launch, because the session may have
/// retired the memory since.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) body: Body,
    /// The data of an inline copy, or the parameters of a kernel.
    pub(crate) tail: Arc<[u8]>,
    /// The kernel of a launch, kept alive by the node; `None` for other nodes.
    pub(crate) function: Option<Arc<Function>>,
}

impl Node {
    fn new(body: &Body, tail: &[u8], modules: &SoftModules) -> Result<Self, Violation> {
        let function = match body {
            Body::Launch(launch) => Some(Arc::clone(modules.function(launch.function)?)),
            _ => None,
        };
        Ok(Self { body: *body, tail: tail.into(), function })
    }
}

/// An instantiated graph (`CUgraphExec`), which a session can launch repeatedly.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// Indexed by node: the earlier nodes that it is ordered after.
    pub(crate) dependencies: Vec<Box<[u32]>>,
    /// The charge for all nodes and their payloads, as host memory.
    bytes: Charge,
    /// Node of the queue at the end of the newest launch. The next launch is ordered after it. `None` if no
    /// launch was queued.
    pub(crate) newest: Option<Id>,
}

impl Graph {
    /// Reads the records of a `GraphDefine`. Fails if the session's limit of host memory is exceeded.
    pub(crate) fn define(
        work: &Work<'_>,
        modules: &SoftModules,
        host: &SessionHost,
        count: u32,
    ) -> Result<Self, SessionError> {
        // The payload includes everything that the nodes hold besides themselves.
        let each = (size_of::<Node>() + size_of::<Box<[u32]>>()) as u64;
        let wanted = u64::from(count) * each + work.payload.len() as u64;
        let bytes = host.charges().charge(Resource::HostBytes, wanted)?;
        let (mut nodes, mut dependencies) = (Vec::<Node>::new(), Vec::<Box<[u32]>>::new());
        let room =
            nodes.try_reserve_exact(count as usize).and(dependencies.try_reserve_exact(count as usize));
        room.map_err(|error| SessionError::OutOfMemory(format!("a graph of {count} nodes: {error}")))?;
        for record in graph_nodes(work.payload) {
            nodes.push(Node::new(&record.message.body, record.message.tail, modules)?);
            dependencies.push(record.dependencies().collect());
        }
        Ok(Self { nodes, dependencies, bytes, newest: None })
    }

    /// Applies the changes of a `GraphUpdate`. Every change is accepted, because all kinds of nodes are
    /// handled alike.
    pub(crate) fn update(&mut self, work: &Work<'_>, modules: &SoftModules) -> Result<(), SessionError> {
        // Nodes are charged before they are replaced; the charge for the old ones is returned afterwards.
        let before = self.bytes.amount();
        self.bytes.grow(work.payload.len() as u64)?;
        let (mut more, mut less) = (0, 0);
        for record in graph_patches(work.payload) {
            let node = Node::new(&record.message.body, record.message.tail, modules)?;
            more += node.tail.len() as u64;
            less += self.nodes[record.node as usize].tail.len() as u64;
            self.nodes[record.node as usize] = node;
        }
        self.bytes.shrink_to((before + more).saturating_sub(less));
        Ok(())
    }
}
