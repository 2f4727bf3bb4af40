//! Graphs, their nodes, and instantiated graphs.

use std::collections::HashMap;
use std::mem::discriminant;

use vgpu_abi::driver::graph_node;

use crate::handle::{HandleKind, Handles};
use crate::memory::AddressRange;
use crate::raw::HostFunction;
use crate::rule::{CallResult, Rule};
use crate::work::Effect;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopySide {
    /// A range of host memory.
    Host(AddressRange),
    /// A range of device memory.
    Device(AddressRange),
}

impl CopySide {
    pub const fn range(self) -> AddressRange {
        match self {
            Self::Host(range) | Self::Device(range) => range,
        }
    }
}

/// Operation that a node of a graph carries out.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// The node launches a kernel.
    Kernel {
        context: usize,
        function: usize,
        /// Whether the launch has the attribute for programmatic stream serialization.
        early: bool,
    },
    Copy {
        sides: [CopySide; 2],
        /// Whether the copy or fill has a single row.
        flat: bool,
        /// Context in which the node runs.
        context: usize,
    },
    Fill {
        range: AddressRange,
        /// Whether the copy or fill has a single row.
        flat: bool,
        /// Context in which the node runs.
        context: usize,
    },
    /// Kernels of cuBLAS that read and write these ranges.
    Product {
        /// Ranges of the operands and the workspace.
        ranges: Vec<AddressRange>,
    },
    /// The node has no operation.
    Empty,
    /// The node carries out stream memory operations.
    Words(Vec<Effect>),
    /// The node calls a host function.
    Call(HostFunction),
}

impl NodeKind {
    /// Returns the `CUgraphNodeType` of the node.
    const fn number(&self) -> u32 {
        match self {
            Self::Kernel { .. } | Self::Product { .. } => graph_node::KERNEL,
            Self::Copy { .. } => graph_node::MEMCPY,
            Self::Fill { .. } => graph_node::MEMSET,
            Self::Empty => graph_node::EMPTY,
            Self::Words(_) => graph_node::BATCH_MEM_OP,
            Self::Call(_) => graph_node::HOST,
        }
    }

    /// Refuses a change of an instantiated node to `new` that CUDA does not permit.
    fn check_change(&self, new: &Self) -> CallResult {
        match (self, new) {
            (Self::Kernel { context: old, .. }, Self::Kernel { context, .. }) if old != context => {
                Err(Rule::NodeContext.into())
            }
            _ if self.number() != new.number() => Err(Rule::NodeKind.into()),
            _ => Ok(()),
        }
    }

    /// Returns whether an update of an instantiated graph can change this node to `new`. Copies and fills
    /// must stay in their context and between the same kinds of memory; those of several rows cannot change.
    fn is_updatable(&self, new: &Self) -> bool {
        match (self, new) {
            (
                Self::Copy { sides: old, flat: was_flat, context: before },
                Self::Copy { sides, flat, context },
            ) => {
                let kinds = old.iter().zip(sides).all(|(old, new)| discriminant(old) == discriminant(new));
                let bytes = old.iter().chain(sides).all(|side| side.range().bytes > 0);
                old == sides || (before == context && kinds && bytes && *flat && *was_flat)
            }
            (
                Self::Fill { range: old, flat: was_flat, context: before },
                Self::Fill { range, flat, context },
            ) => old == range || (before == context && *flat && *was_flat && range.bytes > 0),
            _ => self.check_change(new).is_ok(),
        }
    }

    /// Appends the effects of the node when it completes, and the memory that it uses.
    pub fn effects(&self, effects: &mut Vec<Effect>, uses: &mut Vec<AddressRange>) {
        match self {
            Self::Kernel { .. } => effects.push(Effect::Kernel),
            Self::Copy { sides, .. } => uses.extend(sides.map(CopySide::range)),
            Self::Fill { range, .. } => uses.push(*range),
            Self::Product { ranges } => uses.extend(ranges),
            Self::Words(words) => effects.extend(words.iter().copied()),
            Self::Call(function) => effects.push(Effect::Call(*function)),
            Self::Empty => {}
        }
    }
}

/// `CUgraphEdgeData` as bytes: the ports of the earlier and the later node, the type, and reserved bytes.
pub type EdgeData = [u8; 8];
/// Data of an edge that waits for the end of the earlier node.
pub const FULL: EdgeData = [0; 8];
/// Data of an edge from `CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC`.
pub const PROGRAMMATIC: EdgeData = [1, 0, 1, 0, 0, 0, 0, 0];
/// Data of an edge from `CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER`.
const LAUNCH_ORDER: EdgeData = [2, 0, 1, 0, 0, 0, 0, 0];

/// A node on which another depends, and the data of the edge between them.
pub type Edge = (usize, EdgeData);

#[derive(Debug)]
pub struct GraphNode {
    graph: usize,
    pub kind: NodeKind,
    /// Nodes on which the node depends.
    pub after: Vec<Edge>,
}

#[derive(Debug)]
struct Exec {
    /// Nodes in the order of their creation.
    order: Vec<usize>,
    nodes: HashMap<usize, NodeKind>,
    /// Dependencies of each node as positions, by the position of the node in `order`.
    after: Vec<Vec<Edge>>,
    /// Number of the newest launch's work.
    newest: Option<u64>,
}

/// Returns edges to nodes as edges to positions in the order of their graph.
fn places(order: &[usize], edges: &[Edge]) -> Vec<Edge> {
    let place = |&(node, data): &Edge| Some((order.iter().position(|&one| one == node)?, data));
    let mut places: Vec<Edge> = edges.iter().filter_map(place).collect();
    places.sort_unstable();
    places
}

#[derive(Debug)]
pub struct Graphs {
    /// Nodes of each graph, in the order of their creation.
    contents: Handles<Vec<usize>>,
    nodes: Handles<GraphNode>,
    execs: Handles<Exec>,
}

impl Graphs {
    pub const fn new() -> Self {
        Self {
            contents: Handles::new(HandleKind::Graph),
            nodes: Handles::new(HandleKind::Node),
            execs: Handles::new(HandleKind::Exec),
        }
    }

    /// Carries out `cuGraphCreate`.
    pub fn create(&mut self) -> usize {
        self.contents.add(Vec::new())
    }

    /// Carries out `cuGraphDestroy`.
    pub fn destroy(&mut self, graph: usize) -> CallResult {
        for node in self.contents.remove(graph)? {
            self.nodes.remove(node)?;
        }
        Ok(())
    }

    /// Refuses dependencies that belong to another graph or are named twice, and data that no edge from them
    /// can have.
    pub fn check_dependencies(&self, graph: usize, after: &[Edge]) -> CallResult {
        for (at, &(node, data)) in after.iter().enumerate() {
            let twice = after[..at].iter().any(|&(earlier, _)| earlier == node);
            let known = self.nodes.get(node).ok().filter(|one| one.graph == graph && !twice);
            let kernel = matches!(known.ok_or(Rule::ForeignNode)?.kind, NodeKind::Kernel { .. });
            if data != FULL && !(kernel && matches!(data, PROGRAMMATIC | LAUNCH_ORDER)) {
                return Err(Rule::EdgeData.into());
            }
        }
        Ok(())
    }

    /// Returns whether a node launches a kernel.
    pub fn is_kernel(&self, node: usize) -> bool {
        self.nodes.get(node).is_ok_and(|node| matches!(node.kind, NodeKind::Kernel { .. }))
    }

    /// Carries out the functions `cuGraphAdd*Node`.
    pub fn add_node(&mut self, graph: usize, after: &[Edge], kind: NodeKind) -> CallResult<usize> {
        self.contents.get(graph)?;
        self.check_dependencies(graph, after)?;
        let kernel = matches!(kind, NodeKind::Kernel { .. });
        if !kernel && after.iter().any(|&(_, data)| data != FULL) {
            return Err(Rule::EdgeData.into());
        }
        let node = self.nodes.add(GraphNode { graph, kind, after: after.to_vec() });
        self.contents.get_mut(graph)?.push(node);
        Ok(node)
    }

    /// Carries out `cuGraphInstantiate`.
    pub fn instantiate(&mut self, graph: usize) -> CallResult<usize> {
        let order = self.contents.get(graph)?.clone();
        let (mut nodes, mut after) = (HashMap::new(), Vec::new());
        for &raw in &order {
            let node = self.nodes.get(raw)?;
            nodes.insert(raw, node.kind.clone());
            after.push(places(&order, &node.after));
        }
        Ok(self.execs.add(Exec { order, nodes, after, newest: None }))
    }

    /// Carries out `cuGraphExecDestroy`.
    pub fn destroy_exec(&mut self, exec: usize) -> CallResult {
        self.execs.remove(exec)?;
        Ok(())
    }

    /// Carries out `cuGraphExecKernelNodeSetParams`. It changes a node of an instantiated graph. Its original
    /// graph must still exist.
    pub fn set_node(&mut self, exec: usize, node: usize, new: NodeKind) -> CallResult {
        self.nodes.get(node)?;
        let kind = self.execs.get_mut(exec)?.nodes.get_mut(&node).ok_or(Rule::NodeOfOther)?;
        kind.check_change(&new)?;
        *kind = new;
        Ok(())
    }

    /// Carries out `cuGraphExecUpdate`. It changes the nodes to those of another graph. Returns false if the
    /// graphs differ in shape.
    pub fn update(&mut self, exec: usize, graph: usize) -> CallResult<bool> {
        let order = self.contents.get(graph)?;
        let new = order.iter().map(|&raw| {
            let node = self.nodes.get(raw)?;
            Ok((node.kind.clone(), places(order, &node.after)))
        });
        let new = new.collect::<CallResult<Vec<_>>>()?;
        let Exec { order, nodes, after, .. } = self.execs.get_mut(exec)?;
        let same = order.len() == new.len()
            && order
                .iter()
                .zip(&*after)
                .zip(&new)
                .all(|((raw, before), (kind, now))| before == now && nodes[raw].is_updatable(kind));
        if same {
            nodes.extend(order.iter().copied().zip(new.into_iter().map(|(kind, _)| kind)));
        }
        Ok(same)
    }

    /// Returns what a launch by `cuGraphLaunch` consists of: the work of the previous launch, which must
    /// complete first, and the nodes.
    pub fn contents_of_launch(&self, exec: usize) -> CallResult<(Option<u64>, Vec<NodeKind>)> {
        let exec = self.execs.get(exec)?;
        Ok((exec.newest, exec.order.iter().map(|raw| exec.nodes[raw].clone()).collect()))
    }

    /// Sets the work of the newest launch of a graph.
    pub fn set_newest(&mut self, exec: usize, number: u64) -> CallResult {
        self.execs.get_mut(exec)?.newest = Some(number);
        Ok(())
    }
}
